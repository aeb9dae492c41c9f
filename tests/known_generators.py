"""Generators of words whose maps are known in closed form, as models that take embeddings, and
derivatives and growth rates of any generator, by other means than those of the package."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from compendium.common import soft_tokens
from compendium.common.decoder import Decoder
from compendium.common.models import decoder
from spinformer.language.minilm import ModelUnavailable
from spinformer.language.untrained import example_causal_model


class Toy(nn.Module):
    """A model whose logits after each token are a function of that token alone."""

    def __init__(self, words, logits):
        super().__init__()
        self.words = nn.Embedding.from_pretrained(torch.as_tensor(words, dtype=torch.float64))
        self.function = logits
        self.eval()

    def get_input_embeddings(self):
        return self.words

    def forward(self, inputs_embeds):
        return SimpleNamespace(logits=self.function(inputs_embeds, self.words.weight))


def ring(angle, *, words=48):
    """Words on the unit circle; the logits are those of the token, rotated by an angle.

    The map multiplies a small token by β/2 and rotates it, and has an invariant circle above β = 2.
    """
    turns = 2 * np.pi * np.arange(words) / words
    cos, sin = np.cos(angle), np.sin(angle)
    rotation = torch.tensor([[cos, -sin], [sin, cos]])
    table = np.stack([np.cos(turns), np.sin(turns)], 1)
    return Toy(table, lambda x, e: x @ rotation.T @ e.T)


def two_words(flip):
    """Two words, each said again with the probability 1 − flip at β = 1."""
    gain = 0.5 * np.log((1 - flip) / flip)
    return Toy([[1.0], [-1.0]], lambda x, e: gain * x * e.T)


def example_decoder(*, blocks=2, seed=0):
    """A small model of the layout of Llama with random weights and embeddings of length one.

    transformers divides by the root mean square in single precision, and torch's norms, which stand
    here in the place of its own, in double precision.
    """
    model = example_causal_model("llama", layers=blocks, seed=seed)
    model.get_input_embeddings().weight.mul_(0.25)
    for parent in list(model.modules()):
        for name, norm in parent.named_children():
            if hasattr(norm, "variance_epsilon"):
                exact = nn.RMSNorm(len(norm.weight), eps=norm.variance_epsilon)
                setattr(parent, name, exact.double().requires_grad_(False))
    return Decoder(model=model)


def installed_decoder():
    """The installed decoder in double precision; without one the test is skipped."""
    try:
        return decoder(dtype=torch.float64)
    except ModelUnavailable as missing:
        pytest.skip(str(missing))


def word_windows(model, *, span, count=1, seed=0):
    """Windows (count, span, D) of random words."""
    words = torch.randint(
        len(model.embedding), (count, span), generator=torch.Generator().manual_seed(seed)
    )
    return model.embedding[words]


def dense_derivative(model, window, *, beta):
    """The derivative of the map of windows (T, D), built column by column from the whole map."""

    def whole(flat):
        windows = flat.reshape(1, *window.shape)
        return torch.cat(
            (windows[0, 1:], soft_tokens.soft_token(model, windows, beta=beta))
        ).flatten()

    return torch.autograd.functional.jacobian(whole, window.flatten()).numpy()


def separation_rate(model, start, *, beta, steps, size):
    """Growth, nats a token, of a small distance between two orbits: no derivative is taken."""
    noise = torch.randn(start.shape, generator=torch.Generator().manual_seed(0)).double()
    pair = torch.stack((start, start + size * noise / noise.norm()))
    gaps = []
    for _ in range(steps):
        pair = torch.cat((pair[:, 1:], soft_tokens.soft_token(model, pair, beta=beta)[:, None]), 1)
        gaps.append(float((pair[0] - pair[1]).norm()))
        pair[1] = pair[0] + (pair[1] - pair[0]) * size / gaps[-1]
    return float(np.log(np.array(gaps[steps // 3 :]) / size).mean())

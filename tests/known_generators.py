"""Generators of words whose maps are known in closed form, as models that take embeddings."""

from types import SimpleNamespace

import numpy as np
import torch
from torch import nn


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

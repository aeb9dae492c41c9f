"""Stacks of spin systems or of transformer layers that classify sets of tokens.

A stack embeds the tokens, lets one layer drive the next, averages over tokens and classifies. Its
layers are spin systems (`spins.modules`), whose magnetisations are the fields of the next system
with nothing added in between [bal2021transformers, Sec. 10], or torch's
`TransformerEncoderLayer` at the same number of parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from spinformer.core.checks import check_choice, check_integer
from spinformer.spins.modules.spin_transformer import SpinTransformerModule

KINDS = ("spins", "transformer")


class TokenClassifier(nn.Module):
    """Embedding with learned positions, `depth` layers of one kind, mean over tokens, readout.

    `kind` "spins": `SpinTransformerModule` with learned channel maps; `options` go to it
    (`solver`, `order`, ...; one step if no solver is named). "transformer": torch's
    `TransformerEncoderLayer` with `feedforward` hidden units, no dropout. Input
    (images, N, pixels), output logits (images, 10).

    >>> TokenClassifier("spins", tokens=4, pixels=1, dim=8, heads=2)(torch.ones(5, 4, 1)).shape
    torch.Size([5, 10])
    """

    def __init__(
        self,
        kind: str,
        *,
        tokens: int = 16,
        pixels: int = 4,
        dim: int = 32,
        heads: int = 4,
        depth: int = 2,
        feedforward: int = 64,
        classes: int = 10,
        **options: Any,
    ) -> None:
        super().__init__()
        self.kind = check_choice("kind", kind, KINDS)
        check_integer("depth", depth, low=1)
        check_integer("heads", heads, low=1)
        self.embedding = nn.Linear(pixels, dim)
        self.position = nn.Parameter(torch.randn(tokens, dim) / 2)
        layers: list[nn.Module]
        if kind == "spins":
            # One step, as in the chapter on training, unless a solver is asked for.
            settings = options if "solver" in options else {"steps": 1, **options}
            layers = [
                SpinTransformerModule(dim, heads=heads, channel_maps=True, **settings)
                for _ in range(depth)
            ]
        else:
            if options:
                raise TypeError(f"options must be empty for a transformer, got {sorted(options)}")
            check_integer("feedforward", feedforward, low=1)
            layers = [
                nn.TransformerEncoderLayer(dim, heads, feedforward, dropout=0.0, batch_first=True)
                for _ in range(depth)
            ]
        self.layers = nn.ModuleList(layers)
        self.readout = nn.Linear(dim, classes)

    def embed(self, tokens: Tensor) -> Tensor:
        """The input of the first layer, (images, N, dim)."""
        embedded: Tensor = self.embedding(tokens) + self.position
        return embedded

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (images, classes)."""
        state = self.embed(tokens)
        for layer in self.layers:
            state = layer(state)
        logits: Tensor = self.readout(state.mean(-2))
        return logits


def parameter_count(model: nn.Module) -> int:
    """Number of trainable numbers.

    >>> parameter_count(nn.Linear(3, 2))
    8
    """
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def matched_transformer(
    spins: TokenClassifier, *, dim: int, heads: int
) -> tuple[TokenClassifier, int]:
    """A transformer of width `dim` with as many parameters as `spins`, and its `feedforward`.

    The hidden width is the integer that comes closest. ValueError if already one hidden unit is
    too much, so that `dim` must be smaller.

    >>> spins = TokenClassifier("spins", dim=32, heads=4)
    >>> transformer, hidden = matched_transformer(spins, dim=24, heads=4)
    >>> hidden, parameter_count(transformer) - parameter_count(spins)
    (35, 14)
    """
    tokens, pixels = spins.position.shape[0], spins.embedding.in_features
    shape = {
        "tokens": tokens,
        "pixels": pixels,
        "dim": dim,
        "heads": heads,
        "depth": len(spins.layers),
        "classes": spins.readout.out_features,
    }
    one = parameter_count(TokenClassifier("transformer", feedforward=1, **shape))
    per_unit = len(spins.layers) * (2 * dim + 1)
    hidden = 1 + round((parameter_count(spins) - one) / per_unit)
    if hidden < 1:
        raise ValueError(f"dim must be small enough to match the parameters, got {dim}")
    return TokenClassifier("transformer", feedforward=hidden, **shape), hidden


def build_classifier(
    kind: str,
    *,
    seed: int,
    dim: int,
    heads: int,
    depth: int = 2,
    transformer_dim: int = 24,
    strength: float = 2.0,
) -> TokenClassifier:
    """One freshly initialised double-precision network of the chapter.

    `kind` "spins", "without response" (spins whose modules return ⟨σ⟩ only), or "transformer", of
    width `transformer_dim` and with as many parameters as the spins. `seed` of the initial weights;
    couplings start at `strength`.

    >>> build_classifier("transformer", seed=0, dim=32, heads=4).kind
    'transformer'
    """
    check_choice("kind", kind, ("spins", "transformer", "without response"))
    # torch draws initial weights from its global state and nowhere else: it is lent ours.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(check_integer("seed", seed, low=0))
        model = TokenClassifier(
            "spins",
            dim=dim,
            heads=heads,
            depth=depth,
            strength=strength,
            response=kind != "without response",
        )
        if kind == "transformer":
            model, _ = matched_transformer(model, dim=transformer_dim, heads=heads)
    return model.double()

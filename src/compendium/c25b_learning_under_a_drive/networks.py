"""One layer for sequences whose mixer is exchanged: driven vector spins, or causal attention.

Every network adds two embeddings a token, applies one layer and reads each token out. The layer is
a pre-norm transformer layer, x ← x + mix(x), x ← x + W₂ relu(W₁ LN(x)); the arms differ in the
mixer only, whose sizes agree: four maps of width × width.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from spinformer.core.checks import check_choice, check_integer
from spinformer.core.records import record
from spinformer.spins.module import DrivenParts, DrivenSpinModule

WIDTH, HEADS, HIDDEN, STEPS = 32, 2, 32, 2
# Driven spins; in one step; without the term of fluctuations; with both directions of a coupling
# made equal; with the maps of the scores as they were drawn; with couplings that know no tokens,
# the same to all earlier ones; the causal pre-norm layer of torch.
ARMS = ("driven", "one step", "naive", "symmetric", "frozen", "uniform", "attention")


@record
class Shape:
    """Sizes of the two embeddings whose sum is a token, and of the read-out."""

    first: int
    second: int
    answers: int


class SpinLayer(nn.Module):
    """Driven spins in the place of attention in a pre-norm layer: (batch, N, WIDTH) to the same.

    `strength` is the g from which training starts.

    >>> SpinLayer("driven", strength=1.0)(torch.ones(1, 3, WIDTH)).shape
    torch.Size([1, 3, 32])
    """

    def __init__(self, arm: str, *, strength: float) -> None:
        super().__init__()
        self.mixer = DrivenSpinModule(
            WIDTH,
            heads=HEADS,
            steps=1 if arm == "one step" else STEPS,
            theory="naive" if arm == "naive" else "second order",
            strength=strength,
            gamma=0.0 if arm == "uniform" else 1.0,
            symmetric=arm == "symmetric",
            channel_maps=True,
        )
        if arm == "frozen":
            for fixed in (self.mixer.query, self.mixer.key, self.mixer.log_strength):
                fixed.requires_grad_(False)
        self.norm = nn.LayerNorm(WIDTH)
        self.hidden = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))

    def forward(self, inputs: Tensor) -> Tensor:
        """The layer's output."""
        mixed = inputs + self.mixer(inputs)
        return mixed + self.hidden(self.norm(mixed))


class Network(nn.Module):
    """Tokens (batch, N, 2) of two numbers each to logits (batch, N, answers); weights by `seed`.

    >>> shape = Shape(first=4, second=3, answers=5)
    >>> Network("attention", shape=shape)(torch.zeros(1, 6, 2, dtype=torch.long)).shape
    torch.Size([1, 6, 5])
    """

    def __init__(self, arm: str, *, shape: Shape, strength: float = 1.0, seed: int = 0) -> None:
        super().__init__()
        self.arm = check_choice("arm", arm, ARMS)
        seed = check_integer("seed", seed, low=0)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Embedding(shape.first, WIDTH)
            self.second = nn.Embedding(shape.second, WIDTH)
            self.readout = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, shape.answers))
            self.layer: nn.Module = (
                nn.TransformerEncoderLayer(
                    WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True, norm_first=True
                )
                if arm == "attention"
                else SpinLayer(arm, strength=strength)
            )

    def embed(self, tokens: Tensor) -> Tensor:
        """What the layer is given, (batch, N, WIDTH)."""
        summed: Tensor = self.first(tokens[..., 0]) + self.second(tokens[..., 1])
        return summed

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of every token."""
        inputs = self.embed(tokens)
        if self.arm == "attention":
            count = tokens.shape[1]
            later = torch.ones(count, count, dtype=torch.bool).triu(1)
            outputs = self.layer(inputs, src_mask=later, is_causal=True)
        else:
            outputs = self.layer(inputs)
        answer: Tensor = self.readout(outputs)
        return answer


def stationary_spins(network: Network, tokens: Tensor) -> tuple[DrivenSpinModule, DrivenParts]:
    """The spins of `network` in float64 and the theory "large D", N + 1 steps under `tokens`.

    With triangular couplings that is their stationary state.

    >>> network = Network("driven", shape=Shape(first=2, second=2, answers=2))
    >>> _, parts = stationary_spins(network, torch.zeros(1, 3, 2, dtype=torch.long))
    >>> bool((parts.change < 1e-14).all())
    True
    """
    if network.arm == "attention":
        raise ValueError("network must have spins, got the arm 'attention'")
    mixer = copy.deepcopy(network.layer.get_submodule("mixer")).double()
    if not isinstance(mixer, DrivenSpinModule):
        raise TypeError("network must have a mixer of driven spins")
    mixer.steps, mixer.theory = tokens.shape[1] + 1, "large D"
    with torch.no_grad():
        _, parts = mixer(network.embed(tokens).double(), return_parts=True)
    return mixer, parts

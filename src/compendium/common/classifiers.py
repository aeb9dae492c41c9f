"""Stacks of spin systems, and what they are compared with, that read labels off sets of tokens.

A stack embeds the tokens, lets one layer drive the next, and reads logits from the average over
tokens, from the last token, or from every token. Its layers are spin systems (`spins.module`),
whose magnetizations are the fields of the next system with nothing added in between
[bal2021transformers, Sec. 10], or layers without spins at the same number of parameters.

Every network is an arm of a comparison, by name in `ARMS`; g is where the couplings start.

- saddle: modules return -dF/dH exactly, at the saddle point. limited: at the fixed point of the
  mean-field equations, couplings kept below the limit 0.9. one step: the first of its iteration.
- no response: ⟨σ⟩ at the saddle only. free spins: no couplings.
- frozen couplings: W_Q, W_K, β and g stay as they were drawn. couplings only: these and the
  read-out are trained, nothing else. read-out only: the read-out alone.
- answers only: everything up to and including the spins stays as it was drawn; the map behind them
  and the read-out are trained.
- positions: saddle; learned couplings of places, the same for all tokens that may stand there.
- numbers: saddle; J_ij are numbers of their own, the same whatever the tokens are, and trained.
  frozen numbers: these, β and all that scales them stay as they were drawn.
- averaging, identity: in the place of the spins the mean of the tokens, or each token alone, behind
  a linear map. layer of …: spins, attention, averaging or identity inside a layer, normalization
  first, with skips and a feed-forward network four times as wide.
- attention: tokens normalized as in the modules, then multi-head attention; no skip, no
  feed-forward. attention with skip: the same added to its input. transformer: torch's layer with
  the normalization first and four times as many hidden units, narrower, as big as the others.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from spinformer.core.records import record
from spinformer.spins.module import Solver, SpinTransformerModule

COUPLINGS = ("query", "key", "log_beta", "log_strength", "couplings")
LIMIT = 0.9
# What a free spin's couplings are: too weak to matter, not zero, whose logarithm is none.
_NONE = 1e-6


@record
class Arm:
    """One network of a comparison: its layers, the modules' options, and what is trained.

    `starts` says whether the strength g that couplings start from is a choice. `trained`: "all",
    "couplings" (and the read-out), "rest" (all but the couplings), "answers" (the maps behind the
    spins and the read-out) or "read-out". `layer`: within skips and beside a feed-forward network.
    """

    kind: str = "spins"
    options: dict[str, Any] | None = None
    trained: str = "all"
    layer: bool = False

    @property
    def starts(self) -> bool:
        """Whether the couplings start from a strength that is tuned."""
        fixed = {"coupling_limit", "strength"} & set(self.options or {})
        return self.kind in ("spins", "positions", "numbers") and not fixed


_SADDLE: dict[str, Any] = {"solver": "saddle"}
_ONE_STEP: dict[str, Any] = {"solver": Solver(steps=1)}
ARMS = {
    "saddle": Arm(options=_SADDLE),
    "limited": Arm(options={"solver": Solver(max_steps=25), "coupling_limit": LIMIT}),
    "one step": Arm(options=_ONE_STEP),
    "no response": Arm(options={**_SADDLE, "response": False}),
    "frozen couplings": Arm(options=_SADDLE, trained="rest"),
    "positions": Arm(kind="positions"),
    "couplings only": Arm(options=_SADDLE, trained="couplings"),
    "read-out only": Arm(options=_SADDLE, trained="read-out"),
    "free spins": Arm(options={**_ONE_STEP, "response": False, "strength": _NONE}, trained="rest"),
    "attention": Arm(kind="attention"),
    "attention with skip": Arm(kind="attention with skip"),
    "transformer": Arm(kind="transformer"),
    "answers only": Arm(options=_SADDLE, trained="answers"),
    "numbers": Arm(kind="numbers"),
    "frozen numbers": Arm(kind="numbers", trained="rest"),
    "averaging": Arm(kind="averaging"),
    "identity": Arm(kind="identity"),
    "layer of spins": Arm(options=_SADDLE, layer=True),
    "layer of attention": Arm(kind="attention", layer=True),
    "layer of averaging": Arm(kind="averaging", layer=True),
    "layer of identity": Arm(kind="identity", layer=True),
}


class PlainMixer(nn.Module):
    """A mixer without spins, of tokens scaled to norm √dim, (batch, N, dim) to the same shape.

    "attention": multi-head attention, 4 dim² parameters, as a spin module; "attention with skip":
    the same added to its input. "averaging": the mean of all tokens, "identity": each for itself,
    behind a linear map.
    """

    def __init__(self, kind: str, dim: int, *, heads: int) -> None:
        super().__init__()
        self.kind = kind
        if kind in ("averaging", "identity"):
            self.map = nn.Linear(dim, dim, bias=False)
        else:
            self.attention = nn.MultiheadAttention(dim, heads, bias=False, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """The mixed tokens."""
        scaled = nn.functional.rms_norm(tokens, tokens.shape[-1:])
        if self.kind == "averaging":
            scaled = scaled.mean(-2, keepdim=True).expand_as(scaled)
        if self.kind in ("averaging", "identity"):
            mapped: Tensor = self.map(scaled)
            return mapped
        mixed: Tensor = self.attention(scaled, scaled, scaled, need_weights=False)[0]
        return tokens + mixed if self.kind == "attention with skip" else mixed


class PositionSpins(nn.Module):
    """Vector spins at the saddle whose couplings are learned and do not depend on the tokens.

    J = g softmax(S) without the diagonal, with a table S (heads, N, N) in place of the scores that
    queries and keys make; so there is no response of the couplings either.
    """

    def __init__(self, dim: int, *, heads: int, tokens: int, strength: float) -> None:
        super().__init__()
        still: dict[str, Any] = {**_SADDLE, "response": False, "gamma": 0.0, "channel_maps": True}
        self.spins = SpinTransformerModule(dim, heads=heads, strength=strength, **still)
        self.spins.query.requires_grad_(False)
        self.spins.key.requires_grad_(False)
        # As far apart as the scores of fresh queries and keys are.
        self.scores = nn.Parameter(torch.randn(heads, tokens, tokens))

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, N, dim) to the same shape."""
        found: Tensor = self.spins(tokens, src_mask=self.scores.repeat(len(tokens), 1, 1))
        return found


class NumberSpins(nn.Module):
    """Vector spins at the saddle whose couplings J_ij are numbers, one table a head.

    They start from a normal distribution of deviation g/√N; spins answer with ⟨σ⟩.
    """

    def __init__(self, dim: int, *, heads: int, tokens: int, strength: float) -> None:
        super().__init__()
        self.heads = heads
        self.couplings = nn.Parameter(strength * torch.randn(heads, tokens, tokens) / tokens**0.5)
        self.log_beta = nn.Parameter(torch.zeros(heads))
        self.map_in, self.map_out = (nn.Parameter(torch.eye(dim)) for _ in range(2))

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, N, dim) to the same shape."""
        fields = nn.functional.rms_norm(tokens @ self.map_in, tokens.shape[-1:])
        fields = fields.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        root = fields.shape[-1] ** 0.5
        pair = self.couplings + self.couplings.mT
        pair = (pair * (1 - torch.eye(pair.shape[-1]))).expand(len(tokens), -1, -1, -1)
        beta = self.log_beta.exp()[:, None, None]
        found, _ = Solver("saddle").solve(fields / root, pair, beta)
        return root * found.value.transpose(1, 2).flatten(2) @ self.map_out


class MixerLayer(nn.Module):
    """A layer with any mixer: skips around it and around a feed-forward network, norms first."""

    def __init__(self, dim: int, *, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer = mixer
        self.before = nn.LayerNorm(dim)
        wide = (nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim))
        self.forward_network = nn.Sequential(*wide)

    def forward(self, tokens: Tensor) -> Tensor:
        """(batch, N, dim) to the same shape."""
        tokens = tokens + self.mixer(self.before(tokens))
        found: Tensor = tokens + self.forward_network(tokens)
        return found


def _layer(arm: Arm, dim: int, heads: int, tokens: int, strength: float) -> nn.Module:
    mixer: nn.Module
    if arm.kind in ("positions", "numbers"):
        kind = PositionSpins if arm.kind == "positions" else NumberSpins
        mixer = kind(dim, heads=heads, tokens=tokens, strength=strength)
    elif arm.kind == "transformer":
        options: dict[str, Any] = {"dropout": 0.0, "batch_first": True, "norm_first": True}
        mixer = nn.TransformerEncoderLayer(dim, heads, 4 * dim, **options)
    elif arm.kind == "spins":
        start = {"strength": strength} if arm.starts else {}
        options = {"channel_maps": True, **(arm.options or {}), **start}
        mixer = SpinTransformerModule(dim, heads=heads, **options)
        mixer.warned = True  # its meter is asked instead
    else:
        mixer = PlainMixer(arm.kind, dim, heads=heads)
    return MixerLayer(dim, mixer=mixer) if arm.layer else mixer


class TokenClassifier(nn.Module):
    """Embedding with learned positions, `depth` layers of the `arm`, and a linear read-out.

    Input (batch, N, features), output logits (batch, classes), read from the "mean" or the "last"
    token as `readout` says, or (batch, N, classes) from "every" token. `dim` channels, shared out
    to `heads`; a transformer takes fewer, see `transformer_width`. Couplings start at `strength`
    g. What the arm does not train has no gradient.
    """

    def __init__(
        self,
        arm: str,
        *,
        tokens: int,
        features: int,
        classes: int = 10,
        readout: str = "mean",
        dim: int = 32,
        heads: int = 2,
        depth: int = 2,
        strength: float = 0.6,
    ) -> None:
        super().__init__()
        self.arm, self.reading = ARMS[arm], readout
        transformer = self.arm.kind == "transformer"
        if transformer:
            dim = transformer_width(dim, heads=heads)
        self.embedding = nn.Linear(features, dim)
        self.position = nn.Parameter(torch.randn(tokens, dim) / 2)
        self.layers = nn.ModuleList(
            _layer(self.arm, dim, heads, tokens, strength) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(dim) if transformer else nn.Identity()
        self.readout = nn.Linear(dim, classes)
        for name, parameter in self.named_parameters():
            coupling = name.rpartition(".")[2] in COUPLINGS
            trained = {
                "all": True,
                "rest": not coupling,
                "couplings": coupling,
                "answers": name.endswith("map_out"),
                "read-out": False,
            }[self.arm.trained]
            if not (trained or name.startswith("readout")):
                parameter.requires_grad_(False)

    def embed(self, tokens: Tensor) -> Tensor:
        """The input of the first layer, (batch, N, dim)."""
        embedded: Tensor = self.embedding(tokens) + self.position
        return embedded

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, classes), or (batch, N, classes)."""
        state = self.embed(tokens)
        for layer in self.layers:
            state = layer(state)
        state = self.norm(state)
        if self.reading != "every":
            state = state.mean(-2) if self.reading == "mean" else state[:, -1]
        logits: Tensor = self.readout(state)
        return logits


def transformer_width(dim: int, *, heads: int) -> int:
    """The width at which a transformer layer comes closest to the 4 dim² numbers of a module."""
    want = 4 * dim**2
    # Attention 4 d² + 4 d, feed-forward 8 d² + 5 d, two normalizations 4 d.
    return min(range(heads, dim + heads, heads), key=lambda d: abs(12 * d * d + 13 * d - want))


def parameter_count(model: nn.Module) -> int:
    """Number of trainable numbers."""
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def build_classifier(arm: str, *, seed: int, **shape: Any) -> TokenClassifier:
    """A freshly initialized `TokenClassifier` of that `shape`, its weights drawn from `seed`.

    Arms with the same layers start from the same weights.
    """
    # torch draws initial weights from its global state and nowhere else: it is lent ours.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TokenClassifier(arm, **shape)

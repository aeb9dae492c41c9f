"""Stacks that read labels off sets of tokens, each an arm of a comparison, by name in `ARMS`.

The magnetizations of spins are the fields of the next layer, with nothing added in between
[bal2021transformers, Sec. 10]; layers without spins have the same number of parameters.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from compendium.common.spin_modules import LimitedSpinModule
from spinformer.spins.module import Solver, SpinTransformerModule

COUPLINGS = ("query", "key", "log_beta", "log_strength", "couplings")


class Arm(NamedTuple):
    """One network: its mixers (each within a `MixerLayer`?), what is trained, modules' options.

    `trained` beside the read-out: "all", "couplings", "rest" (all but these), "answers" (the maps
    behind the spins) or nothing, "read-out".
    """

    kind: str = "spins"
    trained: str = "all"
    layer: bool = False
    options: Mapping[str, Any] = {}


_ONE_STEP = {"solver": Solver(steps=1)}
ARMS = {
    "saddle": Arm(),
    # The fixed point of the mean-field equations, where it surely exists.
    "limited": Arm(options={"solver": Solver(max_steps=25), "coupling_limit": 0.9}),
    "one step": Arm(options=_ONE_STEP),
    "no response": Arm(options={"response": False}),
    "frozen couplings": Arm(trained="rest"),
    "positions": Arm("positions"),
    "couplings only": Arm(trained="couplings"),
    "read-out only": Arm(trained="read-out"),
    # Couplings too weak to matter, not zero, whose logarithm is none.
    "free spins": Arm(
        "spins", "rest", options=_ONE_STEP | {"response": False, "coupling_strength": 1e-6}
    ),
    "attention": Arm("attention"),
    "attention with skip": Arm("attention with skip"),
    "transformer": Arm("transformer"),
    "answers only": Arm(trained="answers"),
    "numbers": Arm("numbers"),
    "frozen numbers": Arm("numbers", trained="rest"),
    "averaging": Arm("averaging"),
    "identity": Arm("identity"),
    "layer of spins": Arm(layer=True),
    "layer of attention": Arm("attention", layer=True),
    "layer of averaging": Arm("averaging", layer=True),
    "layer of identity": Arm("identity", layer=True),
}


class PlainMixer(nn.Module):
    """A mixer without spins, of tokens scaled to norm √dim; (batch, N, dim) to the same, as all.

    "averaging" and "identity": the mean of the tokens, or each alone, behind a linear map.
    "attention", and the same added to its input, "with skip".
    """

    def __init__(self, kind: str, dim: int, *, heads: int) -> None:
        super().__init__()
        self.kind = kind
        if kind in ("averaging", "identity"):
            self.map = nn.Linear(dim, dim, bias=False)
        else:
            self.attention = nn.MultiheadAttention(dim, heads, bias=False, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        scaled = nn.functional.rms_norm(tokens, tokens.shape[-1:])
        if self.kind == "averaging":
            scaled = scaled.mean(-2, keepdim=True).expand_as(scaled)
        if self.kind in ("averaging", "identity"):
            return self.map(scaled)
        mixed = self.attention(scaled, scaled, scaled, need_weights=False)[0]
        return tokens + mixed if self.kind == "attention with skip" else mixed


class PositionSpins(nn.Module):
    """Vector spins at the saddle with learned J = g softmax(S), S a table of places for the scores.

    No token acts on S, so there is no response of the couplings.
    """

    def __init__(self, dim: int, *, heads: int, tokens: int, strength: float) -> None:
        super().__init__()
        self.spins = SpinTransformerModule(
            dim,
            heads=heads,
            coupling_strength=strength,
            gamma=0.0,
            response=False,
            channel_maps=True,
        )
        self.spins.query.requires_grad_(False)
        self.spins.key.requires_grad_(False)
        # As far apart as the scores of fresh queries and keys are.
        self.scores = nn.Parameter(torch.randn(heads, tokens, tokens))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.spins(tokens, src_mask=self.scores.repeat(len(tokens), 1, 1))


class NumberSpins(nn.Module):
    """⟨σ⟩ at the saddle where couplings J_ij are numbers, first normal of deviation g/√N."""

    def __init__(self, dim: int, *, heads: int, tokens: int, strength: float) -> None:
        super().__init__()
        self.heads = heads
        self.couplings = nn.Parameter(strength * torch.randn(heads, tokens, tokens) / tokens**0.5)
        self.log_beta = nn.Parameter(torch.zeros(heads))
        self.map_in = nn.Parameter(torch.eye(dim))
        self.map_out = nn.Parameter(torch.eye(dim))

    def forward(self, tokens: Tensor) -> Tensor:
        fields = nn.functional.rms_norm(tokens @ self.map_in, tokens.shape[-1:])
        fields = fields.unflatten(-1, (self.heads, -1)).transpose(-3, -2)
        root = fields.shape[-1] ** 0.5
        pair = self.couplings + self.couplings.mT
        pair = (pair * (1 - torch.eye(pair.shape[-1]))).expand(len(tokens), -1, -1, -1)
        beta = self.log_beta.exp()[:, None, None]
        found, _ = Solver("saddle").solve(fields / root, pair, beta)
        return root * found.value.transpose(1, 2).flatten(2) @ self.map_out


class MixerLayer(nn.Module):
    """Any mixer, then a feed-forward network four times as wide: skips around both, norms first."""

    def __init__(self, dim: int, *, mixer: nn.Module) -> None:
        super().__init__()
        self.mixer = mixer
        self.before = nn.LayerNorm(dim)
        wide = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.ReLU(), nn.Linear(4 * dim, dim)
        self.forward_network = nn.Sequential(*wide)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.mixer(self.before(tokens))
        return tokens + self.forward_network(tokens)


def _mixer(arm: Arm, dim: int, heads: int, tokens: int, strength: float) -> nn.Module:
    if arm.kind in ("positions", "numbers"):
        kind = PositionSpins if arm.kind == "positions" else NumberSpins
        return kind(dim, heads=heads, tokens=tokens, strength=strength)
    if arm.kind == "transformer":
        return nn.TransformerEncoderLayer(
            dim, heads, 4 * dim, dropout=0.0, batch_first=True, norm_first=True
        )
    if arm.kind != "spins":
        return PlainMixer(arm.kind, dim, heads=heads)
    if "coupling_limit" in arm.options:
        module: Any = LimitedSpinModule(dim, heads=heads, channel_maps=True, **arm.options)
    else:
        spins = {"coupling_strength": strength, **arm.options}
        module = SpinTransformerModule(dim, heads=heads, channel_maps=True, **spins)
    module.warned = True  # its meter is asked instead
    return module


class TokenClassifier(nn.Module):
    """Embedding with learned positions, `depth` layers of the `arm`, and a linear read-out.

    Of the "mean" or the "last" token as `readout` says, or of "every". A transformer takes so few
    channels that a layer comes closest to the 4 dim² numbers of a module.
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
        self.arm = ARMS[arm]
        self.reading = readout
        transformer = self.arm.kind == "transformer"
        if transformer:
            # Attention 4 d² + 4 d, feed-forward 8 d² + 5 d, two normalizations 4 d.
            sizes = {d: 12 * d * d + 13 * d for d in range(heads, dim + heads, heads)}
            dim = min(sizes, key=lambda d: abs(sizes[d] - 4 * dim**2))
        self.embedding = nn.Linear(features, dim)
        self.position = nn.Parameter(torch.randn(tokens, dim) / 2)
        self.layers = nn.ModuleList()
        for _ in range(depth):
            mixer = _mixer(self.arm, dim, heads, tokens, strength)
            self.layers.append(MixerLayer(dim, mixer=mixer) if self.arm.layer else mixer)
        self.norm = nn.LayerNorm(dim) if transformer else nn.Identity()
        self.readout = nn.Linear(dim, classes)
        for name, parameter in self.named_parameters():
            coupling = name.rpartition(".")[2] in COUPLINGS
            answer = name.endswith("map_out")
            chosen = {"all": True, "rest": not coupling, "couplings": coupling, "answers": answer}
            if not (chosen.get(self.arm.trained) or name.startswith("readout")):
                parameter.requires_grad_(False)

    def embed(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens) + self.position

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (batch, classes), or (batch, N, classes)."""
        state = self.embed(tokens)
        for layer in self.layers:
            state = layer(state)
        state = self.norm(state)
        if self.reading != "every":
            state = state.mean(-2) if self.reading == "mean" else state[:, -1]
        return self.readout(state)


def build_classifier(arm: str, *, seed: int, **shape: Any) -> TokenClassifier:
    """A `TokenClassifier` of that `shape`; arms of the same layers start from the same weights."""
    # torch draws initial weights from its global state and nowhere else: it is lent ours.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return TokenClassifier(arm, **shape)

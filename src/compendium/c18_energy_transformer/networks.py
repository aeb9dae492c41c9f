"""Networks between a plain transformer and an energy transformer, at one number of parameters.

Each rung of the ladder ties one thing more than the one before it:

* "untied": T pre-LN layers, x ← x + α attention(LN x), x ← x + α feed-forward(LN x);
* "tied": one such layer, T times;
* "tied values": W_V = W_K and W_O = W_Qᵀ head by head, so that the attention step is the gradient
  of the energy of a token as a query;
* "query side": the memory of the energy transformer in place of the feed-forward layer (its two
  matrices are transposes, one layer normalisation serves both, both act at once);
* "energy": the key side of the gradient, too, so that the step is the gradient of one energy.

Around each: a linear embedding of the patches with learned positions and a learned token for a
hidden patch, and behind a layer normalisation a linear read-out, of the mean token for a digit's
class or of every token for its pixels. Hidden units of the feed-forward layers, or widths of the
heads, are chosen so that all have the parameters of the energy transformer to within 3 %.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from compendium.c18_energy_transformer.energy_transformer import EnergyTransformer
from spinformer.core.checks import check_choice, check_integer
from spinformer.core.random import torch_generator
from spinformer.core.records import record

ARMS = ("untied", "tied", "tied values", "query side", "energy")
TASKS = ("classes", "patches")


@record
class Sizes:
    """Width D, heads H, patterns M, steps T of the energy transformer that all are matched to."""

    width: int = 16
    heads: int = 2
    patterns: int = 64
    steps: int = 4
    tokens: int = 16
    pixels: int = 4
    classes: int = 10


@record
class AttentionParts:
    """One attention step: what it added, where it looked, and its maps (H, Y, D).

    seen: (B, N, D), the normalised tokens. update: (B, N, D). weights: (B, H, N, N).
    """

    seen: Tensor
    update: Tensor
    weights: Tensor
    query_map: Tensor
    key_map: Tensor
    value_map: Tensor
    output_map: Tensor


class Layer(nn.Module):
    """A pre-LN layer; attention without bias, a rectified feed-forward layer with it."""

    def __init__(
        self,
        width: int,
        *,
        heads: int,
        head_width: int,
        hidden: int,
        tied_values: bool,
        seed: int | torch.Generator,
    ) -> None:
        super().__init__()
        generator = torch_generator(seed)

        def draw(*shape: int, fan: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator) / fan**0.5)

        maps = (heads, head_width, width)
        self.query_map = draw(*maps, fan=width)
        self.key_map = draw(*maps, fan=width)
        self.value_map = None if tied_values else draw(*maps, fan=width)
        self.output_map = None if tied_values else draw(*maps, fan=heads * head_width)
        self.before_attention = nn.LayerNorm(width)
        self.before_hidden = nn.LayerNorm(width)
        self.into_hidden = draw(hidden, width, fan=width)
        self.bias_hidden = nn.Parameter(torch.zeros(hidden))
        self.from_hidden = draw(hidden, width, fan=hidden)
        self.bias = nn.Parameter(torch.zeros(width))

    def attend(self, tokens: Tensor) -> AttentionParts:
        """The attention of the layer at tokens (B, N, D)."""
        value = self.key_map if self.value_map is None else self.value_map
        output = self.query_map if self.output_map is None else self.output_map
        seen: Tensor = self.before_attention(tokens)
        queries, keys, values = (_heads(seen, w) for w in (self.query_map, self.key_map, value))
        weights = torch.softmax(queries @ keys.mT * self.query_map.shape[1] ** -0.5, -1)
        return AttentionParts(
            seen=seen,
            update=_merge(weights @ values, output),
            weights=weights,
            query_map=self.query_map,
            key_map=self.key_map,
            value_map=value,
            output_map=output,
        )

    def forward(self, tokens: Tensor, *, step_size: Tensor | float) -> Tensor:
        """Tokens (B, N, D) after the layer."""
        tokens = tokens + step_size * self.attend(tokens).update
        seen = self.before_hidden(tokens)
        hidden = (seen @ self.into_hidden.mT + self.bias_hidden).relu()
        after: Tensor = tokens + step_size * (hidden @ self.from_hidden + self.bias)
        return after


class Network(nn.Module):
    """Embedding, one of the ARMS, read-out for one of the TASKS (see the module).

    `forward` takes patches (B, N, pixels) and which of them are hidden (B, N), booleans; it gives
    logits (B, classes) or patches (B, N, pixels). Raises ValueError for another arm or task.
    """

    def __init__(
        self, arm: str, *, task: str, step_size: float, seed: int, sizes: Sizes | None = None
    ) -> None:
        super().__init__()
        self.arm = check_choice("arm", arm, ARMS)
        self.task = check_choice("task", task, TASKS)
        # A buffer, so that networks of different step sizes can be stacked.
        self.step_size: Tensor
        self.register_buffer("step_size", torch.tensor(step_size))
        self.sizes = sizes = sizes or Sizes()
        generator = torch_generator(check_integer("seed", seed, low=0))
        width = sizes.width

        def draw(*shape: int, fan: float) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=generator) / fan**0.5)

        outputs = sizes.classes if task == "classes" else sizes.pixels
        # The parts that all arms share are drawn first: they start equal from equal seeds.
        self.embedding = draw(sizes.pixels, width, fan=sizes.pixels)
        self.bias = nn.Parameter(torch.zeros(width))
        self.position = draw(sizes.tokens, width, fan=1.0)
        self.unknown = draw(width, fan=1.0)
        self.readout = draw(width, outputs, fan=width)
        self.readout_bias = nn.Parameter(torch.zeros(outputs))
        self.energy: EnergyTransformer | None = None
        if arm in ("energy", "query side"):
            self.energy = EnergyTransformer(
                width,
                heads=sizes.heads,
                patterns=sizes.patterns,
                steps=sizes.steps,
                key_side=arm == "energy",
                seed=generator,
            )
        else:
            self.layers = nn.ModuleList(
                Layer(width, **shape, tied_values=arm == "tied values", seed=generator)
                for shape in _layer_shapes(arm, sizes)
            )
            self.last = nn.LayerNorm(width)

    def embed(self, patches: Tensor, hidden: Tensor) -> Tensor:
        """Tokens (B, N, D) before the first step."""
        known = patches @ self.embedding + self.bias
        return torch.where(hidden.unsqueeze(-1), self.unknown, known) + self.position

    def step(self, tokens: Tensor, *, index: int) -> Tensor:
        """Tokens (B, N, D) after step `index`; of tied arms any step is the same."""
        if self.energy is not None:
            return tokens - self.step_size * self.energy.gradient(tokens)
        layer = self.layers[index if self.arm == "untied" else 0]
        after: Tensor = layer(tokens, step_size=self.step_size)
        return after

    def read(self, tokens: Tensor) -> Tensor:
        """What the network says, given the tokens (B, N, D) of any moment."""
        seen = self.last(tokens) if self.energy is None else self.energy.normalize(tokens)
        if self.task == "classes":
            seen = seen.mean(-2)
        answer: Tensor = seen @ self.readout + self.readout_bias
        return answer

    def forward(self, patches: Tensor, hidden: Tensor) -> Tensor:
        """Logits or patches after T steps."""
        tokens = self.embed(patches, hidden)
        for index in range(self.sizes.steps):
            tokens = self.step(tokens, index=index)
        return self.read(tokens)

    def attend(self, tokens: Tensor, *, index: int) -> AttentionParts:
        """The attention part of step `index` at tokens (B, N, D), without the step size."""
        if self.energy is None:
            layer = self.layers[index if self.arm == "untied" else 0]
            assert isinstance(layer, Layer)
            return layer.attend(tokens)
        block = self.energy
        seen = block.normalize(tokens)
        queries, keys = (_heads(seen, w) for w in (block.query_map, block.key_map))
        weights = torch.softmax(block.beta * queries @ keys.mT, -1)
        update = _merge(weights @ keys, block.query_map)
        if block.key_side:
            update = update + _merge(weights.mT @ queries, block.key_map)
        return AttentionParts(
            seen=seen,
            update=update,
            weights=weights,
            query_map=block.query_map,
            key_map=block.key_map,
            value_map=block.key_map,
            output_map=block.query_map,
        )


def rotated_updates(parts: AttentionParts, *, seed: int | torch.Generator) -> Tensor:
    """The update (B, N, D) of the same attention weights, values turned at random in each head.

    The turn R_h stands between value and output map, O_hᵀ R_h V_h: all norms stay, and which value
    belongs to which key goes. For heads whose update has no key side.
    """
    heads, size, _ = parts.value_map.shape
    normal = torch.randn(heads, size, size, generator=torch_generator(seed), dtype=torch.float64)
    turns, signs = torch.linalg.qr(normal)
    # Signs that make the distribution uniform over all rotations and reflections.
    turns = (turns * signs.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)).to(parts.seen.dtype)
    return _merge(parts.weights @ _heads(parts.seen, turns @ parts.value_map), parts.output_map)


def core_parameters(model: Network) -> int:
    """Numbers in the steps and the last normalisation, without embedding and read-out."""
    outer = ("embedding", "bias", "position", "unknown", "readout", "readout_bias")
    return sum(p.numel() for name, p in model.named_parameters() if name not in outer)


def _layer_shapes(arm: str, sizes: Sizes) -> list[dict[str, int]]:
    """Widths of the layers of a plain arm with the parameters of the energy transformer."""
    width, heads = sizes.width, sizes.heads
    head_width = width // heads
    wanted = 2 * width**2 + sizes.patterns * width + width + 1 - 2 * width
    depth, maps = 1, 2 if arm == "tied values" else 4
    if arm == "untied":
        # A share of the heads' width, the other of the hidden units, as in the tied layer.
        depth = sizes.steps
        head_width = max(1, head_width // depth)
    rest = wanted / depth - maps * heads * head_width * width - 5 * width
    hidden = max(1, round(rest / (2 * width + 1)))
    return [{"heads": heads, "head_width": head_width, "hidden": hidden}] * depth


def _heads(seen: Tensor, maps: Tensor) -> Tensor:
    """(B, N, D) through maps (H, Y, D): (B, H, N, Y)."""
    return (seen @ maps.flatten(0, 1).mT).unflatten(-1, maps.shape[:2]).transpose(-2, -3)


def _merge(mixed: Tensor, maps: Tensor) -> Tensor:
    """(B, H, N, Y) through transposed maps (H, Y, D), summed over heads: (B, N, D)."""
    return mixed.transpose(-2, -3).flatten(-2) @ maps.flatten(0, 1)

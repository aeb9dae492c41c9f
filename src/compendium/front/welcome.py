"""The five pictures of the front page, one message each, and the numbers that they draw."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from compendium.front.schematics import draw_generator, draw_layer, draw_spins
from spinformer.dmft.mean_field import poclopez2024_context, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.hopfield.continuous import energy, retrieve
from spinformer.plot.style import COLORS, use_style
from spinformer.plot.vector import figure_svg

# Figures of claims that the pictures show, `row.figure`.
FIGURES = (
    *(f"A14a.{part}{way}" for part in ("", "specific_") for way in ("lowered", "raised")),
    *(f"A19.{way}" for way in ("own", "centred", "norm", "both")),
    *("B13.leak", "B13.causal"),
)
HEADS = 72
MOTIONS = {"four values, for ever": 1.2, "a wave that never quite repeats": 1.255, "chaos": 1.28}

Numbers = Mapping[str, Any]


def welcome_numbers(figures: Mapping[str, float]) -> dict[str, Any]:
    """Keys, paths of queries and three motions to six digits, and `figures`, those of `FIGURES`."""
    turns = np.array([0.25, 0.25 + 1 / 3, 0.25 + 2 / 3])
    keys = torch.tensor(np.column_stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)]))
    states = torch.tensor([[0.25, -0.1], [-0.2, 0.1], [0.05, -1.2], [1.3, 0.6], [-1.0, 1.2]])
    found = retrieve(
        keys, queries=states.double(), beta=4.0, steps=60, step_size=0.1, keep_trajectory=True
    )
    network = Network.poclopez2024()
    origin = poclopez2024_context(network, beta=3.0, steps=1000)
    start, motions = Context(np.round(origin.attention, 8), origin.position), {}
    for name, beta in MOTIONS.items():
        # Chaos is shown soon after its start: later, rounding would choose what is shown.
        before = 40 if name == "chaos" else 2940
        overlaps, _ = trajectory(network, start, beta=beta, steps=60, transient=before)
        motions[name] = np.round(overlaps[:, 0], 6).tolist()
    return {
        "beta": 4.0,
        "keys": np.round(keys.numpy(), 6).tolist(),
        "paths": np.round(np.swapaxes(np.asarray(found.trajectory), 0, 1), 6).tolist(),
        "motions": motions,
        "figures": {name: float(value) for name, value in figures.items()},
    }


def draw_memory(numbers: Numbers) -> None:
    """Queries slide downhill to keys, on the contours of attention's energy."""
    axis = _panel((4.2, 3.2))
    keys = torch.tensor(numbers["keys"], dtype=torch.float64)
    line = np.linspace(-1.6, 1.6, 121)
    grid = torch.tensor(np.stack(np.meshgrid(line, line), -1))
    height = energy(keys, states=grid.reshape(-1, 2), beta=numbers["beta"]).reshape(121, 121)
    levels = float(height.min()) + np.linspace(0.0, 1.0, 21)
    axis.contourf(line, line, height.numpy(), levels=levels, cmap="cividis", extend="max")
    for path in np.array(numbers["paths"]):
        axis.plot(*path.T, color="white", lw=1.6)
        axis.plot(*path[0], "o", color="white", ms=5)
    for x, y in numbers["keys"]:
        axis.plot(x, y, "*", color=COLORS["orange"], ms=15, mec="black", mew=0.5)
    axis.text(0.13, 1.16, "key", color="white", fontsize=11)
    axis.text(0.75, 0.75, "query", color="white", fontsize=11)
    axis.set(aspect="equal", xlim=(-1.6, 1.6), ylim=(-1.5, 1.5))
    axis.set_axis_off()


def draw_faces(numbers: Numbers) -> None:
    """How many of 100 half-hidden faces come back, for four ways to prepare the memory."""
    axis = _panel((5.2, 2.4))
    counts = [numbers["figures"][f"A19.{way}"] for way in ("own", "centred", "norm", "both")]
    axis.barh(range(4), counts, color=[COLORS[t] for t in ("sky", "sky", "blue", "blue")])
    for row, count in enumerate(counts):
        axis.text(count + 1.5, row, f"{count:.0f}", va="center", fontsize=11)
    ways = ("own length", "less the mean face", "equal length", "both")
    axis.set_yticks(range(4), ways, fontsize=11)
    axis.set(xlim=(0, 112), xlabel="faces recalled of 100")
    axis.invert_yaxis()


def draw_heads(numbers: Numbers) -> None:
    """A square a head: what its step does to its energy, above in full, below the token's part."""
    axis = _panel((5.2, 2.3))
    told: dict[str, Any] = {"style": "normal", "fontsize": 11}
    rows = {"": "all that it adds", "specific_": "what depends on the token"}
    for row, (part, title) in enumerate(rows.items()):
        low, high = (int(numbers["figures"][f"A14a.{part}{way}"]) for way in ("lowered", "raised"))
        top = 5.4 * (1 - row)
        for place, tone in enumerate(head_tones(low, high)):
            box = (place % 24, top + 2 - place // 24)
            axis.add_patch(Rectangle(box, 0.85, 0.85, color=tone))
        axis.text(0, top + 3.3, f"{title}: {low} down", color=COLORS["blue"], **told)
        axis.text(24, top + 3.3, f"{high} up", ha="right", color=COLORS["red"], **told)
    axis.set(xlim=(-0.2, 24.2), ylim=(-0.2, 10.0), aspect="equal")
    axis.set_axis_off()


def head_tones(low: int, high: int) -> list[str]:
    """Colours of the squares of all heads: those that go down, the undecided, those that go up."""
    return low * [COLORS["blue"]] + (HEADS - low - high) * ["0.8"] + high * [COLORS["red"]]


def draw_mask(numbers: Numbers) -> None:
    """Two tokens with a mask: in equilibrium the past answers the future, driven not."""
    axis = _panel((5.2, 2.4))
    frame = {"boxstyle": "round,pad=0.4", "fc": "white", "ec": COLORS["black"]}
    for y, name, answer in ((1.0, "in equilibrium", "leak"), (0.0, "driven", "causal")):
        value = numbers["figures"][f"B13.{answer}"]
        axis.text(-0.55, y, name, ha="right", va="center", fontsize=11)
        for x, token in ((0.0, "past"), (2.2, "future")):
            axis.text(x, y, token, ha="center", va="center", fontsize=11, bbox=frame)
        ways = [("blue", 0.42, 1.72, 0.12), ("red", 1.72, 0.42, -0.12)][: 2 if value else 1]
        for tone, start, end, lift in ways:
            arrow = {"arrowstyle": "-|>", "lw": 1.6, "mutation_scale": 14, "color": COLORS[tone]}
            axis.annotate("", xy=(end, y + lift), xytext=(start, y + lift), arrowprops=arrow)
        shown = f"response of the past to the future: {value:.2f}"
        axis.text(1.1, y - 0.42, shown, ha="center", fontsize=10, color=COLORS[ways[-1][0]])
    axis.set(xlim=(-2.2, 3.0), ylim=(-0.6, 1.4))
    axis.set_axis_off()


def draw_motions(numbers: Numbers) -> None:
    """Three motions of the network that reads its own text, one dot a token."""
    figure, axes = plt.subplots(3, 1, figsize=(5.2, 3.2), sharex=True)
    tones = ("black", "orange", "purple")
    for axis, (name, beta), tone in zip(axes, MOTIONS.items(), tones, strict=True):
        path = numbers["motions"][name]
        axis.plot(path, "o-", ms=3, lw=0.8, color=COLORS[tone])
        axis.set_title(f"temperature {1 / beta:.3f}: {name}", loc="left", fontsize=10)
        axis.set_title(f"height {np.ptp(path):.1g}", loc="right", fontsize=10)
        axis.set_yticks([])
        axis.grid(False)
    axes[-1].set_xlabel("token")
    figure.supylabel("overlap", fontsize=10)


PICTURES: Mapping[str, Callable[[Numbers], None]] = {
    "memory": draw_memory,
    "faces": draw_faces,
    "heads": draw_heads,
    "mask": draw_mask,
    "motions": draw_motions,
}
# Drawn without numbers.
SCHEMATICS: Mapping[str, Callable[[], None]] = {
    "layer": draw_layer,
    "spins": draw_spins,
    "generator": draw_generator,
}


def drawn_pictures(numbers: Numbers) -> Iterator[tuple[str, bytes]]:
    """Yield name and SVG of each picture of the front page."""
    drawn = {name: partial(draw, numbers) for name, draw in PICTURES.items()}
    for name, draw in (drawn | dict(SCHEMATICS)).items():
        with plt.rc_context():
            use_style()
            draw()
            picture = figure_svg(plt.gcf()).encode()
            plt.close()
        yield name, picture


def _panel(size: tuple[float, float]) -> Axes:
    _, axis = plt.subplots(figsize=size)
    axis.grid(False)
    return axis

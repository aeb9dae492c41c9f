"""Networks and starts that the live figures of the book begin from, written for a browser.

`python -m compendium.front.explorables` writes `book/_static/explorables/data.js` anew, a script: a
page that is opened from a folder may not read files.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from bookmaker.base import write_atomically
from spinformer.dmft.mean_field import poclopez2024_context, random_contexts
from spinformer.dmft.network import Network

TARGET = Path("book") / "_static" / "explorables" / "data.js"
PAPER = "the paper's"


def network_data(network: Network) -> dict[str, Any]:
    """What the mean field needs of a network, as nested lists.

    patterns (U, P), readout (4, P, U), drive (2^K, 4, P), window T, γ and ε.
    """
    patterns, readout = network.output_patterns()
    return {
        "window": network.context,
        "gamma": network.gamma,
        "epsilon": network.epsilon,
        "patterns": patterns.tolist(),
        "readout": readout.tolist(),
        "drive": network.position_overlaps().tolist(),
    }


def map_data() -> dict[str, Any]:
    """Networks by name, each with its starts: three drawn contexts, and the paper's protocol.

    That one settles on a cycle for the paper's network, and so is the same on every machine.
    """
    # The drawn ones do different things at the published γ and ε.
    networks = {PAPER: Network.poclopez2024()}
    networks |= {f"drawn, seed {seed}": Network.segmented(seed) for seed in (2, 4, 6, 9)}
    found: dict[str, Any] = {}
    for name, network in networks.items():
        drawn = random_contexts(network, 0, count=3)
        starts = {f"random {n + 1}": drawn.select(n) for n in range(3)}
        if name == PAPER:
            origin = poclopez2024_context(network, steps=100_000, decimals=8)
            starts = {"the paper's protocol": origin} | starts
        found[name] = network_data(network) | {"starts": {}}
        for start, one in starts.items():
            attention = np.round(one.attention, 8).tolist()
            found[name]["starts"][start] = {"attention": attention, "position": one.position}
    return found


def landscape_data() -> dict[str, Any]:
    """Patterns in the plane, on a triangle of radius 1.5, and places for three more."""
    turns = np.array([0.25, 0.25 + 1 / 3, 0.25 + 2 / 3, 0.75, 1.08, 0.42])
    points = 1.5 * np.column_stack([np.cos(2 * np.pi * turns), np.sin(2 * np.pi * turns)])
    rounded = np.round(points, 3).tolist()
    return {"beta": 4.0, "patterns": rounded[:3], "more": rounded, "query": [0.4, 0.3]}


def spins_data() -> dict[str, Any]:
    """Settings of three spins that tell something: a ferromagnet, frustration, a field."""
    names = ("j12", "j13", "j23", "h1", "h2", "h3", "beta")
    settings = {
        "Three that agree": (1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.8),
        "Frustrated": (1.0, 1.0, -1.0, 0.3, 0.0, 0.0, 1.2),
        "Agree in a field": (1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.8),
        "A chain": (1.0, 0.0, 1.0, 0.2, 0.0, 0.0, 1.0),
    }
    cases = {name: dict(zip(names, each, strict=True)) for name, each in settings.items()}
    return {**cases["Three that agree"], "cases": cases}


def module_data() -> dict[str, Any]:
    """Three tokens in the plane and settings of a spin transformer module that tell something."""
    weak: dict[str, Any] = {"tokens": [[0.9, 0.5], [-1.0, 0.3], [0.2, -0.9]], "strength": 0.2}
    weak |= {"beta": 1.0, "gamma": 1.0, "turn": 0.0, "solver": "fixed point"}
    strong = {**weak, "strength": 1.5}
    alike = [[1.0, 0.1], [1.0, -0.1], [-0.5, 0.8]]
    cases = {
        "Weakly coupled": weak,
        "Strongly coupled": strong,
        "The same at the saddle": {**strong, "solver": "saddle"},
        "One step, far too far": {**strong, "solver": "one step"},
        "Two alike": {**weak, "tokens": alike, "strength": 0.8},
        "Looking sideways": {**weak, "strength": 0.8, "turn": 90.0},
    }
    return {**weak, "cases": cases}


def recall_data() -> dict[str, Any]:
    """A face, a heart and a house of 16 x 16 pixels, four to a hexadecimal digit, ink 1."""
    side = 16
    y, x = 1.0 - 2.0 * (np.indices((side, side)) + 0.5) / side
    radius = np.hypot(x, y)
    face = abs(radius - 0.85) < 0.1
    face |= np.hypot(abs(x) - 0.32, y - 0.28) < 0.13
    face |= (abs(radius - 0.5) < 0.09) & (y < -0.15)
    heart = np.hypot(abs(x) - 0.42, y - 0.35) < 0.46
    heart |= (y < 0.35) & (abs(x) < 0.7 * (y + 0.9))
    house = (abs(x) < 0.6) & (y < 0.1) & (y > -0.9)
    house |= (y >= 0.1) & (y < 0.9 - abs(x))
    house &= ~((abs(x) < 0.2) & (y < -0.3))
    digits = 1 << np.arange(3, -1, -1)
    pictures = (picture.reshape(-1, 4) @ digits for picture in (face, heart, house))
    return {"side": side, "pictures": ["".join(f"{n:x}" for n in rows) for rows in pictures]}


def every_figure() -> str:
    """The whole of data.js, a script that adds the data to the page."""
    figures = {"landscape": landscape_data(), "map": map_data(), "module": module_data()}
    figures |= {"spins": spins_data(), "recall": recall_data()}
    text = json.dumps(figures, separators=(",", ":"))
    return (
        "// Written by `python -m compendium.front.explorables`.\n"
        f"globalThis.spinformer = Object.assign(globalThis.spinformer ?? {{}}, {{data: {text}}});\n"
    )


if __name__ == "__main__":
    write_atomically(TARGET, every_figure())

"""How a head's loop loses its rest as the gain of what it reads back grows.

A fixed point of q ← g Σ_j a_j w_j (see `loops`) repels as soon as its derivative has an eigenvalue
outside of the unit circle. An iteration with a short step, q ← q + η(f(q) − q), still goes to
it as long as no eigenvalue has a real part of 1 or more: so the fixed point is found where the loop
itself does not come to rest, and the prediction can be held against the loop. Table `gain`: the
first window of 128 tokens of every text, loops "readback" and "turned".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from bookmaker.tables import Rows, stored
from compendium.c14b_heads_and_fixed_points.iteration import distinct_states, first_window, repeat
from compendium.c14b_heads_and_fixed_points.loops import (
    attend,
    leading_eigenvalues,
    loop_jacobians,
    loop_values,
)
from compendium.common.rows import array_of, grid, rows_of
from spinformer.core.random import Seed
from spinformer.language.encoder import LanguageModel, LayerTrace, run_model
from spinformer.language.text import TEXTS

GAINS = (0.5, 1.0, 1.414, 2.0, 2.828, 4.0, 8.0)
SHORT_STEP, TOLERANCE = 0.1, 1e-7


@torch.no_grad()
def gain_sweep(
    model: LanguageModel,
    trace: LayerTrace,
    loop: str,
    *,
    gains: Sequence[float],
    every: int = 8,
    max_steps: int = 300,
    seed: Seed = 0,
) -> dict[str, np.ndarray]:
    """Iterate every head's loop from every `every`-th query of the first sequence at each gain.

    loop: one of `loops.VALUES`; `seed` draws the rotations of "turned". Arrays (G, H): "resting",
    share of the queries that come to rest; "count", distinct points where they rest; "leading", the
    eigenvalue of largest modulus (complex) of the derivative at the point that short steps from the
    first token's query lead to, NaN if they lead nowhere.
    """
    values = loop_values(model, trace, loop, seed=seed)
    keys, starts = trace.keys[0], trace.queries[0, :, ::every]
    shape = (len(gains), len(keys))
    resting, count = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    leading = np.full(shape, np.nan, dtype=complex)
    for row, gain in enumerate(gains):
        points, found = trace.queries[0, :, 0].clone(), np.zeros(len(keys), dtype=bool)
        for head in range(len(keys)):
            step = attend(keys[head], values=gain * values[0, head], beta=trace.beta)
            ends, rested = repeat(step, starts[head], tolerance=TOLERANCE, max_steps=max_steps)
            resting[row, head] = float(rested.double().mean())
            count[row, head] = len(distinct_states(ends[rested]).unique())
            point, arrived = repeat(
                _shortened(step),
                points[head : head + 1],
                tolerance=SHORT_STEP * TOLERANCE,
                max_steps=10 * max_steps,
            )
            points[head], found[head] = point[0], bool(arrived)
        slopes = loop_jacobians(trace, values=values, at=points, gain=gain).numpy()
        leading[row, found] = leading_eigenvalues(slopes[found])
    return {"resting": resting, "count": count, "leading": leading}


def _shortened(step: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    return lambda states: states + SHORT_STEP * (step(states) - states)


@stored(Path(__file__).with_name("gain.csv"), units=grid(loop=("readback", "turned"), source=TEXTS))
def GAIN(loop: str, source: str) -> Rows:
    """The sweep of one text in one loop, one row a layer, gain and head."""
    model, window = first_window(source)
    rows = []
    for trace in run_model(model, window):
        seed = 1000 * TEXTS.index(source) + trace.layer
        found = gain_sweep(model, trace, loop, gains=GAINS, seed=seed)
        row, head = np.indices(found["resting"].shape).reshape(2, -1)
        rows += rows_of(
            layer=trace.layer,
            gain=np.array(GAINS)[row],
            head=head,
            resting=found["resting"].ravel(),
            count=found["count"].ravel(),
            real=found["leading"].real.ravel(),
            imaginary=found["leading"].imag.ravel(),
        )
    return rows


def read_gain(loop: str) -> dict[str, np.ndarray]:
    """The stored sweep of a loop: "resting", "count", "leading", (texts, L, G, H), as in TEXTS."""
    table, axes = GAIN.read(), ("source", "layer", "gain", "head")
    resting, count, real, imaginary = (
        array_of(table, name, *axes, loop=loop)
        for name in ("resting", "count", "real", "imaginary")
    )
    return {"resting": resting, "count": count, "leading": real + 1j * imaginary}

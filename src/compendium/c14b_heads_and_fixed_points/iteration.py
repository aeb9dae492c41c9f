"""Where a head, or a whole attention sub-layer, ends up if its step is repeated.

A transformer takes one attention step a layer. Repeating it, keys and values held fixed,
shows which fixed points there are to step towards; `loops` tells the ways to close the loop.

Lengths. In the loops "keys" and "balanced" they are measured in units of the largest norm of a
head's keys, in "readback" and "sub-layer" of the root mean square norm of the states that are
iterated. Two end points are one if they are closer than `MERGE_RADIUS` of the unit, in
every loop; the default tolerance leaves states much nearer to their ends than that.

Tables: `ends`, where the queries of seven texts end in the four loops. One unit is a text and a
loop: the first 128 tokens, all layers and heads, as `end_points` counts them. The least share of
queries that came to rest says whether the counts cover all. `settings_A15`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bookmaker.tables import Rows, stored
from compendium.c14b_heads_and_fixed_points.loops import (
    attend,
    balanced_gauge,
    readback_values,
    sublayer_step,
)
from compendium.common.models import encoder
from compendium.common.rows import array_of, grid, mean_rows
from spinformer.hopfield.fixed_points import (
    KINDS,
    classify,
    effective_entries,
    find_fixed_points,
)
from spinformer.language.encoder import LanguageModel, LayerTrace, project, run_model
from spinformer.language.text import TEXTS, sample_texts, text_windows

MERGE_RADIUS = 1e-5  # two end points nearer than this, in units of their size, are one
LOOPS = ("keys", "balanced", "readback", "sub-layer")
SHARES = ("single", "metastable", "average")  # as in `hopfield.fixed_points.KINDS`


@torch.no_grad()
def end_points(
    model: LanguageModel,
    trace: LayerTrace,
    loop: str,
    *,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
) -> Rows:
    """Repeat a layer's attention from each query of the first sequence until it rests.

    `loop` is one of LOOPS. A state rests when a step is shorter than `tolerance` in the units of
    the module; "keys" and "balanced" finish slow starts with Newton's method (see
    `find_fixed_points`). A row for each head, as `ends_of` says.
    """
    keys, heads = trace.keys[0], range(model.architecture.heads)
    limits: Any = {"tolerance": tolerance, "max_steps": max_steps}
    if loop in ("keys", "balanced"):
        pair = (trace.queries, trace.keys) if loop == "keys" else balanced_gauge(model, trace)
        queries, keys = (each[0] for each in pair)
        return [memory_ends(keys[h], queries[h], beta=trace.beta, **limits) for h in heads]
    if loop == "readback":
        values, rows = readback_values(model, trace)[0], []
        for head in heads:
            step = attend(keys[head], values=values[head], beta=trace.beta)
            states, rests = repeat(step, trace.queries[0, head], **limits)
            rows.append(ends_of(states, rests, trace.beta * states @ keys[head].mT))
        return rows
    step = partial(sublayer_step, model, trace)
    states, rests = repeat(step, trace.inputs[0], **limits)
    queries = project(model, trace.layer, "query", states=states)
    return [ends_of(states, rests, logits) for logits in trace.beta * queries @ keys.mT]


@torch.no_grad()
def repeat(
    step: Callable[[torch.Tensor], torch.Tensor],
    start: torch.Tensor,
    *,
    tolerance: float = 1e-9,
    max_steps: int = 1000,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Apply `step` to the rows of `start` (S, d), each on its own, until all rest.

    The states (S, d), and which of them rest (S,): a row is moved no more while its last step is at
    most `tolerance` of the root mean square norm of all finite states. A row whose step leaves the
    finite numbers stays where it was before, and does not rest.
    """
    states = start.detach().clone()
    moved = torch.full((len(states),), torch.inf, dtype=states.dtype)
    finite = torch.ones(len(states), dtype=torch.bool)
    scale = 1.0
    for _ in range(max_steps):
        # Measured anew every time: while one state runs away, all steps look short beside it.
        moving = finite & (moved > tolerance * scale)
        if not bool(moving.any()):
            break
        old = states[moving]
        new = step(old)
        held = new.square().sum(-1).isfinite()
        new = torch.where(held.unsqueeze(-1), new, old)
        states[moving], finite[moving] = new, held
        moved[moving] = torch.where(held, (new - old).norm(dim=-1), torch.inf)
        if bool(finite.any()):
            scale = float(states[finite].square().sum(-1).mean().sqrt())
    return states, moved <= tolerance * scale


def distinct_states(states: torch.Tensor) -> torch.Tensor:
    """Number the states (S, d) by the point each lies at: labels (S,) from 0, in order.

    A state lies at the first point that it differs from by at most MERGE_RADIUS times the root
    mean square norm of all.
    """
    labels = torch.full((len(states),), -1)
    radius = MERGE_RADIUS * float(states.square().sum(-1).mean().sqrt()) if len(states) else 0.0
    while bool((labels < 0).any()):
        first = int((labels < 0).nonzero()[0])
        near = (states - states[first]).norm(dim=-1) <= radius
        labels[near & (labels < 0)] = int(labels.max()) + 1
    return labels


def memory_ends(
    keys: torch.Tensor, queries: torch.Tensor, *, beta: float, tolerance: float, max_steps: int
) -> dict[str, Any]:
    """Where queries (S, d) end among keys (N, d) that are stored, as `ends_of` says it."""
    found = find_fixed_points(
        keys, beta=beta, starts=queries, tolerance=tolerance, max_steps=max_steps
    )
    basin = found.basin.numpy()
    kinds = np.repeat(np.array(found.kinds, dtype=object), basin)
    return _summary(basin, kinds, np.repeat(found.entries.numpy(), basin), len(queries))


def ends_of(states: torch.Tensor, rests: torch.Tensor, logits: torch.Tensor) -> dict[str, Any]:
    """Where the queries of a head ended (see `repeat`), states that attend with logits (S, N).

    SHARES: shares of the queries that end in a fixed point of each of the `KINDS`; `count`:
    distinct end points; `largest`: share of the queries in the largest basin; `entries`: median
    over the queries of the fewest softmax entries that sum to 0.9 at the end, NaN if none rests;
    `resting`: share of the queries that came to rest (the others are in no other figure).
    """
    attention = torch.softmax(logits[rests], dim=-1)
    basin = torch.bincount(distinct_states(states[rests])).numpy()
    kinds = np.array(classify(attention), dtype=object)
    return _summary(basin, kinds, effective_entries(attention).numpy(), len(rests))


def _summary(
    basin: np.ndarray, kinds: np.ndarray, entries: np.ndarray, total: int
) -> dict[str, Any]:
    shares = {name: (kinds == kind).sum() / total for name, kind in zip(SHARES, KINDS, strict=True)}
    return {
        **shares,
        "count": len(basin),
        "largest": basin.max(initial=0) / total,
        "entries": float(np.median(entries)) if len(entries) else np.nan,
        "resting": len(entries) / total,
    }


def first_window(source: str) -> tuple[LanguageModel, torch.Tensor]:
    """The model of the tables and the first 128 tokens (1, 128) of one of the seven texts."""
    return encoder(), text_windows(encoder(), sample_texts()[source], 128)[:1]


TOLERANCE = 1e-7  # in the units of `iteration`: a hundredth of the radius that joins end points


@stored(Path(__file__).with_name("ends.csv"), units=grid(loop=LOOPS, source=TEXTS))
def ENDS(loop: str, source: str) -> Rows:
    """The end points of one text in one loop, one row a layer and head."""
    model, window = first_window(source)
    return [
        {"layer": trace.layer, "head": head, **found}
        for trace in run_model(model, window)
        for head, found in enumerate(end_points(model, trace, loop, tolerance=TOLERANCE))
    ]


@stored(
    Path(__file__).with_name("settings_A15.csv"),
    units=grid(loop=("keys", "readback"), source=TEXTS, asked=(0.02, 0.05)),
    seconds=0.1,
)
def SETTINGS(loop: str, source: str, asked: float) -> Rows:
    """Table of settings of A15: a row for each kind of end point, by loop and text.

    value: the mean share over heads of the queries that end there, less the share asked for.
    """
    table = ENDS.read()
    here = (table["loop"] == loop) & (table["source"] == source)
    return [{"kind": k} | row for k in SHARES for row in mean_rows(table[k][here] - asked)]


def read_ends(loop: str) -> dict[str, np.ndarray]:
    """The stored end points of a loop by name, as arrays (texts, L, H), texts as in TEXTS.

    "shares" (texts, L, H, 3), one for each of SHARES.
    """
    table, axes = ENDS.read(), ("source", "layer", "head")
    names = ("count", "largest", "entries", "resting")
    shares = np.stack([array_of(table, name, *axes, loop=loop) for name in SHARES], axis=-1)
    return {"shares": shares} | {n: array_of(table, n, *axes, loop=loop) for n in names}

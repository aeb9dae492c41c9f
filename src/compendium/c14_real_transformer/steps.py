"""What a head's step does to the head's own overlap energy, and what turned heads would do.

Head h adds Δx_h = W_O^h Σ_j a_j v_j to the state of every token. The change of its own energy,
U_h(x + Δx_h) − U_h(x) with keys held fixed (see `energies`), needs no choice of how queries and
keys are written. The step has a part that is *common* to all tokens of a sequence, its mean over
them, and a part that is *specific* to the token, the rest; each can be added alone.

A step in no particular direction does not leave U where it was either: U is concave. The null is
that of `alignment`: what the heads return is turned by a random rotation of each head's space and
written by the output matrix of another head of the layer, drawn at random; the layer's bias stays.

Tables, over every text of the package, all windows of 32, 128 or 512 tokens in its first 512:
`steps`, one row a head; `stages`, one row a layer, the change of Σ_h U_h / H after each stage of
the layer; `turned`, the null of both, over all texts together.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bookmaker.tables import Rows, stored
from compendium.c14_real_transformer.energies import stage_energies
from compendium.common.models import encoder
from compendium.common.rows import array_of, grid, rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.language.encoder import (
    LanguageModel,
    LayerTrace,
    join_traces,
    run_model,
)
from spinformer.language.heads import overlap_energy, random_rotations
from spinformer.language.text import TEXTS, sample_texts, text_windows

LENGTHS = (32, 128, 512)
PARTS = ("whole", "common", "specific")
STAGES_OF_U = ("residual", "layer norm", "feed forward")
SEEDS = 10


@torch.no_grad()
def head_steps(model: LanguageModel, trace: LayerTrace) -> dict[str, np.ndarray]:
    """Mean change of each head's own overlap energy over the tokens of a sequence, (B, H) each.

    `whole`: by all that the head adds; `common`: by its mean over the tokens of the sequence
    alone; `specific`: by the rest alone.
    """
    moved = _returned(trace) @ read_of_written(*head_maps(model, trace.layer))
    common = moved.mean(-2, keepdim=True).expand_as(moved)
    parts = {"whole": moved, "common": common, "specific": moved - common}
    return {name: _change(trace, part).numpy() for name, part in parts.items()}


@torch.no_grad()
def turned_steps(
    model: LanguageModel, trace: LayerTrace, *, seed: Seed = 0
) -> tuple[np.ndarray, float]:
    """One draw of the null: mean changes of U_h by the turned head h alone, and of Σ_h U_h / H.

    Returns (H,), by what stands in the place of the head, and the mean over heads of the change by
    all of them and the layer's bias together; means over sequences and tokens.
    """
    reads, writes = head_maps(model, trace.layer)
    generator = numpy_generator(seed)
    turns = random_rotations(trace.values, seed=generator)
    writes = writes[torch.from_numpy(generator.permutation(len(writes)))] @ turns
    returned = _returned(trace)
    alone = returned @ read_of_written(reads, writes)
    bias = model.weights[f"encoder.layer.{trace.layer}.attention.output.dense.bias"]
    step = torch.einsum("hDv,bhnv->bnD", writes, returned) + bias
    together = torch.einsum("hqD,bnD->bhnq", reads, step)
    return _change(trace, alone).mean(0).numpy(), float(_change(trace, together).mean())


def stage_changes(model: LanguageModel, trace: LayerTrace) -> np.ndarray:
    """Change of Σ_h U_h / H since the layer's inputs, after each of STAGES_OF_U: (stages, B).

    Means over tokens.
    """
    before, after = stage_energies(model, trace, "overlap")
    return np.stack([(after[s] - before).mean((1, 2)).numpy() for s in STAGES_OF_U])


def traces_of(sources: Sequence[str], length: int) -> list[LayerTrace]:
    """The layers on windows of `length` tokens in the first 512 of each text, as one batch."""
    parts = [text_windows(encoder(), sample_texts()[name], length) for name in sources]
    windows = torch.cat([part[: max(LENGTHS) // length] for part in parts])
    return join_traces([run_model(encoder(), window[None]) for window in windows])


_HERE = Path(__file__).parent
_UNITS = grid(length=LENGTHS, source=TEXTS)
_CHECK: dict[str, Any] = {"checked": 3, "seconds": 6.0, "rtol": 1e-3}


@stored(_HERE / "steps.csv", units=_UNITS, **_CHECK, within=dict.fromkeys(PARTS, 1e-4))
def STEPS(length: int, source: str) -> Rows:
    """What heads do to their own energies in one text, means over its windows."""
    rows = []
    for trace in traces_of([source], length):
        means = {name: change.mean(0) for name, change in head_steps(encoder(), trace).items()}
        rows += rows_of(layer=trace.layer, head=range(len(means["whole"])), **means)
    return rows


@stored(_HERE / "stages.csv", units=_UNITS, **_CHECK, within=dict.fromkeys(STAGES_OF_U, 1e-4))
def STAGES(length: int, source: str) -> Rows:
    """What the stages of layers do to the energies of their heads in one text, means likewise."""
    rows = []
    for trace in traces_of([source], length):
        changes = stage_changes(encoder(), trace).mean(1)
        rows.append({"layer": trace.layer} | dict(zip(STAGES_OF_U, changes, strict=True)))
    return rows


@stored(_HERE / "turned.csv", units=grid(length=LENGTHS, seed=range(SEEDS)))
def TURNED(length: int, seed: int) -> Rows:
    """One draw of turned heads, over all windows of all texts.

    `whole`: the head's own energy, by what stands in its place; `residual`: Σ_h U_h / H by the
    whole turned step, the same for all heads of a layer.
    """
    rows = []
    for trace in traces_of(TEXTS, length):
        alone, together = turned_steps(encoder(), trace, seed=seed)
        place = {"layer": trace.layer, "head": range(len(alone))}
        rows += rows_of(**place, whole=alone, residual=together)
    return rows


def read_turned(name: str) -> np.ndarray:
    """A column of the stored null: (lengths, draws, L, H).

    >>> read_turned("whole").shape
    (3, 10, 6, 12)
    """
    return array_of(TURNED.read(), name, "length", "seed", "layer", "head")


def head_maps(model: LanguageModel, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Query maps (H, d, D) and output maps (H, D, d) of a layer."""
    name, heads = f"encoder.layer.{layer}.attention", model.architecture.heads
    reads = model.weights[f"{name}.self.query.weight"].unflatten(0, (heads, -1))
    writes = model.weights[f"{name}.output.dense.weight"].unflatten(-1, (heads, -1))
    return reads, writes.transpose(0, 1)


def read_of_written(reads: torch.Tensor, writes: torch.Tensor) -> torch.Tensor:
    """What each head's query map reads of what an output map writes, from the right: (H, d, d)."""
    return torch.einsum("hqD,hDv->hvq", reads, writes)


def _returned(trace: LayerTrace) -> torch.Tensor:
    """What every head returns, (B, H, N, d)."""
    return torch.softmax(trace.beta * trace.queries @ trace.keys.mT, dim=-1) @ trace.values


def _change(trace: LayerTrace, moved: torch.Tensor) -> torch.Tensor:
    """Mean change of U over tokens where the queries move by (B, H, N, d): (B, H)."""
    before, after = (
        overlap_energy(queries, keys=trace.keys, beta=trace.beta)
        for queries in (trace.queries, trace.queries + moved)
    )
    return (after - before).mean(-1)

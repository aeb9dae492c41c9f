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
from functools import cache
from pathlib import Path

import numpy as np
import torch

from bookmaker.tables import Rows, Table
from compendium.c14_real_transformer.energies import stage_energies
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.language.encoder import (
    LanguageModel,
    LayerTrace,
    join_traces,
    run_model,
)
from spinformer.language.heads import overlap_energy, random_rotations
from spinformer.language.minilm import load_model
from spinformer.language.text import TEXTS, sample_texts, text_windows

LENGTHS = (32, 128, 512)
PARTS = ("whole", "common", "specific")
STAGES_OF_U = ("residual", "layer norm", "feed forward")
SEEDS = 10


@record
class HeadSteps:
    """Mean change of each head's own overlap energy over the tokens of a sequence, (B, H) each.

    `whole`: by all that the head adds; `common`: by its mean over the tokens of the sequence
    alone; `specific`: by the rest alone.

    >>> one = np.ones((1, 2))
    >>> HeadSteps(whole=one, common=one, specific=one).whole.shape
    (1, 2)
    """

    whole: np.ndarray
    common: np.ndarray
    specific: np.ndarray


@torch.no_grad()
def head_steps(model: LanguageModel, trace: LayerTrace) -> HeadSteps:
    """What each head of a layer does to its own energy (see HeadSteps)."""
    reads, writes = _maps(model, trace)
    moved = _returned(trace) @ torch.einsum("hqD,hDv->hvq", reads, writes)
    common = moved.mean(-2, keepdim=True).expand_as(moved)
    parts = {"whole": moved, "common": common, "specific": moved - common}
    return HeadSteps(**{name: _change(trace, part).numpy() for name, part in parts.items()})


@torch.no_grad()
def turned_steps(
    model: LanguageModel, trace: LayerTrace, *, seed: Seed = 0
) -> tuple[np.ndarray, float]:
    """One draw of the null: mean changes of U_h by the turned head h alone, and of Σ_h U_h / H.

    Returns (H,), by what stands in the place of the head, and the mean over heads of the change by
    all of them and the layer's bias together; means over sequences and tokens.
    """
    reads, writes = _maps(model, trace)
    generator = numpy_generator(seed)
    turns = random_rotations(trace.values, seed=generator)
    writes = writes[torch.from_numpy(generator.permutation(len(writes)))] @ turns
    returned = _returned(trace)
    alone = returned @ torch.einsum("hqD,hDv->hvq", reads, writes)
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


def step_rows(model: LanguageModel, windows: torch.Tensor) -> Rows:
    """Rows of table `steps` for the windows (B, N) of one text: a layer and head, means over B."""
    rows = []
    for trace in _traces(model, windows):
        found = head_steps(model, trace)
        rows += [
            {"layer": trace.layer, "head": head}
            | {name: getattr(found, name).mean(0)[head] for name in PARTS}
            for head in range(found.whole.shape[1])
        ]
    return rows


def stage_rows(model: LanguageModel, windows: torch.Tensor) -> Rows:
    """Rows of table `stages` for the windows (B, N) of one text: a layer, means over B."""
    rows = []
    for trace in _traces(model, windows):
        changes = stage_changes(model, trace).mean(1)
        rows.append({"layer": trace.layer} | dict(zip(STAGES_OF_U, changes, strict=True)))
    return rows


def turned_rows(model: LanguageModel, windows: torch.Tensor, *, seed: int) -> Rows:
    """Rows of table `turned` for one draw over all windows (B, N) together: a layer and head.

    `whole`: the head's own energy, by what stands in its place; `residual`: Σ_h U_h / H by the
    whole turned step, the same for all heads of a layer.

    >>> from spinformer.language.untrained import example_model
    >>> len(turned_rows(example_model(), torch.tensor([[2, 5, 6, 3]]), seed=0))
    4
    """
    rows = []
    for trace in _traces(model, windows):
        alone, together = turned_steps(model, trace, seed=seed)
        rows += [
            {"layer": trace.layer, "head": head, "whole": change, "residual": together}
            for head, change in enumerate(alone)
        ]
    return rows


def windows_of(model: LanguageModel, sources: Sequence[str], length: int) -> torch.Tensor:
    """Windows of `length` tokens in the first 512 of each text: (texts · 512/length, length)."""
    parts = [text_windows(model, sample_texts()[name], length) for name in sources]
    return torch.cat([part[: max(LENGTHS) // length] for part in parts])


@cache
def _model() -> LanguageModel:
    return load_model()


def _step_rows(length: int, source: str) -> Rows:
    return step_rows(_model(), windows_of(_model(), [source], length))


def _stage_rows(length: int, source: str) -> Rows:
    return stage_rows(_model(), windows_of(_model(), [source], length))


def _turned_rows(length: int, seed: int) -> Rows:
    return turned_rows(_model(), windows_of(_model(), TEXTS, length), seed=seed)


_OF_A_TEXT = [{"length": length, "source": name} for length in LENGTHS for name in TEXTS]
STEPS = Table(path=Path(__file__).with_name("steps.csv"), units=_OF_A_TEXT, rows=_step_rows)
STAGES = Table(path=Path(__file__).with_name("stages.csv"), units=_OF_A_TEXT, rows=_stage_rows)
TURNED = Table(
    path=Path(__file__).with_name("turned.csv"),
    units=[{"length": length, "seed": seed} for length in LENGTHS for seed in range(SEEDS)],
    rows=_turned_rows,
)


def read_steps(part: str) -> np.ndarray:
    """A column of the stored steps of heads: (lengths, texts, L, H)."""
    return _column(STEPS, part, "length", "source", "layer", "head")


def read_stages(stage: str) -> np.ndarray:
    """A column of the stored changes along the stages of a layer: (lengths, texts, L)."""
    return _column(STAGES, stage, "length", "source", "layer")


def read_turned(name: str) -> np.ndarray:
    """A column of the stored null: (lengths, draws, L, H).

    >>> read_turned("whole").shape
    (3, 10, 6, 12)
    """
    return _column(TURNED, name, "length", "seed", "layer", "head")


def _column(table: Table, name: str, *axes: str) -> np.ndarray:
    columns = table.read()
    return columns[name].reshape([len(np.unique(columns[axis])) for axis in axes])


def _traces(model: LanguageModel, windows: torch.Tensor) -> list[LayerTrace]:
    return join_traces([run_model(model, window[None]) for window in windows])


def _maps(model: LanguageModel, trace: LayerTrace) -> tuple[torch.Tensor, torch.Tensor]:
    """Query maps (H, d, D) and output maps (H, D, d) of the layer."""
    name = f"encoder.layer.{trace.layer}.attention"
    heads = model.architecture.heads
    reads = model.weights[f"{name}.self.query.weight"].unflatten(0, (heads, -1))
    writes = model.weights[f"{name}.output.dense.weight"].unflatten(-1, (heads, -1))
    return reads, writes.transpose(0, 1)


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

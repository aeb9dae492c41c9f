"""What the 270 heads of a generator do to their own energies, and what kind of head each is.

Measured as for MiniLM in chapter 14: seven texts of 128 tokens, the change of a head's own overlap
energy U by the step it takes, whole, common to all tokens, specific to one; nulls of turned heads.
Float32 sums of a thousand terms: tolerances are 1e-3 of a change's size.
"""

from typing import Any

import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.common.models import block_trace, causal_attention, decoder, text_numbers
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.statistics import student_interval
from spinformer.language.decoder import BlockTrace, Decoder, block_queries
from spinformer.language.heads import HeadReport, head_report, overlap_energy


def text_inputs(model: Decoder, *, length: int = 128) -> Tensor:
    """The first `length` words of the seven texts, embedded: (7, length, D)."""
    return model.embedding[torch.stack([numbers[:length] for numbers in text_numbers(model)])]


def kinds(model: Decoder, trace: BlockTrace) -> dict[str, Tensor]:
    """Mean attention (H,) to the first token and to the one before, from the second token on."""
    seen = causal_attention(model, trace)[:, :, 1:]
    previous = seen.diagonal(0, -2, -1)
    return {"sink": seen[..., 0].mean((0, 2)), "previous": previous.mean((0, 2))}


def stage_changes(model: Decoder, number: int, trace: BlockTrace) -> dict[str, Tensor]:
    """Change of U (B, H) with its keys held, mean over tokens, by attention and the block."""
    keys = trace.keys.repeat_interleave(model.heads // model.key_heads, 1)
    how: dict[str, Any] = {"beta": model.head_width**-0.5, "mask": _earlier(trace)}

    def energy(states: Tensor) -> Tensor:
        asked = block_queries(model, number, states)
        return overlap_energy(asked, keys=keys, **how)[..., 1:].mean(-1)

    before = energy(trace.inputs)
    after = {"attention": trace.inputs + trace.attended, "block": trace.outputs}
    return {name: energy(states) - before for name, states in after.items()}


def layer_report(
    model: Decoder, inputs: Tensor, number: int, *, draws: int
) -> tuple[BlockTrace, HeadReport]:
    """What block `number` computes on inputs (B, N, D), and what its heads do to their energies."""
    trace = block_trace(model, inputs, number)
    report = head_report(
        trace.queries,
        keys=trace.keys,
        values=trace.values,
        states=trace.inputs,
        read=lambda states: block_queries(model, number, states),
        output=model.blocks[number]["output"],
        outputs=trace.attended,
        mask=_earlier(trace),
        draws=draws,
    )
    return trace, report


def _earlier(trace: BlockTrace) -> Tensor:
    tokens = trace.inputs.shape[1]
    return torch.ones(tokens, tokens, dtype=torch.bool).tril()


@stored(
    "heads",
    parameter_product(layer=range(30)),
    checked=2,
    seconds=8.0,
    rtol=1e-2,
    within=dict.fromkeys(("whole", "common", "specific", "attention", "block"), 1e-3),
)
def head_table(layer: int) -> Rows:
    """Energies and kinds of the nine heads of a layer; `_error`: half of the 95 % interval.

    whole, common, specific: change of the head's own U by its own step; `_z`: in spreads of the
    null. layer_attention, layer_block: change of U of all heads of the layer together by all that
    its attention, and the whole block, add.
    """
    model = decoder()
    trace, report = layer_report(model, text_inputs(model), layer, draws=20)
    told = report.table()
    names = [name for name in told[0] if name != "fell" and "cosine" not in name]
    columns: dict[str, Any] = {name: [row[name] for row in told] for name in names}
    for name, changes in stage_changes(model, layer, trace).items():
        total = changes.sum(1).numpy()
        low, high = student_interval(total)
        columns |= {f"layer_{name}": total.mean(), f"layer_{name}_error": 0.5 * (high - low)}
    return rows_of(**columns, **kinds(model, trace))

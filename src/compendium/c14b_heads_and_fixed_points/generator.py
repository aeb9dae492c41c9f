"""Where the heads of a second model, which is causal, would come to rest if they were repeated.

Written before the run. Every sixth layer of SmolLM2, seven texts of 128 tokens. The memory of a
head is what the last token sees: all keys, each turned by its own position. Each fourth token of
the text asks as if it stood last. The loops are those of the encoder: "keys", the query becomes
the average of the keys; "readback", what the head's output matrix writes as its own query matrix
reads it, over the median size of the states, which the norm would divide by, held fixed.

A15 as for the encoder: by their keys the heads show all three kinds of resting points (each more
than 0.05 of the queries less the error over texts), and some attend to at most one key in 32;
through its own values no head has more than one resting point, and negative feedback leads in more
than half of them.
"""

import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.c14b_heads_and_fixed_points.loops import (
    attend,
    ends_of,
    leading_eigenvalues,
    loop_jacobians,
    memory_ends,
    repeat,
)
from compendium.common.models import block_trace, decoder
from compendium.common.rows import rows_of
from spinformer.hopfield.fixed_points import effective_entries
from spinformer.language.decoder import Decoder, block_queries, token_numbers
from spinformer.language.text import sample_texts

LENGTH, TOLERANCE = 128, 1e-6


@torch.no_grad()
def memory_of(model: Decoder, number: int, inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Keys, read-back values (H, N, d) and queries (H, S, d) of one text (1, N, D), in float64.

    All as the last token meets them.
    """
    trace, last = block_trace(model, inputs, number), inputs.shape[1] - 1
    shared = model.heads // model.key_heads
    keys, values = (x[0].repeat_interleave(shared, 0) for x in (trace.keys, trace.values))

    def asked(states: Tensor) -> Tensor:
        """Queries (H, S, d) of states (S, D) that stand last."""
        return block_queries(model, number, states[:, None], start=last)[:, :, 0].transpose(0, 1)

    size = trace.inputs[0].square().mean(-1).sqrt().median()
    output = model.blocks[number]["output"].unflatten(1, (model.heads, -1))
    read = []
    for head in range(model.heads):
        # Large, so that the norm's small constant does not count; then its division undone.
        written = 1e4 * values[head] @ output[:, head].T
        scale = written.square().mean(-1, keepdim=True).sqrt() / (1e4 * size)
        read.append(asked(written)[head] * scale)
    queries = asked(trace.inputs[0, ::4])
    return keys.double(), torch.stack(read).double(), queries.double()


@stored(
    "generator",
    [{"layer": layer} for layer in range(0, 30, 6)],
    seconds=40.0,
    within={"single": 0.05, "metastable": 0.05, "average": 0.05, "real": 0.01, "imaginary": 0.01},
)
def GENERATOR(layer: int) -> Rows:
    """One row a text and head: kinds of resting points by its keys; what its own values lead to."""
    model = decoder()
    beta = model.head_width**-0.5
    rows: Rows = []
    for source, text in sample_texts().items():
        numbers = token_numbers(model, text)[:LENGTH]
        keys, read, queries = memory_of(model, layer, model.embedding[numbers][None])
        for head in range(model.heads):
            now = effective_entries(torch.softmax(beta * queries[head] @ keys[head].mT, -1))
            ends = memory_ends(keys[head], queries[head], beta=beta, tolerance=TOLERANCE)
            step = attend(keys[head], values=read[head], beta=beta)
            states, rests = repeat(step, queries[head], tolerance=TOLERANCE)
            back = ends_of(states, rests, beta * states @ keys[head].mT)
            slope = loop_jacobians(keys[head], values=read[head], at=states[0], beta=beta)
            leading = leading_eigenvalues(slope)
            rows += rows_of(source=source, head=head, entries=now.median())
            rows[-1] |= ends | {name: back[name] for name in ("count", "resting")}
            rows[-1] |= {"real": float(leading.real), "imaginary": abs(float(leading.imag))}
    return rows

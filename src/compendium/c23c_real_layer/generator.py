"""The parts of the spins of a layer put to a second trained model, which is causal.

Written before the run. As for the encoder, with the same fits (`attention_scores`, the ridge), in
every sixth of the 30 layers of SmolLM2. What differs: half of all weights are zero, "uniform" is
the mean of the tokens seen, and the response Σ C_mn ∂J_mn/∂x is taken by automatic derivatives, so
that positions turn and the norm divides; "other head" gives each head the correlations of another.

B9c as for the encoder: symmetrised weights predict more than half of the attention output, and 0.1
more than another head's, and the response adds more than 0.05 to what the own input tells of the
feed-forward output. Expected: less than in the encoder, since to symmetrise a causal mask is to
show the future.

B12, of which the encoder was not asked: the own input predicts more than half of the response.
"""

from dataclasses import replace

import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.c23c_real_layer.study import (
    LENGTH,
    WINDOWS,
    attention_scores,
    beside_own,
    mixtures,
    unseen_scores,
    written,
)
from compendium.common.models import block_trace, causal_attention, decoder
from spinformer.language.decoder import Decoder, token_numbers
from spinformer.language.text import sample_texts
from spinformer.spins.solvers import vector_spins

PARTS = beside_own("uniform", "symmetrized", "balanced", "directed", "other head")
STRENGTH = 0.5


def text_blocks(
    model: Decoder, number: int, inputs: Tensor
) -> tuple[dict[str, Tensor], Tensor, dict[str, Tensor]]:
    """What each head's PARTS write into the residual stream, (B, H, N, D), and the output of the
    attention of a block; its own input, the responses and its output, by token.
    """
    trace, block = block_trace(model, inputs, number), model.blocks[number]
    alone, weights = replace(model, blocks=[block]), causal_attention(model, trace)
    values = trace.values.repeat_interleave(model.heads // model.key_heads, 1)
    mixed = mixtures(values, weights, torch.arange(model.heads).roll(1))
    mixed["uniform"] = values.cumsum(2) / torch.arange(1, values.shape[2] + 1)[:, None]
    terms = {name: part.double() for name, part in written(mixed, block["output"]).items()}

    exact = values.double()
    size = exact.square().sum(-1).mean(-1).sqrt()[..., None, None]
    fields, couplings = exact / size * model.head_width**0.5, STRENGTH * weights.double()
    solved = vector_spins(couplings, fields=fields, beta=1.0, tolerance=1e-8)
    correlation = solved.correlations.to(inputs)

    def response(correlation: Tensor) -> Tensor:
        """Σ C_mn ∂J_mn/∂x of the one block, (B, N, D)."""
        leaf = trace.inputs.clone().requires_grad_()
        couplings = STRENGTH * causal_attention(alone, block_trace(alone, leaf, 0))
        return torch.autograd.grad(couplings, leaf, correlation)[0]

    stream = trace.inputs + trace.attended
    blocks = {
        "own": stream / stream.square().mean(-1, keepdim=True).sqrt(),
        "response": response(correlation),
        "other head": response(correlation.roll(1, 1)),
        "output": trace.outputs - stream,
    }
    flat = {name: part.flatten(0, 1).double() for name, part in blocks.items()}
    return terms, trace.attended.double(), flat


@stored(
    "generator",
    [{"layer": layer} for layer in range(0, 30, 6)],
    seconds=40.0,
    rtol=1e-3,
    within={"score": 2e-3},
)
def GENERATOR(layer: int) -> Rows:
    """What the parts of its spins predict of a layer of SmolLM2, texts left out one by one."""
    model, texts = decoder(), sample_texts()
    words = [token_numbers(model, text)[: WINDOWS * LENGTH] for text in texts.values()]
    inputs = (model.embedding[numbers.view(WINDOWS, LENGTH)] for numbers in words)
    found = [text_blocks(model, layer, states) for states in inputs]
    terms, goals, blocks = zip(*found, strict=True)
    scores = attention_scores(terms, targets=goals, sets=PARTS)
    fits = {
        "fed, own": (("own",), "output"),
        "fed, response": (("own", "response"), "output"),
        "fed, other head": (("own", "other head"), "output"),
        "response of own": (("own",), "response"),
    }
    for name, (chosen, goal) in fits.items():
        scores[name] = unseen_scores(blocks, chosen, [block[goal] for block in blocks])
    return [
        {"text": text, "part": part, "score": score}
        for part, values in scores.items()
        for text, score in zip(texts, values, strict=True)
    ]

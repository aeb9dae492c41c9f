"""A layer's heads as spin systems, and what their parts are in the layer's residual stream.

The values v of a head, scaled to a mean square length of one in a window, are the fields, its
attention weights P times g the ordered couplings [bal2021transformers, Sec. 8], β = 1. Sequences
(B, N, D), heads (B, H, N, d), float64; layers and heads from 0.

Table `layers`: R² = 1 − (squared error)/(squared deviation from the mean of the training texts),
over tokens and channels, on each of the seven texts from the others.

- attention: from terms by heads with a number each, "own" alone, others beside it.
- feed-forward: by ridge regression, "own" the network's own input, others beside it: "random units"
  are as many random GELU units of it, "onsager" is it times the token's Onsager share.
- normalization: "common gain" is one number for all tokens in the place of LayerNorm's factors;
  "gain" no R² but the correlation over tokens of their logarithms and those of the mean gain.

Written down before the table was made, beside the page's: symmetrized weights predict less than
directed ones, which leave out nothing but the own token; gains and orders beyond the first change
R² by less than 0.05 either way; random units add as much as the response; gains correlate with
LayerNorm's by less than 0.5; without training another head's weights do as well as the own (looked
at in two layers of two draws: nearly, 0.92 and 0.94. No table holds it).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bookmaker.tables import Rows, stored
from compendium.common import models
from compendium.common.decoder import Decoder
from compendium.common.rows import parameter_product
from spinformer.core.random import torch_generator
from spinformer.language.text import sample_texts, text_windows
from spinformer.language.traces import (
    LayerTrace,
    attention_scores as scores_of,
    output_matrix,
    project,
    trace_layers,
)
from spinformer.spins.module import response_attention
from spinformer.spins.solvers import solve_saddle_point


class LayerParts(NamedTuple):
    """What the spins of a layer's heads are made of.

    `terms`: by name, (B, H, N, D), what each head's part writes into the residual stream: those of
    `mixing_terms`, and "residual", "mixing" and "onsager" of the saddle point. `responses`: by
    name, (B, N, D): "response" Σ C_mn ∂J_mn/∂x_i, and the same of another head's weights and of
    permuted tokens. `gain` (B, H, N): 1/(2τ), `onsager` (B, H, N): the Onsager share of τ.
    """

    terms: dict[str, Tensor]
    responses: dict[str, Tensor]
    gain: Tensor
    onsager: Tensor


def layer_parts(model: nn.Module, trace: LayerTrace, *, strength: float = 0.5) -> LayerParts:
    """The parts of every head of a layer; `strength` is g."""
    values = trace.values
    weights, other, moved = _weights(trace)
    root = values.shape[-1] ** 0.5
    query, output = models.head_maps(model, trace.layer)
    key = models.layer_modules(model, trace.layer).attention.self.key.weight.view_as(query)
    size = values.square().sum(dim=-1).mean(dim=-1).sqrt()[..., None, None]
    fields = values / size
    solved = solve_saddle_point(strength * weights, fields=fields * root, beta=1.0, tolerance=1e-8)
    gain = 0.5 / (solved.saddle.value - strength * weights.diagonal(dim1=-2, dim2=-1))
    spins = solved.magnetization / root
    residual = gain.unsqueeze(-1) * fields
    onsager = 1 - gain / (1 - spins.square().sum(dim=-1))
    mixed = {
        "residual": size * residual,
        "mixing": size * (spins - residual),
        "onsager": size * onsager.unsqueeze(-1) * spins,
    }

    def response(attention: Tensor) -> Tensor:
        g = response_attention(
            strength * attention, correlation=solved.correlations, coupling_strength=strength
        )
        pulls = g @ trace.keys @ query + g.mT @ trace.queries @ key
        return trace.beta * pulls.sum(dim=1)

    whole = response(weights)
    responses = {
        "response": whole,
        "other head": response(weights[:, other]),
        "shuffled": whole[:, moved],
    }
    terms = mixing_terms(model, trace) | written(mixed, output)
    return LayerParts(terms, responses, gain, onsager)


def mixing_terms(model: nn.Module, trace: LayerTrace) -> dict[str, Tensor]:
    """The terms that need no spins to be solved: `mixtures`, "uniform", the mean value, and
    "shuffled", as "symmetrized" with the weights of permuted tokens."""
    values = trace.values
    weights, other, moved = _weights(trace)
    mixed = mixtures(values, weights, other)
    mixed["uniform"] = values.mean(dim=-2, keepdim=True).expand_as(values)
    shuffled = weights[..., moved, :][..., moved]
    mixed["shuffled"] = mixtures(values, shuffled, other)["symmetrized"]
    return written(mixed, models.head_maps(model, trace.layer)[1])


def mixtures(values: Tensor, weights: Tensor, other: Tensor) -> dict[str, Tensor]:
    """What heads make of values (B, H, N, d) by weights P, their own or those of `other` heads.

    "own" is v, "directed" Σ_{j≠i} P_ij v_j, "symmetrized" Σ_{j≠i} ½(P + Pᵀ)_ij v_j, "balanced" the
    same with each row of weights divided by its sum. "balanced" contains P itself, so its null
    "balanced shuffled" keeps P and shuffles the entries of each row of Pᵀ. "transposed" is Pᵀ
    alone, with each row divided by its sum.
    """
    directed = weights - torch.diag_embed(weights.diagonal(dim1=-2, dim2=-1))
    between = 0.5 * (directed + directed.mT)
    balanced = between / between.sum(dim=-1, keepdim=True)
    shuffled = directed + shuffled_rows(directed.mT)
    return {
        "own": values,
        "symmetrized": between @ values,
        "balanced": balanced @ values,
        "balanced other": balanced[:, other] @ values,
        "balanced shuffled": shuffled / shuffled.sum(dim=-1, keepdim=True) @ values,
        "transposed": directed.mT / directed.mT.sum(dim=-1, keepdim=True) @ values,
        "directed": directed @ values,
        "other head": between[:, other] @ values,
    }


def shuffled_rows(weights: Tensor) -> Tensor:
    """Weights (..., N, N) with the entries of each row in a random order, the diagonal kept."""
    draws = torch.rand(weights.shape, generator=torch_generator(0), dtype=torch.float64)
    diagonal = torch.eye(weights.shape[-1], dtype=torch.bool)
    # Infinite keys are the last of each order, so that the diagonal takes no part.
    order = draws.masked_fill(diagonal, torch.inf).argsort(-1)[..., :-1]
    columns = diagonal.int().argsort(dim=-1, stable=True)[..., :-1]
    moved = weights.gather(-1, order)
    return weights.scatter(-1, columns.expand_as(order), moved)


def without_sinks(
    terms: Mapping[str, Tensor], trace: LayerTrace, left_out: int
) -> tuple[dict[str, Tensor], Tensor]:
    """Terms and attention output but for the `left_out` tokens of each window that receive most,
    which still act on the others."""
    received = _weights(trace)[0].sum((-3, -2))
    keep = received.argsort(-1)[:, : received.shape[-1] - left_out].sort(-1).values
    rows = torch.arange(len(keep))[:, None]
    kept = {name: term[rows, :, keep].transpose(1, 2) for name, term in terms.items()}
    return kept, trace.attended[rows, keep]


def _weights(trace: LayerTrace) -> tuple[Tensor, Tensor, Tensor]:
    """Attention weights (B, H, N, N), for each head another, the next one in a random cyclic
    order, and a permutation of tokens."""
    generator = torch_generator(0)
    weights = trace.attention
    order = torch.randperm(weights.shape[1], generator=generator)
    other = torch.empty_like(order)
    other[order] = order.roll(1)
    return weights, other, torch.randperm(weights.shape[-1], generator=generator)


def written(mixed: Mapping[str, Tensor], output: Tensor) -> dict[str, Tensor]:
    """What parts (B, H, N, d) write into the stream, (B, H, N, D), by `output` maps (H, D, d)."""
    return {name: torch.einsum("bhnd,hod->bhno", part, output) for name, part in mixed.items()}


LENGTH = 64
WINDOWS = 4
RIDGES = (0.003, 0.03, 0.3, 3.0)
Text = tuple[LayerTrace, LayerParts]


def beside_own(*names: str) -> dict[str, tuple[str, ...]]:
    """Sets of terms by name: each beside the own one, which comes first, alone."""
    return {"own": ("own",)} | {name: ("own", name) for name in names}


ATTENTION: dict[str, tuple[str, ...]] = beside_own(
    "uniform", "symmetrized", "directed", "other head", "shuffled"
) | {
    "all orders": ("residual", "mixing"),
    "onsager": ("residual", "mixing", "onsager"),
}
FEED_FORWARD = beside_own("response", "other head", "shuffled", "onsager", "random units")


class Moments(NamedTuple):
    """What a fit needs of a text: the number of tokens, sums over them, (rows, ...), and products
    of rows, (rows, rows). A fit that leaves out a text adds up those of the others."""

    tokens: Tensor
    sums: Tensor
    products: Tensor

    @classmethod
    def added(cls, texts: Sequence["Moments"]) -> "Moments":
        """Those of several texts together."""
        return cls(
            torch.stack([text.tokens for text in texts]).sum(0),
            torch.stack([text.sums for text in texts]).sum(0),
            torch.stack([text.products for text in texts]).sum(0),
        )

    def about(self, mean: Tensor) -> Tensor:
        """The products of the deviations from a `mean`."""
        mixed = self.sums @ mean.T
        return self.products - mixed - mixed.T + self.tokens * mean @ mean.T


def attention_scores(
    terms: Sequence[Mapping[str, Tensor]],
    *,
    targets: Sequence[Tensor],
    sets: Mapping[str, Sequence[str]] = ATTENTION,
) -> dict[str, list[float]]:
    """R² of the attention output on each text, by the name of a set of terms, from the other texts.

    `terms` and outputs `targets`, a text each; a set has a number for each term and head.
    """
    names = sorted({name for chosen in sets.values() for name in chosen})
    heads = terms[0][names[0]].shape[1]

    def moments(known: Mapping[str, Tensor], goal: Tensor) -> Moments:
        """Of all terms and, last, the goal."""
        flat = [known[name].transpose(0, 1).flatten(1, 2) for name in names]
        rows = torch.cat([*flat, goal.flatten(0, 1)[None]])
        return Moments(
            torch.tensor(rows.shape[1]), rows.sum(1), rows.flatten(1) @ rows.flatten(1).T
        )

    texts = [moments(known, goal) for known, goal in zip(terms, targets, strict=True)]
    scores: dict[str, list[float]] = {name: [] for name in sets}
    for tested in texts:
        others = Moments.added([text for text in texts if text is not tested])
        mean = others.sums / others.tokens
        fit = others.about(mean)
        met = tested.about(mean)
        for name, chosen in sets.items():
            places = torch.cat([names.index(k) * heads + torch.arange(heads) for k in chosen])
            # The pseudo-inverse: heads that do nothing take no part.
            weights = torch.linalg.pinv(fit[places][:, places], rtol=1e-10) @ fit[places, -1]
            told = 2 * met[places, -1] - met[places][:, places] @ weights
            scores[name].append(float(weights @ told / met[-1, -1]))
    return scores


def feed_forward_scores(texts: Sequence[Text]) -> dict[str, list[float]]:
    """R² of the feed-forward output on each text, from the others; at least three texts."""
    width = texts[0][0].inputs.shape[-1]
    draw = torch.randn(width, width, generator=torch_generator(0), dtype=torch.float64)
    blocks = []
    targets = []
    for trace, parts in texts:
        own = trace.normalized.flatten(0, 1)
        share = parts.onsager.mean(dim=1).flatten().unsqueeze(-1)
        block = {"own": own, "onsager": share * own}
        block |= {name: part.flatten(0, 1) for name, part in parts.responses.items()}
        block["random units"] = functional.gelu(functional.normalize(own, dim=-1) @ draw)
        blocks.append(block)
        targets.append(trace.fed.flatten(0, 1))
    return {name: unseen_scores(blocks, one, targets) for name, one in FEED_FORWARD.items()}


def unseen_scores(
    blocks: Sequence[Mapping[str, Tensor]], chosen: Sequence[str], targets: Sequence[Tensor]
) -> list[float]:
    """R² of ridge regression on the `chosen` vectors of a token, each text left out in turn: the
    next one chooses the ridge, the others train."""
    inputs = [torch.cat([block[name] for name in chosen], dim=-1) for block in blocks]
    texts = range(len(inputs))
    scores = []
    for unseen in texts:
        tune = (unseen + 1) % len(inputs)
        train = [n for n in texts if n not in (unseen, tune)]
        x = torch.cat([inputs[n] for n in train])
        y = torch.cat([targets[n] for n in train])
        shift = x.mean(dim=0)
        scale = x.std(dim=0).clamp_min(1e-12)
        centre = y.mean(dim=0)
        x = (x - shift) / scale
        y = y - centre
        square = x.T @ x
        along = x.T @ y
        found = []
        for ridge in RIDGES:
            matrix = square + ridge * len(x) * torch.eye(len(square), dtype=square.dtype)
            weights = torch.linalg.solve(matrix, along) / scale[:, None]
            goals = [(n, targets[n] - centre) for n in (tune, unseen)]
            found.append([_share(y - (inputs[n] - shift) @ weights, y) for n, y in goals])
        scores.append(max(found)[1])
    return scores


def normalization_scores(texts: Sequence[Text]) -> dict[str, list[float]]:
    """How LayerNorm's factor varies over the tokens of each text, and with what."""
    scores: dict[str, list[float]] = {"common gain": [], "gain": []}
    for trace, parts in texts:
        centred = trace.residual - trace.residual.mean(dim=-1, keepdim=True)
        factor = 1 / centred.square().mean(dim=-1).sqrt()
        unit = centred * factor.unsqueeze(-1)
        one = (unit * centred).sum() / centred.square().sum()
        scores["common gain"].append(_share(unit - one * centred, unit))
        both = torch.stack([parts.gain.log().mean(dim=1), factor.log()]).flatten(1)
        scores["gain"].append(float(torch.corrcoef(both)[0, 1]))
    return scores


def _share(wrong: Tensor, whole: Tensor) -> float:
    return 1 - float(wrong.square().sum() / whole.square().sum())


@torch.no_grad()
def layer_rows(layer: int, *, windows: slice) -> Rows:
    """What the parts of one layer predict of these windows: a row for each text, target, part."""
    encoder = models.encoder()
    model = encoder.model
    texts = sample_texts()
    tokens = [text_windows(encoder, words, LENGTH)[windows] for words in texts.values()]
    traces = [trace_layers(model, one, layers=[layer])[0] for one in tokens]
    found = [(trace, layer_parts(model, trace)) for trace in traces]
    terms = [parts.terms for _, parts in found]
    attended = [trace.attended for trace in traces]
    targets = {
        "attention": attention_scores(terms, targets=attended),
        "feed-forward": feed_forward_scores(found),
        "normalization": normalization_scores(found),
    }
    return [
        {"text": text, "target": target, "part": part, "score": score}
        for target, scores in targets.items()
        for part, values in scores.items()
        for text, score in zip(texts, values, strict=True)
    ]


@stored("layers", [{"layer": layer} for layer in range(6)], seconds=12.0, rtol=1e-3)
def layers_table(layer: int) -> Rows:
    """What the parts of one layer predict of the first windows of each text."""
    return layer_rows(layer, windows=slice(WINDOWS))


@stored("layers_later", [{"layer": layer} for layer in range(6)], seconds=12.0, rtol=1e-3)
def layers_later(layer: int) -> Rows:
    """The same of the windows that follow."""
    return layer_rows(layer, windows=slice(WINDOWS, 2 * WINDOWS))


PARTS = beside_own("uniform", "symmetrized", "balanced", "directed", "other head")
STRENGTH = 0.5


class TextBlock(NamedTuple):
    """Of a block of the generator on a text: what each head's PARTS write into the residual stream,
    (B, H, N, D), the output of its attention, (B, N, D), and, by token, (B·N, D), the network's own
    input, the responses and its output."""

    terms: dict[str, Tensor]
    attended: Tensor
    by_token: dict[str, Tensor]


def text_blocks(model: Decoder, number: int, inputs: Tensor) -> TextBlock:
    """The parts of block `number` for token vectors (B, N, D)."""
    trace = trace_layers(model.model, inputs, layers=[number])[0]
    weights = trace.attention
    values = trace.values.repeat_interleave(model.heads // trace.values.shape[1], 1)
    mixed = mixtures(values, weights, torch.arange(model.heads).roll(1))
    mixed["uniform"] = values.cumsum(2) / torch.arange(1, values.shape[2] + 1)[:, None]
    output = output_matrix(model.model, number).unflatten(1, (model.heads, -1)).transpose(0, 1)
    terms = {name: part.double() for name, part in written(mixed, output).items()}

    exact = values.double()
    size = exact.square().sum(-1).mean(-1).sqrt()[..., None, None]
    fields = exact / size * model.head_width**0.5
    couplings = STRENGTH * weights.double()
    solved = solve_saddle_point(couplings, fields=fields, beta=1.0, tolerance=1e-8)
    correlation = solved.correlations.to(inputs)

    def response(correlation: Tensor) -> Tensor:
        """Σ C_mn ∂J_mn/∂x of the one block, (B, N, D)."""
        leaf = trace.inputs.clone().requires_grad_()
        queries = project(model.model, number, "query", states=leaf)
        keys = project(model.model, number, "key", states=leaf)
        scores = scores_of(queries, keys, beta=trace.beta, mask=trace.mask)
        couplings = STRENGTH * torch.softmax(scores, dim=-1)
        return torch.autograd.grad(couplings, leaf, correlation)[0]

    stream = trace.residual
    blocks = {
        "own": stream / stream.square().mean(-1, keepdim=True).sqrt(),
        "response": response(correlation),
        "other head": response(correlation.roll(1, 1)),
        "output": trace.fed,
    }
    flat = {name: part.flatten(0, 1).double() for name, part in blocks.items()}
    return TextBlock(terms, trace.attended.double(), flat)


@stored(
    "generator",
    parameter_product(layer=range(0, 30, 6)),
    seconds=15.0,
    rtol=1e-3,
    within={"score": 2e-3},
)
def generator_table(layer: int) -> Rows:
    """What the parts of its spins predict of a layer of SmolLM2, which is causal: chapter 42b.

    By the fits of the encoder. What differs: "uniform" is the mean of the tokens seen, the response
    Σ C_mn ∂J_mn/∂x is taken by automatic derivatives, so that positions turn and the norm divides,
    and "other head" gives each head the correlations of another.

    Written before the run: B9c is asked as of the encoder, and expected to be met less, since to
    symmetrize a causal mask is to show the future; B12, of which the encoder was not asked: the own
    input predicts more than half of the response.
    """
    model = models.decoder()
    words = [text[: WINDOWS * LENGTH].view(WINDOWS, LENGTH) for text in models.text_numbers(model)]
    found = [text_blocks(model, layer, model.embedding[numbers]) for numbers in words]
    blocks = [one.by_token for one in found]
    scores = attention_scores(
        [one.terms for one in found], targets=[one.attended for one in found], sets=PARTS
    )
    fed = [block["output"] for block in blocks]
    answer = [block["response"] for block in blocks]
    for name, chosen in beside_own("response", "other head").items():
        scores[f"fed, {name}"] = unseen_scores(blocks, chosen, fed)
    scores["response of own"] = unseen_scores(blocks, ("own",), answer)
    return [
        {"text": text, "part": part, "score": score}
        for part, values in scores.items()
        for text, score in zip(sample_texts(), values, strict=True)
    ]


# Sets of terms for the question who is made to look back: live, and for the table of settings.
_NAMES = (
    *("directed", "balanced", "balanced shuffled", "balanced other", "transposed", "uniform"),
    *("symmetrized", "other head"),
)
MIXED = {name: ("own", name) for name in _NAMES}


@torch.no_grad()
def mixing_scores(
    *, length: int, windows: int, left_out: Sequence[int], skipped: int = 0
) -> dict[int, np.ndarray]:
    """R² of the attention output, (sets of MIXED, layers, texts), by the tokens left out.

    Of so many `windows` of each text, behind the first that are `skipped`.
    """
    encoder = models.encoder()
    model = encoder.model
    chosen = slice(skipped, skipped + windows)
    rows = [text_windows(encoder, words, length)[chosen] for words in sample_texts().values()]
    runs = [trace_layers(model, text) for text in rows]
    found: dict[int, list[Any]] = {count: [] for count in left_out}
    for traces in zip(*runs, strict=True):
        terms = [mixing_terms(model, trace) for trace in traces]
        for count, told in found.items():
            kept = [
                without_sinks(known, trace, count)
                for known, trace in zip(terms, traces, strict=True)
            ]
            scored = attention_scores(
                [known for known, _ in kept], targets=[goal for _, goal in kept], sets=MIXED
            )
            told.append(list(scored.values()))
    return {count: np.swapaxes(np.array(told), 0, 1) for count, told in found.items()}


def centred_twice(scores: Tensor) -> Tensor:
    """Scores (..., N, N) less the means of their rows and of their columns.

    A constant in a row drops out of the softmax; the mean of a column says how popular a token is
    with all others, which is no relation of two tokens.
    """
    rows = scores.mean(-1, keepdim=True)
    columns = scores.mean(-2, keepdim=True)
    return scores - rows - columns + scores.mean((-2, -1), keepdim=True)


def pair_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Correlation (...) of the entries beside the diagonal of two matrices (..., N, N)."""
    pairs = ~torch.eye(first.shape[-1], dtype=torch.bool)
    left = first[..., pairs]
    right = second[..., pairs]
    left = left - left.mean(-1, keepdim=True)
    right = right - right.mean(-1, keepdim=True)
    return (left * right).sum(-1) / (left.norm(dim=-1) * right.norm(dim=-1))


TRANSPOSES = ("own", "other head", "relabelled")


@torch.no_grad()
def score_symmetry(*, length: int, windows: slice) -> dict[str, np.ndarray]:
    """How the scores of a head, centred twice, correlate with a transpose: (layers, texts) by name.

    "own": that of the same head. Two nulls keep the scores and replace their transpose alone:
    "other head" by that of another head of the layer, mean of all eleven; "relabelled" by the own
    one with tokens in a random order. Means over heads and windows.
    """
    encoder = models.encoder()
    generator = torch_generator(0)
    found: dict[str, list[list[float]]] = {name: [] for name in TRANSPOSES}
    for words in sample_texts().values():
        by_layer: dict[str, list[float]] = {name: [] for name in TRANSPOSES}
        for trace in trace_layers(encoder.model, text_windows(encoder, words, length)[windows]):
            scores = centred_twice(trace.scores)
            heads = scores.shape[1]
            order = torch.randperm(length, generator=generator)
            others = [
                pair_correlation(scores, scores.roll(shift, 1).mT).mean()
                for shift in range(1, heads)
            ]
            relabelled = scores.mT[..., order, :][..., order]
            by_layer["own"].append(float(pair_correlation(scores, scores.mT).mean()))
            by_layer["other head"].append(float(torch.stack(others).mean()))
            by_layer["relabelled"].append(float(pair_correlation(scores, relabelled).mean()))
        for name, values in by_layer.items():
            found[name].append(values)
    return {name: np.array(values).T for name, values in found.items()}

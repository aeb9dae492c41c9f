"""Motions of a generator's map beyond its fixed point: exponents, ensembles, greedy decoding.

On another processor a motion in chaos is another one: its exponent is compared within what 16
starts scatter by. A fixed point is the same to 1e-3.
"""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.common.decoder import Decoder, encode, run_decoder
from compendium.common.models import decoder, next_token_distribution
from compendium.common.rows import mean_rows, parameter_product, rows_of
from compendium.common.soft_tokens import (
    TEMPLATE,
    distances,
    exponents,
    find_rests,
    follow,
    returns,
    settled_texts,
    text_starts,
)
from spinformer.language.text import sample_texts


def motion_rows(
    model: Decoder,
    begin: Tensor,
    betas: Sequence[float],
    *,
    settle: int = 100,
    measure: int = 120,
    last: int = 48,
) -> Rows:
    """One row a β and window of `begin` (n, T, D): exponent, and return of the `last` tokens."""
    count, span, _ = begin.shape
    beta = torch.tensor(betas).repeat_interleave(count)[:, None]
    windows = begin.repeat(len(betas), 1, 1)
    orbit = follow(model, windows, beta=beta, steps=settle + measure)[:, settle:]
    rates = exponents(model, orbit, span=span, beta=beta, align=measure // 4)
    lags, gaps = returns(orbit, longest=last)
    starts = np.tile(np.arange(count), len(betas))
    return rows_of(beta=np.repeat(betas, count), start=starts, exponent=rates, lag=lags, gap=gaps)


# Of the small units, so short that chaos cannot amplify the rounding of single precision by much.
_SHORT = {"settle": 0, "measure": 4, "last": 2}


_CLOSE = {"exponent": 0.01, "gap": 0.01}


MOTIONS = {4: (0.5, 0.6, 0.65, 0.7, 0.8, 1.0, 2.0), 8: (0.5, 0.6, 0.7, 1.0), 16: (1.0,)}


@stored(
    "motions",
    parameter_product(span=MOTIONS),
    small={"span": 4, "count": 2} | _SHORT,
    seconds=5.0,
    within=_CLOSE,
)
def motion_table(span: int, *, count: int = 16, **lengths: int) -> Rows:
    """What starts, one of the chat template and the others of text, do after 100 tokens.

    `lengths` are those of `motion_rows`.
    """
    begin = text_starts(decoder(), span=span, count=count)
    return motion_rows(decoder(), begin, MOTIONS[span], **lengths)


# The model card samples at temperature 0.2 (and from the likeliest words alone, which is left out).
CARD_BETA = 5.0


@stored(
    "card",
    parameter_product(span=(4,), beta=(CARD_BETA,)),
    small={"span": 4, "beta": CARD_BETA, "count": 1} | _SHORT,
    seconds=30.0,
    within=_CLOSE,
)
def card_table(
    span: int,
    *,
    beta: float,
    count: int = 16,
    settle: int = 100,
    measure: int = 120,
    last: int = 48,
) -> Rows:
    """What starts do at the temperature of the model card, once settled."""
    begin = text_starts(decoder(), span=span, count=count)
    return motion_rows(decoder(), begin, (beta,), settle=settle, measure=measure, last=last)


KINDS = ("essay", "narrative", "dialogue", "law", "list")


PROMPTS = parameter_product(beta=(0.56, 0.58), steps=(120,)) + parameter_product(
    beta=(1.0,), steps=(70,)
)


@stored(
    "prompts", PROMPTS, small={"beta": 1.0, "steps": 12}, seconds=20.0, within={"exponent": 0.05}
)
def prompt_table(beta: float, *, steps: int) -> Rows:
    """Tokens until texts, plain or before a template, stay at rest; at β = 1 their exponent."""
    model, texts = decoder(), sample_texts()
    words = [encode(model, texts[kind])[:8] for kind in KINDS]
    tail = encode(model, TEMPLATE)
    windows = torch.stack([*words, *(torch.cat((text, tail))[-8:] for text in words)])
    orbit = follow(model, model.embedding[windows], beta=beta, steps=steps)
    ends = orbit[:, -48:]
    rates = exponents(model, ends, span=8, beta=beta, align=10) if beta == 1.0 else np.nan
    away = distances(orbit[:, 8:], find_rests(model, [beta])[0].expand(len(windows), -1))
    ways = [max(np.flatnonzero(far > 0.01), default=-1) + 1 for far in away.numpy()]
    return rows_of(kind=KINDS * 2, template=["no"] * 5 + ["yes"] * 5, way=ways, exponent=rates)


SAMPLE_COUNTS = (1, 10, 100, 1000, 10_000)


@stored(
    "samples",
    parameter_product(beta=(0.5, 1.0), samples=(*SAMPLE_COUNTS, 100_000)),
    small={"beta": 0.5, "samples": 100, "steps": 3},
    seconds=20.0,
    within={"distance": 0.02, "error": 0.01, "apart": 1e-5},
)
def samples_table(beta: float, *, samples: int, steps: int = 24) -> Rows:
    """Distance of laws of samples and the map that began alike; `apart`: of the map's orbits."""
    model, rows = decoder(), []
    begin = settled_texts(model, beta=beta)
    both = (
        follow(model, begin, beta=beta, steps=steps, samples=number) for number in (None, samples)
    )
    orbits = torch.cat(list(both))
    for step in range(1, steps + 1):
        laws, spoken = next_token_distribution(model, orbits[:, step : step + 4], beta=beta).chunk(
            2
        )
        distance = 0.5 * (laws - spoken).abs().sum(1)
        apart = 0.5 * (laws - laws.roll(1, 0)).abs().sum(1).mean()
        rows += rows_of(step=step, distance=distance.mean(), error=distance.std() / 4, apart=apart)
    return rows


def greedy_loops(model: Decoder, begin: Tensor, *, horizon: int) -> tuple[np.ndarray, np.ndarray]:
    """Length of the loop (0: none yet) and of the way to it, of greedy decoding.

    One of each for a window of `begin` (B, T, D).
    """
    starts = len(begin)
    windows = begin.clone()
    seen: list[dict[bytes, int]] = [{} for _ in range(starts)]
    loops, ways = np.zeros(starts, dtype=int), np.full(starts, horizon)
    for step in range(horizon):
        for k in np.flatnonzero(loops == 0):
            before = seen[k].setdefault(windows[k].numpy().tobytes(), step)
            if before < step:
                loops[k], ways[k] = step - before, before
        active = np.flatnonzero(loops == 0)
        if not active.size:
            break
        states = run_decoder(model, windows[active])[:, -1]
        said = model.embedding[(states @ model.embedding.T).argmax(-1)]
        windows[active] = torch.cat((windows[active, 1:], said[:, None]), 1)
    return loops, ways


@stored(
    "loops",
    parameter_product(span=(2, 4, 8), horizon=(600,))
    + parameter_product(span=(16,), horizon=(400,)),
    checked=1,
    seconds=15.0,
    within={"loop": np.inf, "way": np.inf},
)
def loop_table(span: int, *, horizon: int) -> Rows:
    """Loop and way of greedy decoding from 32 starts (16 at the longest window)."""
    starts = 32 if span < 16 else 16
    begin = text_starts(decoder(), span=span, count=starts)
    loops, ways = greedy_loops(decoder(), begin, horizon=horizon)
    return rows_of(start=np.arange(starts), loop=loops, way=ways)


@stored(
    "cold",
    parameter_product(span=(4,), beta=(4.0, 16.0, 64.0)),
    small={"span": 4, "beta": 16.0, "steps": 12, "last": 4},
    seconds=5.0,
    within={"gap": 0.01},
)
def cold_table(span: int, *, beta: float, steps: int = 80, last: int = 32) -> Rows:
    """The map at large β, 80 tokens from 16 starts of loop_table: return of the last 32."""
    begin = text_starts(decoder(), span=span)
    orbit = follow(decoder(), begin, beta=beta, steps=steps)[:, span:]
    lags, gaps = returns(orbit, longest=last)
    return rows_of(start=np.arange(len(begin)), lag=lags, gap=gaps)


HEADS = ("q_proj", "k_proj", "v_proj", "o_proj")
INNER = ("gate_proj", "up_proj", "down_proj")


SHUFFLED = {"attention": HEADS, "feed-forward": INNER, "": HEADS + INNER}


def changed(model: Decoder, what: str, parts: str = "all", *, seed: int = 0) -> Decoder:
    """The same architecture with other weights: "trained", "fresh" or "shuffled ..." ones.

    fresh: matrices Gaussian with the standard deviation 1/√D, gains one. (Trainings often begin
    with smaller output and down matrices, by one over the root of twice the number of blocks.)
    shuffled: the entries of each matrix permuted, or of "attention" or "feed-forward" alone; the
    words keep their embeddings. parts: the only ones that act.
    """
    generator = torch.Generator().manual_seed(seed)
    kind, _, which = what.partition(" ")

    def other(name: str, matrix: Tensor) -> Tensor:
        if name == {"attention": "down_proj", "feed-forward": "o_proj"}.get(parts):
            return torch.zeros_like(matrix)
        if kind == "fresh" and matrix.ndim == 1:
            return torch.ones_like(matrix)
        if kind == "fresh":
            drawn = torch.randn(matrix.shape, generator=generator)
            return drawn.to(matrix) / model.width**0.5
        if kind == "shuffled" and name in SHUFFLED[which]:
            order = torch.randperm(matrix.numel(), generator=generator)
            return matrix.flatten()[order].view_as(matrix)
        return matrix

    copied = copy.deepcopy(model.model)
    stack = copied.model
    layers = [named for layer in stack.layers for named in layer.named_parameters()]
    last = [("embed_tokens.weight", stack.embed_tokens.weight), ("norm.weight", stack.norm.weight)]
    for path, parameter in layers + last:
        name = path.split(".")[-2]
        if name in ("q_proj", "k_proj"):
            # The stored tables drew these with the two rows side by side that are rotated together.
            halves = parameter.unflatten(0, (-1, 2, model.head_width // 2))
            pairs = other(name, halves.transpose(1, 2).flatten(0, 2))
            drawn = pairs.unflatten(0, (-1, model.head_width // 2, 2)).transpose(1, 2).flatten(0, 2)
        else:
            drawn = other(name, parameter)
        parameter.copy_(drawn)
    return Decoder(model=copied, tokenizer=model.tokenizer)


OTHERS = ("shuffled attention", "shuffled feed-forward", "shuffled", "fresh")


@stored(
    "controls",
    parameter_product(weights=("trained",), parts=("attention", "feed-forward"))
    + parameter_product(weights=OTHERS, parts=("all",)),
    small={"weights": "shuffled attention", "parts": "all"} | _SHORT,
    seconds=3.0,
    within=_CLOSE,
)
def control_table(
    weights: str, *, parts: str, settle: int = 80, measure: int = 100, last: int = 48
) -> Rows:
    """Motions of a window of four tokens, four starts, with other weights or one part alone."""
    model = changed(decoder(), weights, parts)
    begin = text_starts(model, span=4, count=4)
    return motion_rows(model, begin, (1.0, 3.0), settle=settle, measure=measure, last=last)


@stored(
    "untrained",
    parameter_product(weights=("fresh",), draw=range(1, 7), span=(4,))
    + parameter_product(weights=("shuffled",), draw=range(1, 7), span=(4,)),
    small={"weights": "fresh", "draw": 1, "span": 4} | _SHORT,
    seconds=4.0,
    within=dict.fromkeys(("value", "low", "high"), 0.01),
)
def untrained_table(
    weights: str, *, draw: int, span: int, settle: int = 30, measure: int = 52, last: int = 48
) -> Rows:
    """Minus the exponent of other weights at β = 1, one draw, four starts, 30 + 52 tokens."""
    model = changed(decoder(), weights, seed=draw)
    begin = text_starts(model, span=span, count=4)
    rows = motion_rows(model, begin, (1.0,), settle=settle, measure=measure, last=last)
    [line] = mean_rows(np.array([-row["exponent"] for row in rows]))
    return [{"data": f"{weights} {draw}"} | line]

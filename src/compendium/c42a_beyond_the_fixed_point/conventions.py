"""The map under other conventions: tokens in front of the window, and single texts.

Every line of a table is an orbit of its own, with a number in the column `data`.
Tolerances: a fixed point is the same to 1e-3 on another processor; an orbit in chaos is another
one, and its exponent is compared within what starts scatter by.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.c42a_beyond_the_fixed_point.edges import stream_exponents
from compendium.c42a_beyond_the_fixed_point.motions import greedy_loops, loop_table
from compendium.common.corpora import corpus
from compendium.common.models import decoder, next_token_distribution
from compendium.common.prefixes import PREFIXES, soft_map
from compendium.common.rows import parameter_product, rows_of
from compendium.common.soft_tokens import follow, text_starts
from spinformer.core.statistics import student_interval
from spinformer.language.soft_map import SoftTokenMap, Thresholds

# For stretches of forty tokens.
_SHORT = Thresholds(longest=16)


def text_windows(soft: SoftTokenMap, name: str, *, count: int, seed: int) -> Tensor:
    """Token numbers (count, T) of windows at random places of different texts of a corpus."""
    generator = np.random.default_rng(seed)
    numbers = [soft.encode(text) for text in corpus(name)]
    long = [text for text in numbers if len(text) > 2 * soft.window]
    windows = []
    for k in generator.permutation(len(long))[:count]:
        place = int(generator.integers(len(long[k]) - soft.window))
        windows.append(long[k][place : place + soft.window])
    return torch.stack(windows)


def orbit_rows(
    soft: SoftTokenMap, start: Tensor, *, beta: float, transient: int, steps: int
) -> Rows:
    """Exponent with its interval, and regime, of the orbit from each window of `start`.

    length: of the fixed point at this β, stable or not, where the words have about one.
    """
    limit = _SHORT if steps >= 2 * _SHORT.longest else Thresholds(longest=steps // 2)
    found = soft.find_attractors(
        start, transient=transient, steps=steps, beta=beta, thresholds=limit
    )
    value = found.exponents.value[:, 0]
    # Student's factor for ten stretches.
    half = 2.26 * found.exponents.error[:, 0]
    return rows_of(
        value=value,
        low=value - half,
        high=value + half,
        runs=1,
        regime=found.labels(),
        length=soft.fixed_point(beta=beta, throw=False).value.norm().item(),
    )


# At a β where the fixed point is stable: at β = 1 four tokens amplify rounding too much.
_ORBITS: dict[str, Any] = {
    "small": {"window": 2, "prefix": "none", "beta": 0.3, "transient": 0, "steps": 4},
    "seconds": 10.0,
    "within": {"value": 0.002, "low": 0.01, "high": 0.01, "length": 0.001},
}


def prefix_rows(
    window: int, prefix: str, *, beta: float, corpus: str, seed: int, **lengths: int
) -> Rows:
    """Orbits from four texts of a corpus, each with a number of its own."""
    soft = soft_map(prefix, window=window)
    start = soft.embed(text_windows(soft, corpus, count=4, seed=seed))
    rows = orbit_rows(soft, start, beta=beta, **lengths)
    first = 1000 * seed + 100 * list(PREFIXES).index(prefix)
    return [{"data": first + k} | row for k, row in enumerate(rows)]


@stored("settings_R3", parameter_product(window=(4,), prefix=PREFIXES, beta=(1.0,)), **_ORBITS)
def settings_R3(
    window: int, *, prefix: str, beta: float, transient: int = 60, steps: int = 40
) -> Rows:
    """Orbits from four texts with each prefix, 60 tokens dropped and 40 measured."""
    return prefix_rows(
        window, prefix, beta=beta, corpus="texts", seed=5, transient=transient, steps=steps
    )


_CONFIRMED = [prefix for prefix in PREFIXES if prefix != "first token"]


@stored("confirm_R3", parameter_product(window=(4,), prefix=_CONFIRMED, beta=(1.0,)), **_ORBITS)
def confirm_R3(
    window: int, *, prefix: str, beta: float, transient: int = 60, steps: int = 40
) -> Rows:
    """The same from four pages of Python's help, with each prefix of the region."""
    return prefix_rows(
        window, prefix, beta=beta, corpus="help", seed=6, transient=transient, steps=steps
    )


# Total variation between two laws of the next word beyond which a text is not what the map says.
NEAR = 0.25


def crowd_rows(
    begin: Tensor,
    *,
    beta: float,
    tokens: Sequence[int],
    settle: int,
    first: int,
    singles: int = 16,
    crowds: int = 4,
    seed: int = 0,
) -> Rows:
    """How far one sample is outside of NEAR and 10,000 inside of it, the smaller, text by text.

    One sample at its first word, all of them for each number of `tokens`, from the windows `begin`
    (n, T, D) that the map has read for `settle` tokens. Means and Student's intervals over
    `singles` draws of one sample and `crowds` of all, from `seed`; the text k has the id
    `first` + k.
    """
    model, span = decoder(), begin.shape[1]
    windows = follow(model, begin, beta=beta, steps=settle)[:, -span:]
    longest = max(tokens)
    plain = follow(model, windows, beta=beta, steps=longest)

    def spoken(samples: int, draws: int, steps: int) -> Tensor:
        repeated = windows.repeat_interleave(draws, 0)
        return follow(model, repeated, beta=beta, steps=steps, samples=samples, seed=seed)

    def apart(orbits: Tensor, step: int) -> np.ndarray:
        laws, others = (
            next_token_distribution(model, one[:, step : step + span], beta=beta)
            for one in (plain, orbits)
        )
        gaps = others.unflatten(0, (len(laws), -1)) - laws[:, None]
        return 0.5 * gaps.abs().sum(2).double().numpy()

    alone = apart(spoken(1, singles, 1), 1) - NEAR
    crowd = spoken(10_000, crowds, longest)
    inside = [NEAR - apart(crowd, step) for step in range(1, longest + 1)]
    rows = []
    for k in range(len(begin)):
        for count in tokens:
            margins = [alone[k], *(margin[k] for margin in inside[:count])]
            low, high = np.transpose([student_interval(margin) for margin in margins]).min(1)
            value = min(margin.mean() for margin in margins)
            rows.append(
                {"data": first + k, "tokens": count, "value": value, "low": low, "high": high}
                | {"runs": singles + crowds}
            )
    return rows


# So short that chaos cannot amplify rounding; the draws are those of one seed.
_CROWDS: dict[str, Any] = {
    "small": {"beta": 0.5, "count": 2, "settle": 1},
    "seconds": 10.0,
    "within": dict.fromkeys(("value", "low", "high"), 0.05),
}


@stored("settings_R4", parameter_product(beta=(0.5, 1.0)), **_CROWDS)
def settings_R4(beta: float, *, count: int = 16, settle: int = 40) -> Rows:
    """One sample and ten thousand from pieces of the seven texts, for one, two and four tokens.

    At β = 0.5 all texts have reached the fixed point, and differ by their samples alone.
    """
    begin = text_starts(decoder(), span=4, count=count + 1)[1:]
    return crowd_rows(begin, beta=beta, tokens=(1, 2, 4), settle=settle, first=0)


def page_starts(*, span: int, count: int, seed: int) -> Tensor:
    """Windows (count, span, D) from random places of different pages of Python's help."""
    numbers = text_windows(soft_map(window=span), "help", count=count, seed=seed)
    return decoder().embedding[numbers]


@stored("confirm_R4", parameter_product(beta=(0.3, 0.4, 0.5, 0.6, 0.8, 1.0)), **_CROWDS)
def confirm_R4(beta: float, *, count: int = 2, settle: int = 40) -> Rows:
    """The same from pages of Python's help, other ones and other draws at each β.

    Inside of the region of R4, written before: above β = 0.5 for the next token alone.
    """
    first = round(1000 * beta)
    begin = page_starts(span=4, count=count, seed=first)
    tokens = (1, 2, 4) if beta <= 0.5 else (1,)
    return crowd_rows(begin, beta=beta, tokens=tokens, settle=settle, first=first, seed=first)


@stored(
    "fresh_streams",
    parameter_product(span=(6, 12), beta=(1.0,)),
    small={"span": 6, "beta": 0.3, "count": 2, "settle": 1, "align": 1, "measure": 3},
    seconds=5.0,
    within={"exponent": 0.05},
)
def fresh_streams(span: int, *, beta: float, count: int = 8, **lengths: int) -> Rows:
    """Exponents of streams with a KV cache from pages of Python's help, others for each length."""
    starts = page_starts(span=span, count=count, seed=span)
    return rows_of(exponent=stream_exponents(starts, beta=beta, **lengths)[1])


# By so many tokens greedy decoding should be in a loop.
LOOP_BY = 400


def loop_rows(loops: np.ndarray, ways: np.ndarray) -> Rows:
    """One for a text whose loop has closed by LOOP_BY tokens, minus one for another."""
    closed = (loops > 0) & (loops + ways <= LOOP_BY)
    value = np.where(closed, 1, -1)
    return rows_of(data=np.arange(len(loops)), value=value, low=value, high=value, runs=1)


@stored("settings_R5", parameter_product(span=(2, 4, 8, 16)), seconds=0.1)
def settings_R5(span: int) -> Rows:
    """Whether greedy decoding from each start of the table `loops` is in a loop."""
    loops = loop_table.read()
    chosen = loops["span"] == span
    return loop_rows(loops["loop"][chosen], loops["way"][chosen])


@stored(
    "confirm_R5",
    parameter_product(span=(2, 3, 4, 6)),
    small={"span": 2, "count": 2},
    seconds=3.0,
)
def confirm_R5(span: int, *, count: int = 16) -> Rows:
    """The same from random places of sixteen pages of Python's help."""
    loops, ways = greedy_loops(
        decoder(), page_starts(span=span, count=count, seed=span), horizon=LOOP_BY
    )
    return [row | {"data": 1000 * span + row["data"]} for row in loop_rows(loops, ways)]

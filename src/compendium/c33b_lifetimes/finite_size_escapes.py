"""Escapes of a network of N bits from one cycle of its mean field to another, by its own noise.

Where a text is, is decided by switching the noise off: its window is followed by the mean field
until it can be recognized.

Written down after a pilot at two sizes and before the table: a power law of N is worse by more than
ten units of deviance over all cycles; the slope of ln τ is the least action, up to an unknown
factor of N in front: √N would raise it by 1/(2N), a tenth of it where τ is some thousand tokens.

The action V of a path sums f_l K(x_l, m_l) over segments and tokens: f_l the share of the bits, K
the relative entropy of two coins [freidlin2012random, here a chain with a window]. The way *down*
into another attractor costs nothing: the end may be fixed there, whatever the basins. Tokens are
fields y there, x = tanh y, and the action is minimized as a sum of squares, K = ½r².

Windows and paths run from old to new, as in `finite_size`, contexts from new to old.
"""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.rows import rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import find_period
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.escape import escape_action, path_action
from spinformer.dmft.finite_size import (
    attention_of_window,
    generate,
    mean_path,
    token_probabilities,
    token_states,
    window_means,
    window_of_context,
)
from spinformer.dmft.lifetimes import escape_law, estimate_lifetime
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Context, Network

# Noise-free tokens before a text is recognized, and tolerance of the overlaps then.
_SETTLE = 400
_TOLERANCE = 1e-2
# An escape takes some dozens of tokens: so many before and after it belong to a path.
_AROUND = 48
# A length that the periods of all known cycles divide, for each β.
_LENGTHS = {3.0: 24, 1.27: 112}


def recognize(orbits: np.ndarray, *, cycles: np.ndarray, clock: int) -> np.ndarray:
    """Which cycle (n, q, P) orbits (R, q, P) follow, up to turns of the clock, (R,); −1: none."""
    turned = (np.roll(cycles, shift, axis=1) for shift in range(0, orbits.shape[1], clock))
    away = np.min([np.abs(orbits - one[:, None]).max(axis=(2, 3)) for one in turned], axis=0)
    return np.where(away.min(axis=0) <= _TOLERANCE, away.argmin(axis=0), -1)


def ends_on(
    network: Network, windows: np.ndarray, *, beta: float, position: int, cycles: np.ndarray
) -> np.ndarray:
    """The cycle that windows (R, T, L), newest token at `position`, end on after 400 tokens."""
    # A context holds T attention vectors; a window tells only the next one.
    made: list[np.ndarray] = []
    for step in range(network.context):
        made.insert(0, attention_of_window(network, windows, position=position + step))
        newest = window_means(network, beta, attention=made[0])[:, None]
        windows = np.concatenate([windows[:, 1:], newest], axis=1)
    start = Context(np.stack(made, axis=1), (position + network.context) % network.positions)
    ensemble = Ensemble(network, start, beta=beta, threads=1)
    ensemble.advance(_SETTLE - network.context + (-(position + _SETTLE)) % network.positions)
    orbits = ensemble.record(cycles.shape[1])
    return recognize(orbits, cycles=cycles, clock=network.positions)


def noise_escapes(
    network: Network,
    size: int,
    *,
    beta: float,
    window: np.ndarray,
    position: int,
    cycles: np.ndarray,
    home: int,
    every: int,
    horizon: int,
    runs: int,
    seed: Seed,
) -> tuple[np.ndarray, np.ndarray]:
    """When and where `runs` texts of N = `size` bits leave cycle `home`: times, ends, (R,) each.

    times: tokens, the middle of the `every` tokens between two looks, whole turns of the clock; the
    horizon where a text stayed. ends: cycle of the noise-free continuation then, −1 for none of the
    known ones or no escape.
    """
    inside = np.arange(runs)
    windows = np.repeat(window[None], runs, axis=0)
    times = np.full(runs, float(horizon))
    ends = np.full(runs, -1)
    rng = numpy_generator(seed)
    for passed in range(every, horizon + 1, every):
        if not len(inside):
            break
        texts = generate(
            network,
            size,
            beta=beta,
            window=windows,
            steps=every,
            runs=len(inside),
            seed=rng,
            position=position,
            draw_window=False,
        )
        windows = texts.tokens[:, -network.context :]
        reached = ends_on(network, windows, beta=beta, position=position, cycles=cycles)
        out = reached != home
        times[inside[out]] = passed - 0.5 * every
        ends[inside[out]] = reached[out]
        inside = inside[~out]
        windows = windows[~out]
    return times, ends


class Coexisting(NamedTuple):
    """Cycles at one β: windows (n, T, L) at `position`, overlaps (n, q, P) from position 0."""

    windows: np.ndarray
    position: int
    overlaps: np.ndarray
    periods: np.ndarray


@cache
def coexisting_cycles(beta: float) -> Coexisting:
    """Cycles of the document at β = 3 or 1.27, by period, then mean of the first overlap."""
    network = Network.poclopez2024()
    length = _LENGTHS[beta]
    ensemble = Ensemble(network, random_contexts(network, 0, count=96), beta=beta, threads=1)
    ensemble.advance(40_000)
    states = ensemble.state()
    ensemble.advance(-states.position % network.positions)
    overlaps = ensemble.record(length)
    heads = [0]
    for row in range(1, len(overlaps)):
        here = overlaps[row : row + 1]
        if recognize(here, cycles=overlaps[heads], clock=network.positions) < 0:
            heads.append(row)
    twice = np.tile(overlaps[heads], (1, 2, 1))
    periods = np.array([find_period(orbit, longest=length) for orbit in twice])
    order = np.lexsort((overlaps[heads, :: network.positions, 0].mean(axis=1), periods))
    chosen = np.array(heads)[order]
    windows = window_of_context(network, states.select(chosen), beta=beta)
    return Coexisting(windows, states.position, overlaps[chosen], periods[order])


# Sizes at which a text lasts some hundred tokens at least, and seldom sixty thousand.
_SIZES = {
    (3.0, 0): (1200, 1800, 2400, 3000, 3600, 4200),
    (3.0, 1): (900, 1200, 1500, 1800, 2100, 2400, 2700),
    (3.0, 2): (1200, 1800, 2400, 3000, 3600),
    (3.0, 3): (1500, 2400, 3300, 4200, 5100, 6000),
    (1.27, 1): (900_000, 1_500_000, 2_100_000, 2_700_000, 3_300_000, 3_900_000),
}


# Sizes at which N times the least action is near 6.6 and 8, the horizon for each, and the tokens
# between two looks: far less than a text stays.
_LARGER = {0: (6900, 8400), 1: (3300, 3900), 2: (4500, 5400), 3: (9000, 10_800)}
_HORIZONS = (150_000, 600_000)
_SELDOM = 720
LARGER_SEEDS = (10,)


@stored(
    "escapes",
    [
        {"beta": beta, "cycle": cycle, "size": size, "seed": seed}
        # Two more at β = 3, drawn after the region of C18d.
        for seed in (0, 1, 2, 3)
        for (beta, cycle), sizes in _SIZES.items()
        if beta == 3.0 or seed < 2
        for size in sizes
    ],
    seconds=0.2,
    # Rounding may send a text another way: its life is one of 128.
    within={"total": 4e3, "lifetime": 30.0, "low": 30.0, "high": 30.0, "elsewhere": 4},
)
def escapes_table(
    beta: float,
    *,
    cycle: int,
    size: int,
    runs: int = 128,
    horizon: int = 60_000,
    seed: Seed = 0,
    every: int | None = None,
) -> Rows:
    """Escapes of texts of N = `size` bits from one of the `coexisting_cycles`."""
    known = coexisting_cycles(beta)
    times, ends = noise_escapes(
        Network.poclopez2024(),
        size,
        beta=beta,
        window=known.windows[cycle],
        position=known.position,
        cycles=known.overlaps,
        home=cycle,
        every=every or (24 if beta == 3.0 else 28),
        horizon=horizon,
        runs=runs,
        seed=seed,
    )
    life = estimate_lifetime(times, ended=times < horizon)
    return rows_of(
        texts=runs,
        escaped=life.ended,
        total=float(times.sum()),
        lifetime=life.value,
        low=life.low,
        high=life.high,
        elsewhere=int((ends >= 0).sum()),
    )


LARGER_ESCAPES = stored(
    "larger_escapes",
    [
        {
            "beta": 3.0,
            "cycle": cycle,
            "size": size,
            "seed": seed,
            "horizon": horizon,
            "every": _SELDOM,
        }
        for seed in LARGER_SEEDS
        for cycle, sizes in _LARGER.items()
        for size, horizon in zip(sizes, _HORIZONS, strict=True)
    ],
    small={"beta": 3.0, "cycle": 0, "size": 3000, "seed": 10, "horizon": 7200, "every": _SELDOM},
    seconds=1.0,
    # Of the small unit; rounding may send a text another way.
    within={"total": 2e4, "lifetime": 200, "low": 200, "high": 200, "escaped": 3, "elsewhere": 3},
)(escapes_table.rows)


# ---- the least action


def first_guesses(cycle: int, *, size: int, texts: int = 60) -> list[tuple[np.ndarray, int]]:
    """Paths of fields of escapes at β = 3, which begin and end exactly on a cycle, and where.

    From texts of N = `size` bits; the position is that of the fourth token, the least action first.
    """
    network = Network.poclopez2024()
    known = coexisting_cycles(3.0)
    beta = 3.0
    start = known.position
    context = network.context
    tokens = generate(
        network,
        size,
        beta=beta,
        window=known.windows[cycle],
        steps=288,
        runs=texts,
        seed=0,
        position=start,
        draw_window=False,
    ).tokens
    looks = range(0, 288, 8)
    ends = [
        ends_on(
            network,
            tokens[:, at : at + context],
            beta=beta,
            position=start + at,
            cycles=known.overlaps,
        )
        for at in looks
    ]

    def follow(window: np.ndarray, place: int) -> np.ndarray:
        """48 tokens after a window without noise."""
        return mean_path(network, beta, window=window, steps=_AROUND, position=place)[context:]

    loops = [follow(window, start) for window in known.windows]

    def nearest(window: np.ndarray, number: int, place: int) -> np.ndarray:
        """The window of a cycle, its oldest token at `place`, that is nearest to a window."""
        first = (place - start - 1) % network.positions
        result = [
            loops[number][at:][:context] for at in range(first, 24 + first, network.positions)
        ]
        return min(result, key=lambda one: float(np.abs(one - window).max()))

    guesses = []
    for text, seen in enumerate(np.array(ends).T):
        look = int(np.argmax(seen != cycle))
        at = looks[look]
        end = int(seen[look])
        if end in (cycle, -1) or at <= _AROUND:
            continue
        calm = follow(tokens[text, at : at + context], start + at)
        path = np.concatenate([tokens[text, at + context - 1 - _AROUND : at + context], calm])
        oldest = start + at - _AROUND
        path[:context] = nearest(path[:context], cycle, oldest)
        path[-context:] = nearest(path[-context:], end, oldest + len(path) - context)
        fields = np.arctanh(np.clip(path, -1 + 1e-6, 1 - 1e-6))
        place = oldest + context - 1
        cost = path_action(network, fields, beta=beta, position=place).sum()
        guesses.append((float(cost), fields, place))
    return [(fields, place) for _, fields, place in sorted(guesses, key=lambda one: one[0])]


@stored(
    "actions",
    [{"cycle": cycle, "size": 1500} for cycle in range(4)],
    small={"cycle": 1, "size": 1500, "guesses": 1, "max_steps": 10},
    seconds=3.0,
    rtol=1e-3,
)
def actions_table(cycle: int, *, size: int, guesses: int = 6, max_steps: int = 200) -> Rows:
    """Least action of leaving one of the cycles at β = 3, from the best escapes of texts."""
    network = Network.poclopez2024()
    costs = []
    for fields, position in first_guesses(cycle, size=size)[:guesses]:
        found = escape_action(network, fields, beta=3.0, position=position, max_steps=max_steps)
        costs.append(found.action)
    return [{"action": float(min(costs))}]


def chain_lifetimes(network: Network, sizes: np.ndarray, *, beta: float) -> np.ndarray:
    """Exact mean times in which one kind of bit, all up, leaves the + side; a window of one."""
    times = []
    for size in map(int, sizes):
        states = token_states(network, size)
        attention = attention_of_window(network, states[:, None], position=0)
        chances = token_probabilities(network, size, beta=beta, attention=attention)
        first = int((states[:, 0] <= 0.0).sum())
        stay = chances[first:, first:]
        times.append(np.linalg.solve(np.eye(len(stay)) - stay, np.ones(len(stay)))[-1])
    return np.array(times)


def rate_over_action(
    cycle: int,
    *,
    power: float | None,
    seeds: Sequence[int],
    larger_half: bool = False,
    more: bool = False,
) -> Estimate:
    """Slope of ln τ against N over the least action of one of the four cycles at β = 3.

    power: of N in front of the exponential, fitted too if None. larger_half: of the sizes, without
    the smaller ones. more: with the sizes of `LARGER_ESCAPES`. `samples`: texts.
    """
    table = escapes_table.read()
    if more:
        larger = LARGER_ESCAPES.read()
        table = {name: np.concatenate([table[name], larger[name]]) for name in table}
        seeds = [*seeds, *LARGER_SEEDS]
    rows = (table["beta"] == 3.0) & (table["cycle"] == cycle) & np.isin(table["seed"], seeds)
    if larger_half:
        drawn = np.unique(table["size"][rows])
        rows &= table["size"] >= drawn[len(drawn) // 2]
    size = table["size"][rows].astype(float)
    total = table["total"][rows].astype(float)
    columns = [size] if power is not None else [size, np.log(size)]
    law = escape_law(
        np.column_stack(columns), total=total / size ** (power or 0.0), ended=table["escaped"][rows]
    )
    action = actions_table.read()["action"][cycle]
    return Estimate(
        value=law.value[1] / action,
        error=law.error[1] / action,
        samples=int(table["texts"][rows].sum()),
    )

"""The measurements behind the tables of `compendium.c33g_escapes`.

Predictions, written after a pilot at two sizes and before the table of escapes was made. ln τ is
linear in N, and a power law of N is worse by more than ten units of deviance over all cycles; its
slope is the least action, up to the factor of N before the exponential, which nobody has computed:
a factor √N would raise the slope by 1/(2N), a tenth of it where τ is some thousand tokens.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c33g_escapes.action import least_action, path_action
from compendium.c33g_escapes.escapes import cycle_overlaps, noise_escapes, quench, recognize
from spinformer.core.random import Seed
from spinformer.core.records import record
from spinformer.dmft.attractors import find_period
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.enumeration import mean_first_passage, token_states, transition_probabilities
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network
from spinformer.dmft.tokens import generate, mean_path, window_of_context

_FOLDER = Path(__file__).parent
# Noise-free tokens before a text is recognized, and tolerance of the overlaps then.
_SETTLE, _TOLERANCE = 400, 1e-2
# An escape takes some dozens of tokens: so many before and after it belong to a path.
_BEFORE, _AFTER = 48, 48
# A length that the periods of all known cycles divide, for each β.
_LENGTHS = {3.0: 24, 1.27: 112}


@record
class Coexisting:
    """Cycles that coexist at one β.

    windows: (n, T, L) one window on each, all with newest token at `position`. overlaps:
    (n, q, P) of `dmft.escapes.cycle_overlaps`. periods: (n,).
    """

    beta: float
    windows: np.ndarray
    position: int
    overlaps: np.ndarray
    periods: np.ndarray


@cache
def coexisting_cycles(beta: float) -> Coexisting:
    """The cycles of the document's network at β = 3 or 1.27, those of the least period first.

    Found from 96 random contexts; in the order of the period, then of the first overlap at
    position 0.

    >>> coexisting_cycles(3.0).periods
    array([24, 24, 24, 24])
    """
    network = Network.document()
    length = _LENGTHS[beta]
    ensemble = Ensemble(network, random_contexts(network, 0, count=96), beta=beta, threads=1)
    ensemble.advance(40_000)
    states = ensemble.state()
    overlaps = cycle_overlaps(network, states, beta=beta, length=length, settle=0)
    heads: list[int] = []
    for row in range(len(overlaps)):
        here = overlaps[row : row + 1]
        if not heads or (
            recognize(here, cycles=overlaps[heads], clock=network.positions, tolerance=_TOLERANCE)
            < 0
        ):
            heads.append(row)
    periods = np.array([find_period(overlaps[row], longest=length // 2) for row in heads])
    periods[periods == 0] = length
    # Of one cycle the phase is an accident; its mean overlap is not.
    order = np.lexsort((overlaps[heads, :: network.positions, 0].mean(axis=1), periods))
    chosen = states.select(np.array(heads)[order])
    return Coexisting(
        beta=beta,
        windows=window_of_context(network, chosen, beta=beta),
        position=states.position,
        overlaps=overlaps[np.array(heads)[order]],
        periods=periods[order],
    )


def escape_row(
    beta: float, *, cycle: int, size: int, runs: int = 128, horizon: int = 60_000, seed: Seed = 0
) -> Rows:
    """Escapes of texts of N = `size` bits from one cycle, as the one row of its unit.

    cycle: number of the cycle in `coexisting_cycles`.

    >>> row, = escape_row(3.0, cycle=3, size=600, runs=8, horizon=480)
    >>> row["texts"], row["total"] > 0.0
    (8, True)
    """
    known = coexisting_cycles(beta)
    found = noise_escapes(
        Network.document(),
        size,
        beta=beta,
        window=known.windows[cycle],
        position=known.position,
        cycles=known.overlaps,
        home=cycle,
        every=24 if beta == 3.0 else 28,
        settle=_SETTLE,
        horizon=horizon,
        runs=runs,
        seed=seed,
        tolerance=_TOLERANCE,
    )
    life = found.lifetime()
    ends = found.ends[found.escaped]
    return [
        {
            "texts": runs,
            "escaped": life.ended,
            "total": float(found.times.sum()),
            "lifetime": life.value,
            "low": life.low,
            "high": life.high,
            "elsewhere": int((ends >= 0).sum()),
        }
    ]


def first_guesses(
    cycle: int, *, size: int, texts: int = 60, steps: int = 288, seed: Seed = 0
) -> list[tuple[np.ndarray, int, int]]:
    """Escapes from one of the cycles at β = 3 that texts of N = `size` bits showed.

    Each is a path of fields that begins and ends exactly on a cycle, the position of its fourth
    token, and the cycle it ends on; those of least action first.

    >>> path, position, ends = first_guesses(3, size=1500, texts=20)[0]
    >>> path.shape[1], ends != 3
    (3, True)
    """
    network, known = Network.document(), coexisting_cycles(3.0)
    beta, start = known.beta, known.position
    context = network.context
    tokens = generate(
        network,
        size,
        beta=beta,
        window=known.windows[cycle],
        steps=steps,
        runs=texts,
        seed=seed,
        position=start,
        draw_window=False,
    ).tokens
    looks = np.arange(0, steps, 8)
    where = np.array([_ends(known, tokens[:, at : at + context], start + int(at)) for at in looks])
    loops = [
        mean_path(network, beta, window=window, steps=48, position=start)[context:]
        for window in known.windows
    ]

    def nearest(window: np.ndarray, number: int, place: int) -> np.ndarray:
        """The window of a cycle, its oldest token at `place`, that is nearest to a window."""
        first = (place - start - 1) % network.positions
        found = [
            loops[number][at : at + context] for at in range(first, 24 + first, network.positions)
        ]
        return min(found, key=lambda one: float(np.abs(one - window).max()))

    guesses = []
    for text, labels in enumerate(where.T):
        left = np.flatnonzero(labels != cycle)
        if not len(left) or looks[left[0]] <= _BEFORE or labels[left[0]] < 0:
            continue
        newest = looks[left[0]] + context - 1
        ends = int(labels[left[0]])
        window = tokens[text, newest - context + 1 : newest + 1]
        place = start + int(looks[left[0]])
        calm = mean_path(network, beta, window=window, steps=_AFTER, position=place)[context:]
        path = np.concatenate([tokens[text, newest - _BEFORE : newest + 1], calm])
        oldest = place - _BEFORE
        path[:context] = nearest(path[:context], cycle, oldest)
        path[-context:] = nearest(path[-context:], ends, oldest + len(path) - context)
        fields = np.arctanh(np.clip(path, -1 + 1e-6, 1 - 1e-6))
        guesses.append((fields, oldest + context - 1, ends))
    return sorted(
        guesses,
        key=lambda one: float(path_action(network, one[0], beta=beta, position=one[1]).sum()),
    )


def _ends(known: Coexisting, windows: np.ndarray, position: int) -> np.ndarray:
    network = Network.document()
    settle = _SETTLE + (-(position + _SETTLE)) % network.positions
    calm = quench(network, windows, beta=known.beta, position=position, steps=settle)
    orbits = Ensemble(network, calm, beta=known.beta, threads=1).record(known.overlaps.shape[1])
    return recognize(orbits, cycles=known.overlaps, clock=network.positions, tolerance=_TOLERANCE)


def action_row(
    cycle: int, *, size: int, guesses: int = 6, seed: Seed = 0, max_steps: int = 200
) -> Rows:
    """Least action of leaving one of the cycles at β = 3, as the one row of its unit.

    From the `guesses` best escapes of texts of `size` bits; `agree` says how many of them arrive
    within a thousandth of the least.

    >>> row, = action_row(3, size=900, guesses=1, max_steps=2)
    >>> row["guesses"], row["ends"] != 3
    (1, True)
    """
    network = Network.document()
    found = []
    for fields, position, ends in first_guesses(cycle, size=size, seed=seed)[:guesses]:
        path = least_action(network, fields, beta=3.0, position=position, max_steps=max_steps)
        cost = path_action(network, path.value, beta=3.0, position=position).sum()
        found.append((float(cost), ends))
    least, ends = min(found)
    return [
        {
            "action": least,
            "ends": ends,
            "guesses": len(found),
            "agree": sum(cost < 1.001 * least for cost, _ in found),
        }
    ]


def chain_lifetimes(network: Network, sizes: np.ndarray, *, beta: float) -> np.ndarray:
    """Exact mean times in which a network of one bit kind and a window of one leaves the + side.

    From the token of all bits up, until the mean bit is no longer positive; by solving linear
    equations (`dmft.enumeration.mean_first_passage`).

    >>> signs, none = np.ones((4, 1, 1)), np.ones((4, 1, 0))
    >>> coin = Network(semantic=signs, position=none, context=1, gamma=1.0, epsilon=0.0)
    >>> chain_lifetimes(coin, np.array([1]), beta=1.0).round(3)  # 1 + e²
    array([8.389])
    """
    times = []
    for size in sizes:
        chances = transition_probabilities(network, int(size), beta=beta, position=0)
        inside = token_states(network, int(size))[:, 0] > 0.0
        times.append(mean_first_passage(chances, inside=inside)[-1])
    return np.array(times)


ACTIONS = Table(
    path=_FOLDER / "actions.csv",
    units=[{"cycle": cycle, "size": 1500} for cycle in range(4)],
    rows=action_row,
)
# Sizes at which a text lasts some hundred tokens at least, and seldom sixty thousand.
_SIZES = {
    (3.0, 0): (1200, 1800, 2400, 3000, 3600, 4200),
    (3.0, 1): (900, 1200, 1500, 1800, 2100, 2400, 2700),
    (3.0, 2): (1200, 1800, 2400, 3000, 3600),
    (3.0, 3): (1500, 2400, 3300, 4200, 5100, 6000),
    (1.27, 1): (900_000, 1_500_000, 2_100_000, 2_700_000, 3_300_000, 3_900_000),
}
ESCAPES = Table(
    path=_FOLDER / "escapes.csv",
    units=[
        {"beta": beta, "cycle": cycle, "size": size, "seed": seed}
        for seed in (0, 1)
        for (beta, cycle), sizes in _SIZES.items()
        for size in sizes
    ],
    rows=escape_row,
)

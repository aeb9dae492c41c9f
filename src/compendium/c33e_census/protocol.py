"""What one network does over a range of inverse temperatures: labels, escapes, the row of a table.

Every network meets the same protocol. 48 values of β, even in (0, 3 √(L/P)], and 16 more around
the end of the driven cycle; 8 random contexts each. √(L/P) is the spread of the eigenvalues of
⟨W^v W^o⟩ (`theory`), so that β times a typical eigenvalue covers the same range at every size; at
the document's size the range is the document's.

1. First look: 3,000 steps, then a period of at most 256 steps in 512. Most orbits have one.
2. Second look at the others: `find_attractors` after 8,000 steps more, with 8,000 steps for
   averages and 4,004 for the leading exponent.
3. Third look at what is neither periodic nor chaotic then: the same after 30,000 steps more.
4. Every β with a chaotic label: 64 replicas in all, shared evenly among these β, made of the
   chaotic orbits there and moved apart by 1e-10, are followed for 40,000 steps. A replica has
   escaped when its growth stays below a third of the exponent (`lifetimes.escapes_of`) up to the
   end. Where at least half of the replicas have, the label is transient chaos.

An orbit is *driven* if all contexts at its β end on one orbit whose period divides that of the
clock. The onset is the first β where this fails.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from spinformer.core.checks import check_integer
from spinformer.core.random import Seed
from spinformer.core.records import record
from spinformer.dmft.attractors import SHORT_STRETCHES, Regime, find_attractors, find_period
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.gauge import canonical_code
from spinformer.dmft.lifetimes import escapes_of, growth_rates, replicas
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network
from spinformer.dmft.onset import onset
from spinformer.dmft.state import Context

# All numbers of steps are multiples of the longest clock, 8, so that orbits stay in phase.
FIRST, SECOND, THIRD = 3000, 8000, 30_000
_KEPT, _EXPONENT = 8000, 4004
_LONGEST = 256
EVEN, FINE, CONTEXTS = 48, 16, 8
_REPLICAS, _STRETCH = 64, 500
HORIZON = 40_000
# Orbits of different contexts closer than this are one: just past an onset they are 30 times as
# far apart, and just before it slow ones have come as near.
_ONE = 1e-3


@record
class Labels:
    """What B systems of one network settled on.

    regime, period: (B,), as in `dmft.attractors`; period 0 where there is none. exponent: (B,),
    the leading one where it was measured, NaN on orbits that were periodic at the first look.
    context: states at the end.
    """

    regime: np.ndarray
    period: np.ndarray
    exponent: np.ndarray
    context: Context


@record
class Sweep:
    """All labels of one network.

    betas: (n,) the even values, then the fine ones. regime, period, exponent: (n, contexts).
    driven: (n,) booleans. replicas, ended: (n,) how many replicas of chaos were followed at each
    β, and how many of them escaped for good.
    """

    betas: np.ndarray
    regime: np.ndarray
    period: np.ndarray
    exponent: np.ndarray
    driven: np.ndarray
    replicas: np.ndarray
    ended: np.ndarray


def highest_beta(network: Network) -> float:
    """The top of the range, 3 √(L/P).

    >>> highest_beta(Network.document())
    3.0
    """
    return 3.0 * float(np.sqrt(network.segments / network.features))


def settle(network: Network, context: Context, *, beta: np.ndarray, threads: int = 1) -> Labels:
    """Labels of contexts (B, T, P) at inverse temperatures (B,): the first three looks.

    >>> start = random_contexts(Network.document(), 0, count=2)
    >>> settle(Network.document(), start, beta=np.array([0.5, 0.6])).period
    array([4, 4])
    """
    ensemble = Ensemble(network, context, beta=beta, threads=threads)
    ensemble.advance(FIRST)
    orbits = ensemble.record(2 * _LONGEST)
    period = np.array([find_period(orbit, longest=_LONGEST) for orbit in orbits])
    state = ensemble.state()
    vectors = state.attention.copy()
    regime = np.where(period > 0, Regime.PERIODIC, Regime.UNDECIDED)
    exponent = np.full(period.shape, np.nan)
    for wait in (SECOND, THIRD):
        rest = np.flatnonzero(~np.isin(regime, (Regime.PERIODIC, Regime.CHAOTIC)))
        if not len(rest):
            break
        found = find_attractors(
            network,
            Context(vectors[rest], state.position),
            beta=beta[rest],
            transient=wait,
            kept=_KEPT,
            exponents=1,
            exponent_steps=_EXPONENT,
            plane=0,
            bins=1,
            thresholds=SHORT_STRETCHES,
            threads=threads,
        )
        regime[rest], period[rest] = found.regime, found.period
        exponent[rest] = found.exponents.value[:, 0]
        vectors[rest] = found.context.attention
    return Labels(
        regime=regime, period=period, exponent=exponent, context=Context(vectors, state.position)
    )


def sweep(
    network: Network,
    seed: Seed,
    *,
    even: int = EVEN,
    fine: int = FINE,
    contexts: int = CONTEXTS,
    threads: int = 1,
) -> Sweep:
    """The protocol for one network; `seed` draws the contexts and moves the replicas apart.

    >>> found = sweep(Network.document(), 0, even=6, fine=0, contexts=2)
    >>> found.betas, found.driven
    (array([0.5, 1. , 1.5, 2. , 2.5, 3. ]), array([ True,  True, False, False, False, False]))
    """
    even = check_integer("even", even, low=2)
    fine = check_integer("fine", fine, low=0)
    starts = random_contexts(network, seed, count=contexts)
    betas = highest_beta(network) * np.arange(1, even + 1) / even
    parts = [_at(network, starts, betas, threads)]
    lost = np.flatnonzero(~parts[0].driven)
    if fine and len(lost):
        spacing = betas[0]
        low = betas[lost[0]] - spacing
        near = low + 2.0 * spacing * np.arange(1, fine + 1) / (fine + 1)
        parts.append(_at(network, starts, near, threads))
    regime = np.concatenate([part.regime for part in parts])
    exponent = np.concatenate([part.exponent for part in parts])
    betas = np.concatenate([part.betas for part in parts])
    vectors = np.concatenate([part.context.attention for part in parts])
    count, ended = escapes(
        network,
        Context(vectors, parts[0].context.position),
        betas=betas,
        chaotic=regime == Regime.CHAOTIC,
        exponent=exponent,
        seed=seed,
        threads=threads,
    )
    over = (count > 0) & (2 * ended >= count)
    regime[(regime == Regime.CHAOTIC) & over[:, None]] = Regime.TRANSIENT_CHAOS
    return Sweep(
        betas=betas,
        regime=regime,
        period=np.concatenate([part.period for part in parts]),
        exponent=exponent,
        driven=np.concatenate([part.driven for part in parts]),
        replicas=count,
        ended=ended,
    )


@record
class _Part:
    betas: np.ndarray
    regime: np.ndarray
    period: np.ndarray
    exponent: np.ndarray
    driven: np.ndarray
    context: Context


def _at(network: Network, starts: Context, betas: np.ndarray, threads: int) -> _Part:
    """Labels of every context at every β, (n, contexts), and where all of them are driven."""
    shape = len(betas), len(starts.attention)
    vectors = np.broadcast_to(starts.attention, (shape[0], *starts.attention.shape))
    flat = Context(vectors.reshape(-1, *vectors.shape[2:]), starts.position)
    found = settle(network, flat, beta=np.repeat(betas, shape[1]), threads=threads)
    regime, period = found.regime.reshape(shape), found.period.reshape(shape)
    ends = found.context.attention.reshape(vectors.shape)
    clocked = (period > 0) & (network.positions % np.maximum(period, 1) == 0)
    apart = np.abs(ends - ends[:, :1]).max(axis=(1, 2, 3))
    return _Part(
        betas=betas,
        regime=regime,
        period=period,
        exponent=found.exponent.reshape(shape),
        driven=clocked.all(axis=1) & (apart < _ONE),
        context=Context(ends, found.context.position),
    )


def escapes(
    network: Network,
    context: Context,
    *,
    betas: np.ndarray,
    chaotic: np.ndarray,
    exponent: np.ndarray,
    seed: Seed,
    horizon: int = HORIZON,
    threads: int = 1,
) -> tuple[np.ndarray, np.ndarray]:
    """How many replicas were followed at each β, and how many ended their chaos, each (n,).

    context: (n, B, T, P); chaotic, exponent: (n, B).

    >>> network, none = Network.document(), np.zeros((1, 2), dtype=bool)
    >>> start = Context(np.zeros((1, 2, 4, 3)), 0)
    >>> escapes(network, start, betas=np.ones(1), chaotic=none, exponent=none, seed=0)
    (array([0]), array([0]))
    """
    count, ended = np.zeros((2, len(betas)), dtype=int)
    rows = np.flatnonzero(chaotic.any(axis=1))
    if not len(rows):
        return count, ended
    share = max(1, _REPLICAS // len(rows))
    chosen = [(row, np.resize(np.flatnonzero(chaotic[row]), share)) for row in rows]
    at = np.concatenate([np.full(share, row) for row, _ in chosen])
    lane = np.concatenate([lanes for _, lanes in chosen])
    states = context.attention[at, lane]
    noise = replicas(
        Context(np.zeros((network.context, network.features)), 0), count=len(at), seed=seed
    )
    growth, _ = growth_rates(
        network,
        Context(states + noise.attention, context.position),
        beta=betas[at],
        stretches=check_integer("horizon", horizon, low=3 * _STRETCH) // _STRETCH,
        stretch=_STRETCH,
        threads=threads,
    )
    # Each against a third of its own exponent.
    _, escaped, returned = escapes_of(growth.T - exponent[at, lane] / 3.0, rate=0.0)
    np.add.at(count, at, 1)
    np.add.at(ended, at, escaped & ~returned)
    return count, ended


def network_row(network: Network, seed: Seed, **sizes: int) -> dict[str, Any]:
    """One network's row: its code, what the closed form predicts, what the sweep found.

    Shares are over the even β and the contexts; what is `seen` counts all β. `measured` is 0 where
    the driven cycle lasts over the whole range.

    >>> row = network_row(Network.document(), 0, even=6, fine=0, contexts=2)
    >>> f"{row['predicted']:.3f}", row["measured"]
    ('1.246', 1.5)
    """
    found = sweep(network, seed, **sizes)
    known = onset(network, epsilon=network.epsilon)
    even = found.regime[: sizes.get("even", EVEN)]
    driven = found.driven[: len(even), None] & (even == Regime.PERIODIC)
    chaos = (found.regime == Regime.CHAOTIC).any(axis=1)
    lost = found.betas[~found.driven]
    return {
        "code": f"x{canonical_code(network)}",
        "mu": float(np.abs(known.mu[0])),
        "angle": float(np.abs(np.angle(known.mu[0])) / np.pi),
        "predicted": known.critical_beta,
        "measured": float(lost.min()) if len(lost) else 0.0,
        "driven": float(driven.mean()),
        "periodic": float(((even == Regime.PERIODIC) & ~driven).mean()),
        "quasi": float((even == Regime.QUASI_PERIODIC).mean()),
        "chaotic": float((even == Regime.CHAOTIC).mean()),
        "transient": float((even == Regime.TRANSIENT_CHAOS).mean()),
        "undecided": float((even == Regime.UNDECIDED).mean()),
        "seen_quasi": int((found.regime == Regime.QUASI_PERIODIC).any(axis=1).sum()),
        "seen_chaos": int(chaos.sum()),
        "seen_transient": int((found.regime == Regime.TRANSIENT_CHAOS).any(axis=1).sum()),
        "replicas": int(found.replicas.sum()),
        "ended": int(found.ended.sum()),
        "exponent": float(found.exponent[found.regime == Regime.CHAOTIC].max())
        if chaos.any()
        else 0.0,
        "periods": len(set(found.period[found.regime == Regime.PERIODIC].tolist())),
    }

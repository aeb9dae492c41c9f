"""Starts on an attractor: how long an ensemble takes to get there, and contexts that have waited.

The average of an observable over an ensemble of contexts relaxes to its value on the attractor, in
the end as e^{−t/τ}: τ, the *relaxation time*, is 27 tokens in the chaos of the document's network
at β = 1.28 and hundreds at 1.266, where a context stays in a calm or a wild part of the attractor
for as long. What is measured from starts that have waited for less than a few τ is a transient.

Here the observable is the mean square of the semantic overlaps, Σ_a (m^o_a)², averaged over whole
turns of the clock. On a cycle or a closed curve τ is that of the approach, or the lifetime of the
chaotic transient before it, whichever is longer.
"""

import math
from typing import Unpack

import numpy as np

from spinformer.core.checks import check_integer, check_real
from spinformer.core.statistics import Estimate
from spinformer.dmft.ensemble import Ensemble, Parameters
from spinformer.dmft.network import AttentionNetwork, Context

# Groups of contexts, left out one after another for the error.
_GROUPS = 20
# The tail that is fitted: an excess above so many standard errors, over so many e-folds.
_SIGMAS, _FOLDS = 8.0, 2.0
# Share of the first excess that counts as an error where an approach has no scatter.
_SMALLEST = 1e-6
_FEWEST = 3
# What starts are rounded to, so that libraries of different machines leave no trace in them.
_DIGITS = 8


def relaxation_time(
    network: AttentionNetwork,
    context: Context,
    *,
    steps: int,
    stretches: int = 60,
    **parameters: Unpack[Parameters],
) -> Estimate:
    """τ in tokens, from an ensemble of contexts (B, T, P), with its jackknife error.

    `steps` tokens are averaged in `stretches`, which must be whole turns of the clock; the last
    quarter of them stands for the attractor. The tail of what is left, from e² times to once eight
    standard errors, is fitted by an exponential. parameters: β, γ, ε and threads, as in `Ensemble`.

    What relaxes more slowly than the run lasts is not seen: make it longer, with more contexts,
    until the answer stands. Raises ValueError where the fit is impossible: too many steps leave
    fewer than three stretches to the tail, too few leave it no end.

    >>> from spinformer.dmft.mean_field import random_contexts
    >>> from spinformer.dmft.network import Network
    >>> starts = random_contexts(Network.document(), 0, count=1000)
    >>> found = relaxation_time(Network.document(), starts, beta=1.255, steps=4800)
    >>> bool(220 < found.value < 330)
    True
    """
    stretches = check_integer("stretches", stretches, low=8, high=10_000)
    steps = check_integer("steps", steps, low=stretches)
    for name in ("beta", "gamma", "epsilon"):
        given = np.asarray(parameters.get(name, 0.0)).shape
        if given:
            raise ValueError(f"{name} must be a single number, got shape {given}")
    ensemble = Ensemble(network, context, **parameters)
    length = steps // stretches
    if length * stretches != steps or length % network.positions:
        raise ValueError(
            f"steps must be a multiple of {stretches * network.positions}, "
            f"{stretches} stretches of whole turns of the clock, got {steps}"
        )
    squares = []
    for _ in range(stretches):
        overlaps = ensemble.record(length)
        squares.append((overlaps**2).sum(axis=-1).mean(axis=-1).ravel())
    table = np.stack(squares, axis=1)
    if len(table) < _GROUPS:
        raise ValueError(f"context must hold at least {_GROUPS} contexts, got {len(table)}")
    excess, scatter = _excess(table)
    # Equal contexts differ by the rounding of their mean.
    if not scatter[0] > 1e-12 * np.abs(excess[0]):
        raise ValueError("context must hold contexts that differ, got one motion for all")
    error = np.hypot(scatter, _SMALLEST * np.abs(excess[0]) + np.finfo(float).tiny)
    tail = _tail(excess, error=error, steps=steps)
    parts = [
        _slope(_excess(np.delete(table, slice(group, None, _GROUPS), axis=0))[0], tail, error)
        for group in range(_GROUPS)
    ]
    slope = _slope(excess, tail, error)
    if not slope * stretches > 4.0:
        raise ValueError(f"steps must be several times the relaxation time, got {steps}")
    value = length / slope
    spread = np.std([length / part for part in parts])
    return Estimate(value=value, error=np.sqrt(_GROUPS - 1.0) * spread, samples=len(table))


def _excess(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the mean of (B, n) still differs by from that of the last quarter, with its error."""
    late = table[:, -(table.shape[1] // 4) :].mean(axis=1, keepdims=True)
    away = table - late
    return away.mean(axis=0), away.std(axis=0, ddof=1) / np.sqrt(len(table))


def _tail(excess: np.ndarray, *, error: np.ndarray, steps: int) -> slice:
    """The stretches from e² times the last significant excess to it."""
    clear = np.abs(excess) > _SIGMAS * error
    end = len(clear) if clear.all() else int(np.argmin(clear))
    if end > len(clear) // 2:
        raise ValueError(f"steps must be several times the relaxation time, got {steps}")
    size = np.abs(excess[:end])
    begin = int(np.argmax(size < np.exp(_FOLDS) * size[-1])) if end else 0
    # The first stretch holds what relaxes within it.
    begin = max(begin, 1)
    if end - begin < _FEWEST:
        raise ValueError(
            f"steps must be fewer, or the contexts more, to resolve the relaxation, got {steps}"
        )
    return slice(begin, end)


def _slope(excess: np.ndarray, tail: slice, error: np.ndarray) -> float:
    """Decay of ln |excess| per stretch over the tail, weighted by its errors."""
    size = np.maximum(np.abs(excess[tail]), 1e-300)
    place = np.arange(len(excess))[tail]
    return -float(np.polyfit(place, np.log(size), 1, w=size / error[tail])[0])


def settled_contexts(
    network: AttentionNetwork,
    context: Context,
    *,
    relaxation: float,
    multiple: float = 8.0,
    **parameters: Unpack[Parameters],
) -> Context:
    """Contexts after `multiple` relaxation times, in tokens, rounded to eight decimals.

    After eight of them e^−8 = 0.0003 of an ensemble's distance from the attractor is left. The
    compiled steps give the same numbers on every machine, and what differs in the starts by the
    rounding of a library is rounded away unless chaos made it large: begin with rounded or drawn
    contexts. parameters: β, γ, ε and threads, as in `Ensemble`.

    >>> from spinformer.dmft.mean_field import random_contexts
    >>> from spinformer.dmft.network import Network
    >>> starts = random_contexts(Network.document(), 0, count=5)
    >>> settled = settled_contexts(Network.document(), starts, beta=1.28, relaxation=27.0)
    >>> settled.attention.shape, settled.position  # 216 tokens on
    ((5, 4, 3), 0)
    """
    relaxation = check_real("relaxation", relaxation, low=0.0, high=1e9)
    multiple = check_real("multiple", multiple, low=0.0, high=1e6)
    ensemble = Ensemble(network, context, **parameters)
    ensemble.advance(math.ceil(multiple * relaxation))
    state = ensemble.state()
    return Context(np.round(state.attention, _DIGITS), state.position)

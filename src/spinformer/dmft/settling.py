"""Relaxation time of an ensemble to its attractor, and contexts and windows on the attractor.

The average of an observable over an ensemble of contexts relaxes to its value on the attractor, in
the end as e^{−t/τ}. The *relaxation time* τ is 27 tokens in the chaos of the published network at
β = 1.28. At 1.266 it is hundreds of tokens, and a context stays for as long in a part of the
attractor where the motion is more, or less, chaotic. A measurement from starts that have been
iterated for less than a few τ is a measurement of the transient.

Here the observable is the mean square of the semantic overlaps, Σ_a (m^o_a)², averaged over whole
periods of the positional code. On a cycle or a closed curve τ is that of the approach, or the
lifetime of the chaotic transient before it, whichever is longer.
"""

import math
from typing import Any, Unpack

import numpy as np

from spinformer.core.checks import check_instance, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate
from spinformer.dmft.ensemble import Ensemble, Parameters
from spinformer.dmft.finite_size import window_of_context
from spinformer.dmft.mean_field import trajectory
from spinformer.dmft.network import AttentionNetwork, Context, Network

# Groups of contexts, left out one after another for the error.
_GROUPS = 20
# The tail that is fitted: an excess above so many standard errors, over so many e-folds.
_SIGMAS = 8.0
_FOLDS = 2.0
# Share of the first excess that counts as an error where an approach has no scatter.
_SMALLEST = 1e-6
_FEWEST = 3
# What starts are rounded to, so that libraries of different machines leave no trace in them.
_DIGITS = 8
# Points that agree to so many decimals are one point.
_SAME_POINT = 7


def relaxation_time(
    network: AttentionNetwork,
    context: Context,
    *,
    steps: int,
    stretches: int = 60,
    **parameters: Unpack[Parameters],
) -> Estimate:
    r"""Estimate the relaxation time of an ensemble to its attractor, with a jackknife error.

    The trajectory is averaged in stretches, and the last quarter of them stands for the attractor.
    The tail of the remaining excess, from e² times to once eight standard errors, is fitted by an
    exponential. A relaxation slower than the run is not detected: make the run longer, with more
    contexts, until the result no longer changes.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        An ensemble of at least 20 contexts, attention of shape (B, T, P), which must differ.
    steps : int
        Number of tokens, a multiple of `stretches` times the period 2^K of the positional code.
    stretches : int, default 60
        Number of stretches that are averaged, from 8 to 10,000.
    **parameters : Unpack[Parameters]
        The inverse temperatures `beta` and `gamma`, `epsilon` and `threads`, as in `Ensemble`; each
        a single number.

    Returns
    -------
    Estimate
        The relaxation time τ in tokens and its error.

    Raises
    ------
    ValueError
        If the fit is impossible: too many steps leave fewer than three stretches to the tail, and
        too few leave it no end. Also if there are too few contexts, or if they are all equal, or if
        an argument is out of its range.

    Notes
    -----
    The fitted tail of the excess over the value on the attractor is

    .. math::

        \Big\langle \sum_a (m^o_a)^2 \Big\rangle_t
            - \Big\langle \sum_a (m^o_a)^2 \Big\rangle_\infty \propto e^{-t/\tau}.

    Examples
    --------
    >>> from spinformer.dmft.mean_field import random_contexts
    >>> from spinformer.dmft.network import Network
    >>> starts = random_contexts(Network.poclopez2024(), 0, count=1000)
    >>> found = relaxation_time(Network.poclopez2024(), starts, beta=1.255, steps=4800)
    >>> bool(220 < found.value < 330)
    True
    """
    stretches = check_integer("stretches", stretches, low=8, high=10_000)
    steps = check_integer("steps", steps, low=stretches)
    for name in ("beta", "gamma", "epsilon"):
        value: Any = parameters.get(name, 0.0)
        given = np.shape(value)
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
    """Iterate contexts for several relaxation times, so that they lie on the attractor.

    After eight relaxation times e^−8 = 0.0003 of the distance of an ensemble from the attractor is
    left. The contexts are rounded to eight decimals. The compiled steps give the same numbers on
    every machine, and differences in the starts that come from the rounding of a library are
    removed by the rounding unless chaos has amplified them. For this reason, begin with rounded or
    drawn contexts.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        Initial states, of one system or of a batch.
    relaxation : float
        Relaxation time τ in tokens, as `relaxation_time` gives it.
    multiple : float, default 8.0
        Number of relaxation times.
    **parameters : Unpack[Parameters]
        The inverse temperatures `beta` and `gamma`, `epsilon` and `threads`, as in `Ensemble`.

    Returns
    -------
    Context
        The contexts at the end.

    Raises
    ------
    ValueError
        If `relaxation` or `multiple` is negative, or the context does not fit the network.

    Examples
    --------
    >>> from spinformer.dmft.mean_field import random_contexts
    >>> from spinformer.dmft.network import Network
    >>> starts = random_contexts(Network.poclopez2024(), 0, count=5)
    >>> settled = settled_contexts(Network.poclopez2024(), starts, beta=1.28, relaxation=27.0)
    >>> settled.attention.shape, settled.position  # 216 tokens on
    ((5, 4, 3), 0)
    """
    relaxation = check_real("relaxation", relaxation, low=0.0, high=1e9)
    multiple = check_real("multiple", multiple, low=0.0, high=1e6)
    ensemble = Ensemble(network, context, **parameters)
    ensemble.advance(math.ceil(multiple * relaxation))
    state = ensemble.state()
    return Context(np.round(state.attention, _DIGITS), state.position)


def settled_window(
    network: Network, beta: float, *, context: Context, transient: int, steps: int = 120
) -> tuple[np.ndarray, int]:
    """Return a well-defined window on the most common attractor of a batch of contexts.

    Of the largest overlap m^o_1 of each orbit, the one that is reached most often marks the most
    common attractor. The window is the one whose newest token has this overlap, the same on every
    machine.

    Parameters
    ----------
    network : Network
        The network.
    beta : float
        Inverse temperature β of the tokens.
    context : Context
        Initial states, of one system or of a batch.
    transient : int
        Number of tokens that are dropped first.
    steps : int, default 120
        Number of tokens in which the largest overlap is looked for.

    Returns
    -------
    window : ndarray, shape (T, L)
        Segment means of the tokens, the oldest first.
    position : int
        Position of the newest token.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If the context does not fit the network, or an argument is out of its range.

    Examples
    --------
    >>> start = Context(np.zeros((4, 3)), 0)
    >>> window, position = settled_window(
    ...     Network.poclopez2024(), 0.5, context=start, transient=100, steps=8
    ... )
    >>> window.shape
    (4, 3)
    """
    check_instance("network", network, Network)
    check_instance("context", context, Context)
    steps = check_integer("steps", steps, low=1)
    overlaps, _ = trajectory(network, context, beta=beta, steps=steps, transient=transient)
    first = overlaps.reshape(-1, steps, network.features)[..., 0]
    heights = np.round(first, _SAME_POINT)
    peaks, times = np.unique(heights.max(axis=1), return_counts=True)
    # Of equally common attractors the one with the largest overlap.
    best = peaks[::-1][np.argmax(times[::-1])]
    run, token = np.argwhere(heights == best)[0]
    attention = context.attention.reshape(-1, network.context, network.features)[run]
    single = Context(attention, context.position)
    ahead = transient + int(token)
    if ahead > 0:
        # A run of n tokens ends in the context whose newest token is token n, not yet recorded.
        _, single = trajectory(network, single, beta=beta, steps=1, transient=ahead - 1)
    return window_of_context(network, single, beta=beta), single.position


def perturbed_replicas(
    context: Context, *, count: int, size: float = 1e-10, seed: Seed = 0
) -> Context:
    """Make replicas of one context that differ by small normal noise.

    Parameters
    ----------
    context : Context
        One context, attention of shape (T, P).
    count : int
        Number of replicas.
    size : float, default 1e-10
        Standard deviation of the noise of each component.
    seed : Seed, default 0
        Seed or random generator of the noise.

    Returns
    -------
    Context
        The replicas, attention of shape (count, T, P).

    Raises
    ------
    ValueError
        If `count` is below 1 or `size` is not positive.

    Examples
    --------
    >>> perturbed_replicas(Context(np.zeros((4, 3)), 0), count=5).attention.shape
    (5, 4, 3)
    """
    check_instance("context", context, Context)
    count = check_integer("count", count, low=1)
    size = check_real("size", size, low=0.0, open_low=True)
    noise = numpy_generator(seed).standard_normal((count, *context.attention.shape))
    return Context(context.attention + size * noise, context.position)

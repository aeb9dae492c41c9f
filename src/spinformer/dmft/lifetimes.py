"""How long chaos lasts: escape times of many replicas, and lifetimes from censored ones.

Chaos that is no attractor ends: after a time that is drawn anew for every start the orbit finds a
hole in the chaotic set and falls onto an attractor beside it. Far from the hole the orbit has
forgotten its start, so the times are exponential, P(t > s) = exp(−s/τ), and one number, the
lifetime τ in steps, says all (Tél and Lai 2008). One run of n steps that ends in chaos says little:
it shows chaos that lasts n steps or more.

`escape_times` runs replicas, measures the growth of a tangent vector in consecutive stretches, and
calls an orbit escaped from the first of several stretches in a row whose growth lies below a
given rate. `core.statistics.lifetime_estimate` makes the lifetime of such times.
"""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Lifetime, lifetime_estimate
from spinformer.dmft import kernels
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.kernels.lanes import LANES
from spinformer.dmft.kernels.stepping import Block, Clock
from spinformer.dmft.kernels.tangent import Frame
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context, fitting

# Steps between two normalizations of the tangent vector, and until it has aligned.
_EVERY = 4
_ALIGN = 500
# A hole in the chaotic set lets many pass near it: one quiet stretch is no escape.
_IN_A_ROW = 3


@record
class Escapes:
    """Escape times of B replicas at one set of parameters.

    times: (B,) steps until the escape; the horizon for those that never escaped. escaped: (B,)
    booleans. returned: (B,) whether chaos came back later, which exponential times exclude.
    growth: (n, B) mean growth rate of a tangent vector in each stretch of `stretch` steps.
    rate: growth below it is not chaos. context: the states at the end.

    >>> start = replicas(Context(np.full((4, 3), 0.1), 0), count=2)
    >>> calm = escape_times(
    ...     Network.document(), start, beta=0.5, rate=0.01, horizon=400, stretch=100, transient=0
    ... )
    >>> calm.horizon, calm.lifetime().value
    (400, 0.0)
    """

    times: np.ndarray
    escaped: np.ndarray
    returned: np.ndarray
    growth: np.ndarray
    stretch: int
    rate: float
    context: Context

    @property
    def horizon(self) -> int:
        """Steps that every replica was followed."""
        return len(self.growth) * self.stretch

    def lifetime(self, *, level: float = 0.95) -> Lifetime:
        """Lifetime of the chaos, with its interval, from escaped and censored times."""
        return lifetime_estimate(self.times, ended=self.escaped, level=level)


def replicas(context: Context, *, count: int, size: float = 1e-10, seed: Seed = 0) -> Context:
    """`count` copies of one context (T, P), each moved by normal noise of deviation `size`.

    Chaos parts them within some hundred steps; what they have in common is the basin.

    >>> replicas(Context(np.zeros((4, 3)), 2), count=8).attention.shape
    (8, 4, 3)
    """
    check_instance("context", context, Context)
    count = check_integer("count", count, low=1)
    size = check_real("size", size, low=0.0)
    if context.attention.ndim != 2:
        raise ValueError(f"context must be one context (T, P), got {context.attention.shape}")
    noise = numpy_generator(seed).standard_normal((count, *context.attention.shape))
    return Context(context.attention + size * noise, context.position)


def growth_rates(
    network: Network,
    context: Context,
    *,
    beta: float | np.ndarray,
    gamma: float | np.ndarray | None = None,
    epsilon: float | np.ndarray | None = None,
    stretches: int,
    stretch: int = 5000,
    threads: int | None = None,
    progress: bool = False,
) -> tuple[np.ndarray, Context]:
    """Growth rate of a tangent vector, nats per step, in each of consecutive stretches.

    Returns (..., n) rates for n = `stretches` of `stretch` steps each, and the states at the end.
    β, γ, ε and contexts broadcast as in `mean_field.trajectory`; the mean over the stretches is
    the leading Lyapunov exponent of `lyapunov.lyapunov_spectrum`.

    >>> start = Context(np.full((4, 3), 0.1), 0)
    >>> rates, _ = growth_rates(Network.document(), start, beta=0.5, stretches=3, stretch=100)
    >>> rates.shape, bool((rates < 0).all())
    ((3,), True)
    """
    fitting(network, context)
    ensemble = Ensemble(network, context, beta=beta, gamma=gamma, epsilon=epsilon, threads=threads)
    stretches = check_integer("stretches", stretches, low=1)
    stretch = check_integer("stretch", stretch, low=1)
    # A generic but fixed direction: no axis of the window.
    start = np.random.default_rng(0).normal(size=ensemble.window * ensemble.features)

    def task(block: Block, clock: Clock) -> tuple[Clock, tuple[np.ndarray, ...]]:
        vectors = np.repeat(start[None, :, None] / np.linalg.norm(start), LANES, axis=2)
        lost = np.zeros((1, LANES), dtype=np.int64)
        rates = np.empty((stretches, LANES))
        for number, length in enumerate((_ALIGN, *[stretch] * stretches), start=-1):
            mantissa, exponent = np.ones((1, LANES)), np.zeros((1, LANES), dtype=np.int64)
            frame = Frame(vectors, mantissa, exponent, lost)
            clock = kernels.grow(length, _EVERY, frame, block, clock)
            if number >= 0:
                rates[number] = (np.log(mantissa[0]) + exponent[0] * np.log(2.0)) / length
        return clock, (rates,)

    rates = ensemble.run(task, progress=progress, label="growth")[0]
    return rates, ensemble.state()


def escapes_of(growth: np.ndarray, *, rate: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First stretch of an escape, whether there was one, and whether chaos returned, each (B,).

    growth: (n, B). A replica escapes at the first of three stretches in a row (fewer at the end
    do not count) whose growth is below `rate`; n where it never does.

    >>> growth = np.array([[0.1, 0.1], [0.0, 0.0], [0.1, 0.0], [0.1, 0.0], [0.1, 0.0]])
    >>> [part.tolist() for part in escapes_of(growth, rate=0.05)]
    [[5, 1], [False, True], [False, False]]
    """
    growth = check_array("growth", growth, ndim=2)
    rate = check_real("rate", rate)
    quiet = growth < rate
    stretches = len(quiet)
    if stretches < _IN_A_ROW:
        never = np.zeros(quiet.shape[1], dtype=bool)
        return np.full(quiet.shape[1], stretches), never, never
    runs = np.lib.stride_tricks.sliding_window_view(quiet, _IN_A_ROW, axis=0).all(axis=-1)
    escaped = runs.any(axis=0)
    first = np.where(escaped, runs.argmax(axis=0), stretches)
    later = np.arange(stretches)[:, None] >= first
    return first, np.asarray(escaped), np.asarray((later & ~quiet).any(axis=0))


def escape_times(
    network: Network,
    context: Context,
    *,
    beta: float,
    rate: float,
    horizon: int,
    gamma: float | None = None,
    epsilon: float | None = None,
    stretch: int = 5000,
    transient: int = 5000,
    threads: int | None = None,
    progress: bool = False,
) -> Escapes:
    """Follow replicas, contexts (B, T, P), for `horizon` steps and see which leave their chaos.

    `transient` steps are dropped first, in which replicas of one start part. rate: what growth
    per step is chaos; between the growth on the chaotic set and that of the attractors beside
    it. A time is known to one `stretch`, so lifetimes must be several stretches long.

    >>> start = replicas(Context(np.full((4, 3), 0.1), 0), count=2)
    >>> calm = escape_times(
    ...     Network.document(), start, beta=0.5, rate=0.01, horizon=400, stretch=100, transient=0
    ... )
    >>> calm.times, calm.escaped
    (array([0, 0]), array([ True,  True]))
    """
    check_instance("context", context, Context)
    if context.attention.ndim != 3:
        raise ValueError(f"context must hold replicas (B, T, P), got {context.attention.shape}")
    stretch = check_integer("stretch", stretch, low=1)
    horizon = check_integer("horizon", horizon, low=_IN_A_ROW * stretch)
    transient = check_integer("transient", transient, low=0)
    ensemble = Ensemble(network, context, beta=beta, gamma=gamma, epsilon=epsilon, threads=threads)
    ensemble.advance(transient)
    rates, last = growth_rates(
        network,
        ensemble.state(),
        beta=beta,
        gamma=gamma,
        epsilon=epsilon,
        stretches=horizon // stretch,
        stretch=stretch,
        threads=threads,
        progress=progress,
    )
    growth = np.ascontiguousarray(rates.T)
    first, escaped, returned = escapes_of(growth, rate=rate)
    return Escapes(
        times=first * stretch,
        escaped=escaped,
        returned=returned,
        growth=growth,
        stretch=stretch,
        rate=float(rate),
        context=last,
    )

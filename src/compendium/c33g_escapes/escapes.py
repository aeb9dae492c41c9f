"""Escapes of a network of N bits from one cycle of its mean field to another, by its own noise.

For infinitely many bits a cycle that attracts is never left. With N bits every token adds noise,
and after a random time the text has crossed into another basin. Where a text is, is decided by
switching the noise off: its window is followed by the mean field (`quench`) until it can be
recognized (`recognize`). `noise_escapes` follows many texts, looks at each of them at fixed
intervals, and calls it escaped when the noise-free continuation no longer ends on its own cycle.

Rare escapes are memoryless, so the times are exponential, and those of texts that did not escape
within the horizon are censored. `escape_law` fits ln τ = a + b x to the lifetimes at several
sizes at once, by the likelihood of the censored times, with x = N (large deviations) or x = ln N
(a power law), and says by a deviance how well each does.

Conventions of `tokens`: windows run from old to new; of `mean_field`: contexts from new to old.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import chdtrc

from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, Lifetime, lifetime_estimate
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context, fitting
from spinformer.dmft.tokens import attention_of_window, generate, window_means


def quench(
    network: Network, windows: np.ndarray, *, beta: float, position: int, steps: int
) -> Context:
    """Follow windows (R, T, L) for `steps` tokens without noise; `position` of their newest token.

    At least T steps: a context holds T attention vectors, and a window tells only the next one.

    >>> end = quench(Network.document(), np.zeros((2, 4, 3)), beta=0.5, position=3, steps=40)
    >>> end.attention.shape, end.position
    ((2, 4, 3), 3)
    """
    check_instance("network", network, Network)
    beta = check_real("beta", beta, low=0.0)
    context, segments = network.context, network.segments
    windows = check_array("windows", windows, shape=(None, context, segments))
    position = check_integer("position", position)
    steps = check_integer("steps", steps, low=context)
    made = []
    for step in range(context):
        attention = attention_of_window(network, windows, position=position + step)
        made.append(attention)
        newest = window_means(network, beta, attention=attention)[:, None]
        windows = np.concatenate([windows[:, 1:], newest], axis=1)
    start = Context(np.stack(made[::-1], axis=1), (position + context) % network.positions)
    ensemble = Ensemble(network, start, beta=beta, threads=1)
    ensemble.advance(steps - context)
    return ensemble.state()


def recognize(
    orbits: np.ndarray, *, cycles: np.ndarray, clock: int, tolerance: float
) -> np.ndarray:
    """Which of the cycles (n, q, P) each orbit (R, q, P) follows, (R,); −1: none of them.

    Both begin at the same position of a clock of `clock` positions, and q is a multiple of the
    periods and of the clock. An orbit follows a cycle if, after a shift by whole turns of the
    clock, no overlap differs by more than `tolerance`.

    >>> cycle = np.array([[[1.0], [0.0], [0.0], [0.0]]])
    >>> turned = np.roll(cycle, 2, axis=1)
    >>> recognize(turned, cycles=cycle, clock=2, tolerance=0.1).tolist()
    [0]
    >>> recognize(turned, cycles=cycle, clock=4, tolerance=0.1).tolist()
    [-1]
    """
    orbits = check_array("orbits", orbits, ndim=3)
    cycles = check_array("cycles", cycles, shape=(None, *orbits.shape[1:]))
    clock = check_integer("clock", clock, low=1)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    away = np.array(
        [
            np.min(
                [
                    np.abs(orbits - np.roll(cycle, shift, axis=0)).max(axis=(1, 2))
                    for shift in range(0, orbits.shape[1], clock)
                ],
                axis=0,
            )
            for cycle in cycles
        ]
    )
    return np.where(away.min(axis=0) <= tolerance, away.argmin(axis=0), -1)


@record
class NoiseEscapes:
    """When and where R texts left their cycle.

    times: (R,) tokens, the middle of the interval between two looks; the horizon where a text
    stayed. escaped: (R,) booleans. ends: (R,) cycle of the noise-free continuation then, −1 for
    none of the known ones or no escape.

    >>> times, escaped = np.array([2.0, 4.0]), np.array([True, False])
    >>> found = NoiseEscapes(times=times, escaped=escaped, ends=np.array([1, -1]))
    >>> found.lifetime().value
    6.0
    """

    times: np.ndarray
    escaped: np.ndarray
    ends: np.ndarray

    def lifetime(self, *, level: float = 0.95) -> Lifetime:
        """Mean time to escape, with its interval, from escaped and censored texts."""
        return lifetime_estimate(self.times, ended=self.escaped, level=level)


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
    settle: int,
    horizon: int,
    runs: int,
    seed: Seed,
    tolerance: float = 1e-2,
) -> NoiseEscapes:
    """Escapes of `runs` texts of N = `size` bits from cycle `home` within `horizon` tokens.

    window: (T, L) on the cycle, `position` that of its newest token. cycles: (n, q, P) overlaps
        of the known cycles, each beginning at position 0 (`cycle_overlaps`).
    every: tokens between two looks, a multiple of the clock. settle: noise-free tokens before an
        orbit is compared, within `tolerance`.

    >>> machine = Network.document()
    >>> starts = Context(np.full((1, 4, 3), 0.1), 0)
    >>> cycles = cycle_overlaps(machine, starts, beta=0.5, length=4, settle=400)
    >>> found = noise_escapes(
    ...     machine, 3000, beta=0.5, window=np.zeros((4, 3)), position=3, cycles=cycles, home=0,
    ...     every=8, settle=80, horizon=16, runs=3, seed=0,
    ... )
    >>> found.times, bool(found.escaped.any())  # there is one cycle only
    (array([16., 16., 16.]), False)
    """
    check_instance("network", network, Network)
    clock = network.positions
    position = check_integer("position", position)
    settle = check_integer("settle", settle, low=network.context)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    every = check_integer("every", every, low=1)
    if every % clock:
        raise ValueError(f"every must be a multiple of the {clock} positions, got {every}")
    horizon = check_integer("horizon", horizon, low=every)
    runs = check_integer("runs", runs, low=1)
    cycles = check_array("cycles", cycles, ndim=3)
    home = check_integer("home", home, low=0, high=len(cycles) - 1)
    rng = numpy_generator(seed)
    window = check_array("window", window, shape=(network.context, network.segments))
    windows = np.repeat(window[None], runs, axis=0)
    times = np.full(runs, float(horizon))
    ends = np.full(runs, -1)
    inside = np.arange(runs)
    # So many noise-free tokens that the comparison begins at position 0, as the cycles do.
    settle += (-(position + settle)) % clock
    for passed in range(every, horizon + 1, every):
        windows = generate(
            network,
            size,
            beta=beta,
            window=windows,
            steps=every,
            runs=len(inside),
            seed=rng,
            position=position,
            draw_window=False,
        ).tokens[:, -network.context :]
        calm = quench(network, windows, beta=beta, position=position, steps=settle)
        orbits = Ensemble(network, calm, beta=beta, threads=1).record(cycles.shape[1])
        where = recognize(orbits, cycles=cycles, clock=clock, tolerance=tolerance)
        out = where != home
        times[inside[out]] = passed - 0.5 * every
        ends[inside[out]] = where[out]
        inside, windows = inside[~out], windows[~out]
        if not len(inside):
            break
    escaped = np.ones(runs, dtype=bool)
    escaped[inside] = False
    return NoiseEscapes(times=times, escaped=escaped, ends=ends)


def cycle_overlaps(
    network: Network, context: Context, *, beta: float, length: int, settle: int
) -> np.ndarray:
    """Overlaps (n, length, P) of the cycles that contexts (n, T, P) settle on, from position 0.

    They begin after `settle` tokens, or up to 2^K − 1 later.

    >>> starts = Context(np.full((2, 4, 3), 0.1), 0)
    >>> cycle_overlaps(Network.document(), starts, beta=0.5, length=4, settle=400).shape
    (2, 4, 3)
    """
    fitting(network, context)
    length = check_integer("length", length, low=1)
    settle = check_integer("settle", settle, low=0)
    settle += (-(context.position + settle)) % network.positions
    ensemble = Ensemble(network, context, beta=beta, threads=1)
    ensemble.advance(settle)
    return ensemble.record(length)


@record
class EscapeLaw:
    """ln τ = intercept + slope · x, fitted to censored times by their likelihood.

    deviance: twice the logarithm of the likelihood that a free τ at every x would gain;
    degrees: of freedom, points less two; share: chance of a larger deviance where the law holds.
    """

    intercept: Estimate
    slope: Estimate
    deviance: float
    degrees: int
    share: float


def escape_law(x: ArrayLike, *, total: ArrayLike, ended: ArrayLike) -> EscapeLaw:
    """Fit exponential lifetimes at points x (n,), at least three, by maximum likelihood.

    total: (n,) time at risk, all texts together. ended: (n,) escapes, positive. At one point the
    likelihood is τ^{−k} exp(−S/τ) (`core.statistics.lifetime_estimate`); the product over the
    points is maximized in intercept and slope, errors are those of the Fisher information.

    >>> law = escape_law([1.0, 2.0, 3.0], total=np.exp([1.0, 3.0, 5.0]) * 100, ended=[100] * 3)
    >>> f"{law.slope.value:.3f} +- {law.slope.error:.3f}, deviance {abs(law.deviance):.2f}"
    '2.000 +- 0.071, deviance 0.00'
    """
    x = check_array("x", x, ndim=1)
    check_integer("number of points", len(x), low=3)
    total = check_array("total", total, shape=x.shape, low=0.0, open_low=True)
    ended = check_array("ended", ended, shape=x.shape, low=1.0)
    center = float(ended @ x / ended.sum())
    design = np.column_stack([np.ones(len(x)), x - center])
    information = design.T @ (ended[:, None] * design)
    # Newton's step with the expected information; the problem is convex, so it arrives.
    guess = np.linalg.solve(information, design.T @ (ended * np.log(total / ended)))
    for _ in range(100):
        ratio = total * np.exp(-design @ guess)
        move = np.linalg.solve(information, design.T @ (ratio - ended))
        guess = guess + move
        if np.abs(move).max() < 1e-13:
            break
    ratio = total * np.exp(-design @ guess) / ended
    deviance = float(2.0 * ended @ (ratio - 1.0 - np.log(ratio)))
    errors = np.sqrt(np.diag(np.linalg.inv(information)))
    return EscapeLaw(
        intercept=Estimate(
            value=float(guess[0] - guess[1] * center),
            error=float(np.hypot(errors[0], center * errors[1])),
            samples=int(ended.sum()),
        ),
        slope=Estimate(value=float(guess[1]), error=float(errors[1]), samples=int(ended.sum())),
        deviance=deviance,
        degrees=len(x) - 2,
        share=float(chdtrc(len(x) - 2, deviance)),
    )

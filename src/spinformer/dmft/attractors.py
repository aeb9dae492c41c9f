"""Attractors of the mean field: classification of their regimes, and the stroboscopic map.

Regimes are decided by three measurements on each orbit after its transient:

- a *period*: the smallest p with `|m_{n+p} − m_n|` below `Thresholds.distance` over a whole stretch
  (a fixed point has period 1, or that of the positional code);
- the leading Lyapunov exponent λ₁ (nats per step) and its standard error;
- *Birkhoff digits*: the average of m over a stretch, weighted with the bump function
  exp(−1/(t(1−t))), converges faster than any power of the length on a quasi-periodic orbit and as
  slowly as an average of random numbers on a chaotic one (Das, Saiki, Sander and Yorke 2017). The
  digits are −log₁₀ of the largest difference between the averages over two consecutive stretches.

A label is a statement about the steps that were run: a chaotic transient may last longer than these
and still end.

The positional code drives the network with a period of 2^K steps. In the stroboscopic map (the
function `stroboscopic_section`), which samples the orbit once per period, a cycle of 2^K steps is a
point and a quasi-periodic motion is a closed curve.
"""

from dataclasses import field, replace
from typing import Any, Self, Unpack

import numpy as np

from spinformer.core.checks import (
    check_array,
    check_broadcast,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.records import record
from spinformer.core.regimes import Regime as Regime
from spinformer.core.statistics import Estimate
from spinformer.dmft.ensemble import Ensemble, Parameters, kernels_of
from spinformer.dmft.kernel_inputs import SystemBatch, TimeIndex
from spinformer.dmft.kernels import smallest_period as search_period
from spinformer.dmft.lyapunov import (
    ChangePoint,
    average_growth,
    detect_change_point,
    lyapunov_spectrum,
)
from spinformer.dmft.maps import Map, System, as_system
from spinformer.dmft.network import OUTPUT, AttentionNetwork, Context

# Stretches of the steps for exponents, from which their errors are taken.
_STRETCHES = 20
# How near to zero m^o_2 is in the section [poclopez2024dynamical, Figure 3].
_PLANE = 1e-3
# A state of a map beyond this is on its way to infinity.
_FAR = 1e100
# A histogram of values nearer together than this has one bin.
_NARROWEST = 1e-200
# Steps of a map that are recorded at once, and in which its tangent vectors align.
_CHUNK = 1000
_ALIGN = 500
# Lengths of tangent vectors below this count as an exact zero of the tangent map.
_ZERO_LENGTH = 1e-140


@record
class Thresholds:
    """Thresholds that classify attractors; the defaults are for stretches of 10,000 steps and more.

    Parameters
    ----------
    distance : float, default 1e-7
        Largest deviation from a period in every overlap, in units of the largest overlap that the
        weights allow (`AttentionNetwork.overlap_bound`), which is 1 for signs.
    longest : int, default 2048
        Longest period that is searched for, over twice as many steps.
    neutral : float, default 2e-3
        Largest absolute Lyapunov exponent, in nats per step, that counts as zero, if it is also
        zero within its error.
    digits_regular : float, default 6.0
        Least number of Birkhoff digits of a quasi-periodic orbit.
    digits_chaotic : float, default 9.0
        Largest number of Birkhoff digits of a chaotic orbit; weak chaos in narrow bands has 5 to 8.
    sigmas : float, default 3.0
        Number of standard errors by which λ₁ of a chaotic orbit exceeds `neutral`, and within which
        a λ₁ counts as zero.

    Raises
    ------
    ValueError
        If a threshold is negative, or `longest` is not between 1 and 2²⁰.

    Examples
    --------
    >>> Thresholds(sigmas=4.0).sigmas
    4.0
    """

    distance: float = 1e-7
    longest: int = 2048
    neutral: float = 2e-3
    digits_regular: float = 6.0
    digits_chaotic: float = 9.0
    sigmas: float = 3.0

    def __post_init__(self) -> None:
        """Refuse what no threshold can be."""
        check_integer("longest", self.longest, low=1, high=2**20)
        for name in ("distance", "neutral", "digits_regular", "digits_chaotic", "sigmas"):
            check_real(name, getattr(self, name), low=0.0)


@record
class Attractors:
    """Attractors of a batch of orbits; every array has the axes of the batch in front.

    Attributes
    ----------
    regime : ndarray of int, shape (...)
        Values of `Regime`.
    period : ndarray of int, shape (...)
        Period in steps, 0 where none was found.
    exponents : Estimate
        Leading Lyapunov exponents (..., k) in nats per step. Their errors are wide where the
        exponent jumped while it was measured, because a transient ended.
    digits : ndarray, shape (...)
        Birkhoff digits.
    histogram : ndarray, shape (..., bins)
        Number of visits of m^o_1 to equal bins of the interval `span`.
    section : ndarray, shape (..., bins)
        The same for the visits in the Poincaré section where m^o_2 is within 0.001 of zero.
    span : tuple of float, default (-1.0, 1.0)
        Interval of the bins, as far as the weights let an overlap go: [−1, 1] for signs. Of a map
        it is that of the values that occurred.
    context : Context or ndarray
        States at the end, an array (..., n) of a map.
    thresholds : Thresholds, default Thresholds()
        Thresholds by which the regimes were decided.
    exponent_steps : int, default 10000
        Number of steps over which the exponents were averaged.
    """

    regime: np.ndarray
    period: np.ndarray
    exponents: Estimate
    digits: np.ndarray
    histogram: np.ndarray
    section: np.ndarray
    span: tuple[float, float] = (-1.0, 1.0)
    context: Any
    thresholds: Thresholds = field(default_factory=Thresholds)
    exponent_steps: int = 10_000

    def select(self, index: Any) -> Self:
        """Select orbits by an index into the axes of the batch.

        Parameters
        ----------
        index : int, slice, or array-like
            Index into the leading axes.

        Returns
        -------
        Attractors
            The selected orbits.
        """
        chosen = {
            n: value[index] for n, value in vars(self).items() if isinstance(value, np.ndarray)
        }
        rates = Estimate(value=self.exponents.value[index], error=self.exponents.error[index])
        is_context = isinstance(self.context, Context)
        context = self.context.select(index) if is_context else self.context[index]
        return replace(self, **chosen, exponents=rates, context=context)

    def advice(self) -> np.ndarray:
        """Say of every undecided orbit why it is undecided, and what to run longer.

        Returns
        -------
        ndarray of str, shape (...)
            A sentence for each undecided orbit, "" for the others.
        """
        words = [self._why(index) for index in np.ndindex(self.regime.shape)]
        return np.array(words, dtype=object).reshape(self.regime.shape)

    def _why(self, index: tuple[int, ...]) -> str:
        """Why one orbit is undecided."""
        if self.regime[index] != Regime.UNDECIDED:
            return ""
        limit = self.thresholds
        if not self.exponents.value.shape[-1]:
            return "no period was found: ask for exponents=1 or more"
        rate = float(self.exponents.value[index][0])
        error = float(self.exponents.error[index][0])
        digits = float(self.digits[index])
        if not np.isfinite(rate):
            return "the orbit left for infinity"
        rates = f"λ₁ = {rate:.2g} ± {error:.1g}"
        clear = rate - limit.sigmas * error > limit.neutral
        if self.period[index] and clear:
            # As from the zero context without positions: no length of a run leaves it.
            return f"period {self.period[index]}, but {rates}: it is unstable, start beside it"
        if self.period[index]:
            return f"period {self.period[index]}, but {rates}: raise exponent_steps or transient"
        if rate < -limit.neutral:
            return f"{rates} is negative, but no period was found: raise transient or longest"
        if rate > limit.neutral and clear:
            return f"{rates} is chaotic, but averages have {digits:.1f} digits: raise kept"
        if rate > limit.neutral:
            return f"{rates} is not clear of zero: raise exponent_steps or transient"
        if digits < limit.digits_regular:
            return f"{rates}, but averages have {digits:.1f} digits only: raise transient or kept"
        return f"{rates} is small, but not zero within its error: raise transient or exponent_steps"


def bump_weights(length: int) -> np.ndarray:
    r"""Compute the bump weights of a weighted Birkhoff average.

    Parameters
    ----------
    length : int
        Number n of steps in the average.

    Returns
    -------
    ndarray, shape (length,)
        Weights with the sum 1.

    Raises
    ------
    ValueError
        If `length` is below 1.

    Notes
    -----
    Before normalization the weights are

    .. math::

        w_n = \exp\Big(-\frac{1}{t(1-t)}\Big), \qquad t = \frac{n + \frac12}{\mathrm{length}}.

    References
    ----------
    [das2017quantitative]

    Examples
    --------
    >>> bump_weights(3).round(3)
    array([0.038, 0.925, 0.038])
    """
    length = check_integer("length", length, low=1)
    t = (np.arange(length) + 0.5) / length
    weight = np.exp(-1.0 / (t * (1.0 - t)))
    return weight / weight.sum()


def find_period(orbit: np.ndarray, *, longest: int, distance: float = 1e-7) -> int:
    """Find the smallest period of an orbit.

    Every pair of states p steps apart must agree in every component.

    Parameters
    ----------
    orbit : ndarray, shape (steps, P)
        The orbit.
    longest : int
        Longest period that is searched for, at most half of the steps.
    distance : float, default 1e-7
        Largest absolute difference of states one period apart.

    Returns
    -------
    int
        The period in steps, 0 if there is none.

    Raises
    ------
    ValueError
        If `orbit` does not have two axes and at least two steps, or an argument is out of its
        range.

    Examples
    --------
    >>> find_period(np.tile([[0.0], [1.0], [0.5]], (4, 1)), longest=6)
    3
    """
    orbit = check_array("orbit", orbit, ndim=2)
    check_integer("steps of orbit", len(orbit), low=2)
    longest = check_integer("longest", longest, low=1, high=len(orbit) // 2)
    distance = check_real("distance", distance, low=0.0)
    return int(search_period(np.ascontiguousarray(orbit), longest, distance))


def _classify(
    period: np.ndarray,
    digits: np.ndarray,
    *,
    rates: Estimate,
    jump: ChangePoint,
    resolution: float,
    limit: Thresholds,
) -> np.ndarray:
    """Regimes; where no other fits, transient chaos is growth clearly above `neutral` before its
    jump and not above it after.

    resolution: exponents below it are zero whatever their error says.
    """
    rate = rates.value[..., 0]
    error = rates.error[..., 0]
    before = jump.before[..., 0] - limit.sigmas * jump.error[..., 0]
    above = rate - limit.sigmas * error > limit.neutral
    ended = jump.jumps[..., 0] & (before > limit.neutral)
    ended = ended & (jump.after[..., 0] <= limit.neutral)
    # A slow approach to a cycle has a small exponent, too, but one that its error tells from zero.
    zero = np.abs(rate) <= np.minimum(limit.neutral, np.fmax(limit.sigmas * error, resolution))
    calm = zero & (digits >= limit.digits_regular)
    return np.select(
        [
            (period > 0) & ~above,
            (period == 0) & calm,
            (period == 0) & above & (digits <= limit.digits_chaotic),
            ended,
        ],
        [Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC, Regime.TRANSIENT_CHAOS],
        Regime.UNDECIDED,
    )


def find_attractors(
    system: AttentionNetwork | Map,
    start: Any,
    *,
    transient: int = 100_000,
    kept: int = 20_000,
    exponent_steps: int = 10_000,
    exponents: int | None = None,
    bins: int = 1000,
    thresholds: Thresholds | None = None,
    **parameters: Any,
) -> Attractors:
    """Iterate a batch of orbits to their attractors and classify these into regimes.

    After the transient the orbit is streamed into histograms and weighted Birkhoff averages, a
    short stretch is searched for a period, and the leading Lyapunov exponents are measured. A
    motion that fits no regime is undecided. Most often it has not reached its attractor yet, and a
    longer `transient` decides it; `Attractors.advice` says what to run longer.

    Attractors can coexist at the same parameters, so that the result depends on the basin of
    attraction in which a context starts. Use many contexts to find them all.

    Parameters
    ----------
    system : AttentionNetwork or Map
        The network or map.
    start : Context or array_like
        Initial states, of one system or of a batch, an array (..., n) of a map.
    transient : int, default 100000
        Number of steps that are dropped.
    kept : int, default 20000
        Number of steps of the histograms and averages.
    exponent_steps : int, default 10000
        Number of steps over which Lyapunov exponents are averaged.
    exponents : int, optional
        Number of leading Lyapunov exponents; None is two, if the network has two. With 0 there are
        none, and regimes are periodic or undecided.
    bins : int, default 1000
        Number of bins of the histograms.
    thresholds : Thresholds, optional
        Thresholds of the classification; None takes the defaults.
    **parameters : float or ndarray
        The inverse temperatures `beta` and `gamma`, `epsilon` and `threads` of a network, as in
        `Ensemble`; the parameters of a map, which broadcast against the batch.

    Returns
    -------
    Attractors
        Regime, period, exponents, Birkhoff digits and histograms of every system.

    Raises
    ------
    TypeError
        If `thresholds` is of another class.
    ValueError
        If the context does not fit the network, or an argument is out of its range.

    References
    ----------
    Weighted Birkhoff averages: [das2017quantitative].

    The section: [poclopez2024dynamical, Figure 3].

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.full((4, 3), 0.1), 0)
    >>> beta = np.linspace(0.4, 0.5, 32)
    >>> found = find_attractors(
    ...     Network.document(), start, beta=beta, transient=2000, kept=200, exponent_steps=200
    ... )
    >>> Regime(int(found.regime[-1])).label, int(found.period[-1])
    ('periodic', 4)
    """
    limit = check_instance(
        "thresholds", Thresholds() if thresholds is None else thresholds, Thresholds
    )
    most = as_system(system, start).size
    transient = check_integer("transient", transient, low=0)
    kept = check_integer("kept", kept, low=2)
    bins = check_integer("bins", bins, low=1, high=2**16)
    exponents = min(2, most) if exponents is None else exponents
    exponents = check_integer("exponents", exponents, low=0, high=most)
    check_integer("exponent_steps", exponent_steps, low=_STRETCHES if exponents else 0)
    lengths = _Lengths(
        transient=transient, kept=kept, exponent_steps=exponent_steps, exponents=exponents
    )
    if isinstance(system, Map):
        return _map_attractors(
            system, start, lengths=lengths, bins=bins, limit=limit, parameters=parameters
        )
    return _network_attractors(
        system, start, lengths=lengths, bins=bins, limit=limit, parameters=parameters
    )


@record
class _Lengths:
    """How long orbits are followed, and how many exponents are measured."""

    transient: int
    kept: int
    exponent_steps: int
    exponents: int


def _network_attractors(
    network: AttentionNetwork,
    context: Context,
    *,
    lengths: _Lengths,
    bins: int,
    limit: Thresholds,
    parameters: Any,
) -> Attractors:
    """`find_attractors` of a network, by its compiled kernels."""
    ensemble = Ensemble(network, context, **parameters)
    kept = lengths.kept
    exponents = lengths.exponents
    exponent_steps = lengths.exponent_steps
    # Weights of zero move nothing.
    reach = float(network.overlap_bound[OUTPUT, 0]) or 1.0
    unit = float(network.overlap_bound[OUTPUT].max()) or 1.0
    weights = bump_weights(kept // 2)

    def task(batch: SystemBatch, time: TimeIndex) -> tuple[TimeIndex, tuple[np.ndarray, ...]]:
        kernels = kernels_of(batch)
        histogram, section = np.zeros((2, ensemble.lanes, bins), dtype=np.uint32)
        sums = kernels.aligned(2, ensemble.features)
        overlap = kernels.aligned(ensemble.features)
        time = kernels.accumulate_histogram(
            kept, histogram, section, sums, weights, _PLANE, 1.0 / reach, overlap, batch, time
        )
        orbit = kernels.aligned(2 * limit.longest, ensemble.features)
        time = kernels.record(orbit, 1, batch, time)
        lanes = np.ascontiguousarray(np.moveaxis(orbit, -1, 0))
        period = [search_period(lane, limit.longest, limit.distance * unit) for lane in lanes]
        return time, (histogram.T, section.T, sums, np.array(period))

    ensemble.advance(lengths.transient)
    histogram, section, sums, period = ensemble.run(task)
    halves = sums / unit
    gap = np.abs(halves[..., 0, :] - halves[..., 1, :]).max(axis=-1)
    digits = -np.log10(np.maximum(gap, 1e-16))
    state = ensemble.state()
    if exponents:
        found = lyapunov_spectrum(
            network, state, steps=exponent_steps, count=exponents, batches=_STRETCHES, **parameters
        )
        state = found.context
        rates = found.exponents
        regime = _classify(
            period,
            digits,
            rates=rates,
            jump=detect_change_point(found.growth),
            # In so many steps a vector that neither grows nor shrinks may change by a factor e.
            resolution=1.0 / exponent_steps,
            limit=limit,
        )
    else:
        empty = np.zeros((*period.shape, 0))
        rates = Estimate(value=empty, error=empty)
        regime = np.where(period > 0, Regime.PERIODIC, Regime.UNDECIDED)
    return Attractors(
        regime=regime,
        period=period,
        exponents=rates,
        digits=digits,
        histogram=histogram,
        section=section,
        span=(-reach, reach),
        context=state,
        thresholds=limit,
        exponent_steps=exponent_steps,
    )


def _map_attractors(
    given: Map, start: Any, *, lengths: _Lengths, bins: int, limit: Thresholds, parameters: Any
) -> Attractors:
    """`find_attractors` of a map, step by step for all orbits together."""
    system = as_system(given, start)
    origin = np.asarray(start, dtype=float)
    unknown = parameters.keys() - given.parameters.keys()
    if unknown:
        raise TypeError(f"{min(unknown)} is no parameter of the map, which has {system.names}")
    values = {
        name: check_array(name, value, low=-_FAR, high=_FAR)
        for name, value in (dict(given.parameters) | parameters).items()
    }
    shapes = {name: value.shape for name, value in values.items()}
    batch = check_broadcast(start=origin.shape[:-1], **shapes)
    lanes = {name: np.broadcast_to(value, batch).ravel() for name, value in values.items()}
    states = np.broadcast_to(origin, (*batch, system.size)).reshape(-1, system.size)
    states = system.advance(states, steps=lengths.transient, parameters=lanes)
    lost = _outside(states)
    states = np.where(lost[:, None], origin.reshape(-1, system.size)[0], states)
    weights = bump_weights(lengths.kept // 2)
    sums = np.zeros((2, *states.shape))
    for half in range(2):
        for first in range(0, len(weights), _CHUNK):
            share = weights[first : first + _CHUNK]
            orbit, states = system.observe(states, steps=len(share), parameters=lanes)
            states, lost = _without_lost(states, lost, origin)
            sums[half] += np.einsum("t,bta->ba", share, np.where(_near(orbit), orbit, 0.0))
    orbit, states = system.observe(states, steps=2 * limit.longest, parameters=lanes)
    states, lost = _without_lost(states, lost, origin)
    orbit = np.where(_near(orbit) & ~lost[:, None, None], orbit, 0.0)
    unit = float(np.abs(orbit[~lost]).max(initial=0.0)) or 1.0
    period = np.array(
        [
            0 if gone else search_period(np.ascontiguousarray(lane), limit.longest,
                                         limit.distance * unit)
            for lane, gone in zip(orbit, lost, strict=True)
        ]
    )  # fmt: skip
    gap = np.abs(sums[0] - sums[1]).max(axis=-1) / unit
    digits = -np.log10(np.maximum(gap, 1e-16))
    low = float(orbit[~lost, :, 0].min(initial=-1.0 if lost.all() else np.inf))
    high = float(orbit[~lost, :, 0].max(initial=1.0 if lost.all() else -np.inf))
    histogram, section = _visits(orbit, low=low, high=high, bins=bins)
    growth, states = _map_growth(system, states, lanes, lengths=lengths)
    rates = Estimate(value=np.zeros((len(states), 0)), error=np.zeros((len(states), 0)))
    regime = np.where(period > 0, Regime.PERIODIC, Regime.UNDECIDED)
    if lengths.exponents:
        stretches = np.diff(np.linspace(0, lengths.exponent_steps, _STRETCHES + 1).astype(int))
        rates = average_growth(growth, stretches)
        regime = _classify(
            period,
            digits,
            rates=rates,
            jump=detect_change_point(growth),
            resolution=1.0 / lengths.exponent_steps,
            limit=limit,
        )
        gone = lost[:, None] & np.ones(lengths.exponents, dtype=bool)
        rates = Estimate(
            value=np.where(gone, np.nan, rates.value), error=np.where(gone, np.nan, rates.error)
        )
    regime = np.where(lost, Regime.UNDECIDED, regime)
    return Attractors(
        regime=regime.reshape(batch),
        period=np.where(lost, 0, period).reshape(batch),
        exponents=Estimate(
            value=rates.value.reshape(*batch, -1), error=rates.error.reshape(*batch, -1)
        ),
        digits=digits.reshape(batch),
        histogram=histogram.reshape(*batch, bins),
        section=section.reshape(*batch, bins),
        span=(low, high),
        context=np.where(lost[:, None], np.inf, states).reshape(*batch, system.size),
        thresholds=limit,
        exponent_steps=lengths.exponent_steps,
    )


def _near(values: np.ndarray) -> np.ndarray:
    """Where values are finite and their squares, too."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(values) < _FAR)


def _outside(states: np.ndarray) -> np.ndarray:
    return np.asarray(~_near(states).all(axis=-1))


def _without_lost(
    states: np.ndarray, lost: np.ndarray, origin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """States with those that left for infinity back at a start, and which have left."""
    lost = lost | _outside(states)
    home = origin.reshape(-1, states.shape[-1])[0]
    return np.where(lost[:, None], home, states), lost


def _visits(
    orbit: np.ndarray, *, low: float, high: float, bins: int
) -> tuple[np.ndarray, np.ndarray]:
    """Histograms (B, bins) of the first component, and of it where the second is near zero."""
    width = max(high - low, _NARROWEST)
    place = np.clip((orbit[..., 0] - low) * (bins / width), 0, bins - 1)
    first = place.astype(int)
    lane = np.broadcast_to(np.arange(len(orbit))[:, None], first.shape)
    plane = np.abs(orbit[..., min(1, orbit.shape[-1] - 1)]) < _PLANE
    histogram = np.zeros((len(orbit), bins), dtype=np.uint32)
    section = np.zeros_like(histogram)
    np.add.at(histogram, (lane.ravel(), first.ravel()), 1)
    np.add.at(section, (lane[plane], first[plane]), 1)
    return histogram, section


def _map_growth(
    system: System, states: np.ndarray, lanes: dict[str, np.ndarray], *, lengths: _Lengths
) -> tuple[np.ndarray, np.ndarray]:
    """Growth rates (B, stretches, k) of k tangent vectors, and the states at the end."""
    count = lengths.exponents
    growth = np.zeros((len(states), _STRETCHES, count))
    if not count:
        return growth, states
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(system.size, count)))[0]
    basis = np.broadcast_to(axes, (len(states), *axes.shape))
    edges = np.linspace(0, lengths.exponent_steps, _STRETCHES + 1).astype(int)
    owner = np.repeat(np.arange(_STRETCHES), np.diff(edges))
    for number in range(-_ALIGN, lengths.exponent_steps):
        states, matrices = system.derivative(states, steps=1, parameters=lanes)
        moved = matrices @ basis
        moved = np.where(_near(moved), moved, 0.0)
        basis, triangle = np.linalg.qr(moved)
        if number >= 0:
            sizes = np.abs(np.diagonal(triangle, axis1=1, axis2=2))
            growth[:, owner[number]] += np.log(np.maximum(sizes, _ZERO_LENGTH))
        states = np.where(_outside(states)[:, None], 0.0, states)
    return growth / np.diff(edges)[:, None], states


# ---- the stroboscopic section


def stroboscopic_section(
    network: AttentionNetwork,
    context: Context,
    *,
    count: int,
    transient: int = 0,
    **parameters: Unpack[Parameters],
) -> tuple[np.ndarray, Context]:
    """Sample the stroboscopic section: the tokens at position 0, once per period of the drive.

    The first of them is at least `transient` steps after the start.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        Initial states, of one system or of a batch.
    count : int
        Number of points of the section.
    transient : int, default 0
        Number of steps that are dropped first.
    **parameters : Unpack[Parameters]
        The inverse temperatures `beta` and `gamma`, `epsilon` and `threads`, as in `Ensemble`.

    Returns
    -------
    points : ndarray, shape (..., count, P)
        Semantic overlaps m^o of the tokens at position 0, with their factor 1 − ε.
    context : Context
        The states at the end.

    Raises
    ------
    ValueError
        If the context does not fit the network, or an argument is out of its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.zeros((4, 3)), 0)
    >>> points, end = stroboscopic_section(Network.document(), start, beta=1.2, count=5)
    >>> points.shape
    (5, 3)
    """
    transient = check_integer("transient", transient, low=0)
    ensemble = Ensemble(network, context, **parameters)
    # `record` keeps the last of every 2^K tokens, here the one at position 0.
    ensemble.advance(transient + (-context.position - transient) % network.positions + 1)
    points = ensemble.record(check_integer("count", count, low=0), every=network.positions)
    return points, ensemble.state()


def rotation_number(points: np.ndarray) -> Estimate:
    r"""Estimate the rotation number of quasi-periodic motion from its stroboscopic section.

    It is the mean angle by which a point turns about the mean of all points, in the plane of the
    two leading principal axes. The closed curve must wind once about its mean.

    Parameters
    ----------
    points : ndarray, shape (..., n, d)
        Points of the section in order, at least four.

    Returns
    -------
    Estimate
        Rotation numbers (...), in turns per sample, from 0 to ½, and 0 of points that do not
        move. The error is the largest difference to the same average over either half of the
        series.

    Raises
    ------
    ValueError
        If `points` has fewer than two axes or too few points.

    Notes
    -----
    With the angles θ_n and the bump weights w of a weighted Birkhoff average,

    .. math::

        \rho = \frac{1}{2\pi} \sum_n w_n\, (\theta_{n+1} - \theta_n) .

    References
    ----------
    [das2017quantitative]

    Examples
    --------
    >>> angle = 2 * np.pi * 0.3 * np.arange(100)
    >>> circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    >>> f"{rotation_number(circle).value:.6f}"
    '0.300000'
    """
    points = check_array("points", points, shape=(..., "n", "d"))
    check_integer("number of points", points.shape[-2], low=4)
    away = points - points.mean(axis=-2, keepdims=True)
    axes = np.linalg.eigh(np.einsum("...ni,...nj->...ij", away, away))[1][..., -2:]
    flat = away @ axes
    turn = np.diff(np.arctan2(flat[..., 1], flat[..., 0])) / (2 * np.pi)
    # Every turn within half a turn of their mean direction.
    middle = np.angle(np.exp(2j * np.pi * turn).mean(axis=-1, keepdims=True)) / (2 * np.pi)
    lift = (turn - middle + 0.5) % 1.0 + middle - 0.5
    half = lift.shape[-1] // 2
    whole = lift @ bump_weights(lift.shape[-1])
    early = lift[..., :half] @ bump_weights(half)
    late = lift[..., half:] @ bump_weights(lift.shape[-1] - half)
    error = np.maximum(np.abs(early - whole), np.abs(late - whole))
    turns = np.abs((whole + 0.5) % 1.0 - 0.5)
    return Estimate(value=turns[()], error=error[()], samples=lift.shape[-1])

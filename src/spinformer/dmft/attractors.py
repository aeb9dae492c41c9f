"""Attractors of a network or map, and the classification of their regimes.

Regimes are decided by three measurements on each orbit after its transient:

- a *period*: the smallest p with `|m_{n+p} − m_n|` below `Thresholds.distance` over a whole stretch
  (a fixed point has period 1, or that of the positional code);
- the leading Lyapunov exponent λ₁ (nats per step) and its standard error;
- *Birkhoff digits*: −log₁₀ of the largest difference between the weighted averages of m over two
  consecutive stretches, which are equal to many digits on a quasi-periodic orbit and to few on a
  chaotic one (`birkhoff`).

A label is a statement about the steps that were run: a chaotic transient may last longer than these
and still end.
"""

from dataclasses import field, replace
from typing import Any, Self

import numpy as np

from spinformer.core.checks import (
    check_array,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.records import record
from spinformer.core.regimes import Regime as Regime
from spinformer.core.statistics import Estimate
from spinformer.dmft.kernels import smallest_period
from spinformer.dmft.lyapunov import ChangePoint, average_growth, detect_change_point
from spinformer.dmft.maps import Map, as_system
from spinformer.dmft.network import AttentionNetwork, Context
from spinformer.dmft.orbit_measurements import STRETCHES, Lengths, measure_map, measure_network


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
    return int(smallest_period(np.ascontiguousarray(orbit), longest, distance))


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
    ...     Network.poclopez2024(), start, beta=beta, transient=2000, kept=200, exponent_steps=200
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
    check_integer("exponent_steps", exponent_steps, low=STRETCHES if exponents else 0)
    lengths = Lengths(
        transient=transient,
        kept=kept,
        exponent_steps=exponent_steps,
        exponents=exponents,
        bins=bins,
        longest=limit.longest,
        distance=limit.distance,
    )
    measure: Any = measure_map if isinstance(system, Map) else measure_network
    found = measure(system, start, lengths=lengths, parameters=parameters)
    digits = -np.log10(np.maximum(found.gap, 1e-16))
    empty = np.zeros((*found.period.shape, 0))
    rates = Estimate(value=empty, error=empty)
    regime = np.where(found.period > 0, Regime.PERIODIC, Regime.UNDECIDED)
    if exponents:
        stretches = np.diff(np.linspace(0, exponent_steps, STRETCHES + 1).astype(int))
        averages = average_growth(found.growth, stretches)
        gone = found.lost[..., None]
        rates = replace(
            averages,
            value=np.where(gone, np.nan, averages.value),
            error=np.where(gone, np.nan, averages.error),
        )
        regime = _classify(
            found.period,
            digits,
            rates=averages,
            jump=detect_change_point(found.growth),
            # In so many steps a vector that neither grows nor shrinks may change by a factor e.
            resolution=1.0 / exponent_steps,
            limit=limit,
        )
    return Attractors(
        regime=np.where(found.lost, Regime.UNDECIDED, regime),
        period=found.period,
        exponents=rates,
        digits=digits,
        histogram=found.histogram,
        section=found.section,
        span=found.span,
        context=found.states,
        thresholds=limit,
        exponent_steps=exponent_steps,
    )

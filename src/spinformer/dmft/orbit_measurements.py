"""What is measured along many orbits at once, from which attractors are classified.

After a transient an orbit is streamed into histograms and weighted Birkhoff averages (`birkhoff`),
a short stretch is searched for a period, and growth rates of tangent vectors are taken. Orbits of a
network run in compiled kernels, those of a map step by step for all of them together.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from spinformer.core.records import record
from spinformer.dmft.birkhoff import bump_weights
from spinformer.dmft.ensemble import Ensemble, kernels_of
from spinformer.dmft.kernel_inputs import SystemBatch, TimeIndex
from spinformer.dmft.kernels import smallest_period
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.maps import LARGEST_STATE, Map, System, as_system
from spinformer.dmft.network import OUTPUT, AttentionNetwork, Context
from spinformer.dmft.states import flat_lanes

# Stretches of the steps for exponents, from which their errors are taken.
STRETCHES = 20
# How near to zero m^o_2 is in the section [poclopez2024dynamical, Figure 3].
_PLANE = 1e-3
# A histogram of values nearer together than this has one bin.
_NARROWEST = 1e-200
# Steps of a map that are recorded at once, and in which its tangent vectors align.
_CHUNK = 1000
_ALIGN = 500
# Lengths of tangent vectors below this count as an exact zero of the tangent map.
_ZERO_LENGTH = 1e-140


@record
class Lengths:
    """How long orbits are followed, and what is measured on the way.

    Parameters
    ----------
    transient : int
        Number of steps that are dropped.
    kept : int
        Number of steps of the histograms and averages.
    exponent_steps : int
        Number of steps of the growth rates.
    exponents : int
        Number k of tangent vectors.
    bins : int
        Number of bins of the histograms.
    longest : int
        Longest period that is searched for, over twice as many steps.
    distance : float
        Largest deviation from a period, in units of the largest value.
    """

    transient: int
    kept: int
    exponent_steps: int
    exponents: int
    bins: int
    longest: int
    distance: float


@record
class OrbitMeasurements:
    """Measurements of a batch (...) of orbits.

    Attributes
    ----------
    period : ndarray of int, shape (...)
        Period in steps, 0 where none was found.
    gap : ndarray, shape (...)
        Largest difference between the averages of two stretches, in units of the largest value.
    growth : ndarray, shape (..., 20, k)
        Growth rates of tangent vectors in consecutive stretches, in nats per step.
    histogram : ndarray of int, shape (..., bins)
        Visits of the first component to the bins of `span`.
    section : ndarray of int, shape (..., bins)
        The same where the second component is within 0.001 of zero.
    span : tuple of float
        Interval of the bins.
    states : Context or ndarray
        States at the end.
    lost : ndarray of bool, shape (...)
        Whether the orbit left for infinity.
    """

    period: np.ndarray
    gap: np.ndarray
    growth: np.ndarray
    histogram: np.ndarray
    section: np.ndarray
    span: tuple[float, float]
    states: Any
    lost: np.ndarray


def measure_network(
    network: AttentionNetwork, context: Context, *, lengths: Lengths, parameters: Any
) -> OrbitMeasurements:
    """Measure orbits of a network in compiled kernels; lengths are not checked.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        Initial states.
    lengths : Lengths
        How long, and what.
    parameters : mapping of str to float or ndarray
        Parameters of an `Ensemble`.

    Returns
    -------
    OrbitMeasurements
        The measurements.
    """
    ensemble = Ensemble(network, context, **parameters)
    # Weights of zero move nothing.
    reach = float(network.overlap_bound[OUTPUT, 0]) or 1.0
    unit = float(network.overlap_bound[OUTPUT].max()) or 1.0
    weights = bump_weights(lengths.kept // 2)

    def task(batch: SystemBatch, time: TimeIndex) -> tuple[TimeIndex, tuple[np.ndarray, ...]]:
        kernels = kernels_of(batch)
        histogram, section = np.zeros((2, ensemble.lanes, lengths.bins), dtype=np.uint32)
        sums = kernels.aligned(2, ensemble.features)
        overlap = kernels.aligned(ensemble.features)
        time = kernels.accumulate_histogram(
            lengths.kept, histogram, section, sums, weights, _PLANE, 1.0 / reach, overlap, batch,
            time,
        )  # fmt: skip
        orbit = kernels.aligned(2 * lengths.longest, ensemble.features)
        time = kernels.record(orbit, 1, batch, time)
        period = _periods(np.moveaxis(orbit, -1, 0), lengths, unit=unit)
        return time, (histogram.T, section.T, sums, period)

    ensemble.advance(lengths.transient)
    histogram, section, sums, period = ensemble.run(task)
    halves = sums / unit
    states = ensemble.state()
    growth = np.zeros((*period.shape, STRETCHES, 0))
    if lengths.exponents:
        found = lyapunov_spectrum(
            network,
            states,
            steps=lengths.exponent_steps,
            count=lengths.exponents,
            batches=STRETCHES,
            **parameters,
        )
        states = found.context
        growth = found.growth
    return OrbitMeasurements(
        period=period,
        gap=np.abs(halves[..., 0, :] - halves[..., 1, :]).max(axis=-1),
        growth=growth,
        histogram=histogram,
        section=section,
        span=(-reach, reach),
        states=states,
        lost=np.zeros(period.shape, dtype=bool),
    )


def measure_map(
    given: Map, start: Any, *, lengths: Lengths, parameters: Mapping[str, Any]
) -> OrbitMeasurements:
    """Measure orbits of a map; lengths are not checked.

    An orbit that leaves for infinity goes on from a start, so that it disturbs no other.

    Parameters
    ----------
    given : Map
        The map.
    start : array_like, shape (..., n)
        Initial states.
    lengths : Lengths
        How long, and what.
    parameters : mapping of str to float or ndarray
        Parameters of the map, which broadcast against the batch.

    Returns
    -------
    OrbitMeasurements
        The measurements.

    Raises
    ------
    TypeError
        If a parameter is unknown.
    ValueError
        If shapes do not broadcast, or a parameter is not finite.
    """
    system = as_system(given, start)
    states, lanes, batch = flat_lanes(given, start, parameters)
    home = states[0]
    lost = np.zeros(len(states), dtype=bool)

    def brought_back(moved: np.ndarray) -> np.ndarray:
        nonlocal lost
        lost = lost | _outside(moved)
        return np.where(lost[:, None], home, moved)

    states = brought_back(system.advance(states, steps=lengths.transient, parameters=lanes))
    weights = bump_weights(lengths.kept // 2)
    sums = np.zeros((2, *states.shape))
    for half in range(2):
        for first in range(0, len(weights), _CHUNK):
            share = weights[first : first + _CHUNK]
            orbit, states = system.observe(states, steps=len(share), parameters=lanes)
            states = brought_back(states)
            sums[half] += np.einsum("t,bta->ba", share, np.where(_near(orbit), orbit, 0.0))
    orbit, states = system.observe(states, steps=2 * lengths.longest, parameters=lanes)
    states = brought_back(states)
    orbit = np.where(_near(orbit) & ~lost[:, None, None], orbit, 0.0)
    unit = float(np.abs(orbit[~lost]).max(initial=0.0)) or 1.0
    # What is lost stands still at zero here.
    period = np.where(lost, 0, _periods(orbit, lengths, unit=unit))
    low = float(orbit[~lost, :, 0].min(initial=-1.0 if lost.all() else np.inf))
    high = float(orbit[~lost, :, 0].max(initial=1.0 if lost.all() else -np.inf))
    histogram, section = _visits(orbit, low=low, high=high, bins=lengths.bins)
    growth, states = _map_growth(system, states, lanes, lengths=lengths)
    states = np.where(lost[:, None], np.inf, states)
    return OrbitMeasurements(
        period=period.reshape(batch),
        gap=(np.abs(sums[0] - sums[1]).max(axis=-1) / unit).reshape(batch),
        growth=growth.reshape(*batch, *growth.shape[1:]),
        histogram=histogram.reshape(*batch, lengths.bins),
        section=section.reshape(*batch, lengths.bins),
        span=(low, high),
        states=states.reshape(*batch, system.size),
        lost=lost.reshape(batch),
    )


def _periods(orbits: np.ndarray, lengths: Lengths, *, unit: float) -> np.ndarray:
    """Smallest periods (B,) of orbits (B, steps, d)."""
    distance = lengths.distance * unit
    return np.array(
        [smallest_period(np.ascontiguousarray(one), lengths.longest, distance) for one in orbits]
    )


def _near(values: np.ndarray) -> np.ndarray:
    """Where values are finite and their squares, too."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(values) < LARGEST_STATE)


def _outside(states: np.ndarray) -> np.ndarray:
    return np.asarray(~_near(states).all(axis=-1))


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
    system: System, states: np.ndarray, lanes: dict[str, np.ndarray], *, lengths: Lengths
) -> tuple[np.ndarray, np.ndarray]:
    """Growth rates (B, stretches, k) of k tangent vectors, and the states at the end."""
    count = lengths.exponents
    growth = np.zeros((len(states), STRETCHES, count))
    if not count:
        return growth, states
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(system.size, count)))[0]
    basis = np.broadcast_to(axes, (len(states), *axes.shape))
    edges = np.linspace(0, lengths.exponent_steps, STRETCHES + 1).astype(int)
    owner = np.repeat(np.arange(STRETCHES), np.diff(edges))
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

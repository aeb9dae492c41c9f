"""Attractors of the mean field: periods, quasi-periodicity, chaos, orbit diagrams, continuation.

Regimes are decided by numbers, not by eye, from three measurements on each orbit after its
transient:

- a *period*: the smallest p with |m_{n+p} − m_n| below `Thresholds.distance` over a whole stretch;
- the leading Lyapunov exponent λ₁ (nats per step) and its standard error;
- *Birkhoff digits*: the average of m over a stretch, weighted with the bump function
  exp(−1/(t(1−t))), converges faster than any power of the length on a quasi-periodic orbit and
  like chance on a chaotic one (Das, Saiki, Sander and Yorke 2017). The digits are
  −log₁₀ of the largest difference between the averages over two consecutive stretches.

What meets no definition is called undecided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from tqdm import tqdm

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.dmft import kernels
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.kernels import LANES
from spinformer.dmft.lyapunov import ensemble_spectrum
from spinformer.dmft.mean_field import Context
from spinformer.dmft.network import Network

REGIMES: tuple[str, ...] = ("periodic", "quasi-periodic", "chaotic", "undecided")
PERIODIC, QUASI_PERIODIC, CHAOTIC, UNDECIDED = range(4)


@dataclass(frozen=True)
class Thresholds:
    """What counts as what.

    distance: a period must repeat to this in every overlap.
    longest: longest period looked for; the stretch compared is at least twice as long.
    neutral: |λ₁| at most this is zero.
    digits_regular: at least so many Birkhoff digits on a quasi-periodic orbit …
    digits_chaotic: … and at most so many on a chaotic one (weak chaos in narrow bands has 5 to 8).
    sigmas: λ₁ of a chaotic orbit exceeds `neutral` by so many standard errors.
    """

    distance: float = 1e-7
    longest: int = 2048
    neutral: float = 2e-3
    digits_regular: float = 6.0
    digits_chaotic: float = 9.0
    sigmas: float = 3.0


@dataclass(frozen=True, eq=False)
class Attractors:
    """What each orbit of a batch settled on; every array has the batch's shape in front.

    regime: codes into `REGIMES`. period: 0 where none was found. exponents, errors: (..., k).
    digits: Birkhoff digits. mean: (..., P) weighted average of the semantic m^o. histogram,
    section: (..., bins) visits of m^o_observed in [−1, 1], all and with |m^o_plane| < tolerance.
    context: states at the end.
    """

    regime: np.ndarray
    period: np.ndarray
    exponents: np.ndarray
    errors: np.ndarray
    digits: np.ndarray
    mean: np.ndarray
    histogram: np.ndarray
    section: np.ndarray
    context: Context


def bump_weights(length: int) -> np.ndarray:
    """Weights exp(−1/(t(1−t))) at t = (n + ½)/length, normalised to sum 1."""
    length = check_integer("length", length, low=1)
    t = (np.arange(length) + 0.5) / length
    weight = np.exp(-1.0 / (t * (1.0 - t)))
    return weight / weight.sum()


def find_period(orbit: np.ndarray, *, longest: int, distance: float = 1e-7) -> int:
    """Smallest period p ≤ `longest` of an orbit (steps, P), 0 if there is none.

    Every pair n, n + p of the orbit must agree to `distance` in every overlap; `longest` is at
    most half the steps, so that a period is seen at least twice.
    """
    orbit = check_array("orbit", orbit, ndim=2)
    longest = check_integer("longest", longest, low=1, high=max(1, len(orbit) // 2))
    distance = check_real("distance", distance, low=0.0)
    return int(kernels.smallest_period(np.ascontiguousarray(orbit), longest, distance))


def classify(
    period: np.ndarray,
    *,
    exponent: np.ndarray,
    error: np.ndarray,
    digits: np.ndarray,
    thresholds: Thresholds | None = None,
) -> np.ndarray:
    """Regime codes from the period, λ₁, its standard error and the Birkhoff digits.

    periodic: a period, and λ₁ not above zero by `neutral` and `sigmas` errors. Without a period,
    quasi-periodic: |λ₁| ≤ neutral and enough digits; chaotic: λ₁ clearly above `neutral` and few
    digits. All else, undecided.
    """
    limit = thresholds or Thresholds()
    period, exponent, error, digits = np.broadcast_arrays(period, exponent, error, digits)
    above = exponent - limit.sigmas * error > limit.neutral
    code = np.full(exponent.shape, UNDECIDED)
    code[(period == 0) & above & (digits <= limit.digits_chaotic)] = CHAOTIC
    neutral = np.abs(exponent) <= limit.neutral
    code[(period == 0) & neutral & (digits >= limit.digits_regular)] = QUASI_PERIODIC
    code[(period > 0) & ~above] = PERIODIC
    return code


def find_attractors(
    network: Network | Sequence[Network],
    context: Context,
    *,
    beta: float | np.ndarray,
    gamma: float | np.ndarray | None = None,
    epsilon: float | np.ndarray | None = None,
    transient: int = 100_000,
    kept: int = 20_000,
    exponent_steps: int = 10_000,
    exponents: int = 2,
    observed: int = 0,
    plane: int = 1,
    tolerance: float = 1e-3,
    bins: int = 1000,
    thresholds: Thresholds | None = None,
    threads: int | None = None,
    progress: bool = False,
) -> Attractors:
    """Follow a batch of systems to their attractors and say what those are.

    β, γ, ε and contexts broadcast as in `mean_field.trajectory`. `transient` steps are dropped,
    `kept` steps streamed into histograms and averages (memory does not grow with `kept`), a
    short stretch searched for a period, and `exponent_steps` steps averaged for the `exponents`
    leading Lyapunov exponents (0 of them: none; regimes are then periodic or undecided).
    """
    limit = thresholds or Thresholds()
    ensemble = Ensemble(network, context.attention, context.position, beta, gamma, epsilon, threads)
    kept = check_integer("kept", kept, low=2)
    bins = check_integer("bins", bins, low=1, high=2**16)
    exponents = check_integer(
        "exponents", exponents, low=0, high=ensemble.context * ensemble.features
    )
    last = ensemble.features - 1
    observed = check_integer("observed", observed, low=0, high=last)
    plane = check_integer("plane", plane, low=0, high=last)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    ensemble.advance(transient, progress)
    weights = bump_weights(kept // 2)
    stretch = 2 * check_integer("thresholds.longest", limit.longest, low=1)

    def task(block: int, _: int) -> tuple[np.ndarray, ...]:
        arrays = ensemble._arrays(block)
        histogram = np.zeros((LANES, bins), dtype=np.uint32)
        section = np.zeros((LANES, bins), dtype=np.uint32)
        sums = np.zeros((2, ensemble.features, LANES))
        end = kernels.survey(
            kept, 0, observed, plane, tolerance, histogram, section, weights, sums,
            ensemble.cursor, ensemble.position, *arrays,
        )  # fmt: skip
        orbit = np.empty((stretch, ensemble.features, LANES))
        end = kernels.record(orbit, 1, *end, *arrays)
        lanes = np.ascontiguousarray(np.moveaxis(orbit, -1, 0))
        period = np.array(
            [kernels.smallest_period(lane, limit.longest, limit.distance) for lane in lanes]
        )
        return histogram.T, section.T, sums, period, end

    parts = ensemble._each(task, progress, "attractors")
    ensemble._move(parts[0][4])
    histogram, section, sums, period = (
        ensemble.gather([part[i] for part in parts]) for i in range(4)
    )
    gap = np.abs(sums[..., 0, :] - sums[..., 1, :]).max(axis=-1)
    digits = -np.log10(np.maximum(gap, 1e-16))
    if exponents:
        spectrum = ensemble_spectrum(ensemble, exponent_steps, count=exponents, progress=progress)
        leading, errors = spectrum.exponents, spectrum.errors
        regime = classify(
            period, exponent=leading[..., 0], error=errors[..., 0], digits=digits, thresholds=limit
        )
    else:
        leading = errors = np.zeros((*period.shape, 0))
        regime = np.where(period > 0, PERIODIC, UNDECIDED)
    return Attractors(
        regime, period, leading, errors, digits, sums.mean(axis=-2), histogram, section,
        Context(ensemble.attention(), ensemble.position),
    )  # fmt: skip


def diagram_image(
    counts: np.ndarray, *, columns: int, regime: np.ndarray | None = None, only: Sequence[int] = ()
) -> np.ndarray:
    """Which cells of an orbit diagram were visited, (bins, columns), from counts (B, bins).

    Neighbouring values of the parameter share a column when B exceeds `columns`; with `regime`
    and `only`, just the parameters whose code is listed count. Entries are shares in [0, 1] of
    the column's parameters that visited the cell.
    """
    counts = np.asarray(counts)
    columns = min(check_integer("columns", columns, low=1), len(counts))
    visited = counts > 0
    if regime is not None:
        visited = visited & np.isin(regime, list(only))[:, None]
    edges = np.linspace(0, len(counts), columns + 1).astype(int)
    return np.stack([visited[a:b].mean(axis=0) for a, b in pairwise(edges)], 1)


@dataclass(frozen=True, eq=False)
class Continuation:
    """Attractors followed along a parameter: `values` in the order visited, fields (n, B, ...)."""

    values: np.ndarray
    regime: np.ndarray
    period: np.ndarray
    exponent: np.ndarray
    mean: np.ndarray
    context: Context = field(repr=False)


def continue_attractors(
    network: Network,
    context: Context,
    betas: np.ndarray,
    *,
    gamma: float | None = None,
    epsilon: float | None = None,
    transient: int = 2000,
    kept: int = 2000,
    exponent_steps: int = 2000,
    thresholds: Thresholds | None = None,
    threads: int | None = None,
    progress: bool = False,
) -> Continuation:
    """Follow a batch of contexts (B, T, P) through `betas` in the order given, up or down.

    Each β starts where the last one ended, so an attractor is followed past the point where
    others appear, until it loses its stability.
    """
    betas = check_array("betas", betas, ndim=1, low=0.0)
    limit = thresholds or Thresholds(longest=512, digits_regular=5.0, neutral=4e-3)
    rows = []
    for beta in tqdm(betas, desc="continuation", disable=not progress):
        found = find_attractors(
            network, context, beta=float(beta), gamma=gamma, epsilon=epsilon, transient=transient,
            kept=kept, exponent_steps=exponent_steps, exponents=1, bins=1, thresholds=limit,
            threads=threads,
        )  # fmt: skip
        context = found.context
        rows.append((found.regime, found.period, found.exponents[..., 0], found.mean))
    regime, period, exponent, mean = (np.stack(column) for column in zip(*rows, strict=True))
    return Continuation(betas, regime, period, exponent, mean, context)

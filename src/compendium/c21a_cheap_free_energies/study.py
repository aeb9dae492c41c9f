"""Chapter 21a: theories compared with simulation, and overlaps of replicas.

Predictions, written before the tables were made. Exponents of the squared errors: TAP, adaptive
TAP and belief propagation within 0.2 of −1 in Gaussian couplings; for patterns and rotated spectra
TAP and belief propagation above −0.3, adaptive TAP below −0.7; on sparse graphs only belief
propagation falls. Up to 512 spins it came so, but adaptive TAP fell faster (Gaussian: −1.75 ±
0.16). Hence, before the systems of 1,024 spins and three times as many Gaussian ones and memories
of up to 256: Gaussian couplings, TAP and belief propagation within 0.15 of −1, known to 0.1,
adaptive TAP between −2.2 and −1.6; memories, adaptive TAP between −1.4 and −0.7, TAP above −0.3;
rotated, adaptive TAP below −1.3; sparse, belief propagation between −1.3 and −0.7 (a share ~ 1/N of
the spins sits on a short loop), both TAP above −0.4.

Susceptibility of the glass: at β = 0.8 within 0.2 of the replica-symmetric 2.12 at N = 256; at
β = 3 it grows with an exponent above one half, known to 0.25. Before 512 spins were added, when it
was 0.55 ± 0.11: within 0.1 of 2.12, and between 0.5 and 0.9, known to 0.12.

A unit computed again agrees to 1e-6 relative on one kind of processor. Elsewhere errors agree
within a few parts in a hundred of the error bar, as exponentials differ, and averages of overlaps
of one system to a tenth, as a spin may fall the other way.
"""

import math
from collections.abc import Mapping
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.rows import Columns
from spinformer.core.statistics import Estimate, fit_power_law, mean_estimate
from spinformer.spins.ising import IsingStatistics, sherrington_kirkpatrick
from spinformer.spins.mean_field import (
    MeanFieldSolution,
    belief_propagation,
    solve_mean_field,
)
from spinformer.spins.monte_carlo import TemperedRun, parallel_tempering

BETAS = {"gaussian": 0.8, "patterns": 0.5, "rotated": 0.8, "sparse": 0.8}
THEORIES = ("naive", "tap", "adaptive", "beliefs")
_FEWER = {32: 16, 64: 12, 128: 8, 256: 6, 512: 4, 1024: 3}
SYSTEMS = {
    "gaussian": {32: 48, 64: 36, 128: 24, 256: 18, 512: 8, 1024: 4},
    "patterns": {32: 48, 64: 36, 128: 24, 256: 18, 512: 4, 1024: 3},
    "rotated": _FEWER,
    "sparse": _FEWER,
}
LADDER = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0])
SHOWN = (0.8, 1.0, 2.0, 3.0)


def approximation_errors(
    couplings: np.ndarray, *, fields: np.ndarray, beta: float, method: str, truth: IsingStatistics
) -> tuple[np.ndarray, np.ndarray, MeanFieldSolution]:
    """Errors of one approximation on a batch of systems whose exact statistics are `truth`.

    Root mean square over the spins of m_i − m_i^exact, (...); error of ln Z per spin, (...); and
    the solution, where equations were not solved the last iterate.
    """
    found = solve_mean_field(couplings, fields=fields, beta=beta, method=method, throw=False)
    difference = found.magnetization - truth.magnetization
    moments = np.sqrt(np.mean(difference**2, axis=-1))
    return moments, (found.log_partition - truth.log_partition) / difference.shape[-1], found


def draw_system(kind: str, *, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Couplings (N, N) of a kind, variance 1/N, and Gaussian fields (N,) of deviation one half.

    "patterns": a memory of P = 2N random patterns ±1, ξᵀξ/√(PN). "rotated": the random orthogonal
    model O D Oᵀ [marinari1994replica] with eigenvalues ±1. "sparse": ±1/√c on a random graph where
    each spin has c = 4 partners.
    """
    fields = 0.5 * np.random.default_rng([seed, 1]).standard_normal(size)
    rng = np.random.default_rng(seed)
    if kind == "gaussian":
        return sherrington_kirkpatrick(size, seed=seed)[0], fields
    if kind == "patterns":
        patterns = rng.choice([-1.0, 1.0], (2 * size, size))
        couplings = patterns.T @ patterns / math.sqrt(2.0 * size**2)
    elif kind == "rotated":
        # Random up to the signs of its columns, which cancel below.
        rotation, _ = np.linalg.qr(rng.standard_normal((size, size)))
        couplings = (rotation * np.where(np.arange(size) < size // 2, 1.0, -1.0)) @ rotation.T
        couplings = 0.5 * (couplings + couplings.T)
    else:
        couplings = np.zeros((size, size))
        degree = 4
        ends = _random_graph(rng, size, degree)
        couplings[*ends.T] = rng.choice([-1.0, 1.0], len(ends)) / math.sqrt(degree)
        couplings += couplings.T
    np.fill_diagonal(couplings, 0.0)
    return couplings, fields


def _random_graph(rng: np.random.Generator, size: int, degree: int) -> np.ndarray:
    """Edges (E, 2) by pairs of stubs joined at random; a pair that joins a spin to itself or twice
    to another exchanges partners with random pairs until none is left."""
    ends = rng.permutation(np.repeat(np.arange(size), degree)).reshape(-1, 2)
    while True:
        low = ends.min(1)
        high = ends.max(1)
        _, first = np.unique(low * size + high, return_index=True)
        bad = (low == high) | ~np.isin(np.arange(len(ends)), first)
        if not bad.any():
            return ends
        for edge in np.flatnonzero(bad):
            other = rng.integers(len(ends))
            ends[edge, 1], ends[other, 1] = ends[other, 1], ends[edge, 1]


def squared_error(found: np.ndarray, *, copies: np.ndarray) -> float:
    """Mean of (m − m_a)(m − m_b) over spins and pairs of independent means `copies` (C, N)."""
    return float(np.mean([np.mean(a * b) for a, b in combinations(found - copies, 2)]))


def theory_errors(
    kind: str, *, size: int, sweeps: int, seed: int, copies: int = 4, beta: float | None = None
) -> dict[str, float]:
    """Squared error of every theory in one system, at the kind's β of `BETAS` if none is given."""
    couplings, fields = draw_system(kind, size=size, seed=seed)
    beta = BETAS[kind] if beta is None else beta
    means = parallel_tempering(
        couplings,
        fields=fields,
        betas=np.array([beta]),
        burn_in=300,
        sweeps=sweeps,
        every=sweeps,
        replicas=copies,
        seed=seed,
    ).magnetization[:, 0]
    found = {
        theory: solve_mean_field(
            couplings, fields=fields, beta=beta, method=theory, tolerance=1e-9, throw=False
        ).value
        for theory in THEORIES[:-1]
    }
    found["beliefs"] = belief_propagation(couplings, fields=fields, beta=beta, throw=False).value
    return {theory: squared_error(m, copies=means) for theory, m in found.items()}


def _copies(systems: Mapping[int, int], *, after: Mapping[int, int] = {}) -> Rows:
    """So many systems of each size, numbered on from `after`."""
    counts = [(size, after.get(size, 0), count) for size, count in systems.items()]
    return [{"size": n, "copy": first + copy} for n, first, many in counts for copy in range(many)]


@stored(
    "errors",
    [{"kind": kind} | unit for kind in BETAS for unit in _copies(SYSTEMS[kind])],
    seconds=3.0,
)
def errors_table(kind: str, size: int, copy: int) -> Rows:
    """Squared errors of the theories in one system."""
    # The noise of all pairs is about 1/(copies · sweeps · √N), and the error of adaptive TAP in
    # the largest systems 1e-6. Many copies share a row of couplings that has to come from afar.
    sweeps = 10_000 if size < 256 else 25_600
    copies = 4 if size <= 256 else 16
    return [theory_errors(kind, size=size, sweeps=sweeps, seed=1000 * size + copy, copies=copies)]


COLD = 1.2


@stored("errors_colder", _copies({32: 96, 64: 72, 128: 48, 256: 20}), seconds=5.0, rtol=1e-2)
def colder_table(size: int, copy: int) -> Rows:
    """As `errors_table`, Gaussian couplings at β = 1.2, other systems."""
    sweeps = 10_000 if size < 256 else 25_600
    seed = 1000 * size + 500 + copy
    return [theory_errors("gaussian", size=size, beta=COLD, sweeps=sweeps, seed=seed)]


class Trend(NamedTuple):
    """Means over the systems of each size with their errors, (sizes,), and the exponent."""

    sizes: np.ndarray
    value: np.ndarray
    error: np.ndarray
    slope: Estimate


def trend(table: Columns, name: str, rows: np.ndarray) -> Trend:
    """How the means of a column over the systems of a size, of these `rows`, go with the size.

    The exponent is a weighted fit of the sizes whose mean is above its error. Where the means
    scatter about the line by more than their errors, its own error is larger by as much.
    """
    sizes = np.unique(table["size"][rows])
    means = [mean_estimate(table[name][rows & (table["size"] == n)]) for n in sizes]
    value, error = np.array([(mean.value, mean.error) for mean in means]).T
    keep = value > error
    fit = fit_power_law(sizes[keep], values=value[keep], errors=error[keep])
    wide = float(fit.slope.error) * max(1.0, fit.chi2**0.5)
    slope = Estimate(value=fit.slope.value, error=wide, samples=int(rows.sum()))
    return Trend(sizes, value, error, slope)


def fall_of_errors() -> dict[tuple[str, str], Trend]:
    """The stored squared errors by (kind, theory)."""
    table = errors_table.read()
    return {
        (kind, theory): trend(table, theory, table["kind"] == kind)
        for kind, theory in product(BETAS, THEORIES)
    }


def overlap_run(size: int, *, sweeps: int, seed: int, ladder: np.ndarray = LADDER) -> TemperedRun:
    """Four replicas of a system on the ladder, fields of 1/5; a third of the sweeps is dropped."""
    couplings, fields = sherrington_kirkpatrick(size, seed=seed, field_std=0.2)
    kept = 2 * sweeps // 3
    return parallel_tempering(
        couplings,
        fields=fields,
        betas=ladder,
        replicas=4,
        sweeps=kept,
        burn_in=sweeps - kept,
        every=2,
        seed=seed,
    )


def glass_susceptibility(overlaps: np.ndarray, *, size: int) -> float:
    """N (⟨q₁₂²⟩ − 2⟨q₁₂ q₁₃⟩ + ⟨q₁₂ q₃₄⟩) from overlaps (samples, 6) of pairs of four copies."""
    pairs = list(combinations(range(4), 2))
    shared = np.array([[len(set(a) & set(b)) for b in pairs] for a in pairs])
    moments = overlaps.T @ overlaps / len(overlaps)
    # By how many copies two pairs have in common.
    none, one, same = [moments[shared == count].mean() for count in range(3)]
    return float(size * (same - 2.0 * one + none))


def _overlap_rows(size: int, copy: int) -> Rows:
    run = overlap_run(size, sweeps=6_000 if size <= 256 else 12_000, seed=1000 * size + copy)
    shown = {beta: run.overlaps[:, int(np.argmin(np.abs(LADDER - beta)))] for beta in SHOWN}
    return [
        {
            "beta": beta,
            "susceptibility": glass_susceptibility(q, size=size),
            "spread": q.std(),
            # The first half over the second: one, if the ladder was long enough.
            "halves": q[: len(q) // 2].std() / q[len(q) // 2 :].std(),
        }
        for beta, q in shown.items()
    ]


FIRST = {32: 200, 64: 120, 128: 60, 256: 24, 512: 24}
OVERLAPS = stored("overlaps", _copies(FIRST), seconds=0.5)(_overlap_rows)
# Drawn after the region of B7c, until time was up.
_AGAIN = _copies({32: 68, 64: 40, 128: 19, 256: 6}, after=FIRST)
OVERLAPS_AGAIN = stored("overlaps_again", _AGAIN, seconds=0.5)(_overlap_rows)


def width_exponent(beta: float) -> Estimate:
    """Exponent with which the mean width of a system's overlaps falls, sizes 32 to 512."""
    table = OVERLAPS.read()
    return trend(table, "spread", table["beta"] == beta).slope

"""How wrong the theories are, against simulation, for four kinds of couplings and many sizes.

All couplings have variance 1/N, all fields standard deviation 1/2, and the temperature is high
enough that one state exists. The square of an error is the mean over pairs of independent copies
of (m − m_a)(m − m_b): the noise of the simulation averages out instead of adding to it.

Predictions, written before the run. Gaussian couplings: the squared error of the naive theory
stays, those of TAP, adaptive TAP and belief propagation fall with exponents within 0.2 of −1.
Patterns and rotated spectra: TAP and belief propagation stay (exponents above −0.3), adaptive TAP
falls with an exponent below −0.7. Sparse graphs: all three stay, only belief propagation falls.

What came of them, with up to 512 Gaussian and 256 other spins and 4 to 16 systems a size: adaptive
TAP falls faster than predicted for Gaussian couplings (exponent −1.75 ± 0.16); all else as written.

Predictions for the wider table, 1,024 spins of every kind and, for Gaussian couplings and memories,
three times the systems of up to 256, written before its run. Gaussian: TAP and belief propagation
within 0.15 of −1, known to 0.1; adaptive TAP between −2.2 and −1.6: beyond the loops that it sums,
the next term is Σ_j β⁴ J_ij⁴ ~ 1/N, its square 1/N². Memories: adaptive TAP between −1.4 and −0.7,
TAP above −0.3. Rotated: adaptive TAP below −1.3. Sparse: belief propagation between −1.3 and −0.7,
for a random graph has a number of short loops that does not grow, so that a share ~ 1/N of the
spins sits on one; adaptive TAP and TAP above −0.4.

What came of them: for memories adaptive TAP falls faster (−1.56 ± 0.18); all else as written, but
that of rotated spectra is below the noise from 512 spins on.

A unit computed again agrees to 1e-6 relative on one kind of processor, and within a few parts in
a hundred of the error bar elsewhere: the simulation's sums are exact, its exponentials are not.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from spinformer.core.checks import check_choice, check_integer
from spinformer.spins.ising.couplings import sherrington_kirkpatrick
from spinformer.spins.ising.ensembles import (
    orthogonal_couplings,
    pattern_couplings,
    sparse_couplings,
)
from spinformer.spins.ising.mean_field import solve_mean_field
from spinformer.spins.ising.message_passing import belief_propagation
from spinformer.spins.ising.tempering import tempered_chains

FIELD_STD = 0.5
BETAS = {"gaussian": 0.8, "patterns": 0.5, "rotated": 0.8, "sparse": 0.8}
THEORIES = ("naive", "tap", "adaptive", "beliefs")
COPIES, MANY_COPIES = 4, 16
_FEWER = {32: 16, 64: 12, 128: 8, 256: 6, 512: 4, 1024: 3}
SYSTEMS = {
    "gaussian": {32: 48, 64: 36, 128: 24, 256: 18, 512: 8, 1024: 4},
    "patterns": {32: 48, 64: 36, 128: 24, 256: 18, 512: 4, 1024: 3},
    "rotated": _FEWER,
    "sparse": _FEWER,
}


def draw_system(kind: str, *, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Couplings (N, N) of a kind, variance 1/N, and Gaussian fields (N,).

    "patterns" is a memory of 2N patterns, "sparse" a graph with four partners a spin.

    >>> draw_system("rotated", size=6, seed=0)[0].shape
    (6, 6)
    """
    check_choice("kind", kind, tuple(BETAS))
    fields = FIELD_STD * np.random.default_rng([seed, 1]).standard_normal(size)
    if kind == "gaussian":
        return sherrington_kirkpatrick(size, seed=seed)[0], fields
    if kind == "patterns":
        return pattern_couplings(size, load=2.0, seed=seed), fields
    if kind == "rotated":
        return orthogonal_couplings(size, seed=seed), fields
    return sparse_couplings(size, degree=4, seed=seed), fields


def squared_error(found: np.ndarray, *, copies: np.ndarray) -> float:
    """Mean of (m − m_a)(m − m_b) over spins and pairs of independent means `copies` (C, N).

    >>> squared_error(np.zeros(2), copies=np.array([[1.0, 0.0], [0.0, 1.0]]))
    0.0
    """
    gaps = found - copies
    pairs = combinations(range(len(copies)), 2)
    return float(np.mean([np.mean(gaps[a] * gaps[b]) for a, b in pairs]))


def theory_errors(
    kind: str, *, size: int, sweeps: int, seed: int, copies: int = COPIES, threads: int = 1
) -> dict[str, float]:
    """Squared error of every theory in one system, and `converged`, how many were solved.

    The error is taken over all pairs of `copies` copies, at least two.

    >>> found = theory_errors("gaussian", size=16, sweeps=200, seed=0)
    >>> sorted(found) == sorted((*THEORIES, "converged"))
    True
    """
    couplings, fields = draw_system(kind, size=size, seed=seed)
    beta = BETAS[kind]
    means = tempered_chains(
        couplings, fields=fields, betas=np.array([beta]), sweeps=sweeps, burn=300,
        copies=check_integer("copies", copies, low=2), every=sweeps, seed=seed, threads=threads,
    ).magnetization[:, 0]  # fmt: skip
    errors, solved = {}, 0
    for theory in THEORIES:
        if theory == "beliefs":
            beliefs = belief_propagation(couplings, fields=fields, beta=beta, throw=False)
            value, done = beliefs.value, bool(beliefs.converged)
        else:
            state = solve_mean_field(
                couplings, fields=fields, beta=beta, method=theory, tolerance=1e-9, throw=False
            )
            value, done = state.magnetization, bool(state.converged)
        errors[theory] = squared_error(value, copies=means)
        solved += done
    return {**errors, "converged": solved}


def _unit_rows(kind: str, size: int, copy: int) -> Rows:
    # The noise of all pairs is about 1/(copies · sweeps · √N), and the error of adaptive TAP in
    # the largest systems 1e-6. Many copies share a row of couplings that has to come from afar.
    sweeps, copies = 10_000 if size < 256 else 25_600, COPIES if size <= 256 else MANY_COPIES
    return [theory_errors(kind, size=size, sweeps=sweeps, seed=1000 * size + copy, copies=copies)]


ERRORS = Table(
    path=Path(__file__).parent / "errors.csv",
    units=[
        {"kind": kind, "size": size, "copy": copy}
        for kind in BETAS
        for size, systems in SYSTEMS[kind].items()
        for copy in range(systems)
    ],
    rows=_unit_rows,
)

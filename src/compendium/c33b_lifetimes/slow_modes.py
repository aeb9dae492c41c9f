"""Almost-invariant parts of a stationary series: slow modes of its transfer operator.

A series that stays for long in one part of its space and then in another is found out without
saying beforehand what the parts are. Cut the space into boxes, count how often a point of box i is
in box j `lag` samples later (Ulam's method): the matrix K of these shares has the eigenvalue 1, and
one real eigenvalue λ near 1 more for every further part that is left slowly, with the implied time
−lag / ln λ. Its right eigenvector is nearly constant on each part, with opposite signs. Motion
that turns has complex or negative eigenvalues of modulus near 1; these are no parts
[schutte2013metastability, froyland2005statistically].
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_matrix, diags
from scipy.sparse.linalg import eigs

from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record

# Below so many boxes the whole spectrum is computed, above it the largest moduli.
_SMALL, _LARGEST = 60, 10
_TOLERANCE = 1e-6
_REAL = 1e-9


@record
class SlowModes:
    """Slow modes of a series.

    times: (2,) implied times in samples, the slowest first; where there is no further real
    positive eigenvalue among the 10 largest moduli, the time of the smallest of these, which is an
    upper bound (0 if all were computed). vector: (n,) right eigenvector of the slowest, mean 0 and
    mean square 1 over the visits.
    """

    times: np.ndarray
    vector: np.ndarray


def box_labels(points: np.ndarray, *, side: float) -> np.ndarray:
    """Which box of edge `side` each of the points (..., d) lies in: integers (...) from 0.

    Only boxes that are visited have a number.
    """
    boxes = np.floor(points / side).astype(np.int64).reshape(-1, points.shape[-1])
    _, labels = np.unique(boxes, axis=0, return_inverse=True)
    return np.asarray(labels.reshape(points.shape[:-1]))


def slow_modes(labels: np.ndarray, *, lag: int) -> SlowModes:
    """Slow modes of boxes (n,) or (orbits, n), each orbit a series of its own.

    A longer `lag` lets what the boxes do not resolve decay; times that no longer grow with it are
    those of the motion.
    """
    values = np.atleast_2d(labels)
    size = int(values.max()) + 1
    before, after = values[:, :-lag].ravel(), values[:, lag:].ravel()
    ones = np.ones(len(before))
    counts = coo_matrix((ones, (before, after)), shape=(size, size)).tocsr()
    total = np.asarray(counts.sum(axis=1)).ravel()
    visits = np.bincount(values.ravel(), minlength=size) / values.size
    # A box that is never seen left, at the end of a series, leads anywhere.
    lost = coo_matrix((total == 0).astype(float)[:, None])
    kernel = diags(1.0 / np.maximum(total, 1.0)) @ counts + lost @ coo_matrix(visits[None, :])
    if size <= _SMALL:
        found, vectors = np.linalg.eig(kernel.toarray())
        least = 0.0
    else:
        found, vectors = eigs(kernel, k=_LARGEST, v0=np.ones(size), tol=_TOLERANCE)
        least = float(np.abs(found).min())
    real = (np.abs(found.imag) < _REAL) & (found.real > 0.0) & (found.real < 1.0 - _REAL)
    order = np.flatnonzero(real)[np.argsort(-found.real[real], kind="stable")][:2]
    times = np.full(2, -lag / np.log(least) if least > 0.0 else 0.0)
    times[: len(order)] = -lag / np.log(found.real[order])
    vector = vectors[:, order[0]].real if len(order) else np.zeros(size)
    vector = vector - visits @ vector
    norm = np.sqrt(visits @ vector**2)
    return SlowModes(times=times, vector=vector / norm if norm > 0.0 else vector)


def last_core(values: np.ndarray, *, low: float, high: float) -> np.ndarray:
    """Which of two cores a series (n,) or (orbits, n) was in last: 0 below `low`, 1 above `high`.

    −1 before the first visit. A border that is crossed to and fro does not count as switching.
    """
    seen = np.where(values < low, 0, np.where(values > high, 1, -1))
    index = np.where(seen >= 0, np.arange(values.shape[-1]), 0)
    return np.asarray(
        np.take_along_axis(seen, np.maximum.accumulate(index, axis=-1), axis=-1), dtype=np.int64
    )


def phase_surrogate(series: np.ndarray, *, seed: Seed) -> np.ndarray:
    """Series (..., n, d) with the same spectra and cross spectra, all else random.

    The phases of every frequency are turned by one random angle, the same for all d components
    [prichard1994generating]. What is left is a linear process driven by noise.
    """
    n = series.shape[-2]
    mean = series.mean(axis=-2, keepdims=True)
    waves = np.fft.rfft(series - mean, axis=-2)
    angle = 2.0 * np.pi * numpy_generator(seed).random(waves.shape[:-1])
    # Frequencies 0 and 1/2 have no phase.
    angle[..., 0] = 0.0
    if n % 2 == 0:
        angle[..., -1] = 0.0
    return np.asarray(np.fft.irfft(waves * np.exp(1j * angle)[..., None], n=n, axis=-2) + mean)

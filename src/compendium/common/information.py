"""How much a point tells about which of two clouds it came from."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr, ndtr

from spinformer.core.checks import check_array, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate


def gaussian_information(distance: ArrayLike) -> np.ndarray:
    """Bits that the best guess tells of which of two equally likely Gaussians a point is from.

    distance: of their means, in standard deviations along it (any shape, at least 0). The guess
    errs with probability q = Φ(−distance/2) and tells 1 − h(q) bits, h the binary entropy.

    >>> gaussian_information([0.0, 2.0]).round(4)
    array([0.    , 0.3689])
    """
    wrong = ndtr(-0.5 * check_array("distance", distance, low=0.0))
    return np.asarray(1.0 - (entr(wrong) + entr(1.0 - wrong)) / np.log(2.0))


def label_information(
    first: np.ndarray, *, second: np.ndarray, seed: Seed, neighbours: int = 15
) -> Estimate:
    """Lower bound, in bits, on the information of a point about which cloud it came from.

    first, second: (n, d) samples of two equally likely hypotheses. Half of each trains two
    classifiers, Fisher's linear discriminant, the best there is for Gaussian clouds of one
    shape, and nearest neighbours, which know no shape. A quarter decides which of them guesses,
    the last quarter is guessed; the mutual information of true and guessed label cannot exceed
    that of true label and point (data processing). It is 1 bit for separate clouds; the bias
    (1/2n ln 2 bits, Miller and Madow) is taken off, so that equal clouds give 0 within the error
    (delta method over the four cells). `seed` splits the clouds. Raises ValueError for clouds of
    different shapes or of fewer than 2 `neighbours` points.

    >>> cloud = np.random.default_rng(0).standard_normal((400, 2))
    >>> far = label_information(cloud, second=cloud + 9.0, seed=0)
    >>> f"{far.value:.2f}", far.samples
    ('1.00', 200)
    """
    from sklearn.neighbors import KNeighborsClassifier

    first = check_array("first", first, ndim=2)
    second = check_array("second", second, shape=first.shape)
    neighbours = check_integer("neighbours", neighbours, low=1)
    half = check_integer("samples in each cloud", len(first), low=2 * neighbours) // 2
    order = numpy_generator(seed).permutation(len(first))
    train, choose, test = np.split(order, [half, half + (len(first) - half) // 2])
    labels = np.repeat([0, 1], half)
    learned = np.concatenate([first[train], second[train]])
    near = KNeighborsClassifier(neighbours, algorithm="brute").fit(learned, labels)
    weight, bias = _discriminant(first[train], second[train])
    guessers = (near.predict, lambda cloud: cloud @ weight > bias)

    def hits(guess: int) -> float:
        low, high = (guessers[guess](cloud[choose]).mean() for cloud in (first, second))
        return float(high - low)

    guess = guessers[int(hits(1) >= hits(0))]
    ups = [float(guess(cloud[test]).mean()) for cloud in (first, second)]
    n = len(test)
    table = np.array([[1.0 - u, u] for u in ups]) / 2.0
    ratio = np.zeros((2, 2))
    outer = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True)
    filled = table > 0.0
    ratio[filled] = np.log2(table[filled] / outer[filled])
    value = float((table * ratio).sum())
    variance = max(float((table * ratio**2).sum()) - value**2, 0.0) / (2 * n)
    floor = 1.0 / (2 * n * np.log(2.0))
    return Estimate(
        value=value - 0.5 * floor, error=float(np.hypot(np.sqrt(variance), floor)), samples=2 * n
    )


def _discriminant(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, float]:
    """Weight (d,) and bias of Fisher's discriminant: above the bias is `second`."""
    means = first.mean(axis=0), second.mean(axis=0)
    within = np.concatenate([first - means[0], second - means[1]])
    covariance = within.T @ within / len(within)
    # Components that never vary, or vary together, are left out.
    weight = np.linalg.pinv(covariance, rcond=1e-10, hermitian=True) @ (means[1] - means[0])
    return weight, float(weight @ (means[0] + means[1]) / 2.0)

"""How much a point tells about which of two clouds it came from."""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import check_array, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate


def label_information(
    first: np.ndarray, *, second: np.ndarray, seed: Seed, neighbours: int = 15
) -> Estimate:
    """Lower bound, in bits, on the information of a point about which cloud it came from.

    first, second: (n, d) samples of two equally likely hypotheses. Half of each trains a
    nearest-neighbour classifier, the other half is classified; the mutual information of true
    and guessed label cannot exceed that of true label and point (data processing). It is
    1 bit for separate clouds; the bias (1/2n ln 2 bits, Miller and Madow) is taken off, so
    that equal clouds give 0 within the error (delta method over the four cells). `seed` splits
    the clouds. Points at equal distances, as windows of few bits have them, are ranked by rounding,
    so there the value differs between processors by a part of its error. Raises ValueError for
    clouds of different shapes or of fewer than 2 `neighbours` points.

    >>> cloud = np.random.default_rng(0).standard_normal((400, 2))
    >>> far = label_information(cloud, second=cloud + 9.0, seed=0)
    >>> f"{far.value:.2f}", far.samples
    ('1.00', 400)
    """
    from sklearn.neighbors import KNeighborsClassifier

    first = check_array("first", first, ndim=2)
    second = check_array("second", second, shape=first.shape)
    neighbours = check_integer("neighbours", neighbours, low=1)
    half = check_integer("samples in each cloud", len(first), low=2 * neighbours) // 2
    order = numpy_generator(seed).permutation(len(first))
    train, test = order[:half], order[half:]
    guess = KNeighborsClassifier(neighbours, algorithm="brute").fit(
        np.concatenate([first[train], second[train]]), np.repeat([0, 1], half)
    )
    ups = [float(guess.predict(cloud[test]).mean()) for cloud in (first, second)]
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

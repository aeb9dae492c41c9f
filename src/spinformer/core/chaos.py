"""What a spectrum of exponents alone says about chaos."""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import check_array


def kaplan_yorke_dimension(exponents: np.ndarray) -> np.ndarray:
    """D = j + (λ_1 + … + λ_j)/|λ_{j+1}|, j the last sum that is not negative; (..., k) → (...).

    exponents: the largest first. 0 where λ_1 < 0, and k where no sum is negative (then the
    dimension is at least k) [kaplan1979chaotic].

    >>> kaplan_yorke_dimension(np.array([[0.1, 0.0, -0.4], [-0.1, -0.2, -0.3]])).tolist()
    [2.25, 0.0]
    """
    values = check_array("exponents", exponents)
    if values.ndim < 1 or not values.shape[-1]:
        raise ValueError(f"exponents must have shape (..., k), got {values.shape}")
    if (np.diff(values, axis=-1) > 0.0).any():
        raise ValueError("exponents must be sorted, the largest first")
    k = values.shape[-1]
    sums = np.concatenate([np.zeros((*values.shape[:-1], 1)), np.cumsum(values, axis=-1)], axis=-1)
    # Sums of a falling sequence rise, then fall: the last that is not negative.
    index = k - np.argmax((sums >= 0.0)[..., ::-1], axis=-1)
    full = index == k
    at = np.minimum(index, k - 1)[..., None]
    total = np.take_along_axis(sums, at, axis=-1)[..., 0]
    following = np.take_along_axis(values, at, axis=-1)[..., 0]
    return np.asarray(np.where(full, float(k), index + total / np.where(full, 1.0, -following)))

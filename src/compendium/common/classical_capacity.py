"""The retrieval states of the classical memory at zero temperature, which two chapters draw."""

import numpy as np
from scipy.special import erfinv


def retrieval_load(overlap: np.ndarray) -> np.ndarray:
    """α at which retrieval states of the overlap m in (0, 1) exist, w_ii = 0, T = 0, d → ∞.

    With m = erf y, y(√(2α) + 2e^{−y²}/√π) = erf y [amit1985storing]. α(m) has one maximum, where
    retrieval disappears; states below its m are no minima.
    """
    y = erfinv(overlap)
    return 0.5 * np.maximum(overlap / y - 2.0 * np.exp(-(y**2)) / np.sqrt(np.pi), 0.0) ** 2

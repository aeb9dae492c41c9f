"""From finite d to the limit: a straight line in 1/d."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from spinformer.core.statistics import Estimate


def line_fit(x: ArrayLike, *, values: ArrayLike, errors: ArrayLike) -> tuple[Estimate, Estimate]:
    """Intercept and slope of a weighted straight line through at least three points.

    Errors are widened by the root of chi² per freedom where that exceeds one: the line is then
    only roughly the law, and its ends are less certain than the points.
    """
    x = np.asarray(x, dtype=float)
    values = np.asarray(values, dtype=float)
    errors = np.asarray(errors, dtype=float)
    design = np.stack([np.ones_like(x), x], axis=1) / errors[:, None]
    found, *_ = np.linalg.lstsq(design, values / errors, rcond=None)
    chi2 = float(((values / errors - design @ found) ** 2).sum() / (len(x) - 2))
    spread = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * max(chi2, 1.0))
    intercept, slope = (
        Estimate(value=float(value), error=float(error), samples=len(x))
        for value, error in zip(found, spread, strict=True)
    )
    return intercept, slope

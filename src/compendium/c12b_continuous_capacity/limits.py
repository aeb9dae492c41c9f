"""From finite d to the limit: a straight line in 1/d."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from spinformer.core.checks import check_array, check_integer
from spinformer.core.statistics import Estimate


def line_fit(x: ArrayLike, *, values: ArrayLike, errors: ArrayLike) -> tuple[Estimate, Estimate]:
    """Intercept and slope of a weighted straight line through at least three points.

    Errors are widened by the root of chi² per freedom where that exceeds one: the line is then
    only roughly the law, and its ends are less certain than the points.

    >>> intercept, slope = line_fit([0.0, 1.0, 2.0], values=[1.0, 3.0, 5.0], errors=[0.1, 0.1, 0.1])
    >>> print(intercept, slope)
    1.000(91) 2.000(71)
    """
    x = check_array("x", x, ndim=1)
    values = check_array("values", values, shape=x.shape)
    errors = check_array("errors", errors, shape=x.shape, low=0.0, open_low=True)
    check_integer("number of points", len(x), low=3)
    design = np.stack([np.ones_like(x), x], axis=1) / errors[:, None]
    found, *_ = np.linalg.lstsq(design, values / errors, rcond=None)
    chi2 = float(((values / errors - design @ found) ** 2).sum() / (len(x) - 2))
    spread = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * max(chi2, 1.0))
    intercept, slope = (
        Estimate(value=float(value), error=float(error), samples=len(x))
        for value, error in zip(found, spread, strict=True)
    )
    return intercept, slope

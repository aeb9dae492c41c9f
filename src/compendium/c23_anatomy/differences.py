"""Finite differences: derivatives that need nothing but values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from torch import Tensor

from spinformer.core.checks import check_real

Value = TypeVar("Value", float, np.ndarray, Tensor)


def slope_at_zero(function: Callable[[float], Value], *, step: float) -> Value:
    """df/dx at x = 0 from f(±step) and f(±2 step): the error is of the order of step⁴.

    Whatever f returns: a number, an array, a tensor.
    """
    step = check_real("step", step, low=0.0, open_low=True)
    far_left, left, right, far_right = (function(k * step) for k in (-2.0, -1.0, 1.0, 2.0))
    return (far_left - 8 * left + 8 * right - far_right) / (12 * step)

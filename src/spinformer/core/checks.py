"""Argument checks: one clear error that names the argument, what came and what is allowed.

Every public function of the package validates its input with these before any work starts,
so that a wrong shape, a NaN or a negative inverse temperature never turns into a wrong number.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch


def check_integer(name: str, value: Any, *, low: int | None = None, high: int | None = None) -> int:
    """Return `value` as an int in [low, high]; TypeError or ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer{_interval(low, high)}, got {value!r}")
    number = int(value)
    if (low is not None and number < low) or (high is not None and number > high):
        raise ValueError(f"{name} must be an integer{_interval(low, high)}, got {number}")
    return number


def check_real(
    name: str,
    value: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    open_low: bool = False,
) -> float:
    """Return `value` as a finite float in [low, high] (or (low, high] with `open_low`)."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(
            f"{name} must be a real number{_interval(low, high, open_low)}, got {value!r}"
        )
    number = float(value)
    too_low = low is not None and (number <= low if open_low else number < low)
    if not math.isfinite(number) or too_low or (high is not None and number > high):
        raise ValueError(
            f"{name} must be a finite number{_interval(low, high, open_low)}, got {number}"
        )
    return number


def check_choice(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Return `value` if it is one of `allowed`; ValueError otherwise."""
    options = list(allowed)
    if value not in options:
        raise ValueError(f"{name} must be one of {options}, got {value!r}")
    return value


def check_array(
    name: str,
    value: Any,
    *,
    shape: Sequence[int | None] | None = None,
    ndim: int | None = None,
    low: float | None = None,
    high: float | None = None,
    values: Iterable[float] | None = None,
    symmetric: bool = False,
) -> np.ndarray:
    """Return `value` as a finite float64 array.

    `shape` may hold None for axes of any length; `values` lists the only entries allowed
    (for spins, (-1, 1)); `symmetric` asks for a matrix equal to its transpose to 1e-10 of
    its largest entry. Raises TypeError for non-numeric input and ValueError for the rest.
    """
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a real numeric array, got {_kind(value)}") from None
    _check_shape(name, tuple(array.shape), shape, ndim)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got NaN or infinite entries")
    _check_range(name, array, low, high)
    if values is not None:
        allowed = sorted(values)
        if not np.isin(array, allowed).all():
            odd = array[~np.isin(array, allowed)].flat[0]
            raise ValueError(f"{name} must hold only {allowed}, got {odd}")
    if symmetric:
        _check_symmetric(
            name,
            float(np.abs(array - array.swapaxes(-1, -2)).max(initial=0.0)),
            float(np.abs(array).max(initial=0.0)),
        )
    return array


def check_tensor(
    name: str,
    value: Any,
    *,
    shape: Sequence[int | None] | None = None,
    ndim: int | None = None,
    low: float | None = None,
    high: float | None = None,
    symmetric: bool = False,
) -> torch.Tensor:
    """Return a finite floating-point tensor, dtype, device and gradient history kept.

    Same rules as `check_array`; leading batch axes are allowed when neither `shape` nor
    `ndim` is given.
    """
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        raise TypeError(f"{name} must be a floating-point torch tensor, got {_kind(value)}")
    _check_shape(name, tuple(value.shape), shape, ndim)
    data = value.detach()
    if not bool(torch.isfinite(data).all()):
        raise ValueError(f"{name} must be finite, got NaN or infinite entries")
    _check_range(name, data, low, high)
    if symmetric and data.numel():
        _check_symmetric(name, float((data - data.mT).abs().max()), float(data.abs().max()))
    return value


def _interval(low: float | None, high: float | None, open_low: bool = False) -> str:
    if low is None and high is None:
        return ""
    left = "(-inf" if low is None else f"{'(' if open_low else '['}{low}"
    right = "inf)" if high is None else f"{high}]"
    return f" in {left}, {right}"


def _kind(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    return f"{type(value).__name__}" + (f" of dtype {dtype}" if dtype is not None else "")


def _check_shape(
    name: str, got: tuple[int, ...], shape: Sequence[int | None] | None, ndim: int | None
) -> None:
    if ndim is not None and len(got) != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {got}")
    if shape is None:
        return
    fits = len(got) == len(shape) and all(
        want is None or have == want for have, want in zip(got, shape, strict=True)
    )
    if not fits:
        wanted = tuple("any" if want is None else want for want in shape)
        raise ValueError(f"{name} must have shape {wanted}, got {got}")


def _check_range(name: str, data: Any, low: float | None, high: float | None) -> None:
    if (low is not None and bool((data < low).any())) or (
        high is not None and bool((data > high).any())
    ):
        raise ValueError(
            f"{name} must have entries{_interval(low, high)}, "
            f"got values from {float(data.min())} to {float(data.max())}"
        )


def _check_symmetric(name: str, asymmetry: float, scale: float) -> None:
    if asymmetry > 1e-10 * max(scale, 1e-300):
        raise ValueError(f"{name} must be symmetric, got an asymmetry of {asymmetry:.3g}")

"""Argument checks: one clear error that names the argument, what came and what is allowed.

Every public function of the package checks its input with these before any work starts.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import numpy as np

if TYPE_CHECKING:
    import torch

_T = TypeVar("_T")
_MOST = 2**63 - 1
_SQUARE = (..., "N", "N")


def check_integer(name: str, value: Any, *, low: int | None = None, high: int | None = None) -> int:
    """Check that an argument is an integer in a closed interval.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : object
        What was given.
    low : int or None, default None
        Smallest value allowed.
    high : int or None, default None
        Largest value allowed. None allows what a compiled loop can count to, 2⁶³ − 1.

    Returns
    -------
    int
        The value as an int.

    Raises
    ------
    TypeError
        If the value is not an integer. Booleans are none.
    ValueError
        If the value is outside the interval.

    Examples
    --------
    >>> check_integer("steps", 3, low=1)
    3
    >>> check_integer("steps", 0, low=1)
    Traceback (most recent call last):
    ValueError: steps must be an integer in [1, inf), got 0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer{_interval(low, high)}, got {_kind(value)}")
    number = int(value)
    if (low is not None and number < low) or (high is not None and number > high):
        raise ValueError(f"{name} must be an integer{_interval(low, high)}, got {_short(number)}")
    if high is None and abs(number) > _MOST:
        raise ValueError(f"{name} must be an integer of at most 63 bits, got {_short(number)}")
    return number


def check_real(
    name: str,
    value: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    open_low: bool = False,
) -> float:
    """Check that an argument is a finite real number in an interval.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : object
        What was given.
    low : float or None, default None
        Smallest value allowed.
    high : float or None, default None
        Largest value allowed.
    open_low : bool, default False
        Whether `low` itself is excluded.

    Returns
    -------
    float
        The value as a float.

    Raises
    ------
    TypeError
        If the value is not a real number. Booleans are none.
    ValueError
        If the value is not finite or outside the interval.

    Examples
    --------
    >>> check_real("beta", 0, low=0.0, open_low=True)
    Traceback (most recent call last):
    ValueError: beta must be a finite number in (0.0, inf), got 0.0
    """
    # Most often it is a float; whether a class is a number's takes longer to find out.
    if type(value) is not float and (
        isinstance(value, bool) or not isinstance(value, numbers.Real)
    ):
        raise TypeError(
            f"{name} must be a real number{_interval(low, high, open_low)}, got {_kind(value)}"
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    too_low = low is not None and (number <= low if open_low else number < low)
    if not math.isfinite(number) or too_low or (high is not None and number > high):
        shown = _short(value) if isinstance(value, int) and abs(value) >= 10**20 else number
        raise ValueError(
            f"{name} must be a finite number{_interval(low, high, open_low)}, got {shown}"
        )
    return number


def check_flag(name: str, value: Any) -> bool:
    """Check that an argument is True or False.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : object
        What was given. The word "False" would count as true and is refused.

    Returns
    -------
    bool
        The value as a bool.

    Raises
    ------
    TypeError
        If the value is not a boolean.

    Examples
    --------
    >>> check_flag("progress", "False")
    Traceback (most recent call last):
    TypeError: progress must be True or False, got str 'False'
    """
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, got {_kind(value)}")
    return bool(value)


def check_choice(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """Check that an argument is one of the values allowed.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : object
        What was given.
    allowed : iterable
        The values allowed.

    Returns
    -------
    object
        The value allowed that equals what was given.

    Raises
    ------
    ValueError
        If the value is none of them.

    Examples
    --------
    >>> check_choice("method", "exact", ("tap", "naive"))
    Traceback (most recent call last):
    ValueError: method must be one of ['tap', 'naive'], got 'exact'
    """
    options = list(allowed)
    # True equals 1 but is no choice of a number; an array equals nothing.
    known = not isinstance(value, bool | np.bool_) and getattr(value, "ndim", 0) == 0
    if known and value in options:
        return options[options.index(value)]
    raise ValueError(f"{name} must be one of {options}, got {_short(value)}")


def check_instance(name: str, value: Any, kind: type[_T]) -> _T:
    """Check that an argument is an instance of a class.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : object
        What was given.
    kind : type
        The class.

    Returns
    -------
    object
        The same object.

    Raises
    ------
    TypeError
        If the value is not an instance of the class.

    Examples
    --------
    >>> check_instance("model", 3, dict)
    Traceback (most recent call last):
    TypeError: model must be a dict, got int 3
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {_kind(value)}")
    return value


def check_function(name: str, value: Any) -> Any:
    """Check that an argument can be called.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : object
        What was given.

    Returns
    -------
    callable
        The same object.

    Raises
    ------
    TypeError
        If the value cannot be called.

    Examples
    --------
    >>> check_function("step", 3)
    Traceback (most recent call last):
    TypeError: step must be a function, got int 3
    """
    if not callable(value):
        raise TypeError(f"{name} must be a function, got {_kind(value)}")
    return value


class _Rules(TypedDict, total=False):
    """What an array or a tensor may be asked.

    `shape` may hold None for an axis of any length, letters for one of any length but 0 (the same
    letter, the same length), and begin with `...` for any axes in front; entries in [low, high], or
    in (low, high] with `open_low`; `square` asks for (..., N, N), `symmetric` also for a matrix
    equal to its transpose to 1e-10 of its largest entry.
    """

    shape: Sequence[Any] | None
    ndim: int | None
    low: float | None
    high: float | None
    open_low: bool
    square: bool
    symmetric: bool


def check_array(
    name: str, value: Any, *, values: Iterable[float] | None = None, **rules: Unpack[_Rules]
) -> np.ndarray:
    """Check that an argument is a finite real array that obeys rules of shape and range.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : array_like
        What was given.
    values : iterable of float or None, default None
        The only entries allowed, for spins (-1, 1).
    **rules : keyword arguments
        Rules `shape`, `ndim`, `low`, `high`, `open_low`, `square` and `symmetric`. A shape may
        hold None for an axis of any length, letters for an axis of any length but 0 (the same
        letter for the same length), and begin with `...` for any leading axes.

    Returns
    -------
    ndarray of float64
        The value as an array.

    Raises
    ------
    TypeError
        If the value is not numeric or is masked, or is a tensor with a gradient.
    ValueError
        If an entry is not finite, or a rule is broken.

    Examples
    --------
    >>> check_array("couplings", [[0.0, 1.0]], square=True)
    Traceback (most recent call last):
    ValueError: couplings must have shape (..., N, N), got (1, 2)
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"{name} must have no masked entries, got a masked array")
    if getattr(value, "requires_grad", False):
        raise TypeError(f"{name} must be an array without a gradient: pass {name}.detach()")
    try:
        array = np.asarray(value)
        # Spins or shares may be booleans; a single True is no number.
        if array.dtype.kind not in "biuf" or isinstance(value, bool):
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise TypeError(f"{name} must be a real numeric array, got {_kind(value)}") from None
    _check_entries(name, array, np.isfinite(array), **rules)
    if values is not None:
        allowed = sorted(values)
        odd = array[~np.isin(array, allowed)]
        if odd.size:
            raise ValueError(f"{name} must hold only {allowed}, got {odd[0]}")
    return array


def check_tensor(
    name: str,
    value: Any,
    *,
    like: tuple[str, torch.Tensor] | None = None,
    finite: bool = True,
    **rules: Unpack[_Rules],
) -> torch.Tensor:
    """Check that an argument is a finite tensor that obeys rules of shape and range.

    What a compiler or a transform of `torch.func` looks at has a type and a shape, but no values
    to be checked.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    value : Tensor
        What was given.
    like : tuple of str and Tensor, or None, default None
        Name and value of another argument, whose dtype and device the tensor must have.
    finite : bool, default True
        Whether entries are looked at. Without it only type and shape are: for a caller whose
        result cannot be finite unless the entries are, and who looks at that.
    **rules : keyword arguments
        Rules as in `check_array`.

    Returns
    -------
    Tensor
        The same object.

    Raises
    ------
    TypeError
        If the value is not a dense floating-point tensor, or differs from `like` in dtype or
        device.
    ValueError
        If an entry is not finite, or a rule is broken.
    """
    import torch  # whoever has a tensor has it; who has none need not wait for it

    if not isinstance(value, torch.Tensor) or value.dtype not in (
        torch.float64,
        torch.float32,
        torch.bfloat16,
        torch.float16,
    ):
        # Eight bits are no type to compute in.
        raise TypeError(f"{name} must be a floating-point torch tensor, got {_kind(value)}")
    if value.is_meta or value.layout != torch.strided:
        kind = "the meta device" if value.is_meta else f"layout {value.layout}"
        raise TypeError(f"{name} must hold values, densely, got a tensor of {kind}")
    if like is not None and (value.dtype != like[1].dtype or value.device != like[1].device):
        raise TypeError(
            f"{name} must be {like[1].dtype} on {like[1].device} like {like[0]}, "
            f"got {value.dtype} on {value.device}"
        )
    if not finite:
        _check_entries(name, value, None, **rules)
        return value

    from spinformer.core.operators import is_traced

    data = value.detach()
    entries = None
    # A tensor on the device "meta" has no values either.
    if not is_traced() and not data.is_meta:
        # A sum that is finite has finite parts, and takes a fortieth of a look at each of them.
        entries = math.isfinite(data.sum()) or torch.isfinite(data)
    _check_entries(name, data, entries, **rules)
    return value


def check_mask(name: str, mask: Any, shapes: Sequence[tuple[int, ...]]) -> torch.Tensor:
    """Check that an argument is an attention mask of one of the shapes allowed.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    mask : Tensor of bool or of floating-point numbers
        What was given.
    shapes : sequence of tuple of int
        The shapes allowed.

    Returns
    -------
    Tensor
        The same object.

    Raises
    ------
    TypeError
        If the mask is not a dense tensor of one of these types.
    ValueError
        If its shape is none of them.
    """
    import torch

    if not (
        isinstance(mask, torch.Tensor) and (mask.dtype == torch.bool or mask.is_floating_point())
    ):
        raise TypeError(
            f"{name} must be a boolean or floating-point torch tensor, got {mask!r:.60}"
        )
    if mask.is_meta or mask.layout != torch.strided:
        # A kernel would read such a mask from memory that is none.
        raise TypeError(f"{name} must hold values, densely, got a mask without")
    if tuple(mask.shape) not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"{name} must have shape {wanted}, got {tuple(mask.shape)}")
    return mask


def check_broadcast(**shapes: Sequence[int]) -> tuple[int, ...]:
    """Common batch shape of several arguments.

    Parameters
    ----------
    **shapes : sequence of int
        Batch shape of each argument, by its name.

    Returns
    -------
    tuple of int
        The shape to which all broadcast.

    Raises
    ------
    ValueError
        If there is none. The message names all arguments.

    Examples
    --------
    >>> check_broadcast(couplings=(3, 1), fields=(4,))
    (3, 4)
    """
    different = {tuple(shape) for shape in shapes.values()}
    if len(different) == 1:
        # Most often there is nothing to broadcast, which NumPy takes longer to see.
        return different.pop()
    try:
        return np.broadcast_shapes(*different)
    except ValueError:
        told = ", ".join(f"{name} {tuple(shape)}" for name, shape in shapes.items())
        raise ValueError(
            f"{' and '.join(shapes)} must have batch shapes that broadcast, got {told}"
        ) from None


def _interval(low: float | None, high: float | None, open_low: bool = False) -> str:
    if low is None and high is None:
        return ""
    left = "(-inf" if low is None else f"{'(' if open_low else '['}{low}"
    right = "inf)" if high is None else f"{high}]"
    return f" in {left}, {right}"


def _kind(value: Any) -> str:
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        return f"{type(value).__name__} of dtype {dtype}"
    return f"{type(value).__name__} {_short(value)}"


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 10**20:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _fits(got: tuple[int, ...], wanted: Sequence[Any]) -> bool:
    if wanted and wanted[0] is ...:
        wanted = wanted[1:]
        got = got[-len(wanted) :]
    if len(got) != len(wanted):
        return False
    lengths: dict[str, int] = {}
    for want, length in zip(wanted, got, strict=True):
        if isinstance(want, str):
            if length == 0 or lengths.setdefault(want, length) != length:
                return False
        elif want is not None and want != length:
            return False
    return True


def _misfit(name: str, got: tuple[int, ...], wanted: Sequence[Any]) -> ValueError:
    axes = ["any" if n is None else "..." if n is ... else str(n) for n in wanted]
    told = ", ".join(axes) + "," * (len(axes) == 1)
    return ValueError(f"{name} must have shape ({told}), got {got}")


def _check_entries(
    name: str,
    data: Any,
    finite: Any,
    *,
    shape: Sequence[Any] | None = None,
    ndim: int | None = None,
    low: float | None = None,
    high: float | None = None,
    open_low: bool = False,
    square: bool = False,
    symmetric: bool = False,
) -> None:
    got = tuple(data.shape)
    if ndim is not None and len(got) != ndim:
        raise ValueError(f"{name} must have {ndim} axes, got shape {got}")
    if shape is not None and not _fits(got, shape):
        raise _misfit(name, got, shape)
    if (square or symmetric) and not _fits(got, _SQUARE):
        raise _misfit(name, got, _SQUARE)
    if finite is None:
        return
    if finite is not True and not bool(finite.all()):
        raise ValueError(f"{name} must be finite, got NaN or infinite entries")
    too_low = low is not None and bool(((data <= low) if open_low else (data < low)).any())
    if too_low or (high is not None and bool((data > high).any())):
        raise ValueError(
            f"{name} must have entries{_interval(low, high, open_low)}, "
            f"got values from {float(data.min())} to {float(data.max())}"
        )
    if symmetric and 0 not in data.shape:
        asymmetry = float(abs(data - data.swapaxes(-1, -2)).max())
        if asymmetry > 1e-10 * max(float(abs(data).max()), 1e-300):
            hint = ""
            if asymmetry <= 1e-4 * float(abs(data).max()):
                turned = "T" if len(got) == 2 else "swapaxes(-1, -2)"
                hint = f"; where that is rounding, pass ({name} + {name}.{turned}) / 2"
            raise ValueError(f"{name} must be symmetric, got an asymmetry of {asymmetry:.3g}{hint}")

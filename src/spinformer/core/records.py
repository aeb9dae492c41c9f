"""Immutable records that compare and print: frozen dataclasses whose fields may be arrays."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, dataclass_transform

import numpy as np

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
def record(cls: type[_Class]) -> type[_Class]:
    """Class decorator for immutable records whose fields may be arrays.

    The class becomes a frozen dataclass with keyword arguments. Arrays are equal where shape, type
    and all entries are (NaN equals NaN), and print as type, shape and range. A record is not
    hashable.

    Parameters
    ----------
    cls : type
        Class with annotated fields.

    Returns
    -------
    type
        The class as a dataclass.

    Examples
    --------
    >>> import numpy as np
    >>> @record
    ... class Point:
    ...     place: np.ndarray
    ...     name: str = "origin"
    >>> Point(place=np.zeros(2)) == Point(place=np.zeros(2))
    True
    >>> Point(place=np.arange(3.0))
    Point(place=float64[3] in [0, 2], name='origin')
    """
    made: type[_Class] = dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)(cls)
    for name, method in (("__eq__", _equal), ("__repr__", _show), ("__hash__", None)):
        setattr(made, name, method)
    return made


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _equal(self: Any, other: Any) -> Any:
    return _same(_fields(self), _fields(other)) if type(self) is type(other) else NotImplemented


def _show(self: Any) -> str:
    shown = [f"{name}={_summary(value)}" for name, value in _fields(self).items()]
    return f"{type(self).__name__}({', '.join(shown)})"


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if hasattr(one, "dtype"):
        alike = one.dtype == other.dtype and one.shape == other.shape
        return alike and bool(((one == other) | ((one != one) & (other != other))).all())
    return bool(one == other or (one != one and other != other))


def _summary(value: Any) -> str:
    if not hasattr(value, "dtype"):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    kind = str(value.dtype).removeprefix("torch.")
    if hasattr(value, "detach"):
        # NumPy has no bfloat16.
        value = value.detach().cpu()
        value = (value.double() if value.is_floating_point() else value).numpy()
    if value.ndim == 0:
        return str(value[()])
    line = f"{kind}[{', '.join(map(str, value.shape))}]"
    if value.dtype.kind == "b":
        return f"{line} {np.count_nonzero(value)} true"
    if value.dtype.kind not in "iuf":
        return line
    finite = value[np.isfinite(value)]
    odd = "" if finite.size == value.size else f", {value.size - finite.size} not finite"
    return f"{line} in [{finite.min():.6g}, {finite.max():.6g}]{odd}" if finite.size else line + odd

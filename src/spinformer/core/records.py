"""Results that compare and print: frozen dataclasses whose fields may be arrays.

A plain dataclass of arrays can neither be compared (the truth value of an array is ambiguous)
nor read (it prints every number). `record` makes one that can: two records are equal if all
fields are equal, entry by entry, and an array prints as its type, shape and range.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, dataclass_transform

import numpy as np
import torch

_Class = TypeVar("_Class")


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
def record(cls: type[_Class]) -> type[_Class]:
    """A class decorator: frozen dataclass, fields by keyword, comparable and printable.

    Arrays are equal where shape, type and all entries are (NaN equals NaN). A record is not
    hashable. Raises what `dataclasses.dataclass` raises.

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


def _equal(self: Any, other: Any) -> Any:
    if type(self) is not type(other):
        return NotImplemented
    return all(
        same(getattr(self, field.name), getattr(other, field.name))
        for field in dataclasses.fields(self)
    )


def _show(self: Any) -> str:
    shown = [
        f"{field.name}={summary(getattr(self, field.name))}"
        for field in dataclasses.fields(self)
        if field.repr
    ]
    return f"{type(self).__name__}({', '.join(shown)})"


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, arrays, tensors and containers of them included.

    >>> same([np.arange(2), "a"], [np.arange(2), "a"]), same(np.arange(2), np.arange(3))
    (True, False)
    """
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        floating = one.dtype.kind in "fc" and other.dtype.kind in "fc"
        return one.dtype == other.dtype and np.array_equal(one, other, equal_nan=floating)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return (
            one.dtype == other.dtype
            and one.shape == other.shape
            and bool(torch.all((one == other) | ((one != one) & (other != other))))
        )
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, np.ndarray | torch.Tensor | Mapping | list | tuple):
        return False
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def summary(value: Any) -> str:
    """One line for a value: type, shape and range of an array, the text of anything short.

    >>> summary(np.array([[1, 2], [3, 4]]))
    'int64[2, 2] in [1, 4]'
    """
    if isinstance(value, torch.Tensor):
        kind, value = str(value.dtype).removeprefix("torch."), value.detach().cpu()
        if value.dtype in (torch.bfloat16, torch.float16):
            value = value.float()
        value = value.numpy()
    elif isinstance(value, np.ndarray):
        kind = str(value.dtype)
    else:
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    if value.ndim == 0:
        return str(value[()])
    line = f"{kind}[{', '.join(map(str, value.shape))}]"
    if value.size == 0 or value.dtype.kind not in "biuf":
        return line
    if value.dtype.kind == "b":
        return f"{line} {np.count_nonzero(value)} true"
    finite = value[np.isfinite(value)]
    odd = "" if finite.size == value.size else f", {value.size - finite.size} not finite"
    return f"{line} in [{finite.min():.6g}, {finite.max():.6g}]{odd}" if finite.size else line + odd

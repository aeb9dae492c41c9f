"""Sweep a function of one's own over the product of parameters, resumable and in parallel."""

import dataclasses
import hashlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from bookmaker.base import RunError, WorkerDied
from bookmaker.sweeps.engine import Workers, complete, finished, locked_store, parameter_hash


@dataclass(frozen=True, kw_only=True)
class ParameterSweep:
    """Results of a function at every point of a product of parameters.

    Parameters
    ----------
    axes : mapping of str to list
        Values of each parameter, in the order of the axes of the product.
    results : list
        What the function returned, the last parameter varying fastest. Arrays are lists here.
    """

    axes: Mapping[str, list[Any]]
    results: list[Any]

    def array(self, key: str | None = None) -> np.ndarray:
        """Return results as an array with an axis for each parameter.

        Parameters
        ----------
        key : str, optional
            Entry of results that are dictionaries.

        Returns
        -------
        ndarray, shape (len of each axis, ..., shape of a result)
            The results.
        """
        chosen = [result if key is None else result[key] for result in self.results]
        array = np.array(chosen)
        shape = [len(values) for values in self.axes.values()]
        return array.reshape(*shape, *array.shape[1:])


def sweep_parameters(
    function: Callable[..., Any],
    *,
    over: Mapping[str, Iterable[Any]],
    folder: str | Path,
    fixed: Mapping[str, Any] | None = None,
    workers: int = 0,
    scheduler: str = "",
) -> ParameterSweep:
    """Call `function(**fixed, **point)` at every point of the product `over`, each once.

    Each finished point is kept in the folder at once, in a file that is whole or not there. The
    same call goes on where an earlier one was interrupted, whether by Ctrl-C, by an error, or
    because a process was killed. Other values of the parameters may be added later. A folder of
    another function, or of other fixed arguments, is refused. A change in what the function calls
    is not noticed: choose another folder.

    Parameters
    ----------
    function : callable
        Function that returns numbers, texts, arrays, records, or lists and dictionaries of
        these. With workers it stands in a file, and the call below `if __name__ == "__main__":`.
    over : mapping of str to iterable
        Values of the parameters, numbers or texts.
    folder : path
        Where finished points are kept.
    fixed : mapping, optional
        Other arguments, the same at every point, such as a network.
    workers : int, default 0
        Number of processes; 0 is this process, a negative number as many as there are cores.
    scheduler : str, optional
        Address of a scheduler of Dask, whose workers are used in their place.

    Returns
    -------
    ParameterSweep
        The results of all points.

    Raises
    ------
    RunError
        If the folder belongs to other work, or another process is at work on it; if a point raises
        an error on a worker, or the process of a point died every time it was tried.
    TypeError
        If `function` is no plain function, or a value or result is none of the above.
    ValueError
        If `over` is empty or shares a name with `fixed`.

    Examples
    --------
    >>> import tempfile
    >>> def power(base, exponent):
    ...     return {"value": base**exponent}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = sweep_parameters(power, over={"exponent": range(4)}, fixed={"base": 2.0},
    ...                              folder=folder)
    >>> found.array("value")
    array([1., 2., 4., 8.])
    """
    if not inspect.isfunction(function):
        raise TypeError(
            "function must be one that is written with def or lambda, and other arguments be given "
            f"in fixed, got {type(function).__name__}"
        )
    axes = {name: [_plain(value) for value in values] for name, values in over.items()}
    if not axes or not all(axes.values()):
        raise ValueError("over must hold a parameter, and each of them a value")
    others = dict(fixed or {})
    shared = axes.keys() & others.keys()
    if shared:
        raise ValueError(f"over and fixed must have no name in common, got {min(shared)} in both")
    points = {}
    for values in itertools.product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        points[parameter_hash(point)] = point

    def kept(key: str, value: Any) -> Any:
        if isinstance(value, WorkerDied):
            return {"point": points[key], "died": str(value)}
        return {"point": points[key], "value": _plain(value)}

    place = Path(folder)
    name = function.__qualname__
    with locked_store(place, about={"function": name, "meaning": _digest([function, others])}):
        done = finished(place, sound=_is_result)
        complete(
            place,
            function,
            {key: others | point for key, point in points.items() if key not in done},
            workers=Workers(count=workers, scheduler=scheduler),
            title=name,
            kept=kept,
        )
        done = finished(place, sound=_is_result)
    lost = [point for key, point in points.items() if key not in done]
    if lost:
        raise RunError(
            f"the process died at {len(lost)} of {len(points)} points, the first of them "
            f"{lost[0]}; the others are kept in {place}, and the same call tries these again"
        )
    results = []
    for values in itertools.product(*axes.values()):
        key = parameter_hash(dict(zip(axes, values, strict=True)))
        results.append(done[key]["value"])
    return ParameterSweep(axes=axes, results=results)


def _is_result(key: str, result: Any) -> bool:
    """Whether a stored result is that of a point that came to its end."""
    return isinstance(result, dict) and "value" in result and parameter_hash(result["point"]) == key


def _plain(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, records as dictionaries of their fields."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufU":
        return value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise TypeError(
        "points and results must be numbers, texts, real arrays, or lists, dictionaries and "
        f"records of these, got {type(value).__name__}"
    )


def _digest(value: Any) -> str:
    """What a function and its fixed arguments mean, in a short text."""
    text = hashlib.sha256()
    for part in _parts(value):
        text.update(part + b"\0")
    return text.hexdigest()[:16]


def _parts(value: Any) -> Iterator[bytes]:
    """What a value consists of: entries of arrays, fields of records, the source of functions."""
    if isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).tobytes()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield type(value).__qualname__.encode()
        for field in fields(value):
            yield field.name.encode()
            yield from _parts(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield str(name).encode()
            yield from _parts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _parts(one)
    elif inspect.isfunction(value):
        try:
            yield inspect.getsource(value).encode()
        except OSError:  # typed at a prompt
            yield value.__code__.co_code
    elif value is None or isinstance(value, str | bool | int | float | np.generic):
        yield repr(value).encode()
    else:
        raise TypeError(
            "fixed must hold numbers, texts, arrays, functions, or lists, dictionaries and records "
            f"of these, got {type(value).__name__}"
        )

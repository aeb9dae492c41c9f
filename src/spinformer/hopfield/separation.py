"""Separation functions F of the discrete memories E(ξ) = −Σ_μ F(x_μ·ξ).

F decides how sharply stored patterns are told apart: x²/2 is Hopfield's network
[hopfield1982neural], x^a the dense memory [krotov2016dense; bal2020energy, Eq. (5)], e^x the
exponential one [demircigil2017model; bal2020energy, Eq. (6)]. Any other F is a `Separation` of
one's own: a function of overlaps x = x_μ·ξ, which are integers from −d to d.

A memory of d spins needs F at 2d + 1 numbers only, so retrieval tabulates it once. Two tables
rule a spin (`Tables`): the gain, ½[F(x + 1) − F(x − 1)] or, for the rule that follows the
gradient, F′(x), and F itself. Integer tables are summed as they are, without rounding. Others
are kept as mantissa and exponent of each entry, so that none overflows, and patterns are counted
by their overlap before anything is rounded: patterns of opposite pull then cancel exactly, and
those further down decide, as they do in exact arithmetic.

Tables are kept for the next call: F must be a pure function.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from spinformer.core.checks import check_array, check_integer
from spinformer.core.records import record

Function = Callable[[np.ndarray], np.ndarray]
MAX_DEGREE = 20


@record
class Separation:
    """A separation function, elementwise on NumPy arrays of overlaps x_μ·ξ, not divided by d.

    function: F. derivative: F′; needed only by the update that follows the gradient. log and
    log_derivative: ln F and ln F′ for a positive F that overflows; the memory then works in
    logarithms (its energies are −ln Σ F, which orders states as −Σ F does).

    >>> rectified = Separation(name="rectified cube", function=lambda x: np.maximum(x, 0) ** 3)
    >>> rectified(np.array([-2.0, 2.0]))
    array([0., 8.])
    """

    name: str
    function: Function
    derivative: Function | None = None
    log: Function | None = None
    log_derivative: Function | None = None

    def __post_init__(self) -> None:
        """Raise TypeError for what is not a function."""
        for name in ("function", "derivative", "log", "log_derivative"):
            given = getattr(self, name)
            if not (callable(given) or (given is None and name != "function")):
                raise TypeError(f"{name} must be a function, got {type(given).__name__}")

    def __call__(self, overlaps: np.ndarray) -> np.ndarray:
        """F of the overlaps."""
        return np.asarray(self.function(overlaps))

    def __str__(self) -> str:
        """The name."""
        return self.name


def check_separation(separation: object) -> Separation:
    """`separation`, if it is one; TypeError otherwise.

    >>> str(check_separation(CLASSICAL))
    'classical'
    """
    if not isinstance(separation, Separation):
        raise TypeError(f"separation must be a Separation, got {type(separation).__name__}")
    return separation


class Tables(NamedTuple):
    """What the compiled update reads: entry k belongs to the overlap k − d.

    gain, value: ½[F(x+1) − F(x−1)] (0 at the ends, where no spin reads it) or F′, and F. If
    `exact` they are the numbers themselves, integers whose sums are exact; else mantissas, to be
    multiplied by 2^power, and the gains stand in falling order of magnitude: that of overlap
    d − k at `rank[k]`, or at k if `rank` is empty.
    """

    gain: np.ndarray
    gain_power: np.ndarray
    rank: np.ndarray
    value: np.ndarray
    value_power: np.ndarray
    exact: bool
    gradient: bool


def tabulate(separation: Separation, *, dim: int, count: int, gradient: bool = False) -> Tables:
    """The tables of a memory of `count` patterns of `dim` spins; F′ as gain if `gradient`.

    Raises ValueError where F gives no finite number for an overlap from −d to d, or F′ is asked
    for and was not given.

    >>> tabulate(CLASSICAL, dim=2, count=5).value
    array([2. , 0.5, 0. , 0.5, 2. ])
    """
    functions = (separation.function, separation.derivative)
    logs = (separation.log, separation.log_derivative)
    return _tabulate(separation.name, *functions, *logs, dim, count, gradient)


@lru_cache(maxsize=64)
def _tabulate(
    name: str,
    function: Function,
    derivative: Function | None,
    log: Function | None,
    log_derivative: Function | None,
    dim: int,
    count: int,
    gradient: bool,
) -> Tables:
    separation = Separation(
        name=name,
        function=function,
        derivative=derivative,
        log=log,
        log_derivative=log_derivative,
    )
    levels = np.arange(-dim, dim + 1, dtype=np.float64)
    gains = np.zeros(levels.size)
    if separation.log is not None:
        sign, logs = np.ones(levels.size), _evaluate(separation, separation.log, "log", levels)
        slopes = np.zeros(levels.size)
        if gradient:
            slopes = _evaluate(separation, slope_of(separation), "log_derivative", levels)
        else:
            rise = logs[2:] - logs[:-2]
            sign = np.pad(np.sign(rise), 1)
            with np.errstate(divide="ignore"):
                fall = np.log(-0.5 * np.expm1(-np.abs(rise)))
            slopes[1:-1] = np.maximum(logs[2:], logs[:-2]) + fall
        return Tables(
            *_ranked(*_split_logs(slopes, sign)),
            *_split_logs(logs, np.ones(levels.size)),
            False,
            gradient,
        )
    values = _evaluate(separation, separation.function, "function", levels)
    if gradient:
        gains = _evaluate(separation, slope_of(separation), "derivative", levels)
    else:
        gains[1:-1] = 0.5 * (values[2:] - values[:-2])
    whole = all((table == np.rint(table)).all() for table in (gains, 2.0 * values))
    if whole and count * max(np.abs(gains).max(), 2.0 * np.abs(values).max()) < 2.0**53:
        nothing = np.zeros(0, dtype=np.int64)
        return Tables(gains, nothing, nothing, values, nothing, True, gradient)
    return Tables(*_ranked(*_split(gains)), *_split(values), False, gradient)


def slope_of(separation: Separation) -> Function:
    """F′, or ln F′ for a separation given by its logarithm; ValueError if it was not given.

    >>> slope_of(polynomial(2))(np.array([3.0]))
    array([6.])
    """
    slope = separation.derivative if separation.log is None else separation.log_derivative
    if slope is None:
        name = "derivative" if separation.log is None else "log_derivative"
        raise ValueError(f"separation must have a {name} for diagonal=True, got {separation}")
    return slope


def _evaluate(
    separation: Separation, function: Function, name: str, levels: np.ndarray
) -> np.ndarray:
    with np.errstate(all="ignore"):
        found = np.asarray(function(levels))
    try:
        return check_array(f"{name} of separation", found, shape=levels.shape)
    except ValueError as error:
        raise ValueError(
            f"{error}, for {separation} at overlaps from {levels[0]:g} to {levels[-1]:g}; "
            "one that overflows needs its log"
        ) from None


def _split(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    mantissa, power = np.frexp(table)
    return mantissa, power.astype(np.int64)


def _split_logs(logs: np.ndarray, sign: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    finite = np.where(sign == 0, 0.0, logs)
    power = np.floor(finite / np.log(2.0)) + 1.0
    return sign * np.exp(finite - power * np.log(2.0)), power.astype(np.int64)


def _ranked(mantissa: np.ndarray, power: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mantissas and powers in falling order of magnitude, zeros last, and where each went."""
    power = np.where(mantissa == 0.0, power.min(), power)[::-1]
    mantissa = mantissa[::-1]
    inner = power[1:-1]
    if (inner[:-1] >= inner[1:]).all():  # from the largest overlap down, as for any growing F
        return np.ascontiguousarray(mantissa), np.ascontiguousarray(power), np.zeros(0, np.int64)
    order = np.argsort(-power, kind="stable")
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    return mantissa[order], power[order], rank


def _half_square(overlaps: np.ndarray) -> np.ndarray:
    return 0.5 * overlaps**2


def _same(overlaps: np.ndarray) -> np.ndarray:
    return overlaps


def _power(base: np.ndarray, exponent: int) -> np.ndarray:
    """By repeated squaring: exact for integers below 2^53 and far faster than `**`."""
    result: np.ndarray | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else result * base
        base, exponent = base * base, exponent >> 1
    return np.ones_like(base) if result is None else result


def polynomial(degree: int) -> Separation:
    """F(x) = x^degree, an integer from 2 to 20. Degree 2 is twice the classical energy.

    Odd degrees tell ξ from −ξ, even ones and the classical energy do not.

    >>> float(polynomial(3)(np.array(-2.0)))
    -8.0
    """
    return _polynomial(check_integer("degree", degree, low=2, high=MAX_DEGREE))


@cache
def _polynomial(degree: int) -> Separation:
    return Separation(
        name=f"polynomial of degree {degree}",
        function=lambda overlaps: _power(overlaps, degree),
        derivative=lambda overlaps: degree * _power(overlaps, degree - 1),
    )


CLASSICAL = Separation(name="classical", function=_half_square, derivative=_same)
EXPONENTIAL = Separation(
    name="exponential", function=np.exp, derivative=np.exp, log=_same, log_derivative=_same
)

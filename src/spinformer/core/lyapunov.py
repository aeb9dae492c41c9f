"""Lyapunov exponents of any map, by the QR method of tangent vectors.

Along an orbit x_0, x_1, … of x' = f(x) an orthonormal basis V of k tangent vectors is mapped to
Df(x_t) V = Q R, and Q is the next basis. The exponents are the averages of ln |R_ii| over the
orbit [benettin1980lyapunov].
"""

from collections.abc import Callable

import numpy as np

from spinformer.core.checks import check_array, check_function, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate

# Stretches of the orbit, from which errors are taken.
_BATCHES = 20
_Push = Callable[[np.ndarray], np.ndarray]


def lyapunov_exponents(
    push: _Push, *, dimension: int, steps: int, count: int = 1, align: int = 0, seed: Seed = 0
) -> Estimate:
    r"""Largest Lyapunov exponents of a map, by Benettin's QR method.

    An orthonormal basis of tangent vectors is carried along the orbit and re-orthonormalized in
    every step.

    Parameters
    ----------
    push : callable
        Takes a basis, shape (dimension, count), at the present state, applies the tangent map
        there, moves the state on, and returns the new basis. It is called once in each step.
    dimension : int
        Dimension of the state space, at least 1.
    steps : int
        Number of steps over which the exponents are averaged, at least 1.
    count : int, default 1
        Number of exponents, from 1 to `dimension`.
    align : int, default 0
        Number of steps that are dropped first, in which the random initial basis aligns with the
        expanding directions.
    seed : int or numpy.random.Generator, default 0
        Source of the random initial basis.

    Returns
    -------
    Estimate
        The exponents, shape (count,), in nats per step, the largest first, with their standard
        errors. A direction that shrinks to nothing has exponent −∞ and the error NaN.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If a value is not allowed, or `push` returns another shape or what is not finite.

    Notes
    -----
    With the basis V_t and the tangent map Df, the QR decomposition in each step gives the next
    basis and the growth,

    .. math::

        Df(x_t)\, V_t = V_{t+1} R_t, \qquad \lambda_i = \frac1T \sum_t \ln \lvert (R_t)_{ii}
        \rvert.

    The error is the scatter of the means of 20 consecutive stretches over √20. It is right if a
    stretch is longer than the orbit's memory, and too small if a transient ends within the run.

    References
    ----------
    [benettin1980lyapunov]

    Examples
    --------
    >>> doubling = lyapunov_exponents(lambda frame: 2.0 * frame, dimension=3, steps=10)
    >>> f"{doubling.value[0]:.6f}"
    '0.693147'
    """
    check_function("push", push)
    dimension = check_integer("dimension", dimension, low=1)
    count = check_integer("count", count, low=1, high=dimension)
    steps = check_integer("steps", steps, low=1)
    align = check_integer("align", align, low=0)
    batches = min(_BATCHES, steps)
    frame = _unit(numpy_generator(seed).standard_normal((dimension, count)))[0]
    logs = np.full((align + steps, count), -np.inf)
    for step in range(align + steps):
        moved = check_array("frame returned by push", push(frame), shape=(dimension, count))
        frame, stretched = _unit(moved)
        if not stretched.any():
            break
        with np.errstate(divide="ignore"):
            logs[step] = np.log(stretched)
    edges = np.linspace(0, steps, batches + 1).astype(int)
    growth = np.add.reduceat(logs[align:], edges[:-1]) / np.diff(edges)[:, None]
    value = logs[align:].mean(axis=0)
    error = np.full(count, np.nan)
    known = np.isfinite(value)
    if batches > 1:
        error[known] = growth[:, known].std(axis=0, ddof=1) / np.sqrt(batches)
    return Estimate(value=value, error=error, samples=batches)


def _unit(frame: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """An orthonormal frame of the same span, and the length of each direction."""
    if frame.shape[1] == 1:
        length = np.linalg.norm(frame)
        return (frame / length if length else frame), np.array([length])
    unit, triangle = np.linalg.qr(frame)
    return unit, np.abs(np.diagonal(triangle))

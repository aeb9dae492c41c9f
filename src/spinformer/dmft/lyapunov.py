"""Lyapunov exponents by QR of the mean field of self-attention, and the monodromy matrix of a
cycle.

The state is the window of T attention vectors, so that a tangent vector has T·P components. A step
shifts the window and produces one new vector, A' = Σ_τ π_τ m^v_τ with π the softmax of γ m^q·m^k_τ,
whose derivative is

    δA'    = Σ_τ π_τ [δm^v_τ + γ (m^v_τ − A') (δm^q·m^k_τ + m^q·δm^k_τ)],
    δm^α_τ = (1 − ε) β ⟨W^α (1 − tanh²(β W^o·A_τ)) W^o·δA_τ⟩ .

`kernels.evolve_tangent` orthonormalizes a basis of k tangent vectors every few steps, and exponents
are in nats per step (`core.lyapunov` has the same for any map).

With γ ≈ 127 the map is almost singular wherever the softmax is nearly one-hot, and between two
orthonormalizations all vectors turn towards the fastest direction. If less than about 1e-13 of a
direction, relative to its length or to one, is independent of the directions before it, only
rounding is left of it. Where this happened (`resolved` is False), the exponent and all below it
must not be used. Before rounding they are upper bounds, because their exact sum is the orbit
average of `log |det|`. A direction that the map destroys counts as 1e-140 long. An error is that of
the average as a sample of the motion in the run; it cannot include a transient that outlives the
run.
"""

from typing import Unpack

import numpy as np

from spinformer.core.checks import check_array, check_integer
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.dmft.ensemble import Ensemble, Parameters, kernels_of
from spinformer.dmft.kernel_inputs import SystemBatch, TimeIndex
from spinformer.dmft.network import AttentionNetwork, Context

# Stretches of the steps that are averaged, from which errors are taken.
_BATCHES = 20
# The largest t of a jump that chance is allowed: one chaotic run in a thousand has more.
_JUMP = 6.0
# Growth whose squares a double holds.
_FASTEST = 1e100
# Growth that differs by less than this differs by rounding.
_ROUNDING = 1e-9
# Steps between orthonormalizations: in more of them nothing but the leading direction is left.
_LONGEST_INTERVAL = 128
# An error from fewer blocks is itself too uncertain.
_FEWEST_BLOCKS = 4


@record
class LyapunovSpectrum:
    """Lyapunov exponents of a batch (...) of systems, in nats per step, the largest first.

    Attributes
    ----------
    exponents : Estimate
        Means (..., k) with standard errors, which are widened where neighbouring stretches are
        correlated or the growth jumps.
    growth : ndarray, shape (..., n, k)
        Growth rate of each direction in each of n consecutive stretches, in nats per step.
    resolved : ndarray of bool, shape (..., k)
        Whether this direction and all before it were always larger than rounding.
    context : Context
        The states at the end.
    """

    exponents: Estimate
    growth: np.ndarray
    resolved: np.ndarray
    context: Context


def lyapunov_spectrum(
    network: AttentionNetwork,
    context: Context,
    *,
    steps: int,
    count: int | None = None,
    transient: int = 0,
    align: int = 500,
    qr_interval: int | None = None,
    batches: int | None = None,
    **parameters: Unpack[Parameters],
) -> LyapunovSpectrum:
    r"""Compute the largest Lyapunov exponents by QR (the method of Benettin) of a batch of systems.

    After the transient, the basis of tangent vectors turns into the expanding directions during
    `align` steps. The growth of the next `steps` steps is averaged in stretches, from which the
    errors are taken.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        Initial state, of one system or of a batch.
    steps : int
        Number of steps that are averaged.
    count : int, optional
        Number of exponents; None computes all T·P.
    transient : int, default 0
        Number of steps that are dropped first.
    align : int, default 500
        Number of steps in which the tangent vectors align.
    qr_interval : int, optional
        Number of steps between orthonormalizations, at most 128; None is 2 for more than two
        exponents and 4 for one or two. The longer the interval, the fewer exponents are resolved.
    batches : int, optional
        Number of stretches; None is 20, or one for each step if there are fewer. A single one gives
        no error (NaN).
    **parameters : Unpack[Parameters]
        The inverse temperatures `beta` and `gamma`, `epsilon` and `threads`, as in `Ensemble`.

    Returns
    -------
    LyapunovSpectrum
        Exponents in nats per step with errors, growth rates and final states.

    Raises
    ------
    ValueError
        If tangent vectors grow beyond the range of a double, the context does not fit the network,
        or an argument is out of its range.

    Notes
    -----
    With the tangent map written as a product of QR factors, the exponents are

    .. math::

        \lambda_i = \lim_{n \to \infty} \frac{1}{n} \sum_{t=1}^{n} \ln (R_t)_{ii},
        \qquad Q_t R_t = M_t\, Q_{t-1}.

    References
    ----------
    [benettin1980lyapunov]

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.full((4, 3), 0.1), 0)
    >>> found = lyapunov_spectrum(Network.poclopez2024(), start, beta=0.5, steps=1000, count=2)
    >>> found.exponents.value.shape, bool(found.exponents.value[0] < 0)
    ((2,), True)
    """
    ensemble = Ensemble(network, context, **parameters)
    dimension = ensemble.window * ensemble.features
    count = dimension if count is None else check_integer("count", count, low=1, high=dimension)
    steps = check_integer("steps", steps, low=1)
    align = check_integer("align", align, low=0)
    batches = min(_BATCHES, steps) if batches is None else batches
    batches = check_integer("batches", batches, low=1, high=steps)
    qr_interval = (4 if count <= 2 else 2) if qr_interval is None else qr_interval
    qr_interval = check_integer("qr_interval", qr_interval, low=1, high=_LONGEST_INTERVAL)
    lengths = np.diff(np.linspace(0, steps, batches + 1).astype(int))
    ensemble.advance(check_integer("transient", transient, low=0))
    # Generic but fixed directions: no axis of the basis is an invariant subspace.
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(dimension, count)))[0]

    def task(batch: SystemBatch, time: TimeIndex) -> tuple[TimeIndex, tuple[np.ndarray, ...]]:
        kernels = kernels_of(batch)
        basis = kernels.tangent_basis(batch, axes.T)
        time = kernels.evolve_tangent(align, qr_interval, basis, batch, time)
        basis.unresolved[:] = 0
        growth = np.empty((batches, count, ensemble.lanes))
        for n, length in enumerate(lengths):
            basis.mantissa[:] = 1.0
            basis.binary_exponent[:] = 0
            time = kernels.evolve_tangent(length, qr_interval, basis, batch, time)
            growth[n] = (np.log(basis.mantissa) + basis.binary_exponent * np.log(2.0)) / length
        return time, (growth, basis.unresolved)

    growth, lost = ensemble.run(task)
    if not np.isfinite(growth).all():
        raise ValueError(
            f"qr_interval must keep tangent vectors within what a double holds, got {qr_interval}: "
            "they grow too fast for these weights, beta and gamma"
        )
    return LyapunovSpectrum(
        exponents=average_growth(growth, lengths),
        growth=growth,
        resolved=np.cumsum(lost, axis=-1) == 0,
        context=ensemble.state(),
    )


@record
class ChangePoint:
    """Change point of growth rates, for each of k directions.

    Attributes
    ----------
    jumps : ndarray of bool, shape (..., k)
        Whether the growth rate jumps.
    before : ndarray, shape (..., k)
        Mean growth rate before the change point.
    error : ndarray, shape (..., k)
        Standard error of the mean before.
    after : ndarray, shape (..., k)
        Mean growth rate after the change point.
    """

    jumps: np.ndarray
    before: np.ndarray
    error: np.ndarray
    after: np.ndarray


def detect_change_point(growth: np.ndarray) -> ChangePoint:
    """Detect a change point in growth rates, as where a chaotic transient ends.

    The series is split where the two-sample t statistic of the parts before and after is largest.
    It jumps if that t is larger than chance would make it. Fewer than 8 stretches are too few to
    decide, and differences of the size of rounding have t = 0.

    Parameters
    ----------
    growth : ndarray, shape (..., n, k)
        Growth rates of k directions in n consecutive stretches, as in `LyapunovSpectrum`.

    Returns
    -------
    ChangePoint
        Whether the growth rate jumps, and its means before and after.

    Raises
    ------
    ValueError
        If `growth` has fewer than two axes, or entries that are not finite.

    Examples
    --------
    >>> found = detect_change_point(np.repeat([0.1, 0.0], 5)[:, None])
    >>> found.jumps, found.before, found.after
    (array([ True]), array([0.1]), array([0.]))
    """
    growth = check_array("growth", growth, shape=(..., "n", "k"), low=-_FASTEST, high=_FASTEST)
    many = growth.shape[-2]
    mean = growth.mean(axis=-2, keepdims=True)
    if many < 2 * _FEWEST_BLOCKS:
        mean = mean[..., 0, :]
        never = np.zeros(mean.shape, dtype=bool)
        unknown = np.full_like(mean, np.nan)
        return ChangePoint(jumps=never, before=mean, error=unknown, after=mean)
    count = np.arange(1.0, many)[:, None]
    sums = np.cumsum(growth - mean, axis=-2)[..., :-1, :]
    before = sums / count
    after = -sums / (many - count)
    squares = ((growth - mean) ** 2).sum(axis=-2, keepdims=True)
    squares = squares - count * before**2 - (many - count) * after**2
    variance = np.maximum(squares, 0.0) / (many - 2)
    chance = np.sqrt(variance * (1.0 / count + 1.0 / (many - count)))
    size = np.maximum(np.abs(before - after) - _ROUNDING, 0.0) / (chance + _ROUNDING)
    at = size.argmax(axis=-2, keepdims=True)

    def chosen(values: np.ndarray) -> np.ndarray:
        return np.take_along_axis(values, at, axis=-2)[..., 0, :]

    return ChangePoint(
        jumps=chosen(size) > _JUMP,
        before=chosen(mean + before),
        error=chosen(np.sqrt(variance / count)),
        after=chosen(mean + after),
    )


def average_growth(growth: np.ndarray, lengths: np.ndarray) -> Estimate:
    """Average growth rates over consecutive stretches, with an error by blocking.

    The error is the largest of those from n stretches and from their pairs and fours (blocking,
    Flyvbjerg and Petersen 1989): correlations longer than a stretch make it grow with the block.
    Where the growth jumps, the error reaches to what came after the jump. Arguments are not
    checked.

    Parameters
    ----------
    growth : ndarray, shape (..., n, k)
        Growth rates of k directions in n consecutive stretches.
    lengths : ndarray of int, shape (n,)
        Number of steps of each stretch.

    Returns
    -------
    Estimate
        The averages (..., k) and their errors.
    """
    value = np.einsum("n,...nk->...k", lengths / lengths.sum(), growth)
    error = np.full_like(value, np.nan)
    blocks = growth
    while (many := blocks.shape[-2]) > 1:
        error = np.fmax(error, np.std(blocks, axis=-2, ddof=1) / np.sqrt(many))
        if many < 2 * _FEWEST_BLOCKS:
            break
        even = many // 2 * 2
        blocks = 0.5 * (blocks[..., -even::2, :] + blocks[..., -even + 1 :: 2, :])
    jump = detect_change_point(growth)
    error = np.where(jump.jumps, np.maximum(error, np.abs(value - jump.after)), error)
    return Estimate(value=value, error=error, samples=len(lengths))


def period_map(
    network: AttentionNetwork, context: Context, *, steps: int, **parameters: Unpack[Parameters]
) -> tuple[Context, np.ndarray]:
    r"""Compute the derivative of `steps` iterations of the map, the monodromy matrix of a cycle.

    If the number of steps is the period of a cycle, the derivative is its monodromy matrix, whose
    eigenvalues are the Floquet multipliers. Rows and columns run over age (newest first), then
    feature.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        Initial state, of one system or of a batch.
    steps : int
        Number of steps.
    **parameters : Unpack[Parameters]
        The inverse temperatures `beta` and `gamma`, `epsilon` and `threads`, as in `Ensemble`.

    Returns
    -------
    context : Context
        The state after these steps.
    derivative : ndarray, shape (..., T·P, T·P)
        Derivative of the state after the steps by the state before them.

    Raises
    ------
    ValueError
        If the derivative grows beyond the range of a double, as over thousands of steps in chaos,
        or an argument is out of its range.

    Notes
    -----
    With the Jacobian M_t of the step at time t, the derivative is

    .. math::

        \frac{\partial x_n}{\partial x_0} = M_{n-1} \cdots M_1 M_0.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> from spinformer.core.lyapunov import lyapunov_exponents
    >>> network, states = Network.poclopez2024(), [Context(np.full((4, 3), 0.1), 0)]
    >>> fast = lyapunov_spectrum(network, states[0], beta=0.5, steps=500, count=2)
    >>> def push(basis):
    ...     context, tangent = period_map(network, states.pop(), beta=0.5, steps=1)
    ...     states.append(context)
    ...     return tangent @ basis
    >>> plain = lyapunov_exponents(push, dimension=12, steps=500, align=500, count=2)
    >>> bool(np.abs(plain.value - fast.exponents.value).max() < 0.01)
    True
    """
    steps = check_integer("steps", steps, low=1)
    ensemble = Ensemble(network, context, **parameters)
    features = ensemble.features
    dimension = ensemble.window * ensemble.features

    def ring() -> np.ndarray:
        """Where the components, by age and feature, lie in the ring of the kernels."""
        return (ensemble.slots()[:, None] * features + np.arange(features)).ravel()

    axes = np.eye(dimension)[ring()]

    def task(batch: SystemBatch, time: TimeIndex) -> tuple[TimeIndex, tuple[np.ndarray, ...]]:
        kernels = kernels_of(batch)
        basis = kernels.tangent_basis(batch, axes)
        return kernels.evolve_tangent(steps, 0, basis, batch, time), (basis.vectors,)

    # vectors[j, i] is the component i of the vector that began as axis j.
    (vectors,) = ensemble.run(task)
    if not np.isfinite(vectors).all():
        raise ValueError(
            f"steps must keep the derivative within what a double holds, got {steps}: "
            "it grows too fast for these weights, beta and gamma"
        )
    return ensemble.state(), np.ascontiguousarray(np.swapaxes(vectors[..., ring()], -1, -2))

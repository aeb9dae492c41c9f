"""Lyapunov exponents of the mean field of self-attention.

The state is the window of T attention vectors, so the tangent space has T·P dimensions (12 for
the document's network). A step shifts the window and makes one new vector,
δA' = Σ_{s<T} M_s δA_s, so the tangent map is a block companion matrix with analytic blocks M_s
(`kernels._deviate`). Exponents are in nats per step, the largest first up to their errors, from the
QR method of Benettin et al. (1980): a frame is pushed forward and orthonormalized (modified
Gram-Schmidt), and λ_k is the average of ln r_kk, the logarithm of the length of what is left of its
k-th vector.

Two limits. With γ ≈ 127 the map is almost singular wherever the softmax is nearly one-hot: in
double precision a direction that becomes shorter than about 1e-13 before it is orthonormalized
is what rounding left of the other directions. Where one was met (`resolved` is False) the exponent
and all below it are then only upper bounds (their exact sum is the orbit average of log |det|). And
a frame needs some steps to align with the expanding directions: these are dropped.

An error is that of the average over the run, as a sample of the motion in the run. Of a transient
that outlives the run it cannot know.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np

from spinformer.core.checks import check_array, check_integer
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.dmft import kernels
from spinformer.dmft.ensemble import Ensemble, Parameters
from spinformer.dmft.kernels import LANES, Block, Clock
from spinformer.dmft.network import AttentionNetwork, Context

# The largest t of a jump within a run that chance is allowed: one chaotic run in a thousand has
# more.
_JUMP = 6.0
# Exponents that differ by less than this differ by rounding.
_ROUNDING = 1e-9
# An error from fewer blocks is itself too uncertain.
_FEWEST_BLOCKS = 4
# Steps until a tangent vector has aligned.
ALIGN = 500
# Stretches from which the error of an exponent is taken.
BATCHES = 20


@record
class Growth:
    """Average growth (..., k) of a frame over consecutive stretches, nats per step, largest first.

    exponents: mean and standard error, widened where neighboring stretches are correlated or the
        growth jumps.
    settled: False where the growth jumps by more than chance would, because a transient ended
        within the run, or where fewer than 8 stretches are too few to tell.
    before, after: growth up to the largest jump and from there on; the exponents where settled.
    """

    exponents: Estimate
    settled: np.ndarray
    before: Estimate
    after: np.ndarray


@record
class LyapunovSpectrum(Growth):
    """Lyapunov exponents (..., k), the context at the end, and which exponents are `resolved`.

    Those are where no length below 1e-13, what rounding left of others, was found in this direction
    or one before it.
    """

    resolved: np.ndarray
    context: Context


def lyapunov_spectrum(
    network: AttentionNetwork,
    context: Context,
    *,
    steps: int,
    count: int | None = None,
    transient: int = 0,
    align: int = ALIGN,
    every: int | None = None,
    batches: int = BATCHES,
    **parameters: Unpack[Parameters],
) -> LyapunovSpectrum:
    """The `count` largest Lyapunov exponents (None: all T·P) of a batch of systems.

    parameters: β, γ, ε and threads, as in `Ensemble`. After `transient` steps the frame aligns
    during `align` steps, then `steps` steps are averaged. every: steps between orthonormalizations;
    None: 2 for more than two exponents, 4 for one or two.

    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.full((4, 3), 0.1), 0)
    >>> found = lyapunov_spectrum(Network.document(), start, beta=0.5, steps=1000, count=2)
    >>> found.exponents.value.shape, bool(found.exponents.value[0] < 0)
    ((2,), True)
    """
    ensemble = Ensemble(network, context, **parameters)
    dimension = ensemble.window * ensemble.features
    count = dimension if count is None else check_integer("count", count, low=1, high=dimension)
    steps = check_integer("steps", steps, low=1)
    align = check_integer("align", align, low=0)
    batches = check_integer("batches", batches, low=1, high=steps)
    every = (4 if count <= 2 else 2) if every is None else check_integer("every", every, low=1)
    lengths = np.diff(np.linspace(0, steps, batches + 1).astype(int))
    ensemble.advance(check_integer("transient", transient, low=0))
    growth, lost = _growth(ensemble, [align, *lengths], count, every)
    return LyapunovSpectrum(
        **vars(average_growth(growth, lengths=lengths)),
        resolved=np.cumsum(lost, axis=-1) == 0,
        context=ensemble.state(),
    )


def growth_rates(
    network: AttentionNetwork,
    context: Context,
    *,
    stretches: int,
    stretch: int = 5000,
    **parameters: Unpack[Parameters],
) -> tuple[np.ndarray, Context]:
    """Growth rate of a tangent vector, nats per step, in each of consecutive stretches.

    Returns (..., n) rates for n = `stretches` of `stretch` steps each, and the states at the end;
    the mean over the stretches is the leading exponent of `lyapunov_spectrum`.

    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.full((4, 3), 0.1), 0)
    >>> rates, _ = growth_rates(Network.document(), start, beta=0.5, stretches=3, stretch=100)
    >>> rates.shape, bool((rates < 0).all())
    ((3,), True)
    """
    stretches = check_integer("stretches", stretches, low=1)
    stretch = check_integer("stretch", stretch, low=1)
    ensemble = Ensemble(network, context, **parameters)
    growth, _ = _growth(ensemble, [ALIGN] + [stretch] * stretches, 1, 4)
    return growth[..., 0], ensemble.state()


def _growth(
    ensemble: Ensemble, lengths: Sequence[int], count: int, every: int
) -> tuple[np.ndarray, np.ndarray]:
    """Growth (..., n, k) of k vectors in all stretches but the first, and how many were lost."""
    dimension = ensemble.window * ensemble.features
    # Generic but fixed directions: no axis of the frame is an invariant subspace.
    start = np.linalg.qr(np.random.default_rng(0).normal(size=(dimension, count)))[0]

    def task(block: Block, clock: Clock) -> tuple[Clock, tuple[np.ndarray, ...]]:
        frame = kernels.frame(block, start.T)
        growth = np.empty((len(lengths), count, LANES))
        for n, length in enumerate(lengths):
            frame.mantissa[:], frame.exponent[:] = 1.0, 0
            if n == 1:
                frame.lost[:] = 0
            clock = kernels.push(length, every, frame, block, clock)
            grown = np.log(frame.mantissa) + frame.exponent * np.log(2.0)
            growth[n] = grown / max(length, 1)
        return clock, (growth[1:], frame.lost)

    growth, lost = ensemble.run(task)
    return growth, lost


def average_growth(growth: np.ndarray, *, lengths: np.ndarray) -> Growth:
    """Mean of growth rates (..., n, k) over n consecutive stretches, and whether it is settled.

    lengths: (n,), steps of each stretch, its weight in the mean.
    The error is the largest of those from n stretches and from their pairs and fours (blocking,
    Flyvbjerg and Petersen 1989): correlations longer than a stretch make it grow with the block.
    Where the growth jumps, the error reaches to what came after the jump.
    """
    growth = check_array("growth", growth)
    if growth.ndim < 2:
        raise ValueError(f"growth must have shape (..., n, k), got {growth.shape}")
    lengths = check_array("lengths", lengths, shape=(growth.shape[-2],), low=1.0)
    value = np.einsum("n,...nk->...k", lengths / lengths.sum(), growth)
    error, blocks = np.full_like(value, np.nan), growth
    while (many := blocks.shape[-2]) > 1:
        error = np.fmax(error, np.std(blocks, axis=-2, ddof=1) / np.sqrt(many))
        if many < 2 * _FEWEST_BLOCKS:
            break
        even = many // 2 * 2
        blocks = 0.5 * (blocks[..., -even::2, :] + blocks[..., -even + 1 :: 2, :])
    mean = Estimate(value=value, error=error, samples=len(lengths))
    if len(lengths) < 2 * _FEWEST_BLOCKS:
        none = np.zeros(value.shape, dtype=bool)
        return Growth(exponents=mean, settled=none, before=mean, after=value)
    size, first, first_error, last = _jump(growth)
    settled = size <= _JUMP
    reached = np.where(settled, error, np.maximum(error, np.abs(value - last)))
    return Growth(
        exponents=Estimate(value=value, error=reached, samples=len(lengths)),
        settled=settled,
        before=Estimate(
            value=np.where(settled, value, first), error=np.where(settled, error, first_error)
        ),
        after=np.where(settled, value, last),
    )


def _jump(growth: np.ndarray) -> np.ndarray:
    """The largest two-sample t of the stretches before and after any moment, and what is there.

    growth: (..., n, k); t, the mean before with its error, and the mean after, (4, ..., k).
    Differences that are rounding have t = 0. The mean before a jump after one stretch has the error
    of the stretches after it.
    """
    batches, found = growth.shape[-2], []
    for count in range(1, batches):
        before, after = growth[..., :count, :], growth[..., count:, :]
        one, other = before.mean(axis=-2), after.mean(axis=-2)
        squares = ((before - one[..., None, :]) ** 2).sum(axis=-2)
        squares += ((after - other[..., None, :]) ** 2).sum(axis=-2)
        variance = squares / (batches - 2)
        chance = np.sqrt(variance * (1.0 / count + 1.0 / (batches - count)))
        size = np.maximum(np.abs(one - other) - _ROUNDING, 0.0) / (chance + _ROUNDING)
        found.append([size, one, np.sqrt(variance / count), other])
    moments = np.array(found)
    largest = moments[:, 0].argmax(axis=0)
    return np.asarray(np.take_along_axis(moments, largest[None, None], axis=0)[0])


def returned(
    network: AttentionNetwork,
    context: Context,
    *,
    steps: int,
    **parameters: Unpack[Parameters],
) -> tuple[Context, np.ndarray]:
    """The context after `steps` steps, and its derivative (..., T·P, T·P) by the context before.

    Where the steps are the period of a cycle, this is the monodromy matrix, whose eigenvalues are
    the Floquet multipliers. Rows and columns run over age (newest first), then feature.
    parameters: β, γ, ε and threads, as in `Ensemble`.

    >>> from spinformer.dmft.network import Network
    >>> end, matrix = returned(Network.document(), Context(np.zeros((4, 3)), 0), beta=1.2, steps=4)
    >>> end.position, matrix.shape
    (0, (12, 12))
    """
    steps = check_integer("steps", steps, low=1)
    ensemble = Ensemble(network, context, **parameters)
    features, dimension = ensemble.features, ensemble.window * ensemble.features

    def ring() -> np.ndarray:
        """Where the components, by age and feature, lie in the ring of the kernels."""
        return (ensemble.slots()[:, None] * features + np.arange(features)).ravel()

    axes = np.eye(dimension)[ring()]

    def task(block: Block, clock: Clock) -> tuple[Clock, tuple[np.ndarray, ...]]:
        frame = kernels.frame(block, axes)
        return kernels.push(steps, 0, frame, block, clock), (frame.vectors,)

    # vectors[j, i] is the component i of the vector that began as axis j.
    (vectors,) = ensemble.run(task)
    return ensemble.state(), np.ascontiguousarray(np.swapaxes(vectors[..., ring()], -1, -2))

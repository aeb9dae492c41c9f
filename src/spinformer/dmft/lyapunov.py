"""Lyapunov exponents of the mean field of self-attention.

The state is the window of T attention vectors, so the tangent space has T·P dimensions (12 for
the document's network). A step shifts the window and makes one new vector,
δA' = Σ_{s<T} M_s δA_s, so the tangent map is a block companion matrix with analytic blocks M_s.
Exponents are in nats per step, from the QR method of Benettin et al. (1980): a frame is pushed
forward and orthonormalised (modified Gram-Schmidt), the logarithms of the lengths averaged.

Two limits. With γ ≈ 127 the map is almost singular wherever the softmax is nearly one-hot: in
double precision a direction that becomes shorter than about 1e-13 before it is orthonormalised
is what rounding left of the other directions. Such lengths are counted (`lost`), and the exponent
and all below it are then only upper bounds (their exact sum is `mean_log_determinant`). And a
frame needs some steps to align with the expanding directions: these are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spinformer.core.checks import check_integer
from spinformer.dmft import kernels
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.kernels import LANES
from spinformer.dmft.mean_field import Context, attend, step, tokens
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network


@dataclass(frozen=True, eq=False)
class LyapunovSpectrum:
    """Exponents in nats per step, largest first.

    exponents, errors: (..., k), mean and standard error over `batches` consecutive stretches
        (with as many independent pieces as the stretches are longer than the orbit's memory).
    lost: (..., k) share of the orthonormalisations that found a length below
        kernels.ROUNDING_LENGTH; log 0 is replaced by log kernels.ZERO_LENGTH.
    resolved: (..., k) True where neither this direction nor one before it was ever lost.
    context: the state at the end.
    """

    exponents: np.ndarray
    errors: np.ndarray
    lost: np.ndarray
    resolved: np.ndarray
    context: Context


def tangent_map(
    network: Network,
    context: Context,
    beta: float,
    *,
    gamma: float | None = None,
    epsilon: float | None = None,
) -> np.ndarray:
    """∂(next window)/∂(window), (T·P, T·P), in plain NumPy: the reference of the kernel.

    Rows and columns run over age (newest first), then feature.
    """
    gamma = network.gamma if gamma is None else gamma
    epsilon = network.epsilon if epsilon is None else epsilon
    size, features = network.context, network.features
    window = tokens(network, context, beta, epsilon=epsilon)
    newest = attend(window, gamma=gamma)
    field = beta * (np.asarray(context.attention) @ network.semantic[OUTPUT])
    slope = (1.0 - epsilon) * beta / np.cosh(field) ** 2
    weighted = network.semantic * network.fractions
    # by[t, r, a, b] = ∂m^r_a / ∂A_b of the token of age t.
    by = np.einsum("ral,tl,bl->trab", weighted, slope, network.semantic[OUTPUT])
    query = window[0, QUERY]
    score = gamma * window[:, KEY] @ query
    share = np.exp(score - score.max())
    share /= share.sum()
    lean = share[:, None] * (window[:, VALUE] - newest)
    blocks = share[:, None, None] * by[:, VALUE]
    blocks += np.einsum("ta,tb->tab", lean, gamma * np.einsum("c,tcb->tb", query, by[:, KEY]))
    blocks[0] += gamma * np.einsum("ta,tc,cb->ab", lean, window[:, KEY], by[0, QUERY])
    full = np.zeros((size * features, size * features))
    full[:features] = np.concatenate(list(blocks), axis=1)
    full[features:, :-features] = np.eye((size - 1) * features)
    return full


def reference_spectrum(
    network: Network,
    context: Context,
    beta: float,
    *,
    steps: int,
    align: int = 100,
    gamma: float | None = None,
    epsilon: float | None = None,
) -> np.ndarray:
    """All T·P exponents with `tangent_map` and Householder QR at every step, in plain NumPy."""
    steps = check_integer("steps", steps, low=1)
    dimension = network.context * network.features
    frame, total = np.eye(dimension), np.zeros(dimension)
    for n in range(align + steps):
        frame = tangent_map(network, context, beta, gamma=gamma, epsilon=epsilon) @ frame
        context, _ = step(network, context, beta, gamma=gamma, epsilon=epsilon)
        frame, triangle = np.linalg.qr(frame)
        if n >= align:
            lengths = np.abs(np.diag(triangle))
            total += np.log(np.maximum(lengths, kernels.ZERO_LENGTH))
    return total / steps


def mean_log_determinant(
    network: Network,
    context: Context,
    beta: float,
    *,
    steps: int,
    gamma: float | None = None,
    epsilon: float | None = None,
) -> float:
    """Orbit average of log |det ∂(next window)/∂(window)|: the sum of all exponents, exactly.

    The determinant of a block companion matrix is that of its last block, up to sign.
    """
    steps = check_integer("steps", steps, low=1)
    features, total = network.features, 0.0
    for _ in range(steps):
        block = tangent_map(network, context, beta, gamma=gamma, epsilon=epsilon)[
            :features, -features:
        ]
        total += np.linalg.slogdet(block)[1]
        context, _ = step(network, context, beta, gamma=gamma, epsilon=epsilon)
    return total / steps


def lyapunov_spectrum(
    network: Network | Sequence[Network],
    context: Context,
    *,
    beta: float | np.ndarray,
    steps: int,
    count: int | None = None,
    gamma: float | np.ndarray | None = None,
    epsilon: float | np.ndarray | None = None,
    transient: int = 0,
    align: int = 500,
    every: int | None = None,
    batches: int = 20,
    threads: int | None = None,
    progress: bool = False,
) -> LyapunovSpectrum:
    """The `count` largest Lyapunov exponents (None: all T·P) of a batch of systems.

    beta, gamma, epsilon and the context broadcast as in `mean_field.trajectory`. After
    `transient` steps the frame aligns during `align` steps, then `steps` steps are averaged.
    every: steps between orthonormalisations; None: 2 for more than two exponents, 4 for one or two.
    """
    ensemble = Ensemble(network, context.attention, context.position, beta, gamma, epsilon, threads)
    ensemble.advance(check_integer("transient", transient, low=0), progress)
    return ensemble_spectrum(
        ensemble, steps, count=count, align=align, every=every, batches=batches, progress=progress
    )


def ensemble_spectrum(
    ensemble: Ensemble,
    steps: int,
    *,
    count: int | None = None,
    align: int = 500,
    every: int | None = None,
    batches: int = 20,
    progress: bool = False,
) -> LyapunovSpectrum:
    """`lyapunov_spectrum` of an ensemble from where it stands; the ensemble moves on."""
    dimension = ensemble.context * ensemble.features
    count = dimension if count is None else check_integer("count", count, low=1, high=dimension)
    steps = check_integer("steps", steps, low=1)
    align = check_integer("align", align, low=0)
    batches = check_integer("batches", batches, low=1, high=steps)
    every = (4 if count <= 2 else 2) if every is None else check_integer("every", every, low=1)
    lengths = np.diff(np.linspace(0, steps, batches + 1).astype(int))

    def task(block: int, _: int) -> tuple[np.ndarray, np.ndarray, tuple[int, int]]:
        arrays = ensemble._arrays(block)
        # Generic but fixed directions: no axis of the frame is an invariant subspace.
        start = np.linalg.qr(np.random.default_rng(0).normal(size=(dimension, count)))[0]
        frame = np.repeat(start.T[:, :, None], LANES, axis=2)
        growth = np.empty((batches, count, LANES))
        lost = np.zeros((count, LANES), dtype=np.int64)
        end = (ensemble.cursor, ensemble.position)
        for n, length in enumerate((align, *lengths)):
            mantissa = np.ones((count, LANES))
            exponent = np.zeros((count, LANES), dtype=np.int64)
            if n == 1:
                lost[:] = 0
            end = kernels.lyapunov(length, every, frame, mantissa, exponent, lost, *end, *arrays)
            if n:
                growth[n - 1] = (np.log(mantissa) + exponent * np.log(2.0)) / length
        return growth, lost, end

    parts = ensemble._each(task, progress, "exponents")
    ensemble._move(parts[0][2])
    growth = ensemble.gather([part[0] for part in parts])
    weight = lengths / steps
    exponents = np.einsum("n,...nk->...k", weight, growth)
    errors = (
        np.std(growth, axis=-2, ddof=1) / np.sqrt(batches)
        if batches > 1
        else np.full_like(exponents, np.nan)
    )
    turns = sum(-(-length // every) for length in lengths)
    lost = ensemble.gather([part[1] for part in parts]) / turns
    return LyapunovSpectrum(
        exponents,
        errors,
        lost,
        np.cumsum(lost, axis=-1) == 0.0,
        Context(ensemble.attention(), ensemble.position),
    )

"""Leading Lyapunov exponents of the map of soft tokens, by products with transposed derivatives."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spinformer.core.checks import check_flag, check_integer
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.language.soft_map_derivative import TransposedDerivative
from spinformer.language.soft_map_orbits import iterate, progress_bar, window_batch

if TYPE_CHECKING:
    from spinformer.language.soft_map import SoftTokenMap

# Stretches of an orbit, from which the errors of exponents are taken.
_STRETCHES = 10


@record
class LyapunovSpectrum:
    """Leading Lyapunov exponents of a batch (...) of orbits, in nats per token, largest first.

    It differs from `spinformer.dmft.lyapunov.LyapunovSpectrum`: the growth is that of each token in
    place of stretches, errors are not widened for correlations, nothing says whether a direction
    stayed above rounding, and tokens and windows are kept in place of a context.

    Attributes
    ----------
    exponents : Estimate
        Means (..., k) with standard errors over stretches of the orbit. The value is −∞, without
        an error, where differences vanish: the words of T tokens in a row are certain, as in
        greedy decoding or where the nucleus has one word.
    growth : ndarray, shape (..., n, k)
        Growth of each direction in each of the n measured tokens.
    tokens : Tensor, shape (..., n, D)
        The tokens along which the growth was measured.
    window : Tensor, shape (..., T, D)
        The windows after the last of them.
    transient : int
        Number of tokens that were dropped before.
    """

    exponents: Estimate
    growth: np.ndarray
    tokens: Tensor
    window: Tensor
    transient: int


def lyapunov_spectrum(
    soft: "SoftTokenMap",
    start: Tensor,
    *,
    steps: int,
    transient: int = 0,
    align: int | None = None,
    count: int = 1,
    beta: Any = None,
    seed: TorchSeed = 0,
    progress: bool = False,
) -> LyapunovSpectrum:
    r"""Leading Lyapunov exponents along orbits, by exact products with transposed derivatives.

    The orbit is run first. Covectors are then pulled back along it from its end; the last
    `align` tokens turn them into the leading directions and are not counted.

    Parameters
    ----------
    soft : SoftTokenMap
        The map, itself where this is called as its method.
    start : Tensor, shape (..., T, D)
        Initial windows.
    steps : int
        Number of tokens that are measured.
    transient : int, default 0
        Number of tokens that are dropped before.
    align : int, optional
        Number of tokens behind the measured ones in which covectors align; None is a third of
        `steps`.
    count : int, default 1
        Number k of exponents.
    beta : float or Tensor, optional
        Inverse temperature; None is that of the map.
    seed : int or torch.Generator, default 0
        Source of the first covectors.
    progress : bool, default False
        Whether to draw a progress bar.

    Returns
    -------
    LyapunovSpectrum
        Exponents with errors, growth token by token, and the tokens.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If a shape does not fit or a value is out of range.

    Notes
    -----
    With the derivative J_t of the map of windows, and Q_{t+1} R_{t+1} the QR decomposition of
    what was pulled back so far,

    .. math::

        J_t^{\mathsf T} Q_{t+1} = Q_t R_t, \qquad \lambda_i = \frac1n \sum_t \ln (R_t)_{ii}.

    The error is the scatter of the means of ten consecutive stretches over √10. It is right if
    a stretch is longer than the orbit's memory.

    References
    ----------
    [benettin1980lyapunov]
    """
    steps = check_integer("steps", steps, low=1)
    transient = check_integer("transient", transient, low=0)
    align = steps // 3 if align is None else check_integer("align", align, low=0)
    count = check_integer("count", count, low=1, high=soft.window * soft.width)
    progress = check_flag("progress", progress)
    batch = window_batch(soft, start, beta)
    orbit = iterate(soft, batch, steps=transient + steps + align, progress=progress)
    orbit = orbit[:, transient:]
    growth = _pulled_growth(
        soft, orbit, batch.betas, align=align, count=count, seed=seed, progress=progress
    )
    shape = batch.shape
    growth = growth.reshape(*shape, steps, count)
    tokens = orbit[:, soft.window : soft.window + steps]
    windows = orbit[:, steps : steps + soft.window]
    return LyapunovSpectrum(
        exponents=_averaged(growth),
        growth=growth,
        tokens=tokens.reshape(*shape, steps, soft.width),
        window=windows.reshape(*shape, soft.window, soft.width),
        transient=transient,
    )


def _pulled_growth(
    soft: "SoftTokenMap",
    orbit: Tensor,
    betas: Tensor,
    *,
    align: int,
    count: int,
    seed: TorchSeed,
    progress: bool,
) -> np.ndarray:
    """Growth (B, steps, k) of covectors that are pulled back along orbits (B, T + n, D)."""
    window = soft.window
    total = orbit.shape[1] - window
    shape = (count, len(orbit), window, soft.width)
    covectors = torch.randn(shape, generator=torch_generator(seed)).to(orbit)
    growth = np.empty((len(orbit), total - align, count))
    for number in progress_bar(reversed(range(total)), show=progress, total=total):
        pulled = []
        windows = orbit[:, number : number + window]
        chunks = zip(
            windows.split(soft.rows),
            betas.split(soft.rows),
            covectors.split(soft.rows, dim=1),
            strict=True,
        )
        for part, some, vectors in chunks:
            derivative = TransposedDerivative(soft, part, some)
            pulled.append(torch.stack([derivative.product(v) for v in vectors]))
        covectors = torch.cat(pulled, 1)
        covectors, sizes = _orthonormal(covectors)
        if number < total - align:
            growth[:, number] = sizes.double().log().cpu().numpy()
    return growth


def _orthonormal(vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal covectors (k, B, T, D) of the same span, and the growth (B, k) of each."""
    count, batch = vectors.shape[:2]
    if count == 1:
        sizes = vectors.flatten(2).norm(dim=2)
        # A covector that has vanished stays zero: its growth is −∞ from here on.
        units = torch.where(sizes > 0, sizes, torch.ones_like(sizes))
        return vectors / units[:, :, None, None], sizes.T
    flat = vectors.flatten(2).permute(1, 2, 0)
    basis, triangle = torch.linalg.qr(flat)
    sizes = triangle.diagonal(dim1=1, dim2=2).abs()
    return basis.permute(2, 0, 1).reshape(count, batch, *vectors.shape[2:]), sizes


def _averaged(growth: np.ndarray) -> Estimate:
    """Means (..., k) of growth (..., n, k), with errors from consecutive stretches."""
    steps = growth.shape[-2]
    stretches = min(_STRETCHES, steps)
    value = growth.mean(-2)
    if stretches < 2:
        return Estimate(value=value, error=np.full_like(value, np.nan), samples=stretches)
    parts = np.array_split(growth, stretches, axis=-2)
    means = np.stack([part.mean(-2) for part in parts])
    # An exponent of −∞ scatters about nothing, and has no error.
    finite = np.isfinite(value)
    error = mean_estimate(np.where(finite, means, 0.0)).error
    return Estimate(value=value, error=np.where(finite, error, np.nan), samples=stretches)

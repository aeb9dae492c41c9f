"""Fixed points of the map of soft tokens, their multipliers, and where they lose stability.

The functions take the map first, and are its methods, too.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigs
from torch import Tensor

from spinformer.core.anderson import anderson
from spinformer.core.checks import check_flag, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.solve import NotConverged, Solution
from spinformer.language.soft_map_derivative import TransposedDerivative
from spinformer.language.soft_map_orbits import inverse_temperatures

if TYPE_CHECKING:
    from spinformer.language.soft_map import SoftTokenMap

# Entries of a window up to which its derivative is written out.
_DENSE = 16
# Root mean square step from a token, in units of a word's, beyond which it is no fixed point.
_NOT_A_FIXED_POINT = 0.01
# In powers of two, the first and the least step of β along a fixed point.
_LARGEST_STEP = 0.5
_LEAST_STEP = 0.02
# Near a loss of stability a large step passes it, and may end at another fixed point, a stable one.
_CAUTIOUS_FROM = 0.6
_CAUTIOUS_STEP = 0.125
# The largest derivative of ln |μ| by ln β that is taken for one of a single branch.
_STEEPEST = 20.0


class StaysStable(NotConverged):
    """The fixed point is stable up to the end of the interval that is searched."""


@record
class CriticalBeta:
    """Loss of stability of a fixed point.

    Attributes
    ----------
    beta : float
        Inverse temperature at which the leading multiplier leaves the unit circle.
    multiplier : complex
        Leading multiplier at the upper end of the last bracket.
    bracket : tuple of float
        β at which the fixed point is stable, and β at which it is not.
    value : Tensor, shape (D,)
        The fixed point at the upper end of the bracket.
    """

    beta: float
    multiplier: complex
    bracket: tuple[float, float]
    value: Tensor

    @property
    def rotation(self) -> float:
        """Rotation number of the multiplier, in turns per token, in [0, 1/2]."""
        return float(abs(np.angle(self.multiplier)) / (2 * np.pi))


def fixed_point(
    soft: "SoftTokenMap",
    *,
    beta: Any = None,
    start: Tensor | None = None,
    tolerance: float = 1e-5,
    max_steps: int = 300,
    throw: bool = True,
) -> Solution[Tensor]:
    r"""Fixed point x = F(x, …, x), stable or not, by Anderson acceleration.

    Parameters
    ----------
    soft : SoftTokenMap
        The map, itself where this is called as its method.
    beta : float or Tensor of shape (...), optional
        Inverse temperature; None is that of the map.
    start : Tensor, shape (..., D), optional
        Initial tokens; None is the mean of all words, which the fixed point approaches at
        small β.
    tolerance : float, default 1e-5
        Residual at or below which a system counts as converged.
    max_steps : int, default 300
        Largest number of calls of the map.
    throw : bool, default True
        Whether to raise if a system has not converged.

    Returns
    -------
    Solution
        Tokens (..., D), with the root mean square entry of F(x, …, x) − x in units of that of
        the words as `residual`.

    Raises
    ------
    NotConverged
        If a system has not converged and `throw` is true.
    ValueError
        If a shape does not fit or a value is out of range.
    """
    betas = inverse_temperatures(soft, beta)
    mean = soft.table.centroid if start is None else start
    if mean.shape[-1:] != (soft.width,):
        raise ValueError(f"start must have shape (..., {soft.width}), got {tuple(mean.shape)}")
    shape = torch.broadcast_shapes(betas.shape, mean.shape[:-1])
    flat = betas.expand(shape).reshape(-1)
    tokens = mean.expand(*shape, -1).reshape(-1, 1, soft.width)

    def returned(states: Tensor) -> Tensor:
        pairs = zip(states.split(soft.rows), flat.split(soft.rows), strict=True)
        return torch.cat(
            [soft.mean_token(x.expand(-1, soft.window, -1), b)[:, None] for x, b in pairs]
        )

    scale = soft.word_scale * soft.width**0.5
    found = anderson(returned, tokens, tolerance=tolerance * scale, max_steps=max_steps)
    solution = Solution(
        value=found.value.reshape(*shape, soft.width),
        residual=(found.residual / scale).reshape(shape),
        steps=found.steps.reshape(shape),
        status=found.status.reshape(shape),
    )
    if check_flag("throw", throw):
        solution.require("the fixed point of the map of soft tokens")
    return solution


def multipliers(
    soft: "SoftTokenMap",
    token: Tensor,
    *,
    beta: float | None = None,
    count: int = 1,
    tolerance: float = 1e-3,
) -> np.ndarray:
    """Leading multipliers of the fixed point at which every token of the window is the same.

    They are eigenvalues of the derivative of the map of windows, by Arnoldi iteration with
    exact products of its transpose. No matrix is written out.

    Parameters
    ----------
    soft : SoftTokenMap
        The map, itself where this is called as its method.
    token : Tensor, shape (D,)
        The fixed point.
    beta : float, optional
        Inverse temperature; None is that of the map.
    count : int, default 1
        Number of multipliers, at most T·D.
    tolerance : float, default 1e-3
        Relative accuracy of the iteration.

    Returns
    -------
    ndarray of complex, shape (count,)
        The multipliers, the largest modulus first. Of a complex pair both count.

    Raises
    ------
    NotConverged
        If the iteration does not converge.
    ValueError
        If a shape does not fit, a value is out of range, or the token is no fixed point at this
        inverse temperature: if the map moves it by more than 1 % of the size of a word.
    """
    if tuple(token.shape) != (soft.width,):
        raise ValueError(f"token must have shape {(soft.width,)}, got {tuple(token.shape)}")
    size = soft.window * soft.width
    count = check_integer("count", count, low=1, high=size)
    windows = token.detach().expand(1, soft.window, -1)
    betas = inverse_temperatures(soft, beta).reshape(-1)
    with torch.no_grad():
        moved = soft.mean_token(windows, betas)[0] - token
    distance = float(moved.square().mean().sqrt() / soft.word_scale)
    # Also where it is not a number.
    if not distance <= _NOT_A_FIXED_POINT:
        raise ValueError(
            f"token must be a fixed point at beta = {float(betas[0]):g}, got one that the map "
            f"moves by {distance:.2g} of the size of a word"
        )
    derivative = TransposedDerivative(soft, windows, betas)
    kind = np.dtype(str(token.dtype).removeprefix("torch."))

    def product(vector: np.ndarray) -> np.ndarray:
        covector = torch.as_tensor(vector, dtype=token.dtype, device=token.device)
        pulled = derivative.product(covector.reshape(windows.shape))
        return pulled.detach().cpu().numpy().ravel()

    # One more than asked for, so that a complex pair is not cut.
    asked = count + 1
    if size <= max(_DENSE, asked + 2):
        # Too few entries for an Arnoldi iteration.
        matrix = np.array([product(row) for row in np.eye(size, dtype=kind)])
        return _leading(np.linalg.eigvals(matrix), count)
    operator = LinearOperator((size, size), matvec=product, dtype=kind)
    begin = np.random.default_rng(0).normal(size=size).astype(kind)
    try:
        found = eigs(
            operator,
            k=asked,
            ncv=min(size, max(20, 2 * asked + 1)),
            tol=tolerance,
            v0=begin,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence as error:
        raise NotConverged(f"the multipliers were not found: {error}") from None
    return _leading(found, count)


def _leading(values: np.ndarray, count: int) -> np.ndarray:
    """The `count` values of the largest modulus, largest first."""
    return np.asarray(values[np.argsort(-abs(values), kind="stable")][:count], dtype=complex)


def critical_beta(
    soft: "SoftTokenMap", *, within: tuple[float, float] = (0.05, 4.0), tolerance: float = 1e-3
) -> CriticalBeta:
    """Inverse temperature at which the fixed point of small β loses its stability.

    The fixed point is followed from the lower end until its leading multiplier passes one. The
    steps are factors of √2 while its modulus is below 0.6, of 2^(1/8) above, where a larger step
    may end at another fixed point, and less where none is found or where that beyond the crossing
    is of another branch. The crossing is narrowed down by the secant of ln |μ|.

    Parameters
    ----------
    soft : SoftTokenMap
        The map, itself where this is called as its method.
    within : tuple of float, default (0.05, 4.0)
        Interval of β that is searched, from below.
    tolerance : float, default 1e-3
        Width, relative to β, of what is left of the interval. A coarse one cannot separate a
        crossing from the jump to another fixed point.

    Returns
    -------
    CriticalBeta
        The critical β, the multiplier and the fixed point there.

    Raises
    ------
    StaysStable
        If the fixed point is stable up to the upper end, a kind of NotConverged.
    NotConverged
        If a fixed point is not found on the way.
    ValueError
        If `within` is no interval, or the fixed point is unstable at its lower end.
    """
    low, high = within
    low = check_real("within[0]", low, low=0.0, open_low=True)
    high = check_real("within[1]", high, low=low, open_low=True)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    below = _stability(soft, low, None)
    if below.rate >= 0.0:
        raise ValueError(f"within must begin where the fixed point is stable, got {low}")
    # In powers of two.
    step = _LARGEST_STEP
    while below.beta < high:
        if abs(below.multiplier) > _CAUTIOUS_FROM:
            step = min(step, _CAUTIOUS_STEP)
        try:
            above = _stability(soft, min(below.beta * 2**step, high), below.token)
            if above.rate < 0.0:
                below = above
                continue
            return _crossing(soft, below, above, tolerance=tolerance)
        except NotConverged:
            step /= 2
            if step < _LEAST_STEP:
                raise
    raise StaysStable(
        f"the fixed point is stable up to β = {high:g}, where its leading multiplier "
        f"has the modulus {np.exp(below.rate):.3f}"
    )


def _crossing(
    soft: "SoftTokenMap", below: "_Stability", above: "_Stability", *, tolerance: float
) -> CriticalBeta:
    """Where |μ| passes one, between a stable and an unstable fixed point of one branch.

    NotConverged if they are of two: their moduli stay apart however near they are.
    """
    while above.beta - below.beta > tolerance * above.beta:
        share = below.rate / (below.rate - above.rate)
        # Not nearer to an end than a tenth, so that both ends move.
        beta = below.beta + min(max(share, 0.1), 0.9) * (above.beta - below.beta)
        middle = _stability(soft, beta, below.token)
        if middle.rate < 0.0:
            below = middle
        else:
            above = middle
    if above.rate - below.rate > _STEEPEST * tolerance:
        raise NotConverged(
            f"the fixed point is followed to β = {below.beta:.4g}, where its leading multiplier "
            f"has the modulus {np.exp(below.rate):.3f}, and another one is found beyond"
        )
    share = below.rate / (below.rate - above.rate)
    return CriticalBeta(
        beta=below.beta + share * (above.beta - below.beta),
        multiplier=above.multiplier,
        bracket=(below.beta, above.beta),
        value=above.token,
    )


@record
class _Stability:
    """A fixed point, and what decides whether it is stable."""

    beta: float
    token: Tensor
    multiplier: complex

    @property
    def rate(self) -> float:
        """ln |μ| of the leading multiplier."""
        return float(np.log(abs(self.multiplier)))


def _stability(soft: "SoftTokenMap", beta: float, start: Tensor | None) -> _Stability:
    """The fixed point at β, reached from `start`, with its leading multiplier."""
    token = fixed_point(soft, beta=beta, start=start).value
    leading = complex(multipliers(soft, token, beta=beta)[0])
    return _Stability(beta=beta, token=token, multiplier=leading)

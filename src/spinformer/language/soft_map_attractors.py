"""Regimes of the map of soft tokens: fixed point, cycle, closed curve, chaotic or undecided.

`Thresholds` has the name and the meaning that it has in `spinformer.dmft`, `TokenAttractors` are
what `Attractors` are there. Both are other classes: an orbit here has some hundred tokens in single
precision, and some hundred entries each, where those there have ten thousand steps of a few
overlaps in double precision.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spinformer.core.checks import check_instance, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.regimes import Regime
from spinformer.core.statistics import Estimate
from spinformer.language.soft_map_lyapunov import lyapunov_spectrum

if TYPE_CHECKING:
    from spinformer.language.soft_map import SoftTokenMap


@record
class Thresholds:
    """Thresholds that classify orbits of some hundred tokens, in single precision.

    They differ from `spinformer.dmft.attractors.Thresholds` in `distance`, which is a root mean
    square over tokens in place of the largest deviation of an overlap, and in having no
    `digits_chaotic`, since the exponent alone decides whether an orbit is chaotic.

    Attributes
    ----------
    distance : float, default 1e-3
        Largest root mean square distance from a periodic orbit, in units of the tokens' mean
        length.
    longest : int, default 48
        Longest period that is searched for, over as many tokens.
    neutral : float, default 0.02
        Largest absolute exponent, in nats per token, that counts as zero, if it is also zero
        within its error.
    digits_regular : float, default 2.0
        Least number of Birkhoff digits of a closed curve.
    sigmas : float, default 3.0
        Number of standard errors by which the exponent of a chaotic orbit exceeds `neutral`.

    Raises
    ------
    TypeError
        If a threshold is not a number.
    ValueError
        If a threshold is negative, or `longest` is not positive.

    Examples
    --------
    >>> Thresholds(sigmas=4.0).longest
    48
    """

    distance: float = 1e-3
    longest: int = 48
    neutral: float = 0.02
    digits_regular: float = 2.0
    sigmas: float = 3.0

    def __post_init__(self) -> None:
        """Refuse what no threshold can be."""
        check_integer("longest", self.longest, low=1)
        for name in ("distance", "neutral", "digits_regular", "sigmas"):
            check_real(name, getattr(self, name), low=0.0)


@record
class TokenAttractors:
    """Regimes of a batch (...) of orbits, after `transient` tokens and over `steps` more.

    Regime, period, exponents and digits mean what they do in `spinformer.dmft.attractors`. There
    are no histograms of one overlap, which tokens have not, and the tokens at the end are kept in
    place of a context.

    A label is a statement about the tokens that were run: a chaotic transient may last longer than
    these and still end.

    Attributes
    ----------
    regime : ndarray of int, shape (...)
        Values of `spinformer.core.regimes.Regime`.
    period : ndarray of int, shape (...)
        Period in tokens, 1 at a fixed point, 0 where none was found.
    exponents : Estimate
        Leading Lyapunov exponents (..., 1), nats per token.
    digits : ndarray, shape (...)
        Birkhoff digits: −log₁₀ of the largest difference of the weighted averages over two halves
        of the orbit, in units of the tokens' mean length.
    transient : int
        Number of tokens that were dropped.
    steps : int
        Number of tokens that were measured.
    window : Tensor, shape (..., T, D)
        The windows at the end.
    """

    regime: np.ndarray
    period: np.ndarray
    exponents: Estimate
    digits: np.ndarray
    transient: int
    steps: int
    window: Tensor

    def labels(self) -> list[str]:
        """Regimes in words, orbit by orbit.

        Returns
        -------
        list of str
            "fixed point", "cycle of 5", "closed curve", "chaotic" or "undecided".
        """
        words = {Regime.QUASI_PERIODIC: "closed curve"}
        labels = []
        for regime, period in zip(self.regime.ravel(), self.period.ravel(), strict=True):
            kind = Regime(int(regime))
            if kind == Regime.PERIODIC:
                labels.append("fixed point" if period == 1 else f"cycle of {period}")
            else:
                labels.append(words.get(kind, kind.label))
        return labels


def find_attractors(
    soft: "SoftTokenMap",
    start: Tensor,
    *,
    transient: int = 100,
    steps: int = 96,
    beta: Any = None,
    thresholds: Thresholds | None = None,
    progress: bool = False,
) -> TokenAttractors:
    """Iterate windows to their attractors and classify these into regimes.

    An orbit is periodic if it returns to itself and its leading exponent is not above zero;
    chaotic if it does not return and its exponent is above zero by more than its error; a
    closed curve if it does not return, its exponent is zero within its error and weighted
    averages converge. Everything else is undecided, most often because it has not reached its
    attractor yet.

    Parameters
    ----------
    soft : SoftTokenMap
        The map, itself where this is called as its method.
    start : Tensor, shape (..., T, D)
        Initial windows.
    transient : int, default 100
        Number of tokens that are dropped.
    steps : int, default 96
        Number of tokens that are measured, at least twice the longest period.
    beta : float or Tensor, optional
        Inverse temperature; None is that of the map.
    thresholds : Thresholds, optional
        Thresholds of the classification; None takes the defaults.
    progress : bool, default False
        Whether to draw a progress bar.

    Returns
    -------
    TokenAttractors
        Regime, period and exponent of every orbit.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If a shape does not fit or a value is out of range.

    References
    ----------
    Weighted Birkhoff averages: [das2017quantitative].
    """
    limit = check_instance(
        "thresholds", Thresholds() if thresholds is None else thresholds, Thresholds
    )
    steps = check_integer("steps", steps, low=2 * limit.longest)
    found = lyapunov_spectrum(
        soft, start, steps=steps, transient=transient, beta=beta, progress=progress
    )
    shape = found.tokens.shape[:-2]
    tokens = found.tokens.reshape(-1, steps, soft.width)
    scale = tokens.norm(dim=-1).mean(1)
    period = _periods(tokens, longest=limit.longest, distance=limit.distance * scale)
    digits = _birkhoff_digits(tokens, scale)
    rate = found.exponents.value[..., 0].reshape(-1)
    # The growth of a single token is known to the rounding of the model at best, however small the
    # scatter along the orbit is.
    rounding = torch.finfo(tokens.dtype).eps
    error = np.maximum(found.exponents.error[..., 0].reshape(-1), rounding)
    above = rate - limit.sigmas * error > limit.neutral
    zero = np.abs(rate) <= np.minimum(limit.neutral, limit.sigmas * error)
    regime = np.select(
        [
            (period > 0) & ~above,
            (period == 0) & zero & (digits >= limit.digits_regular),
            (period == 0) & above,
        ],
        [Regime.PERIODIC, Regime.QUASI_PERIODIC, Regime.CHAOTIC],
        Regime.UNDECIDED,
    )
    return TokenAttractors(
        regime=regime.reshape(shape),
        period=period.reshape(shape),
        exponents=found.exponents,
        digits=digits.reshape(shape),
        transient=transient,
        steps=steps,
        window=found.window,
    )


def _periods(tokens: Tensor, *, longest: int, distance: Tensor) -> np.ndarray:
    """Periods (B,) of orbits (B, n, D), 0 where none is found."""
    newest_first = tokens.flip(1)
    last = newest_first[:, :longest]
    gaps = []
    for lag in range(1, longest + 1):
        before = newest_first[:, lag : lag + longest]
        gaps.append((last - before).square().sum(2).mean(1).sqrt())
    table = torch.stack(gaps)
    best = table.min(0).values
    # The first lag that is as good as the best one, so that a cycle is not called twice itself.
    first = (table <= 1.5 * best + 1e-6 * distance).int().argmax(0) + 1
    first = torch.where(table[0] <= distance, torch.ones_like(first), first)
    return torch.where(best <= distance, first, torch.zeros_like(first)).cpu().numpy()


def _birkhoff_digits(tokens: Tensor, scale: Tensor) -> np.ndarray:
    """Digits to which weighted averages over two halves of orbits (B, n, D) agree."""
    half = tokens.shape[1] // 2
    place = (torch.arange(half, dtype=torch.float64) + 1) / (half + 1)
    weights = torch.exp(-1 / (place * (1 - place)))
    weights = (weights / weights.sum()).to(tokens)
    early = torch.einsum("t,btd->bd", weights, tokens[:, :half])
    late = torch.einsum("t,btd->bd", weights, tokens[:, half : 2 * half])
    gap = (early - late).norm(dim=1) / scale
    return -np.log10(np.maximum(gap.double().cpu().numpy(), 1e-16))

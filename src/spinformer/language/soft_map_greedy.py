"""Cycles of greedy decoding with a finite window: the limit β → ∞ of the map of soft tokens."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from spinformer.core.checks import check_integer
from spinformer.core.records import record
from spinformer.language.soft_map_orbits import WindowBatch, next_tokens, window_batch

if TYPE_CHECKING:
    from spinformer.language.soft_map import SoftTokenMap


@record
class GreedyCycles:
    """Cycles of greedy decoding with a finite window, one for each start (...).

    Attributes
    ----------
    period : ndarray of int, shape (...)
        Length of the cycle in tokens, 0 where none was found within the horizon.
    transient : ndarray of int, shape (...)
        Number of tokens before the cycle, the horizon where none was found.
    horizon : int
        Number of tokens that were said.
    """

    period: np.ndarray
    transient: np.ndarray
    horizon: int


def greedy_cycles(soft: "SoftTokenMap", start: Tensor, *, horizon: int) -> GreedyCycles:
    """Cycles in which greedy decoding ends, the limit β → ∞.

    The last T words decide all that follows, so that every orbit ends in a cycle.

    Parameters
    ----------
    soft : SoftTokenMap
        The map, itself where this is called as its method.
    start : Tensor, shape (..., T, D)
        Initial windows.
    horizon : int
        Largest number of words that are said.

    Returns
    -------
    GreedyCycles
        Length of the cycle and of the way to it.

    Raises
    ------
    ValueError
        If a shape does not fit or `horizon` is not positive.
    """
    horizon = check_integer("horizon", horizon, low=1)
    batch = window_batch(soft, start, torch.inf)
    windows = batch.windows.clone()
    seen: list[dict[bytes, int]] = [{} for _ in windows]
    period = np.zeros(len(windows), dtype=int)
    transient = np.full(len(windows), horizon)
    for step in range(horizon):
        for k in np.flatnonzero(period == 0):
            before = seen[k].setdefault(windows[k].cpu().numpy().tobytes(), step)
            if before < step:
                period[k] = step - before
                transient[k] = before
        active = torch.as_tensor(np.flatnonzero(period == 0))
        if not len(active):
            break
        betas = batch.betas[active]
        going_on = WindowBatch(windows=windows[active], betas=betas, shape=tuple(betas.shape))
        said = next_tokens(soft, going_on)
        windows[active] = torch.cat((windows[active, 1:], said[:, None]), 1)
    return GreedyCycles(
        period=period.reshape(batch.shape),
        transient=transient.reshape(batch.shape),
        horizon=horizon,
    )

"""Orbits of the map of soft tokens: batches of windows with their β, and iteration.

A batch is read in parts whose logits fit into the memory that the map was given, since the logits
of one window take as many entries as there are words.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from spinformer.core.checks import check_instance
from spinformer.core.records import record

if TYPE_CHECKING:
    from spinformer.language.soft_map import SoftTokenMap


@record
class WindowBatch:
    """Windows and their inverse temperatures on one axis, and the shape that they broadcast to.

    Attributes
    ----------
    windows : Tensor, shape (B, T, D)
        The windows.
    betas : Tensor, shape (B,)
        The inverse temperatures.
    shape : tuple of int
        Axes that the B windows had, with the product B.
    """

    windows: Tensor
    betas: Tensor
    shape: tuple[int, ...]

    def chunks(self, rows: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over parts of the batch.

        Parameters
        ----------
        rows : int
            Largest number of windows of a part.

        Returns
        -------
        iterator of (Tensor, Tensor)
            Windows and inverse temperatures of each part.
        """
        return zip(self.windows.split(rows), self.betas.split(rows), strict=True)


def inverse_temperatures(soft: "SoftTokenMap", beta: Any) -> Tensor:
    """Inverse temperatures as a tensor of the model's precision.

    Parameters
    ----------
    soft : SoftTokenMap
        The map.
    beta : float, Tensor or None
        Inverse temperatures of any shape; None is that of the map.

    Returns
    -------
    Tensor, shape (...)
        The inverse temperatures.

    Raises
    ------
    ValueError
        If one is negative.
    """
    words = soft.table.words
    given = soft.beta if beta is None else beta
    value = torch.as_tensor(given, dtype=words.dtype, device=words.device)
    if not bool((value >= 0).all()):
        raise ValueError("beta must not be negative")
    return value


def window_batch(soft: "SoftTokenMap", windows: Tensor, beta: Any) -> WindowBatch:
    """Check windows and β, and bring them to one axis.

    Parameters
    ----------
    soft : SoftTokenMap
        The map.
    windows : Tensor, shape (..., T, D)
        The windows.
    beta : float, Tensor or None
        Inverse temperatures that broadcast with the axes in front; None is that of the map.

    Returns
    -------
    WindowBatch
        The windows, without their graph.

    Raises
    ------
    TypeError
        If `windows` is no tensor.
    ValueError
        If a shape or a precision does not fit, a window is not finite, or a β is negative.
    """
    check_instance("windows", windows, Tensor)
    kind = soft.table.words.dtype
    if windows.shape[-2:] != (soft.window, soft.width) or windows.dtype != kind:
        raise ValueError(
            f"windows must be {kind} (..., {soft.window}, {soft.width}), got "
            f"{windows.dtype} {tuple(windows.shape)}"
        )
    if not bool(windows.isfinite().all()):
        raise ValueError("windows must be finite")
    betas = inverse_temperatures(soft, beta)
    shape = torch.broadcast_shapes(betas.shape, windows.shape[:-2])
    flat = windows.detach().expand(*shape, -1, -1).reshape(-1, soft.window, soft.width)
    return WindowBatch(windows=flat, betas=betas.expand(shape).reshape(-1), shape=tuple(shape))


def softmax_at(logits: Tensor, betas: Tensor) -> Tensor:
    """Next-token distributions at finite or infinite β.

    Parameters
    ----------
    logits : Tensor, shape (B, V)
        The logits.
    betas : Tensor, shape (B,)
        The inverse temperatures; infinity takes the likeliest word.

    Returns
    -------
    Tensor, shape (B, V)
        The distributions.
    """
    greedy = betas.isinf()
    finite = torch.where(greedy, torch.ones_like(betas), betas)
    weights = torch.softmax(finite[:, None] * logits, -1)
    if bool(greedy.any()):
        likeliest = torch.zeros_like(weights).scatter_(1, logits.argmax(1, keepdim=True), 1.0)
        weights = torch.where(greedy[:, None], likeliest, weights)
    return weights


def nucleus_at(logits: Tensor, betas: Tensor, *, top_p: float) -> Tensor:
    """Next-token distributions within the nucleus, the likeliest words that have a probability.

    Parameters
    ----------
    logits : Tensor, shape (B, V)
        The logits.
    betas : Tensor, shape (B,)
        The inverse temperatures; infinity takes the likeliest word.
    top_p : float
        Probability that the words of the nucleus have together at least, in (0, 1].

    Returns
    -------
    Tensor, shape (B, V)
        The distributions.
    """
    ordered, places = softmax_at(logits.detach(), betas).sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    # The word that exceeds the probability is the last one that is kept.
    inside = torch.zeros_like(logits, dtype=torch.bool).scatter_(-1, places, before < top_p)
    # Logits of -inf in place of a division: of a single word the derivative is zero exactly.
    greedy = betas.isinf()
    scale = torch.where(greedy, torch.ones_like(betas), betas)
    kept = (scale[:, None] * logits).masked_fill(~inside, -torch.inf)
    return softmax_at(kept, torch.where(greedy, betas, torch.ones_like(betas)))


def next_tokens(
    soft: "SoftTokenMap",
    batch: WindowBatch,
    *,
    samples: int | None = None,
    generator: np.random.Generator | None = None,
) -> Tensor:
    """Tokens that follow the windows of a batch, without a graph.

    Parameters
    ----------
    soft : SoftTokenMap
        The map.
    batch : WindowBatch
        The windows.
    samples : int or None, default None
        Number of words that are drawn and averaged; None is their expectation, the map.
    generator : numpy.random.Generator or None, default None
        Source of the samples.

    Returns
    -------
    Tensor, shape (B, D)
        The tokens.
    """
    tokens = []
    with torch.no_grad():
        for windows, betas in batch.chunks(soft.rows):
            weights = soft.word_weights(soft.logits(windows), betas)
            if samples is not None and generator is not None:
                weights = _sampled(weights, samples, generator)
            tokens.append(soft.table.average(weights))
    return torch.cat(tokens)


def iterate(
    soft: "SoftTokenMap",
    batch: WindowBatch,
    *,
    steps: int,
    samples: int | None = None,
    generator: np.random.Generator | None = None,
    progress: bool = False,
) -> Tensor:
    """Iterate a batch and keep every token.

    Parameters
    ----------
    soft : SoftTokenMap
        The map.
    batch : WindowBatch
        Initial windows.
    steps : int
        Number of tokens.
    samples : int or None, default None
        Number of words that are drawn and averaged for each token; None is the map.
    generator : numpy.random.Generator or None, default None
        Source of the samples.
    progress : bool, default False
        Whether to draw a progress bar.

    Returns
    -------
    Tensor, shape (B, T + steps, D)
        The initial windows with the tokens after them.
    """
    window = soft.window
    orbit = batch.windows.new_empty(len(batch.windows), window + steps, soft.width)
    orbit[:, :window] = batch.windows
    for step in progress_bar(range(steps), show=progress):
        now = WindowBatch(
            windows=orbit[:, step : step + window], betas=batch.betas, shape=batch.shape
        )
        orbit[:, window + step] = next_tokens(soft, now, samples=samples, generator=generator)
    return orbit


def _sampled(weights: Tensor, samples: int, generator: np.random.Generator) -> Tensor:
    """Fractions (B, V) of `samples` words drawn from each distribution."""
    # In single precision probabilities may add up to more than one, which multinomial refuses.
    chances = weights.double().cpu().numpy()
    drawn = generator.multinomial(samples, chances / chances.sum(1, keepdims=True))
    return torch.as_tensor(drawn / samples).to(weights)


def progress_bar(items: Any, *, show: bool, total: int | None = None) -> Any:
    """Wrap the tokens that are iterated over in a progress bar, if it is asked for.

    Parameters
    ----------
    items : iterable
        What is iterated over.
    show : bool
        Whether to draw the bar.
    total : int or None, default None
        Number of items, where it cannot be read from them.

    Returns
    -------
    iterable
        The same items.
    """
    return tqdm(items, total=total, unit="token") if show else items

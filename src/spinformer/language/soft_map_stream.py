"""The map of soft tokens with a KV cache: each token is read once, and its keys are kept."""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from spinformer.core.checks import check_integer, check_real
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.language.soft_map_cache import WindowCache
from spinformer.language.soft_map_layouts import text_config
from spinformer.language.soft_map_orbits import progress_bar, window_batch

if TYPE_CHECKING:
    from spinformer.language.soft_map import SoftTokenMap

# The least distance of two streams that is above the rounding of float32.
_LEAST_TWIN = 1e-4


@record
class Stream:
    """Orbit of the map that keeps the keys and values of the last T tokens.

    Attributes
    ----------
    tokens : Tensor, shape (..., n, D)
        The tokens.
    growth : ndarray, shape (m, ...), or None
        Growth, in nats, of a small distance in each token after the transient; None where no
        distance was followed.
    """

    tokens: Tensor
    growth: np.ndarray | None


def stream(
    soft: "SoftTokenMap",
    start: Tensor,
    *,
    steps: int,
    beta: Any = None,
    twin: float | None = None,
    transient: int = 0,
    seed: TorchSeed = 0,
    progress: bool = False,
) -> Stream:
    """Iterate the map with a key-value cache of the prefix and the last T tokens.

    Each token is read once, so that a step costs a T-th. It is another map than `trajectory`:
    keys and values were computed from tokens that saw earlier ones, and through L layers the
    past reaches L (T − 1) tokens back.

    Parameters
    ----------
    soft : SoftTokenMap
        The map, itself where this is called as its method.
    start : Tensor, shape (..., T, D)
        Initial windows.
    steps : int
        Number of tokens.
    beta : float or Tensor, optional
        Inverse temperature; None is that of the map.
    twin : float, optional
        Distance, in all keys, values and the next token together, at which a second stream is
        kept beside each after the transient, at least 1e-4: transformers computes norms in
        float32, whose rounding is a distance, too. The growth of the distance is the leading
        exponent. None follows none.
    transient : int, default 0
        Number of tokens before the second stream begins.
    seed : int or torch.Generator, default 0
        Source of the direction in which the second stream begins.
    progress : bool, default False
        Whether to draw a progress bar.

    Returns
    -------
    Stream
        The tokens, and the growth of the distance.

    Raises
    ------
    ValueError
        If a shape does not fit, the distance is too small, the model keeps no keys and values, or
        its positions end before the stream does.
    """
    steps = check_integer("steps", steps, low=1)
    transient = check_integer("transient", transient, low=0, high=steps)
    if twin is not None:
        twin = check_real("twin", twin, low=_LEAST_TWIN)
    batch = window_batch(soft, start, beta)
    betas = batch.betas
    first = len(soft.prefix) + soft.window
    longest = getattr(text_config(soft.model), "max_position_embeddings", None)
    if longest is not None and first + steps > longest:
        raise ValueError(f"steps must end before position {longest}, got {steps} after {first}")
    cache = WindowCache(soft.model, prefix=len(soft.prefix), window=soft.window)
    inputs = soft.with_prefix(batch.windows)
    count = len(inputs)
    tokens = []
    growth = []
    with torch.no_grad():
        logits = cache.read(inputs, None)
        token = soft.table.average(soft.word_weights(logits, betas))
        for step in progress_bar(range(steps), show=progress):
            if twin is not None and step == transient:
                cache.double()
                betas = betas.repeat(2)
                noise = torch.randn(token.shape, generator=torch_generator(seed))
                noise = noise.to(token) * (soft.word_scale * twin)
                token = torch.cat((token, token + noise))
                cache.rescale(token, count, distance=twin)
            tokens.append(token[:count])
            if step == steps - 1:
                break
            logits = cache.read(token[:, None], first + step)
            token = soft.table.average(soft.word_weights(logits, betas))
            if twin is not None and step >= transient:
                growth.append(cache.rescale(token, count, distance=twin))
    rates = np.array(growth).reshape(-1, *batch.shape) if twin is not None else None
    orbit = torch.stack(tokens, 1).reshape(*batch.shape, steps, soft.width)
    return Stream(tokens=orbit, growth=rates)

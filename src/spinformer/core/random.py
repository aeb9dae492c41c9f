"""One way for randomness: every function that draws takes `seed`, a number or a generator.

A number starts a fresh stream; a generator is used and moved on. Nothing draws from global state,
and None is refused: a result that nobody can repeat is not one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

import numpy as np

from spinformer.core.checks import check_integer

if TYPE_CHECKING:
    import torch

Seed = int | np.random.Generator
TorchSeed = Union[int, "torch.Generator"]


def numpy_generator(seed: Seed) -> np.random.Generator:
    """Random number generator of NumPy from a seed.

    Parameters
    ----------
    seed : int or numpy.random.Generator
        An integer that is not negative starts a new stream. A generator is used as it is and moved
        on.

    Returns
    -------
    numpy.random.Generator
        The generator.

    Raises
    ------
    TypeError
        If the seed is neither. None is refused, because nobody could repeat the result.
    ValueError
        If the integer is negative.

    Examples
    --------
    >>> int(numpy_generator(7).integers(100)), int(numpy_generator(7).integers(100))
    (94, 94)
    """
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(check_integer("seed", seed, low=0))


def torch_generator(seed: TorchSeed, *, device: Any = None) -> torch.Generator:
    """Random number generator of torch from a seed.

    Parameters
    ----------
    seed : int or torch.Generator
        An integer that is not negative starts a new stream. A generator is used as it is and moved
        on.
    device : torch.device, str or None, default None
        Device of the generator. None is the CPU.

    Returns
    -------
    torch.Generator
        The generator.

    Raises
    ------
    TypeError
        If the seed is neither.
    ValueError
        If the integer is negative, or the generator is on another device.

    Examples
    --------
    >>> int(torch.randint(100, (), generator=torch_generator(7)))
    15
    """
    import torch  # streams of NumPy need not wait for it

    wanted = torch.device("cpu" if device is None else device)
    if isinstance(seed, torch.Generator):
        if seed.device.type != wanted.type:
            raise ValueError(
                f"seed must be a generator of the device {wanted.type}, got one of {seed.device}"
            )
        return seed
    return torch.Generator(wanted).manual_seed(check_integer("seed", seed, low=0))

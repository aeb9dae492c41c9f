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
    """The NumPy generator that `seed` stands for: a non-negative integer, or one to go on with.

    >>> int(numpy_generator(7).integers(100)), int(numpy_generator(7).integers(100))
    (94, 94)
    """
    if isinstance(seed, np.random.Generator):
        return seed
    return np.random.default_rng(check_integer("seed", seed, low=0))


def torch_generator(seed: TorchSeed, *, device: Any = None) -> torch.Generator:
    """The torch generator that `seed` stands for, on `device` (None: the CPU).

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

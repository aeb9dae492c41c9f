"""Random rotations of what heads ask for or return: the nulls that keep every length and angle."""

from __future__ import annotations

import torch
from scipy.stats import ortho_group

from spinformer.core.checks import check_integer
from spinformer.core.random import Seed, numpy_generator


def random_rotations(like: torch.Tensor, *, seed: Seed) -> torch.Tensor:
    """One orthogonal matrix a head, uniform (Haar), for what has shape (B, H, N, d): (H, d, d).

    The Q of a QR decomposition alone is not uniform: its mean is not zero, and as a null it would
    favor one sign. Raises ValueError for another number of axes.

    >>> turns = random_rotations(torch.zeros(1, 2, 3, 4), seed=0)
    >>> torch.allclose(turns @ turns.mT, torch.eye(4).expand(2, 4, 4), atol=1e-5)
    True
    """
    if like.ndim != 4:
        raise ValueError(f"like must have 4 axes (B, H, N, d), got {tuple(like.shape)}")
    heads, width = like.shape[1], check_integer("width of like", like.shape[3], low=2)
    drawn = ortho_group.rvs(dim=width, size=heads, random_state=numpy_generator(seed))
    return torch.from_numpy(drawn).reshape(heads, width, width).to(like.dtype)

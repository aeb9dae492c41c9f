"""Random rotations of what heads ask for or return: the nulls that keep every length and angle."""

from __future__ import annotations

import torch

from spinformer.core.random import Seed, numpy_generator


def random_rotations(like: torch.Tensor, *, seed: Seed) -> torch.Tensor:
    """One orthogonal matrix a head, uniform (Haar), for what has shape (B, H, N, d): (H, d, d).

    The Q of a QR decomposition with the signs of the diagonal of R taken out; without that its mean
    is not zero, and as a null it would favor one sign. Raises ValueError for another number of
    axes.

    >>> turns = random_rotations(torch.zeros(1, 2, 3, 4), seed=0)
    >>> torch.allclose(turns @ turns.mT, torch.eye(4).expand(2, 4, 4), atol=1e-5)
    True
    """
    if like.ndim != 4:
        raise ValueError(f"like must have 4 axes (B, H, N, d), got {tuple(like.shape)}")
    shape = (like.shape[1], like.shape[3], like.shape[3])
    found = torch.linalg.qr(torch.from_numpy(numpy_generator(seed).standard_normal(shape)))
    signs = found.R.diagonal(dim1=-2, dim2=-1).sign()
    return (found.Q * signs.unsqueeze(-2)).to(like.dtype)

"""Classes of heads by how many tokens share their weights."""

from __future__ import annotations

import torch


def operating_class(entries: torch.Tensor, *, size: int) -> torch.Tensor:
    """Class 1, 2, 3 or 4 of a head whose softmax rows need `entries` of `size` weights for 0.9.

    1: more than N/2 (it averages over nearly everything), 2: (N/8, N/2], 3: (N/32, N/8],
    4: at most N/32 (few or single patterns). `entries` may be medians over rows
    [ramsauer2020hopfield, Sec. 3, classes I to IV].
    """
    edges = size / torch.tensor([32.0, 8.0, 2.0])
    return 4 - torch.bucketize(entries.double(), edges.double()).int()

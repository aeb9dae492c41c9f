"""The handwritten digits, cut into patches that are the tokens of a network."""

import torch
from torch import Tensor

from compendium.common.images import DIGIT_SHAPE, digit_labels, digits


def digit_patches(high: int, wide: int) -> tuple[Tensor, Tensor]:
    """The digits as tokens (1797, N, pixels), patches of so many rows and columns; their labels."""
    # Back to the grey values 0 … 16, integers: their sums have no rounding.
    pixels = torch.tensor(8.0 * (digits() + 1.0), dtype=torch.float32)
    down = DIGIT_SHAPE[0] // high
    across = DIGIT_SHAPE[1] // wide
    cut = pixels.reshape(-1, down, high, across, wide).transpose(2, 3)
    return cut.reshape(-1, down * across, high * wide), torch.tensor(digit_labels())

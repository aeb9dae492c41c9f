"""Exact products with the transposed derivative of the map of windows of soft tokens."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from spinformer.language.soft_map import SoftTokenMap


class TransposedDerivative:
    """Transposed derivative Jᵀ of the map of windows, at a batch of windows.

    The model is run once. Each product then costs one backward pass, and no matrix is written out.

    Parameters
    ----------
    soft : SoftTokenMap
        The map.
    windows : Tensor, shape (B, T, D)
        The windows.
    betas : Tensor, shape (B,)
        Inverse temperatures.
    """

    def __init__(self, soft: "SoftTokenMap", windows: Tensor, betas: Tensor) -> None:
        self.windows = windows.detach().clone().requires_grad_()
        self._tokens = soft.mean_token(self.windows, betas)

    def product(self, covectors: Tensor) -> Tensor:
        """Pull covectors back through one iteration of the map.

        Parameters
        ----------
        covectors : Tensor, shape (B, T, D)
            Covectors at the next windows.

        Returns
        -------
        Tensor, shape (B, T, D)
            Jᵀ times the covectors, at the windows.
        """
        (back,) = torch.autograd.grad(
            self._tokens, self.windows, covectors[:, -1], retain_graph=True
        )
        # All tokens but the first only move one place, and their derivative is a shift.
        back[:, 1:] += covectors[:, :-1]
        return back

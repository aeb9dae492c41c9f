"""The response to fields of couplings of any form, by reverse differentiation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def autograd_response(
    fields: Tensor,
    couplings_of: Callable[[Tensor], Tensor],
    *,
    correlation: Tensor,
    create_graph: bool = False,
) -> Tensor:
    """Σ_{m,n} C_mn ∂J_mn/∂h_i for any couplings J = `couplings_of`(h).

    C is held fixed, as Eq. (sigmaweird) asks. With `create_graph` the result can be
    differentiated again; else it carries no history.
    """
    if not create_graph:
        fields, correlation = fields.detach(), correlation.detach()
    with torch.enable_grad():
        probe = fields if fields.requires_grad else fields.clone().requires_grad_()
        couplings = couplings_of(probe)
        if not couplings.requires_grad:
            return torch.zeros_like(fields)
        (response,) = torch.autograd.grad(couplings, probe, correlation, create_graph=create_graph)
    return response

"""Chapter 23b: how far the output of a module is from the saddle point with its couplings."""

import torch
from torch import Tensor

from spinformer.spins.module import SpinTransformerModule
from spinformer.spins.solvers import solve_saddle_point


@torch.no_grad()
def distance_to_saddle(module: SpinTransformerModule, inputs: Tensor) -> tuple[float, bool]:
    """Relative distance of the module's ⟨σ⟩ from `large_d` at its own couplings; converged?"""
    module.warned = True  # whether it converged is part of the answer
    _, parts = module(inputs, return_parts=True)
    fields = parts.fields * parts.fields.shape[-1] ** 0.5
    found = solve_saddle_point(parts.couplings, fields=fields, beta=parts.beta[:, 0, 0])
    truth = found.magnetization.transpose(1, 2).flatten(2)
    distance = (parts.spins - truth).norm() / truth.norm()
    return float(distance), bool(parts.solution.converged.all())

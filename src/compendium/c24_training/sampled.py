"""What the spins of a module really do: Monte Carlo of its couplings, and the output they give."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from spinformer.core.checks import check_integer
from spinformer.core.records import record
from spinformer.spins.module import SpinTransformerModule
from spinformer.spins.vectors import sample_vector_spins


@record
class SampledModule:
    """Spins of a module drawn at its couplings, for each sample.

    `spins` ⟨σ⟩ and `output` −dF/dH = ⟨σ⟩ + response with the drawn correlations, (batch, N, dim),
    before `map_out`; `noise` (batch,): the Monte Carlo error of `spins` relative to their size.
    `off_spins`, `off_output` (batch,): how far the module is from both, relative to them.
    `expected` (batch,): what `validity()` says of ⟨σ⟩, the mean over heads.
    """

    spins: Tensor
    output: Tensor
    noise: Tensor
    off_spins: Tensor
    off_output: Tensor
    expected: Tensor


def sample_module(
    module: SpinTransformerModule, inputs: Tensor, *, sweeps: int = 1024, seed: int = 0
) -> SampledModule:
    """Draw the spins of every head for `inputs` (batch, N, dim) by heat bath.

    The response is the derivative of the couplings by reverse differentiation, contracted with
    the drawn ⟨u_i·u_j⟩: nothing of the module's solver or of its closed form takes part.

    >>> module = SpinTransformerModule(8, heads=2, solver="saddle", strength=0.3)
    >>> bool(sample_module(module, torch.ones(1, 3, 8), sweeps=400).off_spins < 0.2)
    True
    """
    check_integer("sweeps", sweeps, low=16)
    plain = copy.deepcopy(module).double()
    fields = plain.fields(inputs.double()).detach().requires_grad_()
    plain.normalize, plain.map_in, plain.map_out = False, None, None
    returned, parts = plain(fields, return_parts=True)
    size = parts.fields.shape[-1]
    spins, errors = torch.empty_like(parts.fields), torch.empty_like(parts.fields)
    correlation = torch.empty_like(parts.correlation)
    batch, heads = correlation.shape[:2]
    for sample in range(batch):
        for head in range(heads):
            drawn = sample_vector_spins(
                parts.couplings[sample, head].detach().numpy(),
                fields=parts.fields[sample, head].detach().numpy() * size**0.5,
                beta=float(parts.beta[head].detach()),
                sweeps=sweeps,
                seed=seed + 97 * sample + head,
            )
            spins[sample, head] = torch.from_numpy(np.array(drawn.magnetization.value))
            errors[sample, head] = torch.from_numpy(np.array(drawn.magnetization.error))
            correlation[sample, head] = torch.from_numpy(np.array(drawn.correlations.value))
    (slope,) = torch.autograd.grad(parts.couplings, fields, size * correlation)
    spins, errors = (x.detach().transpose(1, 2).flatten(-2) for x in (spins, errors))
    output = spins + slope if plain.response else spins
    with torch.no_grad():
        expected = parts.validity().expected_error.mean(-1)
    return SampledModule(
        spins=spins,
        output=output,
        noise=_size(errors) / _size(spins),
        off_spins=_size(parts.spins.detach() - spins) / _size(spins),
        off_output=_size(returned.detach() - output) / _size(output),
        expected=expected,
    )


def _size(values: Tensor) -> Tensor:
    return values.square().sum((-2, -1)).sqrt()

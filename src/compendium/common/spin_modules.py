"""Many spin modules side by side, and what the spins of one really do, by Monte Carlo."""

import copy
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from spinformer.spins.module import SpinTransformerModule
from spinformer.spins.monte_carlo import sample_vector_spins


def stacked(models: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Parameters of models of one shape by name, one behind the other, with history."""
    named = [dict(model.named_parameters()) for model in models]
    return {name: torch.stack([own[name] for own in named]) for name in named[0]}


def sample_module(
    module: SpinTransformerModule, inputs: Tensor, *, sweeps: int = 1024, seed: int = 0
) -> dict[str, Tensor]:
    """Draw the spins of every head for `inputs` (batch, N, dim) by heat bath.

    `spins` ⟨σ⟩ and `output` −dF/dH, before `map_out`; `noise`: the Monte Carlo error of `spins`
    relative to their size. `off_spins`, `off_output`: how far the module is from both, relative to
    them. `expected`: what `validity()` says of ⟨σ⟩, the mean over heads. The response is the
    derivative of the couplings by reverse differentiation, contracted with the drawn ⟨u_i·u_j⟩.
    """
    plain = copy.deepcopy(module).double()
    fields = plain.fields(inputs.double()).detach().requires_grad_()
    plain.normalize, plain.map_in, plain.map_out = False, None, None
    returned, parts = plain(fields, return_parts=True)
    batch, heads, _, width = parts.fields.shape
    spins, errors = torch.empty_like(parts.fields), torch.empty_like(parts.fields)
    correlation = torch.empty_like(parts.correlation)
    with torch.no_grad():
        for sample, head in np.ndindex(batch, heads):
            drawn = sample_vector_spins(
                parts.couplings[sample, head].numpy(),
                fields=parts.fields[sample, head].numpy() * width**0.5,
                beta=float(parts.beta[head]),
                sweeps=sweeps,
                seed=seed + 97 * sample + head,
            )
            spins[sample, head] = torch.tensor(drawn.magnetization.value)
            errors[sample, head] = torch.tensor(drawn.magnetization.error)
            correlation[sample, head] = torch.tensor(drawn.correlations.value)
    (slope,) = torch.autograd.grad(parts.couplings, fields, width * correlation)
    spins, errors = (x.transpose(1, 2).flatten(2) for x in (spins, errors))
    output = spins + slope if plain.response else spins
    with torch.no_grad():
        return {
            "spins": spins,
            "output": output,
            "noise": _size(errors) / _size(spins),
            "off_spins": _size(parts.spins - spins) / _size(spins),
            "off_output": _size(returned - output) / _size(output),
            "expected": parts.validity().expected_error.mean(-1),
        }


def _size(values: Tensor) -> Tensor:
    return values.square().sum((-2, -1)).sqrt()

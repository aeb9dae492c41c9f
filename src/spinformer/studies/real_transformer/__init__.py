"""What chapters 14 and 14b measure in a trained language model and in a toy of it.

Conventions of `spinformer.language`: layers and heads from 0, β = 1/√d in front of every dot
product. What lives on tokens is a torch tensor (B, H, N, ...); tables with one number a layer or
head, or a training step, are NumPy arrays, layers first. Files: `energies` and `alignment` (does a
step go down?), `steps` (what it does to each head's own energy, and every stage of a layer),
`untrained` and `toy` (what training does to it); `heads` and `sizes` (how many keys a head looks
at), `loops`, `iteration` and `gain` (where a repeated head would end up).
"""

from spinformer.studies.real_transformer.alignment import step_alignment, weight_alignment
from spinformer.studies.real_transformer.energies import (
    account_steps,
    depth_profile,
    energy_along,
    energy_gradient,
    overlap_energy,
    query_energy,
    stage_energies,
)
from spinformer.studies.real_transformer.gain import gain_sweep
from spinformer.studies.real_transformer.heads import (
    gaussian_fraction,
    head_statistics,
    sampled_gaussian_entries,
)
from spinformer.studies.real_transformer.iteration import end_points, repeat
from spinformer.studies.real_transformer.sizes import growth_exponents, read_sizes, size_rows
from spinformer.studies.real_transformer.toy import ToyTask, read_toy, train_toy

__all__ = [
    "ToyTask",
    "account_steps",
    "depth_profile",
    "end_points",
    "energy_along",
    "energy_gradient",
    "gain_sweep",
    "gaussian_fraction",
    "growth_exponents",
    "head_statistics",
    "overlap_energy",
    "query_energy",
    "read_sizes",
    "read_toy",
    "repeat",
    "sampled_gaussian_entries",
    "size_rows",
    "stage_energies",
    "step_alignment",
    "train_toy",
    "weight_alignment",
]

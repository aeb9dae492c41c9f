"""What chapter 14 measures in a trained language model and in a toy of it.

Conventions of `spinformer.language`: layers and heads from 0, β = 1/√d in front of every dot
product. What lives on tokens is a torch tensor (B, H, N, ...); tables with one number a layer or
head, or a training step, are NumPy arrays, layers first.
"""

from spinformer.studies.real_transformer.energies import (
    StepAccount,
    account_steps,
    depth_profile,
    energy_along,
    energy_gradient,
    overlap_energy,
    stage_energies,
)
from spinformer.studies.real_transformer.heads import (
    HeadStatistics,
    gaussian_fraction,
    head_statistics,
    sampled_gaussian_entries,
)
from spinformer.studies.real_transformer.iteration import (
    EndPoints,
    end_points,
    loop_eigenvalues,
    repeat,
)
from spinformer.studies.real_transformer.toy import ToyRecord, ToyTask, train_toy

__all__ = [
    "EndPoints",
    "HeadStatistics",
    "StepAccount",
    "ToyRecord",
    "ToyTask",
    "account_steps",
    "depth_profile",
    "end_points",
    "energy_along",
    "energy_gradient",
    "gaussian_fraction",
    "head_statistics",
    "loop_eigenvalues",
    "overlap_energy",
    "repeat",
    "sampled_gaussian_entries",
    "stage_energies",
    "train_toy",
]

"""Kinds of rest in a memory of groups, as the patterns are cooled and made to interact.

N = groups · members patterns of norm 1; two of a group overlap by g, two of different groups by
−b, so much that all patterns sum to zero. With J = κ offdiag XXᵀ, M = XXᵀ + J has among directions
of zero sum two eigenvalues: `within` 1 − g − κg for contrasts inside of a group, and `between` (1
+ κ)(1 − g + m(g + b)) − κ, m the members, for contrasts of groups. The uniform weights rest, and a
contrast of eigenvalue μ grows from them if βμ > N; from weights 1/m on one group, if βμ > m.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from compendium.c17_interacting_patterns.interacting import safe_step_size, solve
from spinformer.hopfield.fixed_points import effective_entries


def group_patterns(groups: int, *, members: int, overlap: float) -> torch.Tensor:
    """(N, N) patterns of norm 1 with zero sum, overlap g in a group, equal ones between groups."""
    size = groups * members
    between = (1 + (members - 1) * overlap) / (size - members)
    same = np.kron(np.eye(groups), np.ones((members, members)))
    gram = (1 - overlap) * np.eye(size) + (overlap + between) * same - between
    values, vectors = np.linalg.eigh(gram)
    return torch.as_tensor((vectors * np.sqrt(values.clip(min=0.0))) @ vectors.T)


def eigenvalues(kappa: float, *, groups: int, members: int, overlap: float) -> tuple[float, float]:
    """`within` and `between`, the eigenvalues of M = XXᵀ + κ offdiag XXᵀ."""
    apart = (1 + (members - 1) * overlap) / (groups * members - members)
    plain = (1 - overlap, 1 - overlap + members * (overlap + apart))
    within, between = (float((1 + kappa) * value - kappa) for value in plain)
    return within, between


def kinds(
    patterns: torch.Tensor,
    *,
    betas: Sequence[float] | np.ndarray,
    kappas: Sequence[float] | np.ndarray,
    start: str = "pattern",
    max_steps: int = 3000,
) -> np.ndarray:
    """The fewest patterns that hold 0.9 of the weight at rest, (κ, β).

    `start` "pattern": weight 0.99 on the first one; "mean": all equal but for a hundredth more on
    it.
    """
    size = len(patterns)
    weight = 0.99 if start == "pattern" else 1.01 / size
    begin = torch.full((1, size), (1 - weight) / (size - 1), dtype=patterns.dtype)
    begin[0, 0] = weight
    gram = patterns @ patterns.T
    pairs = gram - torch.diag(gram.diagonal())
    rows = []
    for beta in betas:
        # One batch of all κ: the inverse temperature stands in the patterns and the couplings.
        couplings = torch.stack([kappa * beta * pairs for kappa in kappas])
        found = solve(
            patterns.expand(len(kappas), -1, -1) * beta**0.5,
            queries=torch.zeros(1, patterns.shape[1], dtype=patterns.dtype),
            couplings=couplings,
            start=begin,
            step_size=min(safe_step_size(each, beta=1.0) for each in couplings),
            tolerance=1e-7,
            max_steps=max_steps,
        )
        rows.append(effective_entries(found.value[:, 0]).numpy())
    return np.stack(rows, axis=1)

"""How often the module's meter is wrong: pairs of spins against quadrature.

Two tokens are the one case in which spins of any dimension are solved exactly with fields that
point anywhere. A system is wrong if the meter trusts it (off by less than `TOLERANCE`) and its mean
spins are off by more.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch

from bookmaker.tables import Rows, stored
from compendium.common.exact_spins import two_spins
from compendium.common.rows import share_rows
from spinformer.core.random import torch_generator
from spinformer.spins.module import SpinTransformerModule

TOLERANCE, ACCEPTED = 0.2, 0.05
COUPLINGS = {"weak": (0.1, 0.3, 1.0), "strong": (2.0, 5.0)}
EACH = 60  # pairs at every strength


@stored(
    Path(__file__).with_name("settings_B8b.csv"),
    units=[
        {"dim": dim, "couplings": couplings, "beta": beta, "solver": solver}
        for dim, beta in itertools.product((2, 3, 4, 16), (0.5, 1.5, 3.0))
        for couplings, solver in (("weak", "saddle"), ("strong", "saddle"), ("weak", "fixed point"))
    ],
    seconds=3.0,
)
@torch.no_grad()
def METER(dim: int, couplings: str, beta: float, solver: str) -> Rows:
    """Of random pairs that are trusted the share that may be wrong, less the share that is."""
    generator = torch_generator(0)
    trusted = wrong = 0
    options: Any = {"beta": beta, "solver": solver, "normalize": False, "dtype": torch.float64}
    for strength in COUPLINGS[couplings]:
        module = SpinTransformerModule(dim, heads=1, strength=strength, **options)
        module.warned = True  # its meter is asked instead
        size = 2 * torch.rand(EACH, 1, 1, generator=generator, dtype=torch.float64)
        tokens = size * torch.randn(EACH, 2, dim, generator=generator, dtype=torch.float64)
        _, parts = module(tokens, return_parts=True)
        for place in parts.validity().trusted(TOLERANCE)[:, 0].nonzero().flatten().tolist():
            bond, fields = parts.couplings[place, 0].numpy(), tokens[place].numpy()
            truth = torch.tensor(two_spins(bond, fields=fields, beta=beta).magnetization)
            off = (parts.spins[place] - truth).norm() / truth.norm()
            trusted, wrong = trusted + 1, wrong + int(off > TOLERANCE)
    return share_rows(wrong, trials=trusted, bound=ACCEPTED, sign=-1)

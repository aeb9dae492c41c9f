"""Robustness of what chapter 21b says of unrolled networks, with a fresh draw in every line.

The region was written before the confirming table was drawn: less than 0.8 of the β of the line of
de Almeida and Thouless.
"""

from bookmaker.tables import Rows, stored
from compendium.c21b_unrolled_networks.study import convergence
from compendium.common.rows import numbered, parameter_product, share_rows
from spinformer.spins.replica_symmetry import almeida_thouless_beta

NETWORKS = 20


def depth_rows(data: int, of_the_line: float, size: int, field_std: float) -> Rows:
    """Share of unrolled networks that converge less one half, at a fraction of the line's β."""
    beta = of_the_line * almeida_thouless_beta(field_std=field_std)
    share = convergence(size, beta=beta, field_std=field_std, systems=NETWORKS, seed=data)
    return share_rows(round(NETWORKS * share), trials=NETWORKS, bound=0.5)


_COUNTED = {"value": 0.11, "low": 0.15, "high": 0.15}
settings_b7d = stored(
    "settings_B7d",
    numbered(
        parameter_product(
            of_the_line=(0.3, 0.5, 0.7, 0.8, 0.9, 1.2), size=(128, 512), field_std=(0.2, 0.5)
        ),
        first=1000,
    ),
    seconds=0.2,
    rtol=0.0,
    within=_COUNTED,
)(depth_rows)
# Other networks, drawn after the region.
confirm_b7d = stored(
    "confirm_B7d",
    numbered(
        parameter_product(of_the_line=(0.2, 0.4, 0.6, 0.75), size=(128, 256), field_std=(0.3, 0.5)),
        first=2000,
    ),
    seconds=0.2,
    rtol=0.0,
    within=_COUNTED,
)(depth_rows)

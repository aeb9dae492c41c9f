"""Where driven networks order: moments of |M| for several sizes, stored (chapter 25).

Prediction, written before the run: Binder's ratio of the sizes 128 and 512 crosses within 0.03 of
the critical β of the infinite system, 1.1108, at a height within 0.05 of 0.2705, that of a
system in which all couple with all, without random fields; smaller sizes cross further off.

A unit computed again agrees to six digits on one kind of processor; another rounds sums of
couplings otherwise, and a spin that falls the other way starts another history: then the moments
of one network agree to a few per cent.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from spinformer.studies.driven import OrderMoments, order_moments
from spinformer.studies.tables import Rows, Table

BETAS = (1.05, 1.08, 1.11, 1.14, 1.17)
SIZES = (64, 128, 256, 512)
COPIES = 24


def order_rows(size: int, *, copy: int) -> Rows:
    """Moments of one network of `size` spins at all inverse temperatures.

    >>> len(order_rows(8, copy=0)) == len(BETAS)
    True
    """
    found = order_moments(
        size, betas=np.array(BETAS), systems=1, steps=600, seed=1000 * size + copy
    )
    return [
        {
            "beta": beta,
            "absolute": found.absolute[0, k],
            "second": found.second[0, k],
            "fourth": found.fourth[0, k],
        }
        for k, beta in enumerate(BETAS)
    ]


ORDER = Table(
    path=Path(__file__).parent / "order.csv",
    units=[{"size": size, "copy": copy} for size in SIZES for copy in range(COPIES)],
    rows=order_rows,
)


def stored_moments(size: int) -> OrderMoments:
    """The stored moments of one size, all networks.

    >>> stored_moments(64).second.shape
    (24, 5)
    """
    table = ORDER.read()
    rows = table["size"] == size
    if not rows.any():
        raise ValueError(f"size must be one of {SIZES}, got {size}")
    absolute, second, fourth = (
        table[name][rows].reshape(-1, len(BETAS)) for name in ("absolute", "second", "fourth")
    )
    return OrderMoments(betas=np.array(BETAS), absolute=absolute, second=second, fourth=fourth)

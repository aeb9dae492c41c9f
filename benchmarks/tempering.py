"""Speed of tempered chains: visits a second of processor time, medians of five.

    python benchmarks/tempering.py

Gaussian couplings of 1,024 spins, fields of standard deviation one half, 16 copies.
"""

from __future__ import annotations

import time

import numpy as np

from spinformer.spins.ising.couplings import sherrington_kirkpatrick
from spinformer.spins.ising.tempering import tempered_chains

SIZE, COPIES, SWEEPS = 1024, 16, 1000


def main() -> None:
    couplings, fields = sherrington_kirkpatrick(SIZE, seed=0, field_std=0.5)
    small = {"sweeps": 1, "burn": 0, "copies": 2}
    tempered_chains(couplings, fields=fields, betas=np.array([1.0]), **small)
    for beta in (0.8, 1.2, 2.0):
        rates = []
        for _ in range(5):
            start = time.process_time()
            tempered_chains(
                couplings, fields=fields, betas=np.array([beta]), sweeps=SWEEPS, burn=0,
                copies=COPIES, every=SWEEPS,
            )  # fmt: skip
            rates.append(SIZE * COPIES * SWEEPS / (time.process_time() - start))
        print(f"beta {beta}: {np.median(rates):.2g} visits a second of one core")


if __name__ == "__main__":
    main()

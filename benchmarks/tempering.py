"""Speed of tempered chains: visits a second of processor time, medians of interleaved runs.

    python benchmarks/tempering.py

Gaussian couplings of 1,024 spins, fields of standard deviation one half. "Two threads" is what two
cores make together: twice the visits a second of processor time when the replicas are shared out.
"""

import time
from collections import defaultdict

import numpy as np

from spinformer.spins.ising import sherrington_kirkpatrick
from spinformer.spins.monte_carlo import parallel_tempering

SIZE = 1024
VISITS = 10_000_000
ROUNDS = 5


def main() -> None:
    couplings, fields = sherrington_kirkpatrick(SIZE, seed=0, field_std=0.5)

    def seconds(beta: float, *, replicas: int, threads: int, sweeps: int) -> float:
        start = time.process_time()
        parallel_tempering(
            couplings, fields=fields, betas=np.array([beta]), sweeps=sweeps, burn_in=0,
            replicas=replicas, every=sweeps, threads=threads,
        )  # fmt: skip
        return time.process_time() - start

    seconds(1.0, replicas=2, threads=1, sweeps=1)
    rates = defaultdict(list)
    for _ in range(ROUNDS):
        for beta in (0.2, 0.8, 1.2, 2.0):
            for replicas, threads in ((16, 1), (32, 2)):
                sweeps = VISITS // (SIZE * replicas)
                took = seconds(beta, replicas=replicas, threads=threads, sweeps=sweeps)
                rates[beta, replicas, threads].append(threads * SIZE * replicas * sweeps / took)
    for (beta, replicas, threads), visits in rates.items():
        used = "one thread" if threads == 1 else "two threads"
        print(
            f"beta {beta}, {replicas:2d} replicas, {used}: {np.median(visits):.2g} visits a second"
        )


if __name__ == "__main__":
    main()

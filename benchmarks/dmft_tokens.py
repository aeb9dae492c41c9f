"""Time of one generated token: binomial draws per segment against drawing every bit.

Ours (compiled, L binomial draws a token), the same algorithm vectorised over texts in NumPy, and
the plain reference that draws N bits. Medians of process time over several runs, one core.

    python benchmarks/dmft_tokens.py
"""

import platform
import statistics
import time
from collections.abc import Callable

import numba
import numpy as np

from compendium.c31_asymmetric_hopfield.pairs import generate_bits_reference
from spinformer.dmft.finite_size import attention_of_window, generate
from spinformer.dmft.network import OUTPUT, Network

BETA = 1.27
RUNS = 1000
STEPS = 100
REPEATS = 7


def vectorised(network: Network, size: int, window: np.ndarray, seed: int) -> np.ndarray:
    """L binomial draws a token for all texts at once, with NumPy alone."""
    rng = np.random.default_rng(seed)
    counts = network.counts(size)
    path = [np.broadcast_to(token, (RUNS, network.segments)) for token in window]
    for step in range(STEPS):
        recent = np.stack(path[-network.context :], axis=1)
        attention = attention_of_window(network, recent, position=network.context - 1 + step)
        mean = np.tanh(BETA * (attention @ network.semantic[OUTPUT]))
        path.append(2.0 * rng.binomial(counts, 0.5 * (1.0 + mean)) / counts - 1.0)
    return np.stack(path, axis=1)


def median_time(call: Callable[[int], object], tokens: int) -> float:
    """Median process time for each token, in nanoseconds."""
    call(0)
    spent = []
    for repeat in range(REPEATS):
        begin = time.process_time()
        call(repeat)
        spent.append(time.process_time() - begin)
    return statistics.median(spent) / tokens * 1e9


def main() -> None:
    """Print one table."""
    network = Network.poclopez2024()
    window = np.ones((network.context, network.segments))
    print(
        f"{platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}, "
        f"Numba {numba.__version__}; nanoseconds a token, medians of {REPEATS}"
    )
    print(f"{'N':>12}  {'compiled':>10}  {'NumPy, 1000 texts':>18}  {'every bit':>12}")
    for size in (99, 9_999, 999_999, 99_999_999):
        ours = median_time(
            lambda seed, n=size: generate(
                network, n, beta=BETA, window=window, steps=STEPS, runs=RUNS, seed=seed
            ),
            RUNS * STEPS,
        )
        plain = median_time(lambda seed, n=size: vectorised(network, n, window, seed), RUNS * STEPS)
        bits = "-"
        if size <= 999_999:
            weights = network.weights(size)
            start = np.ones((network.context, size))
            steps = 2 if size > 9_999 else 50
            value = median_time(
                lambda seed, w=weights, s=start, k=steps: generate_bits_reference(
                    w, network, beta=BETA, window=s, steps=k, seed=seed, position=3
                ),
                steps,
            )
            bits = f"{value:.0f}"
        print(f"{size:12d}  {ours:10.0f}  {plain:18.0f}  {bits:>12}")
    texts = 10_000
    length = 60
    size = 9_999_999
    whole = median_time(
        lambda seed: generate(
            network, size, beta=BETA, window=window, steps=length, runs=texts, seed=seed
        ),
        1,
    )
    print(f"{texts} texts of {length} tokens at N = {size}: {whole * 1e-9:.2f} s")


if __name__ == "__main__":
    main()

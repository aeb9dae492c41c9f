"""Relaxation of the classical network at d = 2000: our kernel, plain loops, a matrix-product user.

Run: python benchmarks/hopfield_capacity.py [--spins 2000] [--repeats 5] [--figure] [--write]

Every method relaxes the same queries (stored patterns at α = 0.14) to a fixed point, on one
thread; medians of process time over the repeats, all in one run. Then the whole capacity figure
of the chapter on discrete memories.
"""

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numba
import numpy as np
import torch

from bookmaker.measured import write_results
from compendium.c11_discrete_memories.study import end_overlaps
from spinformer.core.states import hebbian_couplings
from spinformer.core.statistics import mean_estimate
from spinformer.hopfield.discrete import asynchronous_dynamics, retrieve


def plain_fields(weights: np.ndarray, queries: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The kernel's algorithm as a Python loop over NumPy rows: fields updated at each flip."""
    states = queries.copy()
    for state in states:
        field = weights @ state
        moving = True
        while moving:
            moving = False
            for i in rng.permutation(state.size):
                if field[i] * state[i] < 0:
                    state[i] = -state[i]
                    field += 2 * state[i] * weights[i]
                    moving = True
    return states


def textbook(weights: np.ndarray, queries: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What a tutorial writes: s_i ← sgn(W_i·s), the field computed anew at every visit."""
    states = queries.copy()
    for state in states:
        moving = True
        while moving:
            moving = False
            for i in rng.permutation(state.size):
                field = weights[i] @ state
                if field * state[i] < 0:
                    state[i] = -state[i]
                    moving = True
    return states


def torch_one_spin_at_a_time(
    weights: np.ndarray, queries: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """All queries together in torch, one spin a step: the natural use of a tensor library."""
    matrix = torch.from_numpy(weights)
    states = torch.from_numpy(queries.copy())
    while True:
        before = states.clone()
        for i in rng.permutation(states.shape[1]):
            field = states @ matrix[i]
            states[:, i] = torch.where(field == 0, states[:, i], torch.sign(field))
        if torch.equal(states, before):
            return states.numpy()


def clock(work: Callable[[], np.ndarray], repeats: int) -> tuple[float, np.ndarray]:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        result = work()
        times.append(time.process_time() - start)
    return statistics.median(times), result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--spins", type=int, default=2000)
    parser.add_argument("--load", type=float, default=0.14)
    parser.add_argument("--queries", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--figure", action="store_true", help="time the whole figure as well")
    parser.add_argument("--write", action="store_true", help="store the figure's time")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, one thread; Python "
        f"{platform.python_version()}, NumPy {np.__version__}, Numba {numba.__version__}, "
        f"torch {torch.__version__}"
    )
    rng = np.random.default_rng(0)
    count = round(options.load * options.spins)
    patterns = rng.choice([-1.0, 1.0], (count, options.spins))
    weights = hebbian_couplings(patterns)
    queries = patterns[: options.queries]
    single = weights.astype(np.float32)
    retrieve(patterns, queries=queries)  # compile

    methods: dict[str, Callable[[], np.ndarray]] = {
        "spinformer kernel": lambda: (
            asynchronous_dynamics(single, queries=queries, max_steps=1000, seed=1).states
        ),
        "with couplings and checks": lambda: (
            retrieve(patterns, queries=queries, max_steps=1000, seed=1).states
        ),
        "plain loop, fields kept": lambda: plain_fields(weights, queries, np.random.default_rng(1)),
        "textbook loop, W_i·s": lambda: textbook(weights, queries, np.random.default_rng(1)),
        "torch, batched queries": lambda: torch_one_spin_at_a_time(
            weights, queries, np.random.default_rng(1)
        ),
    }
    print(f"d = {options.spins}, N = {count}, {options.queries} queries")
    reference = None
    for name, work in methods.items():
        seconds, states = clock(work, options.repeats)
        reference = reference or seconds
        overlap = float((states * queries).mean())
        print(
            f"  {name:26s} {1e3 * seconds:9.1f} ms  {seconds / reference:7.1f} x  "
            f"overlap {overlap:.4f}"
        )
    if options.figure or options.write:
        loads = np.arange(0.10, 0.1801, 0.01)
        start = time.process_time()
        ends = end_overlaps(options.spins, loads=loads, networks=20, queries=20)[0]
        overlap = mean_estimate(ends.mean(-1), axis=1)
        spent = time.process_time() - start
        print(f"capacity curve, 9 loads x 20 networks x 20 queries: {spent:.1f} s, one thread")
        print(
            "  "
            + "  ".join(
                f"{m:.3f}±{e:.3f}" for m, e in zip(overlap.value, overlap.error, strict=True)
            )
        )
        if options.write:
            write_results(__file__, {"spins": options.spins, "seconds": spent})


if __name__ == "__main__":
    main()

"""Time exact sums, Monte Carlo sweeps and mean-field solvers of Ising systems.

Run `python benchmarks/ising.py`. Each row gives medians of process time on one thread: ours,
the plain reference version of the same algorithm, and what a user would write or pick
otherwise, measured alternately in one run. Results are checked against each other first.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import scipy
from scipy import optimize, stats

from compendium.c25b_learning_under_a_drive.directions import sample_von_mises_fisher
from spinformer.core.states import spin_states
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact
from spinformer.spins.mean_field import METHODS, solve_mean_field
from spinformer.spins.monte_carlo import sample_ising, sample_vector_spins


def medians(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            begin = time.process_time()
            call()
            times[name].append(time.process_time() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def report(title: str, calls: dict[str, Callable[[], object]], repeats: int = 5) -> None:
    times = medians(calls, repeats)
    ours = times["ours"]
    parts = [f"{name} {1e3 * t:.3g} ms ({t / ours:.3g}x)" for name, t in times.items()]
    print(f"{title:42s} " + "   ".join(parts), flush=True)


def state_table(couplings: np.ndarray, fields: np.ndarray, beta: float) -> np.ndarray:
    """The obvious vectorised sum: a table of all states, one einsum, one softmax."""
    s = spin_states(len(fields))
    exponent = beta * (0.5 * np.einsum("ai,ij,aj->a", s, couplings, s, optimize=True) + s @ fields)
    p = np.exp(exponent - scipy.special.logsumexp(exponent))
    return p @ s


def scipy_naive(couplings: np.ndarray, fields: np.ndarray, beta: float) -> np.ndarray:
    """The naive equations by scipy's general root finder."""
    equation = lambda m: m - np.tanh(beta * (fields + couplings @ m))  # noqa: E731
    return optimize.root(equation, np.tanh(beta * fields), tol=1e-12).x


def main() -> None:
    print(f"{platform.machine()}, {os.cpu_count()} cores, one thread used")
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}")
    for size in (10, 18):
        j, h = sherrington_kirkpatrick(size, seed=0, field_std=0.5)
        assert np.allclose(state_table(j, h, 0.7), solve_exact(j, fields=h, beta=0.7).magnetization)
        calls: dict[str, Callable[[], object]] = {
            "ours": lambda j=j, h=h: solve_exact(j, fields=h, beta=0.7),
            "state table": lambda j=j, h=h: state_table(j, h, 0.7),
        }
        report(f"exact sum, N = {size}", calls)
    j, h = sherrington_kirkpatrick(64, seed=0, field_std=0.5)
    short = {"sweeps": 64, "burn_in": 0, "chains": 1, "blocks": 4}
    report(
        "64 Ising sweeps, N = 64", {"ours": lambda: sample_ising(j, fields=h, beta=0.7, **short)}
    )
    field = np.random.default_rng(0).normal(size=(32, 64))
    j32 = sherrington_kirkpatrick(32, seed=0)[0]
    report(
        "64 vector sweeps, N = 32, D = 64",
        {"ours": lambda: sample_vector_spins(j32, fields=field, beta=0.5, **short)},
    )
    rng = np.random.default_rng(0)
    axis = np.eye(64)[0]
    law = stats.vonmises_fisher(axis, 20.0)
    report(
        "10,000 von Mises-Fisher draws, D = 64",
        {
            "ours": lambda: sample_von_mises_fisher(np.tile(20.0 * axis, (10_000, 1)), seed=rng),
            "scipy.stats": lambda: law.rvs(10_000, random_state=rng),
        },
    )
    j, h = sherrington_kirkpatrick(128, seed=0, field_std=0.5)
    mild = 0.35
    assert np.allclose(
        scipy_naive(j, h, mild),
        solve_mean_field(j, fields=h, beta=mild, method="naive").magnetization,
    )
    for method in METHODS:
        calls = {"ours": lambda m=method: solve_mean_field(j, fields=h, beta=mild, method=m)}
        if method == "naive":
            calls["scipy.optimize.root"] = lambda: scipy_naive(j, h, mild)
        report(f"{method} free energy, N = 128, beta {mild}", calls)


if __name__ == "__main__":
    main()

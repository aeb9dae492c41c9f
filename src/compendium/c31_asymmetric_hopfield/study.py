"""Protocols of chapter 31: torch's attention, and averages over random networks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from bookmaker.tables import Rows, Table
from compendium.c31_asymmetric_hopfield.bipartite import MAX_ENTRY
from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.solve import NotConverged, Status
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.ising.asymmetric import (
    analog_exponent,
    zero_temperature_cycle,
)
from spinformer.spins.ising.couplings import MAX_COUNT, MAX_STRENGTH, gaussian_couplings
from spinformer.spins.ising.kinetic import kinetic_path


def torch_attention(
    tokens: np.ndarray, *, left: np.ndarray, right: np.ndarray, gamma: float
) -> np.ndarray:
    """Weights (T,) of torch's attention over `tokens` (T, N), the newest of them the query.

    Queries and keys are the overlaps with the features `left` and `right` (P, N), the scale of
    the scores is γ, and the values are one-hot, so that what comes out are the weights
    [poclopez2024dynamical, Eq. (5)]. Raises ValueError or TypeError for bad input.

    >>> torch_attention(np.eye(2), left=np.eye(2), right=np.eye(2), gamma=0.0)
    array([0.5, 0.5])
    """
    tokens = check_array("tokens", tokens, ndim=2, low=-MAX_ENTRY, high=MAX_ENTRY)
    size = tokens.shape[1]
    check_integer("number of tokens", len(tokens), low=1)
    left = check_array("left", left, shape=(None, size), low=-MAX_ENTRY, high=MAX_ENTRY)
    right = check_array("right", right, shape=left.shape, low=-MAX_ENTRY, high=MAX_ENTRY)
    gamma = check_real("gamma", gamma, low=-MAX_STRENGTH, high=MAX_STRENGTH)
    q = torch.from_numpy(tokens[-1:] @ left.T / size)
    k = torch.from_numpy(tokens @ right.T / size)
    v = torch.eye(len(tokens), dtype=torch.float64)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=gamma)[0].numpy()


def spin_memory(
    size: int,
    *,
    symmetry: float,
    beta: float,
    lags: np.ndarray,
    steps: int,
    replicas: int,
    seed: Seed,
) -> Estimate:
    """C(τ), the mean of x_i(t) x_i(t + τ) at every lag τ, over networks of random couplings.

    Each of `replicas` networks (`gaussian_couplings` of the given symmetry) runs `steps` parallel
    updates from a random state; the first half is dropped. `lags` (L,) are positive and at most
    half of `steps`. The error is the scatter over networks. Raises ValueError or TypeError for
    bad input.

    >>> short = {"beta": 1.0, "lags": np.array([2]), "steps": 200, "replicas": 4, "seed": 0}
    >>> forgets = spin_memory(40, symmetry=0.0, **short)
    >>> bool(abs(forgets.value[0]) < 0.2)
    True
    """
    steps = check_integer("steps", steps, low=2, high=MAX_COUNT)
    lags = check_array("lags", lags, ndim=1, low=1, high=steps // 2).astype(int)
    rng = numpy_generator(seed)
    draws = []
    for _ in range(check_integer("replicas", replicas, low=2, high=MAX_COUNT)):
        couplings = gaussian_couplings(size, symmetry=symmetry, seed=rng)
        first = rng.choice([-1.0, 1.0], (1, size))
        path = kinetic_path(couplings, beta=beta, states=first, steps=steps, seed=rng)
        kept = path[steps // 2 :, 0].astype(float)
        draws.append([(kept[:-lag] * kept[lag:]).mean() for lag in lags])
    return mean_estimate(draws)


def mean_order(size: int, *, mean: float, beta: float, replicas: int, seed: Seed) -> Estimate:
    """|m| over updates 100 to 200 from an ordered start, independent couplings of mean `mean`/N.

    One number, its error the scatter over `replicas` networks of `size` spins. Raises ValueError
    or TypeError for bad input.

    >>> bool(mean_order(100, mean=4.0, beta=2.0, replicas=2, seed=0).value > 0.8)
    True
    """
    rng = numpy_generator(seed)
    draws = []
    for _ in range(check_integer("replicas", replicas, low=2, high=MAX_COUNT)):
        couplings = gaussian_couplings(size, mean=mean, seed=rng)
        path = kinetic_path(couplings, beta=beta, states=np.ones((1, size)), steps=200, seed=rng)
        draws.append(abs(path[100:].mean()))
    return mean_estimate(draws)


def cycle_lengths(size: int, *, symmetry: float, count: int, seed: Seed) -> np.ndarray:
    """Lengths (count,) of the noiseless cycles of networks of random couplings, integers.

    One random start in each of `count` networks. Raises ValueError or TypeError for bad input,
    NotConverged if a cycle does not close.

    >>> int(cycle_lengths(10, symmetry=1.0, count=20, seed=0).max())
    2
    """
    rng = numpy_generator(seed)
    lengths = []
    for _ in range(check_integer("count", count, low=1, high=MAX_COUNT)):
        couplings = gaussian_couplings(size, symmetry=symmetry, seed=rng)
        cycle = zero_temperature_cycle(couplings, state=rng.choice([-1.0, 1.0], size))
        if cycle.status == Status.STEP_LIMIT:
            raise NotConverged(f"no cycle closed within {cycle.steps} steps at size {size}")
        lengths.append(cycle.length)
    return np.array(lengths)


def analog_exponents(
    size: int,
    *,
    symmetry: float,
    beta: float,
    count: int,
    seed: Seed,
    transient: int = 300,
    steps: int = 300,
) -> Estimate:
    """Leading exponent of m ← tanh(βJm) per step, its error the scatter over `count` networks.

    `transient` steps are dropped and `steps` averaged in each. Raises ValueError or TypeError for
    bad input.

    >>> bool(analog_exponents(100, symmetry=0.0, beta=3.0, count=2, seed=0).value > 0)
    True
    """
    rng = numpy_generator(seed)
    return mean_estimate(
        [
            analog_exponent(
                gaussian_couplings(size, symmetry=symmetry, seed=rng),
                beta=beta,
                transient=transient,
                steps=steps,
                seed=rng,
            ).value
            for _ in range(check_integer("count", count, low=2, high=MAX_COUNT))
        ]
    )


def exponent_row(size: int, *, symmetry: float, beta: float, networks: int) -> Rows:
    """One line of `EXPONENTS`: mean and standard error over networks, 600 steps each.

    >>> (row,) = exponent_row(20, symmetry=0.0, beta=0.5, networks=2)
    >>> sorted(row)
    ['error', 'exponent']
    """
    found = analog_exponents(size, symmetry=symmetry, beta=beta, count=networks, seed=0, steps=600)
    return [{"exponent": float(found.value), "error": float(found.error)}]


EXPONENTS = Table(
    path=Path(__file__).with_name("exponents.csv"),
    units=[
        {"size": size, "symmetry": symmetry, "beta": beta, "networks": 20}
        for size, symmetry, betas in (
            (500, 0.0, (0.6, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0)),
            (500, 1.0, (0.6, 1.0, 1.5, 2.0, 3.0, 4.0)),
            (125, 0.0, (3.0,)),
            (250, 0.0, (3.0,)),
            (1000, 0.0, (3.0,)),
        )
        for beta in betas
    ],
    rows=exponent_row,
)

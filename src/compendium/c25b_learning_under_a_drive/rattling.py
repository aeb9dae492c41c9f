"""Does a driven system settle where it rattles least? Couplings that a driven spin shakes.

A spin y = ±1 is drawn in the field of K inputs s_j = ±1, which are fair coins, with the couplings
J_j. Every draw moves the couplings as maximum likelihood does with one sample; with x = βJ,

    Δx = ε (y − tanh(x·s)) s.

If y is the spin's own draw, the mean of a move is zero: the drive shakes the couplings and leads
nowhere. With probability w the answer that is taught, here a fair coin, takes the place of y.
Then the couplings are pulled to zero, where they are shaken most. The *rattling* is
R = ½ ln det C(x), C the covariance of a move divided by ε² [chvykov2021low], and low rattling says
that the stationary density is p ∝ exp(−γ R). All |x_j| ≤ 1, with reflecting walls.

For K = 1 and w = 0 the current vanishes for p ∝ 1/C, hence γ = 2 for a small rate ε. For more
inputs there is no such solution. A trial of 400 walkers at ε = 0.1 gave γ between 1.2 and 2.9
without a pull, and below −20 with a pull of 4ε. For K = 1

    d ln p/dx = 2 tanh(x) (1 − w / (ε C)),  C ≈ 1 − tanh²(x),

so that a pull of w = ε turns the density around at x = 0, and a smaller one at the walls.

Criterion of B13c, written before its table: low rattling decides if γ > 0 with its whole 95 %
interval. Expected: for a `pull` w/ε up to 0.2, and the contrary from 2 on.
"""

import itertools

import numpy as np
from scipy.integrate import cumulative_trapezoid, trapezoid

from bookmaker.tables import Rows, stored
from compendium.common.rows import numbered, parameter_product
from spinformer.core.statistics import student_interval

# Independent groups of walkers, walkers of each, and moves in units of the time 1/ε² of diffusion.
# The first half of the moves is not counted.
GROUPS = 5
WALKERS = 200
TIMES = 8.0
BINS = 8


def input_states(inputs: int) -> np.ndarray:
    """All states (2^K, K) of the inputs."""
    return np.array(list(itertools.product([1.0, -1.0], repeat=inputs)))


def rattling(x: np.ndarray, *, taught: float) -> np.ndarray:
    """R = ½ ln det C (...) of couplings x (..., K); `taught` is the probability w."""
    states = input_states(x.shape[-1])
    mean = np.tanh(x @ states.T)
    square = 1 - mean**2 + 2 * taught * mean**2
    covariance = np.einsum("...s,sa,sb->...ab", square, states, states) / len(states)
    drift = -taught * mean @ states / len(states)
    covariance = covariance - drift[..., :, None] * drift[..., None, :]
    return 0.5 * np.linalg.slogdet(covariance)[1]


def move(x: np.ndarray, *, rate: float, taught: float, rng: np.random.Generator) -> np.ndarray:
    """Couplings (W, K) after one draw of every walker, reflected at ±1."""
    inputs = rng.choice([-1.0, 1.0], x.shape)
    mean = np.tanh((x * inputs).sum(-1))
    expected = np.where(rng.random(len(x)) < taught, 0.0, mean)
    answer = np.where(rng.random(len(x)) < 0.5 * (1 + expected), 1.0, -1.0)
    x = x + rate * (answer - mean)[:, None] * inputs
    return np.where(np.abs(x) > 1, np.sign(x) * 2 - x, x)


def walk(
    inputs: int, *, rate: float, taught: float, walkers: int, moves: int, seed: int
) -> np.ndarray:
    """Couplings (samples, walkers, K) from uniform starts, every tenth move of the second half."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (walkers, inputs))
    kept = []
    for step in range(moves):
        x = move(x, rate=rate, taught=taught, rng=rng)
        if 2 * step >= moves and step % 10 == 0:
            kept.append(x)
    return np.array(kept)


def density_of_one_coupling(rate: float, *, taught: float) -> tuple[np.ndarray, np.ndarray]:
    """Couplings x between the walls and their density without flux, for one input and small ε."""
    x = np.linspace(-1, 1, 401)
    noise = np.exp(2 * rattling(x[:, None], taught=taught))
    pull = cumulative_trapezoid(np.tanh(x) / noise, x, initial=0.0)
    density = np.exp(-2 * taught / rate * pull) / noise
    return x, density / trapezoid(density, x)


def density_by_rattling(samples: np.ndarray, *, taught: float) -> tuple[np.ndarray, np.ndarray]:
    """Mean R of `BINS` classes of couplings with equal volume, and ln of their density.

    The classes are quantiles of R over the box; a uniform density has the logarithm zero.
    """
    box = np.random.default_rng(0).uniform(-1, 1, (20_000, samples.shape[-1]))
    level = rattling(box, taught=taught)
    edges = np.quantile(level, np.linspace(0, 1, BINS + 1)[1:-1])
    class_of = np.searchsorted(edges, level)
    means = np.array([level[class_of == number].mean() for number in range(BINS)])
    found = np.searchsorted(edges, rattling(samples, taught=taught)).ravel()
    share = np.bincount(found, minlength=BINS) / found.size
    return means, np.log(share * BINS)


def rattling_slope(samples: np.ndarray, *, taught: float) -> float:
    """γ of p ∝ exp(−γ R), by least squares over the classes of `density_by_rattling`."""
    level, density = density_by_rattling(samples, taught=taught)
    return -float(np.polyfit(level, density, 1)[0])


def rattling_rows(data: int, rate: float, inputs: int, pull: float) -> Rows:
    """γ of independent groups of walkers; `pull` is w/ε."""
    taught = pull * rate
    moves = round(TIMES / rate**2)
    samples = walk(
        inputs, rate=rate, taught=taught, walkers=GROUPS * WALKERS, moves=moves, seed=data
    )
    groups = np.split(samples, GROUPS, axis=1)
    slopes = [rattling_slope(group, taught=taught) for group in groups]
    low, high = student_interval(slopes)
    return [{"value": float(np.mean(slopes)), "low": low, "high": high, "runs": GROUPS}]


settings_b13c = stored(
    "settings_B13c",
    numbered(
        parameter_product(rate=(0.05, 0.08), inputs=(1, 2, 3), pull=(0.0, 0.1, 2.0, 4.0)),
        first=200_000,
        step=100,
    ),
    seconds=0.8,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)(rattling_rows)
# Other walkers, drawn after the region `pull <= 0.2`.
confirm_b13c = stored(
    "confirm_B13c",
    numbered(
        parameter_product(rate=(0.04, 0.1), inputs=(1, 2, 4), pull=(0.05, 0.2)),
        first=400_000,
        step=100,
    ),
    seconds=0.8,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)(rattling_rows)

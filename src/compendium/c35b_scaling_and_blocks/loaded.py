"""Self-attention with a number of features proportional to the number of bits, P = αN.

To the few features of [poclopez2024dynamical], whose overlaps are of order one, come αN features
with independent random signs in all four roles (α is the load, as in [amit1987statistical]). The
fields that these make at a bit are Gaussian, of covariance R over time, C the overlap of two tokens
(`eq-blocks-crosstalk`, `eq-blocks-loaded` of the chapter). Their scores vanish in the theory, where
γ is held fixed. At α = 0 it is `dmft.mean_field`.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import softmax

from bookmaker.tables import Rows, stored
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.special import gaussian_quadrature
from spinformer.core.statistics import PowerLaw, fit_power_law, mean_estimate
from spinformer.dmft.linear_stability import onset
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network

# At rest averages are sums over odd Hermite orders, on a grid that resolves tanh(80 z).
_ORDERS = 150
_STEEPEST = 80.0
_LAGS = 60
# The softmax of paths and onsets is soft enough for the random features' scores, of deviation
# γ√(α/N), to be small at the sizes that are simulated.
_GAMMA = 5.0
_LOAD = 0.25
_STEPS = 30
_SIZES = (300, 600, 1200, 2400)
_SEEDS = range(1, 11)
# Signs of the first tokens on the three segments, newest first.
_START = np.array([[1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [-1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]])


@cache
def _hermite_grid() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points, weights of a unit normal, its normalized polynomials 1, 3, 5, … (orders, points)."""
    points = 0.01 * np.arange(-900, 901)
    orders = [np.ones_like(points), points]
    for k in range(1, 2 * _ORDERS - 1):
        orders.append((points * orders[k] - np.sqrt(k) * orders[k - 1]) / np.sqrt(k + 1))
    weights = np.exp(-0.5 * points**2) / np.sqrt(2.0 * np.pi) * 0.01
    return points, weights, np.array(orders[1::2])


def _pair_average(
    first: np.ndarray, second: np.ndarray, *, width: float, along: np.ndarray, across: np.ndarray
) -> np.ndarray:
    """E[tanh(first + width z) tanh(second + along z + across w)], z, w normal, second (n, L)."""
    points, weights = gaussian_quadrature(max(width, float(np.hypot(along, across).max())))
    one = np.tanh(first[:, None] + width * points) * weights
    averages = np.empty(second.shape)
    for n, (mean, shared, own) in enumerate(zip(second, along, across, strict=True)):
        # Tokens that were made from much the same others have little of their own.
        inner, inner_weights = gaussian_quadrature(float(own))
        fields = mean[:, None, None] + shared * points[:, None] + own * inner
        averages[n] = (one * (np.tanh(fields) @ inner_weights)).sum(axis=-1)
    return averages


class Loaded(NamedTuple):
    """A path at a load: means (steps, L), variances (steps,) of the random features' fields.

    correlation: of tokens, oldest first. scores: (steps, T), newest first, of a sampled text.
    """

    means: np.ndarray
    noise: np.ndarray
    correlation: np.ndarray
    scores: np.ndarray = np.empty(0)


def loaded_path(
    network: Network, window: np.ndarray, *, beta: float, load: float, steps: int
) -> Loaded:
    """The mean field at load α from T given tokens: signs (T, L), newest first."""
    context = network.context
    total = network.context + steps
    means = np.zeros((total, network.segments))
    correlation = np.eye(total)
    means[:context] = window[::-1]
    correlation[:context, :context] = (means[:context] * network.fractions) @ means[:context].T
    attention = np.zeros((steps, total))
    noise = np.zeros(steps)
    fields = np.zeros((steps, network.segments))
    for n in range(steps):
        new = context + n
        seen = np.arange(new - 1, n - 1, -1)
        overlap = network.with_position_code(network.overlaps(means[seen]), seen)
        attention[n, seen] = softmax(network.gamma * overlap[:, KEY] @ overlap[0, QUERY])
        fields[n] = (attention[n, seen] @ overlap[:, VALUE]) @ network.semantic[OUTPUT]
        cover = load * attention[: n + 1] @ correlation @ attention[n]
        noise[n] = cover[n]
        width = beta * float(np.sqrt(cover[n]))
        points, weights = gaussian_quadrature(width)
        means[new] = np.tanh(beta * fields[n][:, None] + width * points) @ weights
        row = (means[:context] * network.fractions) @ means[new]
        if n:
            along = beta**2 * cover[:n] / width if width else np.zeros(n)
            across = np.sqrt(np.maximum(beta**2 * noise[:n] - along**2, 0.0))
            pair = _pair_average(
                beta * fields[n], beta * fields[:n], width=width, along=along, across=across
            )
            row = np.concatenate([row, pair @ network.fractions])
        correlation[new, :new] = correlation[:new, new] = row
    return Loaded(means[context:], noise, correlation)


class Rest(NamedTuple):
    """The stationary state at flat attention: C(d), variance R, gain β E sech² β√R z."""

    value: np.ndarray
    noise: float
    gain: float


def resting_state(beta: float, *, load: float, context: int) -> Rest:
    """The stationary state, by iteration from one that remembers; beyond 60 lags C is constant.

    ValueError where bits are too steep, or where it does not settle.
    """
    if beta * np.sqrt(load) > _STEEPEST:
        raise ValueError(f"beta and load must keep beta √load at most {_STEEPEST:g}")
    points, normal, polynomials = _hermite_grid()
    shift = np.arange(-context + 1, context)
    share = (context - np.abs(shift)) / context**2
    index = np.minimum(np.abs(np.arange(_LAGS)[:, None] + shift), _LAGS - 1)
    correlation = np.append(1.0, np.full(_LAGS - 1, 0.5))
    for _ in range(2000):
        cover = load * correlation[index] @ share
        width = max(float(np.sqrt(cover[0])), 1e-8)
        weights = normal * np.tanh(beta * width * points)
        # E[f(x) f(y)] = Σ_k c_k² ρ^k, c_k the Hermite coefficients of f.
        rho = np.clip(cover[1:] / width**2, -1.0, 1.0)
        fresh = rho[:, None] ** (2 * np.arange(_ORDERS) + 1) @ (polynomials @ weights) ** 2
        change = np.abs(fresh - correlation[1:]).max()
        correlation[1:] = fresh
        if change < 1e-10:
            # E f' = E z f/√R, by parts: z tanh is level where sech² is too sharp for the grid.
            return Rest(correlation, float(cover[0]), float(weights @ points) / width)
    raise ValueError(f"no state at rest at beta {beta:g} and load {load:g}")


def simulate_loaded(
    network: Network,
    *,
    size: int,
    load: float,
    beta: float,
    steps: int,
    seed: Seed,
    window: np.ndarray | None = None,
) -> Loaded:
    """Bit by bit: `size` bits, the features of `network` and round(load · size) random ones.

    window: signs (T, L) of the first tokens, newest first; None: random bits.
    """
    rng = numpy_generator(seed)
    context = network.context
    many = round(load * size)
    few = network.weights(size)  # (4, P, N)
    signs = rng.integers(0, 2, (4, many, size), dtype=np.int8).astype(np.float32) * 2 - 1
    counts = network.counts(size)
    if window is None:
        tokens = list(rng.choice(np.array([-1.0, 1.0]), (context, size)))
    else:
        tokens = list(np.repeat(window[::-1], counts, axis=1))

    def overlaps(bits: np.ndarray, place: int) -> np.ndarray:
        # (4, P + αN), with the few features and with the random ones.
        own = network.with_position_code(few @ bits / size, place)
        other = (signs @ bits.astype(np.float32)).astype(float) / size
        return np.concatenate([own, other], axis=1)

    seen = [overlaps(bits, place) for place, bits in enumerate(tokens)]
    scores = np.empty((steps, context))
    noise = np.empty(steps)
    for n in range(steps):
        last = np.array(seen[: -context - 1 : -1])
        scores[n] = network.gamma * last[:, KEY] @ last[0, QUERY]
        own, other = np.split(softmax(scores[n]) @ last[:, VALUE], [network.features])
        crosstalk = (other.astype(np.float32) @ signs[OUTPUT]).astype(float)
        noise[n] = crosstalk.var()
        mean = np.tanh(beta * (own @ few[OUTPUT] + crosstalk))
        tokens.append(np.where(rng.random(size) < 0.5 * (1.0 + mean), 1.0, -1.0))
        seen.append(overlaps(tokens[-1], context + n))
    stacked = np.array(tokens)
    means = np.add.reduceat(stacked[context:], np.cumsum(counts) - counts, axis=1) / counts
    return Loaded(means, noise, stacked @ stacked.T / size, scores)


_RULES = ("fixed", "unit, P = 3 + alpha N", "unit, P = 3")


@stored("scores", parameter_product(rule=_RULES, size=_SIZES, seed=_SEEDS), seconds=0.1)
def scores_table(rule: str, *, size: int, seed: int) -> Rows:
    """Deviation of the softmax's arguments in one text, and 1/Σ π², the tokens attended."""
    network = Network.poclopez2024()
    load = 0.0
    beta = 2.0
    window: np.ndarray | None = _START
    if rule != _RULES[2]:
        network = network.with_parameters(epsilon=0.0)
        load = _LOAD
        beta = 1.0
        window = None
    if rule != "fixed":
        # Overlaps √N m in place of m, and 1/√P in front of their products.
        features = network.features + round(load * size)
        network = network.with_parameters(gamma=size / np.sqrt(features))
    text = simulate_loaded(
        network, size=size, load=load, beta=beta, steps=20, seed=seed, window=window
    )
    scores = text.scores
    attended = 1.0 / (softmax(scores, axis=1) ** 2).sum(axis=1)
    return rows_of(deviation=np.sqrt((scores**2).mean()), attended=attended.mean())


@cache
def _theory(gamma: float, beta: float, load: float) -> np.ndarray:
    """Mean bits (30, L) of the tokens after `_START`."""
    network = Network.poclopez2024().with_parameters(gamma=gamma)
    return loaded_path(network, _START, beta=beta, load=load, steps=_STEPS).means


def distances_from_theory(
    gamma: float, *, size: int, load: float, beta: float, seed: int
) -> list[float]:
    """Root mean square distance of a text's mean bits from the theory, with and without load."""
    network = Network.poclopez2024().with_parameters(gamma=gamma)
    run = simulate_loaded(
        network, size=size, load=load, beta=beta, steps=_STEPS, seed=seed, window=_START
    )
    off = [run.means - _theory(gamma, beta, at) for at in (load, 0.0)]
    return [float(np.sqrt((gap**2).mean())) for gap in off]


@stored("paths", parameter_product(size=_SIZES, seed=_SEEDS), seconds=0.1)
def paths_table(size: int, *, seed: int) -> Rows:
    """Distance of one text from the theory, with and without load."""
    loaded, bare = distances_from_theory(_GAMMA, size=size, load=_LOAD, beta=1.4, seed=seed)
    return [{"with": loaded, "without": bare}]


_AT_REST = ((0.25, 1.0), (0.5, 0.5), (0.5, 1.0), (1.0, 1.0))


@stored(
    "rest",
    [{"load": at, "beta": beta, "seed": n} for at, beta in _AT_REST for n in _SEEDS],
    seconds=0.2,
)
def rest_table(load: float, *, beta: float, seed: int) -> Rows:
    """Token correlations C(1), C(2) and the crosstalk in one text at rest, with flat attention."""
    network = Network.poclopez2024().with_parameters(gamma=0.0, epsilon=0.0)
    drop = 40
    run = simulate_loaded(network, size=1500, load=load, beta=beta, steps=120, seed=seed)
    late = run.correlation[drop:, drop:]
    return rows_of(
        first=np.diagonal(late, 1).mean(),
        second=np.diagonal(late, 2).mean(),
        noise=run.noise[drop:].mean(),
    )


@cache
def loaded_onset(load: float) -> tuple[float, float, float]:
    """β where the few start to move at a load, or 0; the best β, and the gain there."""
    critical = onset(Network.poclopez2024(), epsilon=0.0).critical_beta
    top = 20.0

    def gain(beta: float) -> float:
        return resting_state(float(beta), load=load, context=4).gain

    best = minimize_scalar(lambda beta: -gain(beta), bounds=(0.5, top), method="bounded").x
    best = max(top, float(best), key=gain)
    moves = gain(best) >= critical
    start = brentq(lambda beta: gain(beta) - critical, 0.5, best) if moves else 0.0
    return float(start), best, gain(best)


@stored("limits", [{"load": round(0.05 * n, 2)} for n in range(25)], checked=6, seconds=0.1)
def limits_table(load: float) -> Rows:
    """What the theory says at a load: β of the onset (0: none), the best β and the gain there."""
    start, best, gain = loaded_onset(load)
    return [{"onset": start, "best": best, "gain": gain}]


def largest_load(table: dict[str, np.ndarray]) -> float:
    """The load at which the largest gain, from `limits_table`, falls to the onset without load."""
    falling = np.argsort(table["gain"])
    return float(np.interp(table["onset"][0], table["gain"][falling], table["load"][falling]))


@stored(
    "onsets",
    parameter_product(load=(0.15, 0.3, 0.8, 1.2), size=_SIZES[:3], seed=(1, 2, 3, 4, 5)),
    seconds=1.5,
)
def onsets_table(load: float, *, size: int, seed: int) -> Rows:
    """Root mean square overlap m^o with the few features in one text, at the best β of the load."""
    network = Network.poclopez2024().with_parameters(gamma=_GAMMA, epsilon=0.0)
    beta = min(loaded_onset(load)[1], 4.0)
    run = simulate_loaded(
        network, size=size, load=load, beta=beta, steps=160, seed=seed, window=_START
    )
    overlap = network.overlaps(run.means[80:])[:, OUTPUT]
    return [{"beta": beta, "overlap": float(np.sqrt((overlap**2).mean()))}]


def power(table: dict[str, np.ndarray], *, column: str, chosen: np.ndarray) -> PowerLaw:
    """The power of N with which the mean over seeds of a column changes, over `chosen` rows."""
    sizes = np.unique(table["size"][chosen])
    means = [mean_estimate(table[column][chosen & (table["size"] == size)]) for size in sizes]
    return fit_power_law(
        sizes, values=[mean.value for mean in means], errors=[mean.error for mean in means]
    )

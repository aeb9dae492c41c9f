"""Long runs of finite networks: exponents of texts that share their noise, stationary laws."""

from operator import itemgetter

import numpy as np
from scipy.stats import binom, wasserstein_distance

from bookmaker.tables import Rows, stored
from compendium.common.finite_size import (
    limit_exponents,
    settled_ensemble,
    spread_windows,
    whole_bits,
)
from compendium.common.rows import parameter_product, rows_of
from compendium.common.stored_exponents import exponent_of_chaos
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import mean_estimate
from spinformer.dmft.corrections import (
    next_means,
)
from spinformer.dmft.finite_size import generate, semantic_overlaps
from spinformer.dmft.network import Network

# β of the stationary laws, each with one attractor for all of 96 random contexts.
_LAWS = {"driven": 0.5, "quasi-periodic": 1.255, "chaos at 1.28": 1.28, "chaos at 1.4": 1.4}
_SNAPSHOTS = 20
_BETWEEN = 101
# Tokens between two times that a distance is set back: once around the clock of the document.
_EVERY = 4
# Tokens until every random context has settled; at β = 1.27 one in five needs more than 3,000.
_SETTLED = 30_000
# β of chaos whose exponents are known far better than sixteen contexts give them.
_CHAOTIC = (1.28, 1.4)
# Pairs of texts behind an exponent.
_PAIRS = 24


def coupled_growth(
    network: Network,
    size: int,
    *,
    beta: float,
    windows: np.ndarray,
    position: int,
    steps: int,
    transient: int,
    seed: Seed,
) -> np.ndarray:
    """Growth (nats a token) of the distance of pairs of texts that share their noise, if they part.

    windows: (R, T, L), where the R pairs begin, the second of each off in a random direction, which
    `transient` tokens turn. Every four tokens the distance is set back to a tenth of N^{-1/2}:
    segments move in steps, and pairs nearer than one merge. Stretches at whose end a pair has
    merged do not count.
    """
    counts = network.counts(size)
    reach = 0.1 / np.sqrt(size)
    rng = numpy_generator(seed)
    first = windows
    away = rng.standard_normal(windows.shape)
    logs = []
    for begin in range(position, position + transient + steps, _EVERY):
        # Merged pairs begin anew in a direction of their own.
        fresh = rng.standard_normal(first.shape)
        away = np.where(away.any(axis=(1, 2), keepdims=True), away, fresh)
        away = away / np.linalg.norm(away, axis=(1, 2), keepdims=True)
        pairs = np.concatenate([first, first + reach * away])
        for place in range(begin, begin + _EVERY):
            uniform = np.tile(rng.random((len(first), network.segments)), (2, 1))
            up = 0.5 * (1.0 + next_means(network, pairs, beta=beta, position=place))
            tokens = 2.0 * binom.ppf(uniform, counts, up) / counts - 1.0
            pairs = np.concatenate([pairs[:, 1:], tokens[:, None]], axis=1)
        first, second = np.split(pairs, 2)
        away = second - first
        with np.errstate(divide="ignore"):
            logs.append(np.log(np.linalg.norm(away, axis=(1, 2)) / reach) / _EVERY)
    table = np.ma.masked_invalid(logs[transient // _EVERY :])
    return np.asarray(table.mean(axis=0).compressed())


@stored(
    "stationary",
    sorted(
        parameter_product(regime=_LAWS, exponent=(2.0, 3.0, 4.0, 5.0, 6.0, 7.0), seed=(0, 1)),
        key=itemgetter("seed"),
    ),
    seconds=1.5,
    within={"distance": 0.005, "null": 0.001, "floor": 1e-9},
)
def stationary_table(regime: str, *, exponent: float, seed: int) -> Rows:
    """Distance of the stationary law of N = 10^exponent bits from the measure of the attractor.

    Mean over the overlaps of the Wasserstein-1 distance, of 500 texts and twenty looks at four
    tokens each. null: for two halves of the texts; floor: for two samples of the attractor.
    """
    return stationary_distances(_LAWS[regime], exponent=exponent, seed=seed)


def stationary_distances(beta: float, *, exponent: float, seed: int) -> Rows:
    """The row of `stationary_table` at any β."""
    network = Network.poclopez2024()
    size = whole_bits(10.0**exponent)
    texts = 500
    rng = numpy_generator(seed)
    windows, place = spread_windows(beta, count=texts, settle=5_000, seed=rng)
    result = []
    for look in range(_SNAPSHOTS):
        steps = 1000 if look == 0 else _BETWEEN
        windows = generate(
            network,
            size,
            beta=beta,
            window=windows,
            steps=steps,
            runs=texts,
            seed=rng,
            position=place,
            draw_window=look == 0,
        ).tokens[:, -network.context :]
        place += steps
        result.append(semantic_overlaps(network, windows))
    law = np.concatenate(result, axis=1)
    limits = []
    for _ in range(2):
        ensemble = settled_ensemble(rng, beta=beta, count=texts, settle=5_000)
        looks = []
        for _ in range(_SNAPSHOTS):
            looks.append(ensemble.record(network.context))
            ensemble.advance(_BETWEEN - network.context)
        limits.append(np.concatenate(looks, axis=1))
    return rows_of(
        bits=size,
        distance=_transport(law, limits[0]),
        null=_transport(law[::2], law[1::2]),
        floor=_transport(limits[0], limits[1]),
    )


def _transport(one: np.ndarray, other: np.ndarray) -> float:
    """Wasserstein-1 distance of samples (texts, tokens, P), averaged over the last axis."""
    ways = range(one.shape[-1])
    result = [wasserstein_distance(one[..., a].ravel(), other[..., a].ravel()) for a in ways]
    return float(np.mean(result))


@stored(
    "exponents",
    sorted(
        parameter_product(
            beta=(1.255, 1.27, 1.28, 1.4), exponent=(4.0, 5.0, 6.0, 7.0, 8.0), seed=(0, 1)
        ),
        key=itemgetter("seed"),
    ),
    checked=6,
    seconds=0.7,
    within={"growth": 0.03, "error": 0.01, "limit": 0.005},
)
def exponents_table(beta: float, *, exponent: float, seed: int) -> Rows:
    """Growth per token of the distance of two texts that share their noise.

    limit: of the mean field, the median of sixteen random contexts.
    """
    size = whole_bits(10.0**exponent)
    network = Network.poclopez2024()
    windows, position = spread_windows(beta, count=_PAIRS, settle=_SETTLED, seed=seed)
    rates = coupled_growth(
        network,
        size,
        beta=beta,
        windows=windows,
        position=position,
        steps=400,
        transient=200,
        seed=seed,
    )
    growth = mean_estimate(rates)
    middle = np.median(limit_exponents(beta, count=16, transient=20_000))
    return rows_of(bits=size, growth=growth.value, error=growth.error, limit=middle)


def mean_field_exponent(beta: float) -> float:
    """Leading exponent of the limit: converged for chaos, that of `exponents_table`, or a mean.

    At other β the mean of 64 random contexts.
    """
    if beta in _CHAOTIC:
        return float(exponent_of_chaos(beta).value)
    table = exponents_table.read()
    here = table["beta"] == beta
    return float(
        table["limit"][here][0]
        if here.any()
        else limit_exponents(beta, count=64, transient=_SETTLED).mean()
    )

"""Letters and words: deviations from the mean field, regimes, lists of words.

A list of V of all q^N tokens, drawn at random, is a random energy model (Derrida 1981): where
ln V / N is below the information ΔS of a site, in nats, the softmax condenses on its best words.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.optimize import brentq
from scipy.special import entr, gammaln, softmax

from bookmaker.tables import Rows, stored
from compendium.c35_other_tokens.letters import (
    GAMMA,
    LetterNetwork,
    generate_letters,
    letter_overlaps,
    letter_path,
    letter_window,
    potts,
    predicted_deviation,
    vocabulary,
)
from compendium.common.rows import Columns, parameter_product, rows_of
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import fit_power_law, mean_estimate
from spinformer.dmft.attractors import Regime, find_attractors
from spinformer.dmft.linear_stability import onset
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import OUTPUT, Network

_STEPS = 8
_SIZES = (3_000, 30_000, 300_000, 3_000_000, 30_000_000, 300_000_000)
# Letters, and words of the list or 0 for sites.
SITES = ((2, 0), (3, 0), (4, 0), (8, 0))
WORD_LISTS = ((2, 64), (2, 256), (8, 64))
FAMILIES = {"first": range(10), "second": range(100, 110)}
_BLOCK = 25
# One step of the published network from this attention vector.
ATTENTION = np.array([0.3, -0.2, 0.4])
BETA = 1.5


@stored(
    "deviations",
    [
        {"letters": letters, "words": words, "seed": seed}
        for letters, words in (*SITES, *WORD_LISTS)
        for seeds in FAMILIES.values()
        for seed in seeds
    ],
    seconds=0.2,
    within={"deviation": 0.02, "error": 0.01},
)
def deviations_table(
    letters: int, *, words: int, seed: int, sizes: Sequence[int] = _SIZES, runs: int = 1000
) -> Rows:
    """One row for each N: root mean square of |m − m_∞| over texts and eight tokens.

    words: 0, every site is drawn on its own; else each token is one of so many words. `predicted`:
    the theory of first order in the noise.
    """
    sites = LetterNetwork.segmented(seed, letters=letters)
    rows = []
    for size in sizes:
        network = sites
        drawn = size
        if words:
            network = vocabulary(sites, size, words=words, seed=seed + 1)
            drawn = 1
        variance = float((network.semantic[OUTPUT] ** 2).mean())
        network = network.with_parameters(gamma=GAMMA / variance)
        beta = BETA / variance
        start = random_contexts(network, seed, count=1).select(0)
        _, context = trajectory(network, start, beta=beta, steps=0, transient=1000, threads=1)
        window = letter_window(network, context, beta=beta)
        position = context.position
        path = letter_path(network, window, beta=beta, steps=_STEPS, position=position)
        texts = generate_letters(
            network,
            window,
            size=drawn,
            beta=beta,
            steps=_STEPS,
            position=position,
            runs=runs,
            seed=seed,
        )
        off = letter_overlaps(network, texts[:, -_STEPS:] - path[-_STEPS:])
        square = mean_estimate((off**2).sum(axis=2).mean(axis=1))
        rms = float(np.sqrt(square.value))
        predicted = predicted_deviation(network, beta, path=path, position=position)[-_STEPS:]
        theory = np.sqrt((predicted**2).mean() / drawn)
        error = square.error / (2.0 * rms)
        rows += rows_of(size=size, deviation=rms, error=error, predicted=theory)
    return rows


def fit_exponents(
    table: Columns, *, letters: int, words: int, seeds: Sequence[int], smallest: int = 30_000
) -> np.ndarray:
    """Exponent of the deviation against N of each network, from N = `smallest` on: (seeds,)."""
    mine = (table["letters"] == letters) & (table["words"] == words) & (table["size"] >= smallest)
    powers = []
    for seed in seeds:
        keep = mine & (table["seed"] == seed)
        law = fit_power_law(
            table["size"][keep], values=table["deviation"][keep], errors=table["error"][keep]
        )
        powers.append(law.slope.value)
    return np.array(powers)


@stored(
    "regimes",
    parameter_product(
        letters=(2, 3, 4, 8), first=(*range(1000, 1100, _BLOCK), *range(2000, 2100, _BLOCK))
    ),
    seconds=1.5,
    within={"quasi": 2, "lasting": 2},
)
def regimes_table(letters: int, *, first: int) -> Rows:
    """One row for each of 25 random networks, of seeds `first`, `first` + 1, …

    At how many of 48 values of β an orbit is quasi-periodic after 10,000 steps, and at how many
    chaos lasts for twice as many more; where rest gives way.
    """
    seeds = range(first, first + _BLOCK)
    steps = 10_000
    look = partial(find_attractors, kept=6000, exponents=1, exponent_steps=steps, bins=1, threads=1)
    machines = [LetterNetwork.segmented(seed, letters=letters) for seed in seeds]
    beta = np.linspace(0.5, 4.0, 48) * (letters - 1)
    start = random_contexts(machines[0], first, count=len(beta))
    rows = []
    for seed, machine in zip(seeds, machines, strict=True):
        result = look(machine, start, beta=beta, transient=steps)
        lasting = 0
        chaotic = result.regime == Regime.CHAOTIC
        if chaotic.any():
            ends = result.context.select(chaotic)
            later = look(machine, ends, beta=beta[chaotic], transient=2 * steps)
            lasting = (later.regime == Regime.CHAOTIC).sum()
        quasi = (result.regime == Regime.QUASI_PERIODIC).sum()
        loss = onset(machine, epsilon=0.0).critical_beta / (letters - 1)
        rows += rows_of(seed=seed, quasi=quasi, lasting=lasting, onset=loss)
    return rows


def one_feature(letters: int, *, context: int = 1) -> LetterNetwork:
    """The network with P = L = 1, the same letter in all roles, no position and γ = 1 in units."""
    return LetterNetwork(
        semantic=potts(np.zeros((4, 1, 1)), letters=letters),
        position=np.zeros((4, 1, 0)),
        context=context,
        gamma=letters - 1.0,
        epsilon=0.0,
    )


def site_information(network: LetterNetwork, attention: np.ndarray, *, beta: float) -> float:
    """ΔS, nats a site: information of a letter given the attention vector (P,)."""
    chance = network.probabilities(attention, beta=beta)
    return float(np.log(network.letters) - network.fractions @ entr(chance).sum(axis=1))


def freezing_beta(network: LetterNetwork, attention: np.ndarray, *, log_words: float) -> float:
    """β*, where `site_information` reaches `log_words` = ln V / N; ∞ beyond 1000."""

    def missing(beta: float) -> float:
        return site_information(network, attention, beta=beta) - log_words

    if missing(1e3) <= 0.0:
        return float("inf")
    return float(brentq(missing, 0.0, 1e3, xtol=1e-12))


def random_words(
    network: Network, size: int, *, log_words: float, attention: np.ndarray, beta: float, seed: Seed
) -> tuple[np.ndarray, float]:
    """Mean (P,) and spread of one draw of the output overlaps from V = exp(N `log_words`) words.

    Words of N bits with as many ones in every segment have the same logit; how many of the list
    fall into such a cell is a Poisson number, so that V may be astronomically large.
    """
    counts = network.counts(size)
    ones = np.stack(np.meshgrid(*(np.arange(n + 1.0) for n in counts), indexing="ij"), axis=-1)
    ones = ones.reshape(-1, len(counts))
    ways = (gammaln(counts + 1) - gammaln(ones + 1) - gammaln(counts - ones + 1)).sum(axis=1)
    expected = np.exp(np.minimum(size * (log_words - np.log(2.0)) + ways, 700.0))
    # Beyond so many words in a cell their number is as good as certain.
    drawn = expected.copy()
    few = expected < 1e12
    drawn[few] = numpy_generator(seed).poisson(expected[few])
    overlaps = (2.0 * ones / counts - 1.0) @ (network.semantic[OUTPUT] * network.fractions).T
    with np.errstate(divide="ignore"):
        weight = softmax(beta * size * overlaps @ attention + np.log(drawn))
    mean = weight @ overlaps
    return mean, float(np.sqrt(weight @ ((overlaps - mean) ** 2).sum(axis=1)))


@stored(
    "words",
    [
        {"size": size, "share": share, "first": first}
        for first in (0, 1000)
        for size in (30, 60, 120, 240)
        for share in (0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.8, 1.0)
    ],
    seconds=0.1,
)
def words_table(size: int, *, share: float, first: int, lists: int = 20) -> Rows:
    """Lists of V = 2^(`share` N) words of N = `size` bits, seeds from `first`, as one row.

    gap: rms distance of the mean overlaps from those of sites; frozen: what it tends to. spread:
    rms distance of a draw from its mean; sites: that of N sites.
    """
    network = Network.poclopez2024()
    letters = LetterNetwork.from_binary(network)
    log_words = share * np.log(2.0)
    cold = min(BETA, freezing_beta(letters, ATTENTION, log_words=log_words))
    goal = letters.mean_overlaps(ATTENTION, beta=np.array(BETA))[OUTPUT]
    frozen = letters.mean_overlaps(ATTENTION, beta=np.array(cold))[OUTPUT]
    means = []
    spreads = []
    for seed in range(first, first + lists):
        mean, spread = random_words(
            network, size, log_words=log_words, attention=ATTENTION, beta=BETA, seed=seed
        )
        means.append(mean)
        spreads.append(spread)
    squares = ((np.array(means) - goal) ** 2).sum(axis=1)
    gap = float(np.sqrt(squares.mean()))
    bits = np.tanh(BETA * (ATTENTION @ network.semantic[OUTPUT]))
    variance = float(network.features * (network.fractions @ (1.0 - bits**2)))
    return rows_of(
        gap=gap,
        error=squares.std(ddof=1) / np.sqrt(lists) / (2.0 * max(gap, 1e-300)),
        frozen=np.linalg.norm(frozen - goal),
        spread=np.sqrt(np.mean(np.square(spreads))),
        sites=np.sqrt(variance / size),
    )

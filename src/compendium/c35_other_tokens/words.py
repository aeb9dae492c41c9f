"""How many words must a vocabulary have before its softmax behaves like that of many sites?

A softmax over *all* q^N tokens of N sites with the logits β N Σ_a A_a m^o_a factorizes: it is the
network of sites. A vocabulary lists V of these tokens. Drawn at random it is a random energy model
(Derrida 1981): around overlaps that the sites would have with probabilities p lie
V exp(−N ΔS) words, with

    ΔS = Σ_l f_l Σ_s p_{l,s} ln(q p_{l,s}) ,

the information of a site in nats, relative to a uniform letter. If ln V / N > ΔS there are
exponentially many such words, and the softmax over the list gives the means of the sites. If
ln V / N < ΔS there is none, and the softmax condenses on the few best words of the list: their
overlaps are those of sites at the inverse temperature β* < β at which ΔS(β*) = ln V / N.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaln

from spinformer.core.checks import check_array, check_instance, check_real
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.dmft.letters import LetterNetwork
from spinformer.dmft.network import OUTPUT, Network

# Beyond so many expected words in a cell their number is as good as certain.
_CERTAIN = 1e12


def site_information(network: LetterNetwork, attention: np.ndarray, *, beta: float) -> float:
    """ΔS, nats a site: information of a letter given the attention vector (P,).

    >>> f"{site_information(LetterNetwork.document(3), np.zeros(3), beta=1.0):.6f}"
    '0.000000'
    """
    check_instance("network", network, LetterNetwork)
    attention = check_array("attention", attention, shape=(network.features,))
    chance = network.probabilities(attention, beta=check_real("beta", beta, low=0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(chance > 0.0, chance * np.log(network.letters * chance), 0.0)
    return float(network.fractions @ terms.sum(axis=1))


def freezing_beta(
    network: LetterNetwork, attention: np.ndarray, *, log_words: float, highest: float = 1e3
) -> float:
    """β*, where `site_information` reaches `log_words` = ln V / N nats a site; ∞ beyond `highest`.

    >>> network, vector = LetterNetwork.document(2), np.array([0.1, 0.2, 0.3])
    >>> found = freezing_beta(network, vector, log_words=0.3)
    >>> f"{site_information(network, vector, beta=found):.6f}"
    '0.300000'
    """
    log_words = check_real("log_words", log_words, low=0.0)
    highest = check_real("highest", highest, low=0.0)

    def missing(beta: float) -> float:
        return site_information(network, attention, beta=beta) - log_words

    if missing(highest) <= 0.0:
        return float("inf")
    return float(brentq(missing, 0.0, highest, xtol=1e-12))


@record
class WordDraw:
    """What one draw from a softmax over a list of random words is like.

    mean: (P,) output overlaps on average over the softmax. spread: root mean square distance of
    one draw's overlaps from `mean`. effective: exp of the entropy, how many words share the weight.
    """

    mean: np.ndarray
    spread: float
    effective: float


def random_words(
    network: Network,
    size: int,
    *,
    log_words: float,
    attention: np.ndarray,
    beta: float,
    seed: Seed,
) -> WordDraw:
    """A list of V = exp(N `log_words`) uniformly random words of N bits, and its softmax.

    Logits are β N Σ_a A_a m^o_a. Words with the same number of ones in every segment have the same
    logit, and how many words of the list fall into such a cell is a Poisson number, so that V may
    be astronomically large. N = `size` and L are limited by 10^7 cells. Raises ValueError where no
    word was drawn at all.

    >>> every = random_words(Network.document(), 60, log_words=np.log(2.0),
    ...                      attention=np.array([0.1, 0.2, 0.3]), beta=1.0, seed=0)
    >>> sites = np.tanh(np.array([0.1, 0.2, 0.3]) @ Network.document().semantic[0])
    >>> bool(np.abs(every.mean - Network.document().overlaps(sites)[0]).max() < 0.02)
    True
    """
    check_instance("network", network, Network)
    counts = network.counts(size)
    log_words = check_real("log_words", log_words, low=0.0)
    attention = check_array("attention", attention, shape=(network.features,))
    beta = check_real("beta", beta, low=0.0)
    cells = float(np.prod(counts + 1.0))
    if cells > 1e7:
        raise ValueError(f"size must give at most 10**7 cells, got {cells:.3g}")
    # One axis a segment: what belongs to a segment broadcasts along the others.
    ones = np.meshgrid(*(np.arange(n + 1.0) for n in counts), indexing="ij", sparse=True)
    spins = [2.0 * k / n - 1.0 for k, n in zip(ones, counts, strict=True)]
    ways = sum(
        gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
        for k, n in zip(ones, counts, strict=True)
    )
    expected = np.exp(np.minimum(size * (log_words - np.log(2.0)) + ways, 700.0))
    drawn = expected.copy()
    few = expected < _CERTAIN
    drawn[few] = numpy_generator(seed).poisson(expected[few])
    if not drawn.any():
        raise ValueError("log_words must be large enough for a word to be drawn")
    push = network.semantic[OUTPUT].T @ attention
    logit = sum(beta * n * h * x for n, h, x in zip(counts, push, spins, strict=True))
    with np.errstate(divide="ignore"):
        score = logit + np.log(drawn)
    weight = np.exp(score - score.max())
    weight /= weight.sum()
    middle = np.array([(weight * x).sum() for x in spins])
    off = [x - y for x, y in zip(spins, middle, strict=True)]
    joint = np.array([[(weight * x * y).sum() for x in off] for y in off])
    pattern = network.semantic[OUTPUT] * network.fractions
    mean = pattern @ middle
    spread = float(np.sqrt(np.einsum("al,lm,am->", pattern, joint, pattern)))
    held = weight > 0.0
    entropy = -float(weight[held] @ np.log(weight[held] / drawn[held]))
    return WordDraw(mean=mean, spread=spread, effective=float(np.exp(min(entropy, 700.0))))

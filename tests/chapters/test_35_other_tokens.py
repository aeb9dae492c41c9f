"""Chapter 35: rows of its tables computed again, and its claims against exact laws."""

import itertools

import numpy as np
import pytest

from compendium.c35_other_tokens.letter_tokens import (
    generate_letters,
    letter_overlaps,
    vocabulary,
)
from compendium.c35_other_tokens.letters import LetterNetwork
from compendium.c35_other_tokens.study import (
    word_rows,
)
from spinformer.core.statistics import fit_power
from spinformer.dmft.network import OUTPUT


def exact_deviation(network, size, beta):
    """Of one token from its mean, from one attention vector: every token by loops."""
    attention = np.array([0.5, -0.4, 0.7])
    chance = network.probabilities(attention, beta=beta)
    owner = np.repeat(np.arange(network.segments), network.counts(size))
    mean, square = np.zeros(3), 0.0
    for word in itertools.product(range(network.letters), repeat=size):
        weight = np.prod([chance[l, s] for l, s in zip(owner, word, strict=True)])
        overlap = sum(network.semantic[OUTPUT, :, l, s] for l, s in zip(owner, word, strict=True))
        mean += weight * overlap / size
        square += weight * ((overlap / size) ** 2).sum()
    return float(np.sqrt(square - (mean**2).sum()))


def test_the_error_of_a_gap_is_its_scatter_over_sets_of_lists():
    found = [word_rows(24, share=0.3, first=20 * k)[0] for k in range(60)]
    scatter = np.std([row["gap"] for row in found], ddof=1)
    assert np.mean([row["error"] for row in found]) == pytest.approx(scatter, rel=0.3)


@pytest.mark.claim("C17")
def test_the_deviation_of_letters_falls_as_the_root_of_their_number():
    # The exact sum over all tokens of one step shares no code with the draws or the theory.
    for letters, sizes in ((3, (3, 6, 9)), (4, (3, 6))):
        network = LetterNetwork.segmented(0, letters=letters)
        exact = [exact_deviation(network, size, 2.0) for size in sizes]
        slope = np.log(exact[-1] / exact[0]) / np.log(sizes[-1] / sizes[0])
        assert slope == pytest.approx(-0.5, abs=1e-9)


@pytest.mark.claim("C17b")
def test_the_deviation_of_words_does_not_fall():
    # One draw, from words whose sites are drawn here: variance of the list, not of the sites.
    sites, attention = LetterNetwork.segmented(7, letters=3), np.array([0.5, -0.4, 0.7])
    found, errors = [], []
    for size in (300, 30_000, 3_000_000):
        words = vocabulary(sites, size, words=64, seed=3).with_parameters(epsilon=0.0, gamma=0.0)
        value = words.semantic[:, :, 0]
        weight = np.exp(5.0 * attention @ value[OUTPUT])
        weight /= weight.sum()
        off = value[OUTPUT] - (value[OUTPUT] @ weight)[:, None]
        found.append(np.sqrt((weight * off**2).sum()))
        errors.append(0.01 * found[-1])
        how = {"window": np.tile(weight, (4, 1, 1)), "steps": 0, "runs": 2000, "position": 3}
        drawn = generate_letters(words, 1, beta=0.0, seed=0, **how)
        spread = np.sqrt(letter_overlaps(words, drawn).var(axis=0).sum(axis=-1))
        assert spread == pytest.approx(np.full(4, found[-1]), rel=0.06)
    fit = fit_power([300, 30_000, 3_000_000], values=found, errors=errors)
    assert abs(fit.slope.value) < 0.02

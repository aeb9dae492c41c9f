"""Chapter 35: rows of its tables computed again, and its claims against exact laws."""

import numpy as np
import pytest

from compendium.c35_other_tokens.letters import (
    LetterNetwork,
    enumerate_next,
    generate_letters,
    letter_overlaps,
    vocabulary,
)
from compendium.c35_other_tokens.study import WORDS
from spinformer.core.statistics import fit_power
from spinformer.dmft.network import OUTPUT

ATTENTION = np.array([0.5, -0.4, 0.7])


def test_the_error_of_a_gap_is_its_scatter_over_sets_of_lists():
    found = [WORDS.rows(size=24, share=0.3, first=20 * k)[0] for k in range(60)]
    scatter = np.std([row["gap"] for row in found], ddof=1)
    assert np.mean([row["error"] for row in found]) == pytest.approx(scatter, rel=0.3)


@pytest.mark.claim("C17")
def test_the_deviation_of_letters_falls_as_the_root_of_their_number():
    # The exact sum over all tokens of one step shares no code with the draws or the theory.
    for letters, sizes in ((3, (3, 6, 9)), (4, (3, 6))):
        network, exact = LetterNetwork.segmented(0, letters=letters), []
        for size in sizes:
            tokens, chance = enumerate_next(network, size, beta=2.0, attention=ATTENTION)
            overlap = network.overlaps(tokens)[:, OUTPUT]
            exact.append(np.sqrt(chance @ np.square(overlap - chance @ overlap).sum(axis=1)))
        slope = np.log(exact[-1] / exact[0]) / np.log(sizes[-1] / sizes[0])
        assert slope == pytest.approx(-0.5, abs=1e-9)


@pytest.mark.claim("C17b")
def test_the_deviation_of_words_does_not_fall():
    # One draw, from words whose sites are drawn here: variance of the list, not of the sites.
    sites = LetterNetwork.segmented(7, letters=3)
    found = []
    for size in (300, 30_000, 3_000_000):
        words = vocabulary(sites, size, words=64, seed=3).with_parameters(epsilon=0.0, gamma=0.0)
        value = words.semantic[:, :, 0]
        weight = np.exp(5.0 * ATTENTION @ value[OUTPUT])
        weight /= weight.sum()
        off = value[OUTPUT] - (value[OUTPUT] @ weight)[:, None]
        found.append(np.sqrt((weight * off**2).sum()))
        how = {"size": 1, "beta": 0.0, "steps": 0, "runs": 2000, "position": 3}
        drawn = generate_letters(words, np.tile(weight, (4, 1, 1)), seed=0, **how)
        spread = np.sqrt(letter_overlaps(words, drawn).var(axis=0).sum(axis=-1))
        assert spread == pytest.approx(np.full(4, found[-1]), rel=0.06)
    fit = fit_power([300, 30_000, 3_000_000], values=found, errors=0.01 * np.array(found))
    assert abs(fit.slope.value) < 0.02

"""Chapter 35: letters and words against bits, loops, enumeration, differences and sampling."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from known_networks import tangent_map
from open_cells import run_open_cells
from scipy.optimize import approx_fprime
from scipy.special import softmax
from scipy.stats import chisquare

from compendium.c35_other_tokens import letters as tokens_of, study
from compendium.c35_other_tokens.letters import LetterNetwork, letter_overlaps, vocabulary
from spinformer.core.statistics import fit_power_law
from spinformer.dmft.corrections import noise_covariance, predicted_rms
from spinformer.dmft.finite_size import linear_maps, mean_path
from spinformer.dmft.linear_stability import onset
from spinformer.dmft.lyapunov import lyapunov_spectrum, period_map
from spinformer.dmft.mean_field import random_contexts, step, trajectory
from spinformer.dmft.network import OUTPUT, Context, Network


def anything(letters, *, seed=0, features=2, segments=5):
    """Features that are no Potts features, segments of unequal size, two of them alike."""
    rng = np.random.default_rng(seed)
    semantic = rng.uniform(-1.0, 1.0, (4, features, segments, letters))
    semantic -= semantic.mean(axis=3, keepdims=True)
    semantic /= np.abs(semantic).max()
    if letters > 2:
        # One letter is pushed away, all others alike: a class of many that has a row of its own.
        alike = np.full((features, letters), 0.5 / (letters - 1))
        alike[:, 0] = -0.5
        semantic[0, :, 2] = alike
    # The same output features in another order of the letters: one group of the kernel.
    semantic[0, :, 1] = semantic[0, :, 0][:, ::-1]
    fractions = np.array([1.0, 2.0, 3.0, 1.0, 1.0])[:segments]
    return LetterNetwork(
        semantic=semantic,
        position=rng.choice((-1.0, 1.0), (4, features, 2)),
        context=3,
        gamma=30.0,
        epsilon=0.1,
        fractions=fractions / fractions.sum(),
    )


def document(letters):
    """The document's network, its signs read as the first two of q letters."""
    bits = LetterNetwork.from_binary(Network.poclopez2024())
    named = (Network.poclopez2024().semantic + 1.0) / 2.0
    gamma = (letters - 1) * bits.gamma
    return replace(bits, semantic=tokens_of.potts(named, letters=letters), gamma=gamma)


MACHINES = {
    "potts 2": LetterNetwork.segmented(3, letters=2),
    "potts 3": LetterNetwork.segmented(1, letters=3),
    "potts 8": LetterNetwork.segmented(2, letters=8, segments=6),
    "anything 2": anything(2),
    "anything 5": anything(5),
}


def test_the_document_with_two_letters():
    bits = Network.poclopez2024()
    letters = document(2)
    assert letters == LetterNetwork.from_binary(bits)
    # Old to new, newest at position 2, off the default.
    rng = np.random.default_rng(0)
    means = rng.uniform(-1.0, 1.0, (4, 3))
    window = np.stack([(1.0 - means) / 2.0, (1.0 + means) / 2.0], axis=-1)
    one = mean_path(bits, 1.1, window=means, steps=6, position=2)
    other = tokens_of.letter_path(letters, window, beta=1.1, steps=6, position=2)
    assert np.abs(other[..., 1] - other[..., 0] - one).max() < 1e-12
    maps = linear_maps(bits, 1.1, path=one, position=2)
    expected = predicted_rms(bits, noise_covariance(bits, one, maps=maps))
    found = tokens_of.predicted_deviation(letters, 1.1, path=other, position=2)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "beta", "steps"), [*((name, 1.3, 7) for name in MACHINES), ("potts 3", 1e5, 2)]
)
def test_the_compiled_step_is_the_plain_one_whatever_the_logits(name, beta, steps):
    network = MACHINES[name]
    start = context = random_contexts(network, 0, count=3)
    compiled, end = trajectory(network, start, beta=beta, steps=steps)
    for overlap in np.moveaxis(compiled, 1, 0):
        context, expected = step(network, context, beta)
        assert overlap == pytest.approx(expected, abs=1e-9)
    assert end.position == context.position
    if beta > 1e3:
        spectrum = lyapunov_spectrum(network, start, beta=beta, steps=20, count=2)
        assert (spectrum.exponents.value < 0.0).all()


@pytest.mark.parametrize("name", MACHINES)
def test_tangent_maps_by_finite_differences(name):
    network = MACHINES[name].with_parameters(gamma=5.0)
    context = random_contexts(network, 1, count=1).select(0)
    _, matrix = period_map(network, context, beta=1.4, steps=1)

    def after(flat):
        moved = Context(flat.reshape(context.attention.shape), 0)
        return step(network, moved, 1.4)[0].attention.ravel()

    flat = context.attention.ravel()
    slopes = [approx_fprime(flat, after, size) for size in (1e-6, -1e-6)]
    assert np.mean(slopes, axis=0) == pytest.approx(matrix, abs=1e-7)


@pytest.mark.parametrize("letters", [2, 3, 4, 8])
def test_onset_is_where_a_multiplier_reaches_the_unit_circle(letters):
    for seed in range(4):
        network = LetterNetwork.segmented(seed, letters=letters).with_parameters(epsilon=0.0)
        beta = onset(network).critical_beta
        still = Context(np.zeros((4, 3)), 0)
        maps = [tangent_map(network, still, b) for b in (beta, 0.99 * beta)]
        at, below = np.abs(np.linalg.eigvals(maps)).max(axis=1)
        # A double multiplier is known to the root of rounding only.
        assert at == pytest.approx(1.0, abs=1e-6)
        assert below < 1.0 - 1e-4


@pytest.mark.parametrize("letters", [2, 3, 8])
def test_the_network_of_one_feature_rests_on_the_closed_branch(letters):
    network = study.one_feature(letters, context=3)
    for logit in (1.0, 3.0):
        overlap = math.expm1(logit) / (math.exp(logit) + letters - 1)
        context = Context(np.full((3, 1), overlap), 0)
        beta = logit / (letters * overlap) * (letters - 1)
        following, _ = step(network, context, beta)
        assert following.attention == pytest.approx(context.attention, abs=1e-12)


def every_token(network, size, attention, beta):
    """Tokens site by site with their probabilities, by loops."""
    owner = np.repeat(np.arange(network.segments), network.counts(size))
    single = network.probabilities(attention, beta=beta)
    for word in itertools.product(range(network.letters), repeat=size):
        chance = math.prod(single[l, s] for l, s in zip(owner, word, strict=True))
        overlap = sum(network.semantic[:, :, l, s] for l, s in zip(owner, word, strict=True)) / size
        yield chance, overlap, word


@pytest.mark.parametrize("size", [3, 6])
def test_one_softmax_over_all_tokens_is_that_of_the_sites(size):
    network = document(3)
    attention = np.array([0.4, -0.3, 0.8])
    beta = 1.2
    every = list(every_token(network, size, attention, beta))
    chances = [chance for chance, _, _ in every]
    overlaps = [overlap for _, overlap, _ in every]
    tokens, law = tokens_of.enumerate_next(network, size, beta=beta, attention=attention)
    assert law == pytest.approx(np.array(chances), abs=1e-12)
    assert network.overlaps(tokens) == pytest.approx(np.array(overlaps), abs=1e-12)
    single = network.probabilities(attention, beta=beta)
    flat = np.reshape(overlaps, (len(law), -1))
    assert law @ flat == pytest.approx(network.overlaps(single).ravel())
    covariance = size * np.cov(flat.T, aweights=law, ddof=0)
    assert covariance == pytest.approx(tokens_of.overlap_covariance(network, single), abs=1e-12)


def test_draws_have_the_exact_law():
    network = document(3)
    size = 3
    beta = 2.0
    # A window whose letters are certain, so that its draws are known.
    window = np.eye(3)[np.random.default_rng(1).integers(3, size=(4, 3))]
    tokens = tokens_of.generate_letters(
        network, window, size=size, beta=beta, steps=1, position=1, runs=20_000, seed=2
    )
    assert (tokens[:, :4] == window).all()
    attention = tokens_of.attention_of_letters(network, window, position=1)
    law = [chance for chance, _, _ in every_token(network, size, attention, beta)]
    # One site a segment: the token names the word.
    word = tokens[:, -1].argmax(axis=-1) @ np.array([9, 3, 1])
    seen = np.bincount(word, minlength=27)
    assert chisquare(seen, np.array(law) * 20_000).pvalue > 1e-3


def test_large_networks_follow_the_mean_field_from_any_position():
    network = LetterNetwork.segmented(5, letters=4, segments=4)
    beta = 3.0
    start = random_contexts(network, 1, count=1).select(0)
    _, context = trajectory(network, start, beta=beta, steps=9, transient=50)
    window = tokens_of.letter_window(network, context, beta=beta)
    ahead, _ = trajectory(network, context, beta=beta, steps=5)
    position = context.position
    path = tokens_of.letter_path(network, window, beta=beta, steps=5, position=position)
    # The context's newest attention vector makes the newest token of the window.
    assert letter_overlaps(network, path[3:])[:5] == pytest.approx(ahead, abs=1e-9)
    size = 4 * 10**8
    tokens = tokens_of.generate_letters(
        network, window, size=size, beta=beta, steps=5, position=position, runs=400, seed=0
    )
    off = np.square(letter_overlaps(network, tokens - path)).sum(axis=2)
    predicted = tokens_of.predicted_deviation(network, beta, path=path, position=context.position)
    ratio = np.sqrt(size * off.mean(axis=0)) / predicted
    assert np.abs(ratio - 1.0).max() < 0.12


def test_a_vocabulary_is_one_site():
    sites = document(3)
    words = vocabulary(sites, 30, words=5, seed=0)
    assert (words.letters, words.segments) == (5, 1)
    attention = np.array([0.2, 0.5, -0.4])
    beta = 3.0
    weight = softmax([beta * attention @ words.semantic[0, :, 0, v] for v in range(5)])
    found = words.mean_overlaps(attention, beta=np.array(beta))
    assert found == pytest.approx(words.semantic[:, :, 0] @ weight)
    drawn = tokens_of.generate_letters(
        words, np.full((4, 1, 5), 0.2), size=1, beta=beta, steps=3, position=3, runs=20, seed=0
    )
    assert set(np.unique(drawn)) == {0.0, 1.0}
    # Scaled down where an overlap exceeds one, and not else.
    binary = document(2)
    few = [np.abs(vocabulary(binary, 3, words=3, seed=seed).semantic).max() for seed in range(8)]
    assert min(few) < max(few) == 1.0
    # Words are mixtures of letters drawn site by site: their spread is that of the simplex.
    spread = vocabulary(sites, 3 * 10**6, words=4000, seed=1).semantic[0, :, 0].var(axis=1)
    one = 1.5**2 * (2.0 / 9.0) / 4.0 / 3.0
    assert spread == pytest.approx(np.full(3, one), rel=0.1)


def test_information_of_a_site_and_its_inverse():
    network = anything(4)
    attention = np.array([0.5, -0.8])
    chance = network.probabilities(attention, beta=2.0)
    expected = float(network.fractions @ (chance * np.log(4 * chance)).sum(axis=1))
    assert study.site_information(network, attention, beta=2.0) == pytest.approx(expected)
    assert study.freezing_beta(network, attention, log_words=expected) == pytest.approx(2.0)
    assert study.freezing_beta(network, attention, log_words=2.0) == math.inf


def test_lists_of_words_drawn_one_by_one():
    network = Network.poclopez2024()
    size = 12
    words = 64
    beta = 0.8
    attention = np.array([0.3, -0.2, 0.4])
    rng = np.random.default_rng(0)
    weights = np.repeat(network.semantic[0], network.counts(size), axis=1)
    wanted = []
    for _ in range(1500):
        overlaps = rng.choice((-1.0, 1.0), (rng.poisson(words), size)) @ weights.T / size
        weight = softmax(beta * size * overlaps @ attention)
        mean = weight @ overlaps
        wanted.append([*mean, weight @ ((overlaps - mean) ** 2).sum(axis=1)])
    found = []
    for seed in range(1500):
        mean, spread = study.random_words(
            network,
            size,
            log_words=np.log(words) / size,
            attention=attention,
            beta=beta,
            seed=seed,
        )
        found.append([*mean, spread**2])
    error = np.std(wanted, axis=0) * math.sqrt(2 / 1500)
    assert (np.abs(np.mean(found, axis=0) - np.mean(wanted, axis=0)) < 4 * error).all()


def test_the_open_cells_write_as_the_package_does():
    cells = run_open_cells("35_other_tokens")
    network = LetterNetwork(
        semantic=cells["features_of_letters"],
        position=np.zeros((4, 3, 0)),
        context=4,
        gamma=10.0,
        epsilon=0.0,
    )
    window = np.eye(3)[[cells["named"][0, age % 3] for age in range(4)]]
    path = tokens_of.letter_path(network, window, beta=4.0, steps=8, position=0)
    mean = cells["write"](cells["mean_token"], 0)
    assert mean[:, OUTPUT] == pytest.approx(letter_overlaps(network, path)[-8:], abs=1e-12)
    predicted = tokens_of.predicted_deviation(network, 4.0, path=path, position=0)[-8:]
    sites = 3_000_000
    letters = cells["deviation"](cells["drawn_token"], cells["mean_token"], sites)
    assert letters == pytest.approx(np.sqrt((predicted**2).mean() / sites), rel=0.15)
    # The mean of what is drawn, one word after another, is that of the list, at every length.
    attention = np.array([0.3, -0.5, 0.2])
    for length in (30_000, sites):
        words = cells["word_list"](length)
        drawn = np.array([cells["drawn_word"](attention, length) for _ in range(2000)])
        chances = softmax(4.0 * words[:, 0] @ attention)
        assert cells["mean_word"](attention, length) == pytest.approx(
            np.einsum("w,wrf->rf", chances, words)
        )
        error = np.sqrt(chances @ words.reshape(64, -1) ** 2).max() / np.sqrt(2000)
        assert drawn.mean(axis=0) == pytest.approx(
            cells["mean_word"](attention, length), abs=5 * error
        )
    few = cells["deviation"](cells["drawn_word"], cells["mean_word"], 30_000)
    assert cells["deviation"](cells["drawn_word"], cells["mean_word"], sites) == pytest.approx(
        few, rel=0.2
    )


PUSH = np.array([0.5, -0.4, 0.7])


def test_the_error_of_a_gap_is_its_scatter_over_sets_of_lists():
    found = [study.words_table.rows(size=24, share=0.3, first=20 * k)[0] for k in range(60)]
    scatter = np.std([row["gap"] for row in found], ddof=1)
    assert np.mean([row["error"] for row in found]) == pytest.approx(scatter, rel=0.3)


@pytest.mark.claim("C17")
def test_the_deviation_of_letters_falls_as_the_root_of_their_number():
    # The exact sum over all tokens of one step shares no code with the draws or the theory.
    for letters, sizes in ((3, (3, 6, 9)), (4, (3, 6))):
        network = LetterNetwork.segmented(0, letters=letters)
        exact = []
        for size in sizes:
            tokens, chance = tokens_of.enumerate_next(network, size, beta=2.0, attention=PUSH)
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
        weight = softmax(5.0 * PUSH @ value[OUTPUT])
        off = value[OUTPUT] - (value[OUTPUT] @ weight)[:, None]
        found.append(np.sqrt((weight * off**2).sum()))
        drawn = tokens_of.generate_letters(
            words,
            np.tile(weight, (4, 1, 1)),
            size=1,
            beta=0.0,
            steps=0,
            runs=2000,
            position=3,
            seed=0,
        )
        spread = np.sqrt(letter_overlaps(words, drawn).var(axis=0).sum(axis=-1))
        assert spread == pytest.approx(np.full(4, found[-1]), rel=0.06)
    fit = fit_power_law([300, 30_000, 3_000_000], values=found, errors=0.01 * np.array(found))
    assert abs(fit.slope.value) < 0.02

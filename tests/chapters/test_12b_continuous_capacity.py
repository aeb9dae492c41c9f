"""Capacity of the continuous memory: against quadrature, enumeration, memories built otherwise."""

import itertools
from functools import cache

import numpy as np
import pytest
import torch
from open_cells import run_open_cells
from scipy.optimize import curve_fit
from scipy.stats import norm

from compendium.c12b_continuous_capacity import study
from compendium.common.models import encoder
from spinformer.hopfield.continuous import retrieve
from spinformer.language.text import sample_texts, text_windows
from spinformer.language.traces import trace_layers


@pytest.mark.claim("A13c")
def test_concentration_of_trained_heads_is_that_of_weights_written_out():
    """One head of MiniLM's first layer, from its weights; with and without [CLS] and [SEP]."""
    weights = {name: tensor.numpy() for name, tensor in encoder().model.state_dict().items()}
    windows = text_windows(encoder(), sample_texts()["law"], 40)[:1]
    states = trace_layers(encoder().model, windows)[0].inputs[0].numpy()

    def projected(name):
        prefix = f"encoder.layer.0.attention.self.{name}"
        return states @ weights[f"{prefix}.weight"].T + weights[f"{prefix}.bias"]

    asked = projected("query")
    held = projected("key")
    for special, inner in (("kept", slice(None)), ("left out", slice(1, -1))):
        scores = list(study.trained_scores("MiniLM", "law", length=40, special=special))
        result = study.concentrations(scores, spread=1.5)
        assert result.shape == (72, len(states[inner]))
        for head in (0, 7):
            part = slice(32 * head, 32 * head + 32)
            logits = 1.5 * asked[inner, part] @ held[inner, part].T / np.sqrt(32)
            shares = np.exp(logits - logits.max(1, keepdims=True))
            shares /= shares.sum(1, keepdims=True)
            np.testing.assert_allclose(result[head], (shares**2).sum(1), rtol=1e-5)


def log_mean(kappa, *, dim):
    """ln of the mean of e^{κu} over a component u of a unit vector, and the mean of u in it."""
    u = np.linspace(-1, 1, 40001)[1:-1]
    exponent = 0.5 * (dim - 3) * np.log1p(-(u**2))
    plain = np.exp(exponent - exponent.max())
    tilted = np.exp(exponent + kappa * u - (exponent + kappa * u).max())
    log = np.log(tilted.sum()) + (exponent + kappa * u).max()
    return log - np.log(plain.sum()) - exponent.max(), (tilted @ u) / tilted.sum()


# ln of the mean of e^{βu}, of which the rate is the Legendre transform, per component.
CUMULANTS = {
    # The next order is 1/d: extrapolated away.
    "spherical": lambda b: (log_mean(400 * b, dim=400)[0] - log_mean(200 * b, dim=200)[0]) / 200,
    "gaussian": lambda b: 0.5 * b**2,
    "binary": lambda b: np.log(np.mean(np.exp([b, -b]))),
}


@pytest.mark.parametrize("ensemble", CUMULANTS)
def test_capacity_is_where_the_largest_term_of_the_others_reaches_the_score(ensemble):
    tilts = np.linspace(0, 6, 601)
    cumulants = np.array([CUMULANTS[ensemble](b) for b in tilts])
    u = np.linspace(0, 3.0 if ensemble == "gaussian" else 0.999, 3001)
    rate = np.max(tilts * u[:, None] - cumulants, axis=1)
    for beta, overlap in itertools.product((0.3, 1.0, 2.5), (0.2, 0.6, 0.99)):
        load = study.capacity(beta, overlap=overlap, ensemble=ensemble)
        for factor, sign in ((0.98, -1), (1.02, 1)):
            there = rate <= factor * load
            noise = (factor * load - rate + beta * u)[there].max()
            assert sign * (noise - beta * overlap) > 0
    assert study.capacity(40.0, ensemble="binary") == pytest.approx(np.log(2))
    assert study.capacity(7.0, ensemble="gaussian") == 0.5
    assert study.capacity(0.5, ensemble="gaussian") == pytest.approx(0.375)


def test_counts_at_finite_width_are_exact_means():
    overlaps = np.array(list(itertools.product([-1.0, 1.0], repeat=10))).sum(1)
    wanted = np.log(1 + np.exp(7.0) / np.exp(0.7 * overlaps).mean())
    assert study.one_step_log_count(10, beta=0.7, ensemble="binary") == pytest.approx(wanted)
    for dim, beta in ((12, 1.0), (64, 1 / 8)):
        gap = beta * dim - log_mean(beta * dim, dim=dim)[0]
        assert study.one_step_log_count(dim, beta=beta) == pytest.approx(
            np.logaddexp(0, gap), abs=1e-5
        )


@cache
def fold_by_iteration(dim, *, beta):
    """ln(N − 1) at which the annealed state collapses (bisection), its reaction, its spread."""
    low = 1.0
    high = 16.0
    grid = np.linspace(0, 1, 201)
    logs, means = np.transpose([log_mean(beta * dim * t, dim=dim) for t in grid])
    while high - low > 1e-4:
        middle = 0.5 * (low + high)
        t = 1.0
        for _ in range(4000):
            log = np.interp(t, grid, logs)
            mean = np.interp(t, grid, means)
            weight = 1 / (1 + np.exp(middle + log - beta * dim * t))
            new = weight + (1 - weight) * mean
            if abs(new - t) < 1e-10:
                break
            t = new
        if t > 0.4:
            low = middle
            last = t
            held = weight
        else:
            high = middle
    kappa = beta * dim * last
    twice = log_mean(2 * kappa, dim=dim)[0] - 2 * log_mean(kappa, dim=dim)[0]
    reaction = beta * (1 - held) * dim * np.exp(twice - low)
    return low, reaction, np.sqrt((np.exp(twice) - 1) / np.exp(low))


@pytest.mark.parametrize("dim", [49, 144])
def test_fold_is_where_the_annealed_iteration_collapses(dim):
    beta = dim**-0.5
    log_sum, reaction, spread = fold_by_iteration(dim, beta=beta)
    fold = study.retrieval_fold(dim, beta=beta)
    assert fold.log_count == pytest.approx(np.logaddexp(0, log_sum - reaction), abs=2e-3)
    assert fold.spread == pytest.approx(spread, rel=0.03)


def memory(count, dim, *, seed):
    rows = torch.as_tensor(np.random.default_rng(seed).standard_normal((count, dim)))
    return dim**0.5 * torch.nn.functional.normalize(rows, dim=-1)


@pytest.mark.claim("A13")
def test_patterns_are_lost_at_the_fold_and_the_weight_is_shared_as_the_law_says():
    dim = 49
    beta = 1 / 7
    log_sum, reaction, spread = fold_by_iteration(dim, beta=beta)
    for shift, low, high in ((-2.5, 0.93, 1.0), (0.0, 0.3, 0.7), (2.5, 0.0, 0.07)):
        count = round(np.exp(log_sum - reaction + shift * spread)) + 1
        shares = []
        for seed in range(12):
            patterns = memory(count, dim, seed=seed)
            states = retrieve(
                patterns, queries=patterns, beta=beta, tolerance=1e-5, max_steps=400
            ).states
            shares.append(float(((states * patterns).sum(-1) > dim / 2).double().mean()))
        assert low <= np.mean(shares) <= high
    # The share by sorting: the fewest of 4096 weights that sum to 0.9.
    patterns = memory(4096, 64, seed=1)
    scores = memory(32, 64, seed=2) @ patterns.T / 8
    weights = torch.softmax(scores, -1).sort(descending=True).values
    share = float((weights.cumsum(-1) < 0.9).sum(-1).double().mean() + 1) / 4096
    assert share == pytest.approx(norm.cdf(0.2816), abs=0.02)


@pytest.mark.claim("A13b")
def test_half_as_cold_again_is_still_no_glass():
    for spread in (1.0, 1.5, 8.0):
        scores = memory(64, 64, seed=3) @ memory(512, 64, seed=4).T / 8
        y = float(torch.softmax(spread * scores, -1).square().sum(-1).mean())
        found = study.weight_concentration(512, dim=64, spreads=[spread], memories=4, seed=5)
        assert found.mean() == pytest.approx(y, rel=0.25)
        if spread < 2:
            assert y == pytest.approx(np.exp(spread**2) / 512, rel=0.35)
        else:
            assert y > 0.4


def test_iteration_in_single_precision_is_that_of_the_package():
    patterns = memory(90, 64, seed=6)
    starts = 0.8 * patterns[:40] + 0.6 * memory(40, 64, seed=7)
    exact = retrieve(patterns, queries=starts, beta=1 / 8, tolerance=1e-7, max_steps=400).states
    rows = patterns.numpy().astype(np.float32)
    overlaps = study.iterate(rows, starts=starts.numpy(), targets=rows[:40], beta=1 / 8)
    assert np.abs(overlaps - (exact * patterns[:40]).sum(-1).numpy() / 64).max() < 0.01
    assert 0.2 < (overlaps > 0.5).mean() < 1.0


def test_a_growing_memory_outweighs_where_its_sum_does():
    rng = np.random.default_rng(8)
    own = study.draw_patterns(64, dim=6, seed=rng)
    others = study.draw_patterns(2**14, dim=6, seed=rng)
    sums = np.cumsum(np.exp(0.8 * (own @ others.T - 6.0)), axis=1)
    wanted = np.where(sums[:, -1] >= 1, np.argmax(sums >= 1, axis=1) + 1, np.inf)
    assert (study.outweighed_at(6, beta=0.8, seed=8) == wanted).all()
    signs = study.draw_patterns(50, dim=6, ensemble="binary", seed=1)
    assert np.abs(signs).min() == 1.0


def test_levels_have_the_mean_of_the_sum_and_queries_feel_them():
    sums = np.exp(study.level_log_sums(500, dim=20, beta=0.2, samples=400, seed=9))
    exact = 500 * np.exp(log_mean(4.0, dim=20)[0])
    assert sums.mean() == pytest.approx(exact, rel=4 * sums.std() / sums.mean() / 20)
    needed = np.median(study.level_log_sums(120, dim=24, beta=1.0, samples=300, seed=10)) / 24
    one, rest = study.half_overlap(121, dim=24, beta=1.0, memories=6, seed=11)
    assert one.mean() == pytest.approx(needed, abs=0.025)
    assert rest.mean() < one.mean() + 0.02


def test_half_of_the_patterns_are_lost_at_the_fold_and_their_share_follows_it():
    fold = study.retrieval_fold(49, beta=1 / 7)
    log_counts = fold.log_count + fold.spread * np.linspace(-4, 4, 5)
    found = study.half_log_count(49, beta=1 / 7, log_counts=log_counts, memories=6, seed=14)
    assert found.mean() == pytest.approx(fold.log_count, abs=0.06)
    overlap, share = study.kept_patterns(128, dim=64, beta=1 / 8, memories=12, seed=13)
    fold = study.retrieval_fold(64, beta=1 / 8)
    theory = norm.cdf((fold.log_count - np.log(128)) / fold.spread)
    assert share.value == pytest.approx(theory, abs=4 * share.error)
    assert 0.01 < share.error < 0.1
    assert overlap.value == pytest.approx(0.36, abs=0.1)


def test_a_line_far_from_its_points_has_wider_errors():
    x = np.array([1.0, 2.0, 4.0])
    errors = np.array([0.1, 0.1, 0.2])
    for middle, widened in ((5.0, True), (6.0, False)):
        values = np.array([3.0, middle, 9.0])
        fit, covariance = curve_fit(
            lambda x, a, b: a + b * x, x, values, sigma=errors, absolute_sigma=widened
        )
        found = study.line_fit(x, values=values, errors=errors)
        assert [each.value for each in found] == pytest.approx(fit)
        assert [each.error for each in found] == pytest.approx(covariance.diagonal() ** 0.5)


def test_open_cells_predict_and_measure_where_a_pattern_is_outweighed():
    cells = run_open_cells("12b_continuous_capacity")
    wanted = study.one_step_log_count(14, beta=1.0)
    assert cells["predicted_log_count"] == pytest.approx(wanted, abs=1e-6)
    assert cells["log_count_outweighed"](40, beta=0.5) == pytest.approx(
        study.one_step_log_count(40, beta=0.5), abs=1e-6
    )
    # The median of two hundred logarithms that scatter by less than one.
    assert cells["measured_log_count"] == pytest.approx(wanted, abs=0.3)


def test_half_of_the_queries_find_a_warm_memory_where_annealed_levels_say():
    """Before the sum over N others condenses: β m d = ln N + β² d/2."""
    for beta in (0.2, 0.25):
        one_step, _ = study.half_overlap(30, dim=20, beta=beta, memories=8, seed=3)
        expected = (np.log(29) + 10 * beta**2) / (20 * beta)
        assert np.mean(one_step) == pytest.approx(expected, abs=0.03)

"""The generator as a map: its derivative against a dense one, N samples against sampling, the
tables against distances that grow from the fixed point of the real model."""

import numpy as np
import pytest
import torch
from known_generators import (
    Toy,
    dense_derivative,
    example_decoder,
    installed_decoder,
    separation_rate,
    word_windows,
)
from open_cells import run_open_cells

from compendium.c42_generator_as_a_map import study
from compendium.common import soft_tokens
from compendium.common.models import next_token_distribution
from compendium.common.rows import groupby
from spinformer.language.soft_map import SoftTokenMap


def test_multipliers_are_eigenvalues_of_the_dense_derivative():
    model, span = example_decoder(seed=3), 3
    (rest,), (residual,) = soft_tokens.find_rests(model, [6.0])
    assert residual < 1e-4
    # The rest does not know how long the window is.
    window = rest.expand(span, -1)
    torch.testing.assert_close(
        soft_tokens.soft_token(model, window[None], beta=6.0)[0], rest, atol=1e-4, rtol=0
    )
    found = soft_tokens.multipliers(model, rest, span=span + 4, beta=6.0, count=2)
    longer = np.linalg.eigvals(dense_derivative(model, rest.expand(span + 4, -1), beta=6.0))
    np.testing.assert_allclose(np.sort(abs(found))[::-1], np.sort(abs(longer))[:-3:-1], rtol=2e-3)


@pytest.mark.claim("R1")
def test_samples_leave_the_map_by_the_noise_of_one_word():
    model = example_decoder(seed=2)
    window = word_windows(model, span=3)
    chances = next_token_distribution(model, window, beta=2.0)[0]
    mean = chances @ model.embedding
    variance = float(chances @ (model.embedding - mean).square().sum(1))
    draws, options = 400, {"beta": 2.0, "samples": 64}
    rows = [study.noise_rows(model, window, draws=draws, seed=k, **options)[0] for k in range(40)]
    deviations, errors = (np.array([row[name] for row in rows]) for name in ("deviation", "error"))
    assert rows[0]["noise"] == pytest.approx((variance / 64) ** 0.5, rel=1e-9)
    assert deviations.mean() == pytest.approx(rows[0]["noise"], abs=4 * errors.mean() / 40**0.5)
    assert errors.mean() == pytest.approx(deviations.std(ddof=1), rel=0.4)
    said = soft_tokens.follow(model, window.expand(draws, -1, -1), steps=1, **options)[:, -1]
    gap = (said - mean).square().sum(1)
    assert float(gap.mean()) == pytest.approx(variance / 64, abs=4 * float(gap.std()) / 20)


@pytest.mark.claim("R2b")
def test_small_oscillations_begin_where_the_multipliers_lose_the_fixed_point():
    circles = dict(groupby(study.circle_table.read(), "span", "beta"))
    pairs = dict(groupby(study.pair_table.read(), "span"))
    assert 0.61 < soft_tokens.critical_beta(pairs[4]) < 0.6225
    # What was begun elsewhere comes to the same oscillation.
    cycle = study.cycle_table.read()["away"]
    np.testing.assert_allclose(np.square(cycle).mean() ** 0.5, circles[4, 0.63]["size"], rtol=0.01)
    # With eight tokens both attract, the fixed point and the oscillation, just below the loss.
    ends = {key: rows["size"] for key, rows in groupby(study.onset_table.read(), "beta", "share")}
    assert max(ends[0.6135, share][-1] for share in (0.15, 0.4, 1.0)) < 0.012
    assert ends[0.6143, 0.15][-1] < ends[0.6143, 0.15][0] < ends[0.6143, 0.4][0]
    assert ends[0.6143, 0.4][0] < ends[0.6143, 0.4][-1] < 1.1 * ends[0.6143, 1.0][-1]


@pytest.mark.nightly
@pytest.mark.claim("R2")
def test_small_distances_grow_from_the_rest_where_the_table_says():
    model = installed_decoder()
    rows = dict(groupby(study.rest_table.read(), "span", "bits"))[4, 32]
    rates = {}
    with torch.no_grad():
        for beta in (0.6, 0.65):
            token = model.embedding.mean(0)[None]
            for _ in range(60):
                # Half a step at a time: the plain iteration of one token is stable enough.
                token = 0.5 * token + 0.5 * soft_tokens.soft_token(model, token[None], beta=beta)
            rates[beta] = separation_rate(
                model, token.expand(4, -1), beta=beta, steps=75, size=1e-5
            )
            [stored] = rows["size"][rows["beta"] == beta]
            assert rates[beta] == pytest.approx(np.log(stored), abs=0.05)
    lost = 0.6 + 0.05 * rates[0.6] / (rates[0.6] - rates[0.65])
    assert lost == pytest.approx(soft_tokens.critical_beta(rows), abs=0.01)


def test_short_windows_keep_their_fixed_point():
    short = study.short_windows.read()
    assert (short["size"] < 1).all()
    table = study.settings_R2.read()
    assert table["value"][table["window"] <= 2].tolist() == pytest.approx([-1.2, -1.2])
    rests = study.rest_table.read()
    for window in (4, 8, 16, 32):
        rows = (rests["span"] == window) & (rests["bits"] == 32)
        [margin] = table["value"][table["window"] == window]
        # |μ| is below one at the β before the loss and above it at the β after.
        below = rests["beta"][rows][rests["size"][rows] < 1].max()
        above = rests["beta"][rows][rests["size"][rows] > 1].min()
        assert below < 0.8 - margin < above


def test_the_open_cells_are_what_the_package_computes():
    names = run_open_cells("42_generator_as_a_map")
    mixing = torch.as_tensor(names["mixing"])
    width = names["width"]
    toy = Toy(names["words"], lambda h, words: width * torch.tanh(h @ mixing.T) @ words.T)
    soft = SoftTokenMap(toy, window=1)
    lost = soft.critical_beta(within=(0.3, 0.33))
    assert names["toy_critical_beta"] == pytest.approx(lost.beta, abs=0.005)
    token = soft.fixed_point(beta=0.3).value
    assert abs(names["leading_multiplier"](0.3)) == pytest.approx(
        abs(soft.multipliers(token, beta=0.3)[0]), rel=1e-3
    )
    assert names["toy_deviation"] == pytest.approx(names["toy_prediction"], rel=0.05)
    start = torch.as_tensor(names["start"])[None]
    np.testing.assert_allclose(soft.step(start, beta=0.3)[1], names["mean"], atol=1e-12)

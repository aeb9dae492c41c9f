"""How many texts the mean field replaces: an exact chain, the expansion, and sampled networks."""

import numpy as np
import pytest
from open_cells import run_open_cells

from compendium.c37_statistics_of_attention import study
from spinformer.dmft.finite_size import attention_of_window
from spinformer.dmft.network import Network


@pytest.mark.claim("C27")
def test_a_markov_chain_needs_as_many_texts_as_the_expansion_says():
    cells = run_open_cells("37_statistics_of_attention")
    overlap, transition = cells["token_chain"](60, 1.3)
    np.testing.assert_allclose(transition.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(transition @ overlap, np.tanh(1.3 * overlap), atol=1e-12)
    # Slope and curvature of tanh(2 m) at its fixed point.
    fixed = 0.9575040240772687
    slope = 2.0 * (1.0 - fixed**2)
    curvature = -4.0 * fixed * slope
    noise = 1.0 - fixed**2
    expansion = 4.0 * (1.0 - slope) ** 2 * (1.0 - slope**2) / (curvature**2 * noise)
    assert cells["equivalent_texts"](800, 2.0, 20) / 800 == pytest.approx(expansion, rel=0.02)
    assert cells["exact_texts"] / 100 == pytest.approx(expansion, rel=0.1)


def test_sampled_attention_of_one_feature_is_that_of_the_chain():
    # Attention over one token returns its value, so that the chain above is this network.
    network = Network(
        semantic=np.ones((4, 1, 1)), position=np.ones((4, 1, 0)), context=1, gamma=0.0, epsilon=0.0
    )
    (found,) = study.attention_accuracy(
        network, 20, beta=1.5, settled=True, texts=40_000, seed=0, horizons=(8,)
    )
    overlap, transition = run_open_cells("37_statistics_of_attention")["token_chain"](20, 1.5)
    window, _ = study.starting_window(network, beta=1.5, settled=True, seed=0)
    limit = float(window[-1, 0])
    up = np.arange(21)
    ways = np.exp(
        [sum(np.log(np.arange(21 - k, 21))) - sum(np.log(np.arange(1, k + 1))) for k in up]
    )
    chance = ways * (0.5 * (1 + limit)) ** up * (0.5 * (1 - limit)) ** (20 - up)
    law = chance @ np.linalg.matrix_power(transition, 8)
    mean = law @ overlap
    assert found.spread**2 == pytest.approx(law @ overlap**2 - mean**2, rel=0.05)
    assert found.bias == pytest.approx(abs(mean - limit), abs=4 * found.error)
    assert found.error == pytest.approx(found.spread / 200.0, rel=1e-9)


def test_the_linear_theory_predicts_the_spread_of_a_large_network():
    network = study.normal_network(3)
    found = study.attention_accuracy(
        network, 99_990, beta=1.0, settled=True, texts=2000, seed=1, horizons=(1, 16)
    )
    for one in found:
        assert one.predicted_spread == pytest.approx(one.spread, rel=0.05)


def test_the_slope_of_attention_is_its_derivative():
    network = study.normal_network(0)
    rng = np.random.default_rng(0)
    window = rng.uniform(-0.5, 0.5, (6, 30))
    change = rng.normal(size=window.shape)
    slope = study.attention_slope(network, window, position=9)
    up = attention_of_window(network, window + 1e-4 * change, position=9)
    down = attention_of_window(network, window - 1e-4 * change, position=9)
    predicted = np.einsum("ptl,tl->p", slope, change)
    np.testing.assert_allclose((up - down) / 2e-4, predicted, rtol=1e-4, atol=1e-6)


def test_the_number_of_texts_is_a_lower_bound_where_no_bias_is_seen():
    hidden = study.Accuracy(8, spread=1.0, predicted_spread=1.0, bias=0.01, error=0.01)
    number, low, high = hidden.equivalent_texts()
    assert number == pytest.approx(1e4)
    assert low == pytest.approx(1e4 / 9)
    assert high == pytest.approx(4e4)
    seen = study.Accuracy(8, spread=1.0, predicted_spread=1.0, bias=0.1, error=0.001)
    number, low, high = seen.equivalent_texts()
    assert low < number < high
    assert number == pytest.approx(100.0, rel=0.01)

from itertools import product

import numpy as np
import pytest

from spinformer.core.states import hebbian_couplings, overlaps, spin_states


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_states_are_all_combinations_the_first_spin_slowest(count):
    expected = np.array(list(product((-1.0, 1.0), repeat=count))).reshape(2**count, count)
    np.testing.assert_array_equal(spin_states(count), expected)


def test_couplings_are_the_sum_over_patterns_written_out():
    rng = np.random.default_rng(0)
    x, y = rng.choice([-1.0, 1.0], (3, 5)), rng.choice([-1.0, 1.0], (3, 4))
    for i in range(5):
        for j in range(5):
            expected = sum(x[a, i] * x[a, j] for a in range(3))
            assert hebbian_couplings(x, diagonal=True)[i, j] == expected
            assert hebbian_couplings(x)[i, j] == (expected if i != j else 0.0)
        for j in range(4):
            expected = sum(x[a, i] * y[a, j] for a in range(3))
            assert hebbian_couplings(x, other=y)[i, j] == expected
    # A network with itself as the other half keeps its diagonal.
    np.testing.assert_array_equal(
        hebbian_couplings(x, other=x), hebbian_couplings(x, diagonal=True)
    )


def test_overlaps_are_means_over_spins_for_any_batch():
    rng = np.random.default_rng(1)
    patterns = rng.choice([-1.0, 1.0], (3, 8))
    states = rng.choice([-1.0, 1.0], (2, 5, 8))
    found = overlaps(states, patterns=patterns)
    assert found.shape == (2, 5, 3)
    for index in np.ndindex(2, 5, 3):
        expected = np.mean(states[index[:2]] * patterns[index[2]])
        assert found[index] == pytest.approx(expected, abs=1e-15)
    np.testing.assert_allclose(np.diagonal(overlaps(patterns, patterns=patterns)), 1.0)


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: spin_states(21), ValueError, "count"),
        (lambda: spin_states(2.0), TypeError, "count"),
        (lambda: hebbian_couplings(np.ones(3)), ValueError, "patterns"),
        (lambda: hebbian_couplings(np.ones((2, 3)), other=np.ones((3, 3))), ValueError, "other"),
        (lambda: hebbian_couplings(np.full((1, 2), np.nan)), ValueError, "patterns"),
        (lambda: overlaps(np.ones(3), patterns=np.ones((2, 4))), ValueError, "states"),
        (lambda: overlaps(1.0, patterns=np.ones((2, 4))), ValueError, "states"),
        (lambda: overlaps(np.ones(0), patterns=np.ones((2, 0))), ValueError, "states"),
        (lambda: overlaps(np.ones(3), patterns=np.ones(3)), ValueError, "patterns"),
    ],
)
def test_bad_input_names_the_argument(call, error, told):
    with pytest.raises(error, match=told):
        call()

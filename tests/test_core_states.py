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
    for first, second, found in (
        (x, y, hebbian_couplings(x, other=y)),
        (x, x, hebbian_couplings(x, diagonal=True)),
        (x, x, hebbian_couplings(x) + 3 * np.eye(5)),
        (x, x, hebbian_couplings(x, other=x)),
    ):
        for i, j in np.ndindex(found.shape):
            assert found[i, j] == sum(first[a, i] * second[a, j] for a in range(3))


def test_overlaps_are_means_over_spins_for_any_batch():
    rng = np.random.default_rng(1)
    patterns = rng.choice([-1.0, 1.0], (3, 8))
    states = rng.choice([-1.0, 1.0], (2, 5, 8))
    found = overlaps(states, patterns=patterns)
    expected = (states[:, :, None] * patterns).mean(-1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)

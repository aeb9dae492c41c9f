import numpy as np
import pytest

from compendium.c33c_bifurcations.zero_one import _mean_square_displacement, zero_one_test
from spinformer.core.chaos import kaplan_yorke_dimension


def logistic(r, n, x=0.3):
    for _ in range(500):
        x = r * x * (1 - x)
    out = np.empty(n)
    for i in range(n):
        x = r * x * (1 - x)
        out[i] = x
    return out


def test_displacement_is_the_plain_sum():
    walk = np.cumsum(np.exp(1j * np.arange(60) ** 2)).reshape(2, 30)
    wanted = [
        [np.mean([abs(w[j + m] - w[j]) ** 2 for j in range(27)]) for m in (1, 2, 3)] for w in walk
    ]
    np.testing.assert_allclose(_mean_square_displacement(walk, 27, 3), wanted, atol=1e-10)


@pytest.mark.parametrize(("r", "chaotic"), [(3.55, 0), (3.83, 0), (3.97, 1)])
def test_the_logistic_map(r, chaotic):
    for seed in (0, 1):
        found = zero_one_test(logistic(r, 4000), seed=seed)
        assert found.value == pytest.approx(chaotic, abs=0.06)
        assert found.error < 0.05
    # Neither an offset nor a unit matters.
    moved = zero_one_test(100.0 + 3.0 * logistic(r, 4000))
    assert moved.value == pytest.approx(chaotic, abs=0.06)


def test_quasi_periodic_series_and_the_error_of_the_median():
    wave = np.cos(2 * np.pi * 0.1 * np.sqrt(2) * np.arange(3000)) + 0.3 * np.sin(np.arange(3000))
    medians = [zero_one_test(wave, seed=seed, count=50) for seed in range(20)]
    values = np.array([found.value for found in medians])
    assert np.abs(values).max() < 0.1
    errors = np.mean([found.error for found in medians])
    assert 0.6 < values.std(ddof=1) / errors < 1.6
    assert medians[0].samples == 50
    noise = np.random.default_rng(0).standard_normal(1000)
    found = [zero_one_test(noise, seed=seed, count=50) for seed in range(60)]
    scatter = np.std([one.value for one in found], ddof=1)
    assert 0.75 < scatter / np.mean([one.error for one in found]) < 1.5
    # Frequencies near that of an alternation, where the test would resonate, are left out.
    alternating = np.where(np.arange(200) % 2, 1.0, -1.0)
    alone = [float(zero_one_test(alternating, count=1, seed=seed).value) for seed in range(60)]
    assert max(alone) < 0.5


def test_kaplan_yorke_by_hand():
    exponents = np.array(
        [[0.4, 0.0, -0.5, -9.0], [0.4, 0.0, -0.3, -0.4], [-1.0, -2, -3, -4], [1.0, 0, 0, -1.0]]
    )
    np.testing.assert_allclose(kaplan_yorke_dimension(exponents), [2.8, 3.25, 0.0, 4.0], atol=1e-12)
    # Hénon's map: the exponents sum to ln 0.3.
    leading = 0.41922
    henon = kaplan_yorke_dimension(np.array([leading, np.log(0.3) - leading]))
    assert henon == pytest.approx(1.258, abs=1e-3)


def test_what_is_refused():
    with pytest.raises(ValueError, match="sorted"):
        kaplan_yorke_dimension(np.array([0.0, 1.0]))
    with pytest.raises(ValueError, match="exponents"):
        kaplan_yorke_dimension(np.array(1.0))

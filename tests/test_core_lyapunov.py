import numpy as np
import pytest

from spinformer.core.chaos import kaplan_yorke_dimension
from spinformer.core.lyapunov import lyapunov_exponents


def test_a_linear_map_has_the_logarithms_of_its_eigenvalues():
    rng = np.random.default_rng(0)
    basis = rng.standard_normal((4, 4))
    matrix = basis @ np.diag([-1.7, 0.9, 0.4, 0.1]) @ np.linalg.inv(basis)
    for count in (1, 2, 4):
        found = lyapunov_exponents(
            lambda frame: matrix @ frame, dimension=4, steps=200, count=count, align=300
        )
        expected = np.log([1.7, 0.9, 0.4, 0.1])[:count]
        np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-10)
        assert (found.error < 1e-10).all()
        assert found.samples == 20
    # Without the steps that turn the frame the start counts, and the error shows it.
    early = lyapunov_exponents(lambda frame: matrix @ frame, dimension=4, steps=200)
    assert early.error[0] > 1e-5


def test_error_of_independent_factors():
    rng, found = np.random.default_rng(1), []
    for _ in range(200):
        draws = rng.standard_normal(85)
        factors = iter(np.exp(draws))
        one = lyapunov_exponents(
            lambda frame, left=factors: next(left) * frame,
            dimension=1, steps=80, align=5,
        )  # fmt: skip
        found.append(one.value[0])
        stretches = draws[5:].reshape(20, 4).mean(axis=1)
        assert one.value[0] == pytest.approx(stretches.mean(), abs=1e-12)
        assert one.error[0] == pytest.approx(stretches.std(ddof=1) / np.sqrt(20), rel=1e-12)
    assert np.std(found) == pytest.approx(1 / np.sqrt(80), rel=0.17)


def test_what_dies_has_no_error():
    dead = lyapunov_exponents(lambda frame: 0.0 * frame, dimension=2, steps=10, align=3)
    late = iter(range(100))
    dies = lyapunov_exponents(lambda frame: frame * (next(late) < 7), dimension=2, steps=10)
    for found in (dead, dies):
        assert found.value.tolist() == [-np.inf]
        assert np.isnan(found.error).all()
    part = lyapunov_exponents(
        lambda frame: np.diag([2.0, 0.0]) @ frame, dimension=2, steps=10, count=2, align=60
    )
    assert part.value[0] == pytest.approx(np.log(2.0), abs=1e-12)
    assert part.value[1] < -30
    single = lyapunov_exponents(lambda frame: 2.0 * frame, dimension=1, steps=1)
    assert np.isnan(single.error).all()


def test_kaplan_yorke_by_hand():
    exponents = np.array(
        [[0.4, 0.0, -0.5, -9.0], [0.4, 0.0, -0.3, -0.4], [-1.0, -2, -3, -4], [1.0, 0, 0, -1.0]]
    )
    np.testing.assert_allclose(kaplan_yorke_dimension(exponents), [2.8, 3.25, 0.0, 4.0], atol=1e-12)
    # Hénon's map: the exponents sum to ln 0.3.
    leading = 0.41922
    henon = kaplan_yorke_dimension(np.array([leading, np.log(0.3) - leading]))
    assert henon == pytest.approx(1.258, abs=1e-3)

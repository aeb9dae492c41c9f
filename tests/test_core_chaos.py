import numpy as np
import pytest

from spinformer.core.chaos import kaplan_yorke_dimension


def test_kaplan_yorke_by_hand():
    exponents = np.array(
        [[0.4, 0.0, -0.5, -9.0], [0.4, 0.0, -0.3, -0.4], [-1.0, -2, -3, -4], [1.0, 0, 0, -1.0]]
    )
    np.testing.assert_allclose(kaplan_yorke_dimension(exponents), [2.8, 3.25, 0.0, 4.0], atol=1e-12)
    # Hénon's map: the exponents sum to ln 0.3.
    leading = 0.41922
    henon = kaplan_yorke_dimension(np.array([leading, np.log(0.3) - leading]))
    assert henon == pytest.approx(1.258, abs=1e-3)

"""18b_trained_couplings: TODO what is compared with what."""

import numpy as np
import pytest
from open_cells import run_open_cells


# TODO compare a function of the package with something that shares no code with it.
@pytest.mark.claim("TODO")
def test_the_magnetization_rises_by_its_slope():
    beta = np.linspace(0.0, 3.0, 3001)
    rise = np.diff(np.tanh(0.5 * beta)) / np.diff(beta)
    middle = 0.5 * (beta[1:] + beta[:-1])
    np.testing.assert_allclose(rise, 0.5 / np.cosh(0.5 * middle) ** 2, atol=1e-6)
    assert (rise > 0.0).all()


# TODO compare the central number of the open cells with what the package gives.
def test_the_open_cells_give_the_magnetization():
    assert run_open_cells("18b_trained_couplings")["one_spin"] == pytest.approx(np.tanh(1.0))

"""Chapter 21b: unrolled layers by linear algebra, and their state evolution."""

import numpy as np
import pytest
from open_cells import run_open_cells

from compendium.c21b_unrolled_networks import study
from spinformer.spins.ising import sherrington_kirkpatrick
from spinformer.spins.mean_field import solve_mean_field
from spinformer.spins.replica_symmetry import replica_symmetric_state


@pytest.mark.claim("B7d")
def test_unrolled_layers_by_linear_algebra():
    """Eigenvalues of one layer, linearised about a solution found by climbing."""
    size = 300
    couplings, fields = sherrington_kirkpatrick(size, seed=5, field_std=0.5)
    for beta in (0.7, 1.0):
        m = solve_mean_field(couplings, fields=fields, beta=beta).magnetization
        gain = np.diag(1 - m**2)
        square = (beta * couplings) ** 2
        reaction = gain @ np.diag(square @ (1 - m**2))
        # m_j enters the reaction to m_i through v_j, too.
        first = gain @ (beta * couplings + 2 * np.outer(m, m) * square)
        back = np.block([[first, -reaction], [np.eye(size), np.zeros((size, size))]])
        before = np.abs(np.linalg.eigvals(back)).max()
        now = np.abs(np.linalg.eigvals(first - reaction)).max()
        assert now > 1 > before
        assert before == pytest.approx(
            np.sqrt(replica_symmetric_state(beta, field_std=0.5).stability), abs=0.04
        )
        path = study.unrolled_tap(couplings, fields=fields, beta=beta, layers=300, memory="before")
        wrong = study.unrolled_tap(couplings, fields=fields, beta=beta, layers=300, memory="now")
        assert np.abs(path[-1] - m).max() < 1e-9
        assert np.abs(wrong[-1] - wrong[-2]).max() > 0.1
    cold = study.unrolled_tap(couplings, fields=fields, beta=3.0, layers=300)
    assert np.abs(cold[-1] - cold[-2]).max() > 1e-2


def test_state_evolution_predicts_a_large_network():
    couplings, fields = sherrington_kirkpatrick(1500, seed=1, field_std=0.5)
    square, pair = study.state_evolution(10, beta=1.1, field_std=0.5)
    path = study.unrolled_tap(couplings, fields=fields, beta=1.1, layers=10)
    assert (path**2).mean(1) == pytest.approx(square, abs=0.03)
    assert (path[1:] * path[:-1]).mean(1) == pytest.approx(pair[1:], abs=0.03)


def test_layers_that_have_settled_overlap_as_one_layer_with_itself():
    # Where the state is stable the layers stop, so their overlap is q, however steep the tanh.
    for beta, std in ((1.2, 0.5), (3.0, 3.0), (4.0, 11.0)):
        glass = replica_symmetric_state(beta, field_std=std)
        assert glass.stability < 0.8
        square, pair = study.state_evolution(90, beta=beta, field_std=std)
        assert square[-1] == pytest.approx(glass.overlap, abs=1e-9)
        assert pair[-1] == pytest.approx(glass.overlap, abs=1e-8), (beta, std)


def test_the_open_cells_give_the_layers():
    cells = run_open_cells("21b_unrolled_networks")
    for memory, name in ((0, "now"), (1, "before")):
        path = study.unrolled_tap(
            cells["drawn_matrix"], fields=cells["drawn_field"], beta=1.0, layers=200, memory=name
        )
        change = np.sqrt(np.mean((path[-1] - path[-2]) ** 2))
        assert cells["last_change"][memory] == pytest.approx(change, abs=1e-9)
    assert cells["last_change"][0] > 0.1
    assert cells["last_change"][1] < 1e-9

import numpy as np
import pytest
from plain_exponents import tangent_map

from spinformer.dmft.network import Context, Network
from spinformer.dmft.onset import onset

SIZES = [(2, 3, 4), (3, 5, 2), (4, 5, 3), (3, 16, 8), (1, 3, 1), (5, 9, 1)]


def at_rest(network, beta, **parameters):
    """Eigenvalues of the plain tangent map of the disordered state."""
    zero = Context(np.zeros((network.context, network.features)), 0)
    return np.linalg.eigvals(tangent_map(network, zero, beta, **parameters))


@pytest.mark.parametrize("seed", range(12))
def test_every_instability_is_an_eigenvalue_on_the_unit_circle(seed):
    features, segments, context = SIZES[seed % len(SIZES)]
    network = Network.segmented(
        seed, features=features, segments=segments, bits=3, context=context, gamma=1.0 + 30 * seed
    )
    found = onset(network)
    for beta, rotation in zip(found.beta, found.rotation, strict=True):
        if np.isfinite(beta):
            z = at_rest(network, beta, epsilon=0.0)
            wanted = np.exp(2j * np.pi * rotation)
            assert np.abs(z - wanted).min() < 1e-12 or np.abs(z - wanted.conj()).min() < 1e-12
    if np.isfinite(found.critical_beta):
        for factor, stable in ((0.999, True), (1.001, False)):
            z = at_rest(network, factor * found.critical_beta, epsilon=0.0)
            assert (np.abs(z).max() < 1.0) == stable
    else:
        assert np.abs(at_rest(network, 50.0, epsilon=0.0)).max() < 1e-3


def test_the_documents_network():
    network = Network.document()
    found = onset(network)
    assert found.critical_beta == pytest.approx(1.22124, abs=5e-6)
    assert found.critical_rotation == pytest.approx(0.05888, abs=5e-6)
    # γ drops out, ε does not; at γ = 0 the position averages out of a whole window.
    for gamma in (0.0, 50.0):
        z = at_rest(network, found.critical_beta, gamma=gamma, epsilon=0.0)
        assert np.abs(z).max() == pytest.approx(1.0, abs=1e-12)
    shifted = onset(network, epsilon=0.02).critical_beta
    assert shifted == pytest.approx(1.24616, abs=5e-6)
    assert np.abs(at_rest(network, shifted, gamma=0.0)).max() == pytest.approx(1.0, abs=1e-12)

import numpy as np
import pytest
from plain_exponents import tangent_map
from scipy.optimize import fsolve

from compendium.c33c_bifurcations.cycles import cycle
from spinformer.core.solve import NotConverged
from spinformer.dmft.attractors import strobed
from spinformer.dmft.lyapunov import returned
from spinformer.dmft.mean_field import random_contexts, step, trajectory
from spinformer.dmft.network import Context, Network

ZERO = Context(np.zeros((4, 3)), 0)


def plainly(network, context, steps, beta, **parameters):
    """The context after some plain steps, and the product of the plain tangent maps."""
    matrix = np.eye(context.attention.size)
    for _ in range(steps):
        matrix = tangent_map(network, context, beta, **parameters) @ matrix
        context, _ = step(network, context, beta, **parameters)
    return context, matrix


@pytest.mark.parametrize("seed", range(4))
def test_the_pushed_frame_is_the_product_of_the_tangent_maps(seed):
    network = Network.segmented(seed, features=2 + seed % 2, segments=5, bits=2, context=2 + seed)\
        if seed < 3 else Network.document()  # fmt: skip
    contexts = random_contexts(network, seed, count=3)
    beta, gamma = np.array([0.9, 1.27, 2.0]), np.array([20.0, 50.0, 127.0])
    ends, matrices = returned(network, contexts, beta=beta, gamma=gamma, steps=7)
    for i in range(3):
        end, matrix = plainly(network, contexts.select(i), 7, beta[i], gamma=gamma[i])
        np.testing.assert_allclose(ends.attention[i], end.attention, atol=1e-11)
        np.testing.assert_allclose(matrices[i], matrix, atol=1e-9 * (1 + np.abs(matrix).max()))
        assert ends.position == end.position


@pytest.mark.parametrize("beta", [1.1, 1.25, 1.5])
def test_a_cycle_against_a_plain_root_finder(beta):
    network = Network.document()

    def gap(x):
        end, _ = plainly(network, Context(x.reshape(4, 3), 0), 4, beta)
        return end.attention.ravel() - x

    found = cycle(network, ZERO, beta=beta, period=4)
    root = fsolve(gap, np.zeros(12), xtol=1e-13)
    np.testing.assert_allclose(found.value.attention.ravel(), root, atol=1e-10)
    _, matrix = plainly(network, found.value, 4, beta)
    leading = np.abs(np.linalg.eigvals(matrix)).max()
    assert abs(found.multipliers[0]) == pytest.approx(leading, abs=1e-10)
    assert (leading < 1.0) == (beta < 1.2434)


@pytest.fixture(scope="module")
def settled():
    """States and strobed points of runs on the cycles of 16, 28 and 44 steps."""
    network = Network.document()
    beta = np.repeat([1.25, 1.27, 1.2646], 8)
    points, ends = strobed(
        network, random_contexts(network, 3, count=24), beta=beta, count=30, transient=200_000
    )
    return beta, points, ends


@pytest.mark.parametrize(("beta", "period"), [(1.25, 16), (1.27, 28), (1.2646, 44)])
def test_long_runs_end_on_what_newton_finds(settled, beta, period):
    betas, points, ends = settled
    network = Network.document()
    gap = np.abs(points - points[:, :1]).max(axis=-1)
    index = int(np.flatnonzero((betas == beta) & (gap[:, period // 4] < 1e-9))[0])
    state = ends.select(index)
    # Off the cycle by 1e-4, so that Newton's method has something to do.
    start = Context(state.attention + 1e-4 * np.sin(np.arange(12)).reshape(4, 3), state.position)
    found = cycle(network, start, beta=beta, period=period)
    assert found.period == period
    assert abs(found.multipliers[0]) < 1.0
    after, _ = trajectory(network, found.value, beta=beta, steps=2 * period)
    np.testing.assert_allclose(after[:period], after[period:], atol=1e-10)
    flashes = after[:period][np.arange(period) % 4 == (0 - found.value.position) % 4]
    distance = np.abs(points[index][:, None] - flashes[None]).max(axis=-1).min(axis=1)
    assert distance.max() < 1e-9


def test_the_least_period_is_found(settled):
    network = Network.document()
    twice = cycle(network, ZERO, beta=1.2, period=24)
    once = cycle(network, ZERO, beta=1.2, period=4)
    assert twice.period == once.period == 4
    np.testing.assert_allclose(np.abs(twice.multipliers), np.abs(once.multipliers), atol=1e-9)
    free = network.with_parameters(epsilon=0.0)
    rest = cycle(free, ZERO, beta=1.1, period=6)
    assert rest.period == 1


def test_failures_are_refused():
    network = Network.document()
    start = random_contexts(network, 4, count=1).select(0)
    with pytest.raises(NotConverged, match="16 steps"):
        cycle(network, start, beta=1.4, period=16, max_steps=1)
    with pytest.raises(ValueError, match="multiple of the 4"):
        cycle(network, start, beta=1.4, period=6)


def test_what_is_called_found_is_a_cycle_to_rounding():
    """At every number of steps: some are too few."""
    network, failed = Network.document(), 0
    for steps in range(1, 8):
        try:
            found = cycle(network, ZERO, beta=1.26, period=4, max_steps=steps)
        except NotConverged:
            failed += 1
        else:
            end, _ = plainly(network, found.value, 4, 1.26)
            assert np.abs(end.attention - found.value.attention).max() < 2e-11
    assert 0 < failed < 6

"""Many features: the limit of few, explicit networks, and quadrature against sampling."""

import numpy as np
import pytest
from scipy.integrate import quad

from compendium.c35b_scaling_and_blocks.blocks import Blocks, block_step
from compendium.c35b_scaling_and_blocks.loaded import (
    _pair_average,
    loaded_path,
    resting_state,
    simulate_loaded,
)
from spinformer.core.solve import NotConverged
from spinformer.dmft.network import Network

WINDOW = np.array([[1.0, 1.0, -1.0], [1.0, -1.0, 1.0], [-1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]])
SOFT = Network.document().with_parameters(gamma=5.0, epsilon=0.1)


def test_without_load_it_is_the_mean_field_of_few_features() -> None:
    path = loaded_path(SOFT, WINDOW, position=3, beta=1.3, load=0.0, steps=12)
    window, found = WINDOW, []
    for n in range(12):
        window, _ = block_step(Blocks(network=SOFT), window, position=(3 + n) % 4, beta=1.3)
        found.append(window[0])
    np.testing.assert_allclose(path.means[4:], found, atol=1e-12)
    tiny = loaded_path(SOFT, WINDOW, position=3, beta=1.3, load=1e-5, steps=12)
    assert 1e-9 < np.abs(tiny.means - path.means).max() < 1e-3
    assert not path.noise.any()


def test_explicit_networks_follow_the_theory_at_their_load() -> None:
    size, draws, steps = 900, 24, 8
    path = loaded_path(SOFT, WINDOW, position=3, beta=1.4, load=0.4, steps=steps)
    runs = [
        simulate_loaded(
            SOFT, size=size, load=0.4, beta=1.4, steps=steps, seed=seed, window=WINDOW, position=3
        )
        for seed in range(draws)
    ]
    for wanted, name in ((path.means[4:], "means"), (path.correlation, "correlation"),
                         (path.noise, "noise")):  # fmt: skip
        got = np.array([getattr(run, name) for run in runs])
        error = got.std(axis=0, ddof=1) / np.sqrt(draws) + 4.0 / size
        assert (np.abs(got.mean(axis=0) - wanted) < 4.5 * error).all(), name
    bare = loaded_path(SOFT, WINDOW, position=3, beta=1.4, load=0.0, steps=steps)
    means = np.mean([run.means for run in runs], axis=0)
    assert np.abs(means - bare.means[4:]).max() > 5.0 * np.abs(means - path.means[4:]).max()


def test_the_resting_state_is_that_of_a_sampled_process() -> None:
    # A Gaussian process with the covariance that the state claims for its fields, bit by bit.
    rest, load, beta = resting_state(1.2, load=0.6, context=4), 0.6, 1.2
    assert rest.residual < 1e-10
    # The residual is the last change, also where the steps were too few.
    short, longer = (
        resting_state(1.2, load=0.6, context=4, max_steps=steps, throw=False) for steps in (3, 4)
    )
    change = np.abs(longer.value - short.value).max()
    assert longer.residual == pytest.approx(change, rel=1e-12)
    assert change > 1e-6
    size, window = 6, 4
    c = rest.value
    cover = np.array([
        [load / 16 * sum(c[abs(i - j + s - r)] for s in range(window) for r in range(window))
         for j in range(size)] for i in range(size)
    ])  # fmt: skip
    assert cover[0, 0] == pytest.approx(rest.noise, rel=1e-8)
    rng = np.random.default_rng(0)
    fields = rng.multivariate_normal(np.zeros(size), cover, 400_000)
    bits = np.where(rng.random(fields.shape) < 0.5 * (1 + np.tanh(beta * fields)), 1.0, -1.0)
    for lag in (1, 2, 3):
        assert (bits[:, 0] * bits[:, lag]).mean() == pytest.approx(c[lag], abs=0.006)
    gain = beta * (1.0 - np.tanh(beta * fields) ** 2).mean()
    assert rest.gain == pytest.approx(gain, rel=0.01)


def test_pair_averages_are_sums_over_the_plane() -> None:
    first, second = np.array([0.3]), np.array([[-0.2], [0.5]])
    there, both = np.array([0.4, 0.9]), np.array([0.2, -0.5])
    found = _pair_average(first, second, beta=1.3, here=0.7, there=there, both=both)
    grid = np.linspace(-6.0, 6.0, 601)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    for n in range(2):
        inverse = np.linalg.inv([[0.7, both[n]], [both[n], there[n]]])
        form = inverse[0, 0] * x * x + 2.0 * inverse[0, 1] * x * y + inverse[1, 1] * y * y
        weight = np.exp(-0.5 * form)
        product = np.tanh(1.3 * (0.3 + x)) * np.tanh(1.3 * (second[n, 0] + y))
        assert found[n, 0] == pytest.approx((weight * product).sum() / weight.sum(), abs=1e-4)


def test_what_the_theory_cannot_resolve_is_refused_or_said() -> None:
    with pytest.raises(ValueError, match="beta and load"):
        loaded_path(SOFT, WINDOW, position=3, beta=30.0, load=0.5, steps=2)
    with pytest.raises(ValueError, match="beta and load"):
        resting_state(400.0, load=1.0, context=4)
    # Windows of sixteen tokens share nearly all of them: the steep bits need higher orders.
    with pytest.raises(NotConverged, match="stalled"):
        resting_state(200.0, load=0.5, context=16)
    blurred = resting_state(200.0, load=0.5, context=16, throw=False)
    shift = np.arange(-15, 16)
    share = (16 - np.abs(shift)) / 256
    near = 0.5 * blurred.value[np.abs(1 + shift)] @ share / blurred.noise
    wrong = abs(blurred.value[1] - 2.0 / np.pi * np.arcsin(near))
    assert 1e-3 < wrong < blurred.residual
    with pytest.raises(NotConverged, match="step limit"):
        resting_state(1.2, load=0.6, context=4, max_steps=3)


def test_steep_averages_and_gains_by_other_means() -> None:
    """A two-time average from drawn fields, the gain over the scale of sech²."""
    beta = 8.0
    rng = np.random.default_rng(0)
    here, there = 0.6, np.array([0.9])
    both, first, second = np.array([0.55]), np.array([0.2]), np.array([[-0.3]])
    found = _pair_average(first, second, beta=beta, here=here, there=there, both=both)
    cover = [[here, both[0]], [both[0], there[0]]]
    x, y = rng.multivariate_normal([0.0, 0.0], cover, 1_000_000).T
    drawn = np.tanh(beta * (0.2 + x)) * np.tanh(beta * (-0.3 + y))
    assert found[0, 0] == pytest.approx(drawn.mean(), abs=5 * drawn.std() / 1000)
    rest = resting_state(200.0, load=2.0, context=4)
    width = 200.0 * np.sqrt(rest.noise)
    gain = quad(lambda u: np.exp(-((u / width) ** 2) / 2) / np.cosh(u) ** 2, -40, 40)[0]
    assert rest.gain == pytest.approx(200.0 * gain / width / np.sqrt(2 * np.pi), rel=1e-6)


def test_steep_bits_at_rest_obey_the_arcsine_law() -> None:
    rest = resting_state(200.0, load=0.5, context=1, lags=8)
    # One token in the window: lags have nothing in common, and R is the load.
    assert rest.noise == pytest.approx(0.5)
    np.testing.assert_allclose(rest.value[1:], 0.0, atol=1e-8)
    rest = resting_state(60.0, load=0.5, context=2, lags=30)
    c = np.append(rest.value, rest.value[-1])
    cover = np.array([c[abs(d - 1)] + 2.0 * c[d] + c[d + 1] for d in range(20)]) * 0.125
    cover[0] = 0.125 * (2.0 + 2.0 * c[1])
    assert rest.noise == pytest.approx(cover[0], rel=1e-9)
    wanted = 2.0 / np.pi * np.arcsin(cover[1:] / cover[0])
    np.testing.assert_allclose(rest.value[1:20], wanted, atol=0.01)


def test_unit_scores_count_few_and_many_features():
    network, given = Network.document(), {"size": 240, "beta": 0.5, "steps": 1, "seed": 3}
    plain = simulate_loaded(network, load=3 / 240, **given).scores
    scaled = simulate_loaded(network, load=3 / 240, sharpness=1.3, **given).scores
    factor = 1.3 * 240 / np.sqrt(3 + 3) / network.gamma
    np.testing.assert_allclose(scaled, factor * plain, rtol=1e-12)
    other = simulate_loaded(network, load=3 / 240, **(given | {"seed": 4})).scores
    assert not np.allclose(other, plain)


def test_scores_vanish_with_fixed_gamma_and_keep_their_size_with_unit_variance() -> None:
    network = Network.document().with_parameters(epsilon=0.0)
    wanted = {None: network.gamma, 1.0: None}
    for sharpness in wanted:
        for size in (240, 720):
            found = [
                simulate_loaded(network, size=size, load=0.5, beta=0.5, steps=6, seed=seed,
                                sharpness=sharpness).scores
                for seed in range(24)
            ]  # fmt: skip
            deviation = np.sqrt(np.mean(np.square(found)))
            # Three of the features are not random; at this beta their overlaps are small, too.
            theory = network.gamma * np.sqrt(0.5 / size) if sharpness is None else 1.0
            assert deviation == pytest.approx(theory, rel=0.15), (sharpness, size)

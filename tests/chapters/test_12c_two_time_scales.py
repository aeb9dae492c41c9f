import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from scipy.optimize import approx_fprime

from compendium.c12c_two_time_scales import study as study
from compendium.c12c_two_time_scales.two_time_scales import (
    energy,
    flow,
    layer_norm,
    quadratic,
    relaxation_rates,
    slow_flow,
    softmax_lagrangian,
    sphere,
)
from spinformer.core.solve import NotConverged
from spinformer.hopfield import continuous

VISIBLE = {"quadratic": quadratic(), "sphere": sphere(1.7), "layer norm": layer_norm(0.8)}
HIDDEN = softmax_lagrangian(1.5)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("lagrangian", [*VISIBLE.values(), HIDDEN])
def test_activations_are_gradients_of_convex_functions(lagrangian):
    for seed in range(5):
        x = draw(6, seed=seed)
        slope = approx_fprime(x, lagrangian.value, 1e-6)
        np.testing.assert_allclose(lagrangian.activation(x), slope, atol=1e-5)
        curvature = approx_fprime(x, lagrangian.activation, 1e-6)
        assert np.linalg.eigvalsh(0.5 * (curvature + curvature.T)).min() > -1e-5
    rows = draw(3, 6)
    each = np.stack([lagrangian.activation(row) for row in rows])
    np.testing.assert_allclose(lagrangian.activation(rows), each)


def test_normalisations_are_those_of_torch():
    x = draw(4, 6)
    wanted = torch.nn.functional.layer_norm(torch.as_tensor(x), (6,), eps=1e-12) * 0.8
    np.testing.assert_allclose(layer_norm(0.8).activation(x), wanted, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(sphere(1.7).activation(x), axis=1), 1.7)


@pytest.mark.parametrize("name", VISIBLE)
@pytest.mark.parametrize("ratio", [0.05, 1.0, 20.0])
def test_the_energy_falls_at_the_rate_of_the_derivation(name, ratio):
    patterns, seen = draw(7, 4), VISIBLE[name]
    found = flow(
        patterns,
        queries=draw(2, 4, seed=1),
        ratio=ratio,
        hidden_lagrangian=HIDDEN,
        visible_lagrangian=seen,
        hidden_start="zero",
        duration=4.0,
        points=4001,
        accuracy=1e-11,
    )
    assert np.diff(found.energies, axis=1).max() < 1e-9
    v, h = found.visible[0, 2000], found.hidden[0, 2000]
    dv = HIDDEN.activation(h) @ patterns - v
    dh = (patterns @ seen.activation(v) - h) / ratio
    curved = [approx_fprime(x, part.activation, 1e-6) for x, part in ((v, seen), (h, HIDDEN))]
    wanted = -dv @ curved[0] @ dv - ratio * dh @ curved[1] @ dh
    step = found.times[1]
    slope = (found.energies[0, 2001] - found.energies[0, 1999]) / (2 * step)
    assert slope == pytest.approx(wanted, rel=1e-3, abs=1e-8)


def test_the_energy_is_that_of_attention_where_hidden_neurons_follow():
    patterns, v = draw(7, 4), draw(5, 4, seed=1)
    found = energy(patterns, visible=v, hidden=v @ patterns.T, hidden_lagrangian=HIDDEN)
    plain = continuous.energy(torch.as_tensor(patterns), states=torch.as_tensor(v), beta=1.5)
    np.testing.assert_allclose(found, plain)


def test_the_slow_flow_descends_the_energy_of_attention_and_a_step_of_it_is_attention():
    patterns, queries = draw(7, 4), draw(3, 4, seed=1)
    given = {"queries": queries, "beta": 1.5, "duration": 2.0, "points": 11}
    found = slow_flow(patterns, accuracy=1e-11, **given)

    def downhill(_, v):
        state = torch.as_tensor(v)
        return -continuous.gradient(torch.as_tensor(patterns), states=state, beta=1.5).numpy()

    for query, path in zip(queries, found.visible, strict=True):
        other = solve_ivp(downhill, (0, 2), query, t_eval=found.times, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(path, other.y.T, atol=1e-8)
    # Euler's step of the duration of τ_v.
    attention = continuous.update(
        torch.as_tensor(patterns), states=torch.as_tensor(queries), beta=1.5
    )
    np.testing.assert_allclose(queries + downhill(0, queries), attention)
    with pytest.raises(NotConverged):
        flow(
            patterns, queries=queries, ratio=1.0, hidden_lagrangian=HIDDEN, duration=0.1, throw=True
        )


@pytest.mark.parametrize("ratio", [0.2, 1.0, 5.0])
def test_the_neurons_are_a_particle_with_friction(ratio):
    """ρ ü + (1 + ρ) u̇ = −∇E(u) from rest, h = Xu, v = u + ρ u̇; ρ and 1/ρ give one path."""
    patterns, query = draw(7, 4), draw(1, 4, seed=1)
    found = flow(
        patterns,
        queries=query,
        ratio=ratio,
        hidden_lagrangian=HIDDEN,
        duration=6.0,
        points=13,
        accuracy=1e-11,
    )

    def newton(_, state):
        u, speed = state[:4], state[4:]
        force = -continuous.gradient(
            torch.as_tensor(patterns), states=torch.as_tensor(u), beta=1.5
        ).numpy()
        return np.concatenate([speed, (force - (1 + ratio) * speed) / ratio])

    start = np.concatenate([query[0], np.zeros(4)])
    path = solve_ivp(newton, (0, 6), start, t_eval=found.times, rtol=1e-11, atol=1e-11).y.T
    np.testing.assert_allclose(found.hidden[0], path[:, :4] @ patterns.T, atol=1e-7)
    np.testing.assert_allclose(found.visible[0], path[:, :4] + ratio * path[:, 4:], atol=1e-7)
    mirrored = flow(
        patterns,
        queries=query,
        ratio=1.0 / ratio,
        hidden_lagrangian=HIDDEN,
        duration=6.0 / ratio,
        points=13,
        accuracy=1e-11,
    )
    np.testing.assert_allclose(found.hidden, mirrored.hidden, atol=1e-7)


@pytest.mark.parametrize("ratio", [0.1, 1.0, 7.0])
def test_relaxation_rates_are_eigenvalues_of_the_whole_network(ratio):
    patterns, values = draw(7, 4), draw(7, 4, seed=1)
    weights = HIDDEN.activation(draw(7, seed=2))
    slope = 1.5 * (np.diag(weights) - np.outer(weights, weights))
    for given, real in ((patterns, True), (values, False)):
        whole = np.block([[-np.eye(4), given.T @ slope], [patterns / ratio, -np.eye(7) / ratio]])
        rates = relaxation_rates(np.linalg.eigvals(given.T @ slope @ patterns), ratio=ratio)
        spectrum = np.linalg.eigvals(whole)
        for rate in rates.ravel():
            assert np.abs(spectrum - rate).min() < 1e-7
        if real:
            assert np.abs(rates.imag).max() < 1e-7
            stable = np.linalg.eigvalsh(patterns.T @ slope @ patterns).max() < 1
            assert stable == (rates.real.max() < 0)
    # However fast the hidden neurons are, the slow rate is that of the slow flow, a − 1.
    for tiny in (1e-9, 1e-15, 1e-18):
        slow = relaxation_rates([0.5, 0.9, 1.2], ratio=tiny)[:, 1]
        np.testing.assert_allclose(slow, [-0.5, -0.1, 0.2], rtol=1e-8)
    # The edge of stability for complex slopes: a parabola.
    for imaginary in (0.5, 1.5, 3.0):
        edge = 1 - ratio * imaginary**2 / (1 + ratio) ** 2 + 1j * imaginary
        assert abs(relaxation_rates(edge, ratio=ratio).real.max()) < 1e-12


@pytest.mark.parametrize("name", ["sphere", "layer norm"])
def test_nothing_rings_for_normalised_neurons_either(name):
    patterns, seen = draw(7, 4), VISIBLE[name]

    def velocity(state):
        v, h = state[:4], state[4:]
        dv = HIDDEN.activation(h) @ patterns - v
        return np.concatenate([dv, (patterns @ seen.activation(v) - h) / 0.7])

    for seed in range(10):
        jacobian = approx_fprime(draw(11, seed=seed), velocity, 1e-7)
        assert np.abs(np.linalg.eigvals(jacobian).imag).max() < 1e-3


@pytest.mark.claim("A9b")
def test_hidden_neurons_may_be_eliminated_if_they_start_where_they_belong():
    drawn = study.memories(2, queries=3, seed=11)
    errors = study.adiabatic_errors(drawn, beta=0.8, ratios=[1e-3, 1e-2])
    slopes = [np.log10(e[1] / e[0]) for e in (errors.plain, errors.corrected)]
    assert abs(slopes[0] - 1) < 0.1
    assert abs(slopes[1] - 2) < 0.2
    # Others memories than those of the chapter.
    drawn = study.memories(6, queries=8, seed=12)
    reference = study.ends(drawn, beta=0.8, ratio=0.0)
    matched = study.elsewhere(reference, other=study.ends(drawn, beta=0.8, ratio=1.0))
    fresh = study.elsewhere(
        reference, other=study.ends(drawn, beta=0.8, ratio=10.0, hidden_start="zero")
    )
    assert matched.undecided == fresh.undecided == 0
    assert matched.count / matched.tried < 0.1
    assert fresh.low > 0.3


def test_a_slow_flow_is_at_rest_when_it_no_longer_moves_and_its_hidden_neurons_lag():
    patterns, queries = draw(7, 4), draw(3, 4, seed=1)
    given = {"queries": queries, "beta": 1.5, "ratio": 0.3, "points": 201, "accuracy": 1e-11}
    early = slow_flow(patterns, duration=1.0, **given)
    pull = np.linalg.norm(
        HIDDEN.activation(early.value @ patterns.T) @ patterns - early.value, axis=1
    )
    np.testing.assert_allclose(early.residual, pull, rtol=1e-10)
    assert not early.converged.any()
    assert slow_flow(patterns, duration=200.0, **given).converged.all()
    just = slow_flow(patterns, duration=1.0, tolerance=float(np.median(pull)), **given)
    assert just.converged.tolist() == (pull <= np.median(pull)).tolist()
    # h = X(v - ratio dv/dt), with the speed from differences in time.
    speed = np.gradient(early.visible, early.times, axis=1, edge_order=2)
    lag = (early.visible - 0.3 * speed) @ patterns.T
    np.testing.assert_allclose(early.hidden[:, 2:-2], lag[:, 2:-2], atol=2e-4)
    fast = flow(patterns, queries=queries, ratio=1.0, hidden_lagrangian=HIDDEN, duration=3.0)
    edge = float(np.median(fast.residual))
    same = flow(
        patterns, queries=queries, ratio=1.0, hidden_lagrangian=HIDDEN, duration=3.0, tolerance=edge
    )
    assert same.converged.tolist() == (fast.residual <= edge).tolist()
    # The residual counts both kinds of neurons.
    gaps = [
        HIDDEN.activation(fast.hidden[:, -1]) @ patterns - fast.value,
        fast.value @ patterns.T - fast.hidden[:, -1],
    ]
    np.testing.assert_allclose(
        fast.residual, np.max([np.linalg.norm(gap, axis=1) for gap in gaps], axis=0), rtol=1e-10
    )

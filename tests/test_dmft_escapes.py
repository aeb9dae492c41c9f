"""Escapes by noise: actions against closed forms, times against an exact chain, the fit."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize

from compendium.c33g_escapes.action import least_action, path_action
from compendium.c33g_escapes.escapes import (
    cycle_overlaps,
    escape_law,
    noise_escapes,
    quench,
    recognize,
)
from compendium.c33g_escapes.passage import mean_first_passage
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.finite_size import mean_path, semantic_overlaps
from spinformer.dmft.functional import token_states, transition_probabilities
from spinformer.dmft.network import Context, Network


@pytest.fixture(scope="module")
def coin():
    return Network(
        semantic=np.ones((4, 1, 1)), position=np.ones((4, 1, 0)), context=1, gamma=1.0, epsilon=0.0
    )


def relative_entropy(x, m):
    return 0.5 * (1 + x) * np.log((1 + x) / (1 + m)) + 0.5 * (1 - x) * np.log((1 - x) / (1 - m))


def test_the_action_is_the_relative_entropy_of_the_tokens():
    network = Network.document()
    rng = np.random.default_rng(0)
    fields = rng.normal(size=(9, 3))
    tokens = np.tanh(fields)
    for t, found in enumerate(path_action(network, fields, beta=1.3, position=6)):
        path = mean_path(network, 1.3, window=tokens[t : t + 4], steps=1, position=6 + t)
        expected = relative_entropy(tokens[t + 4], path[-1]).mean()
        assert found == pytest.approx(expected, rel=1e-10)
    # Beside the mean the series takes over: no jump, and half a square over the variance.
    path = np.arctanh(mean_path(network, 1.3, window=tokens[:4], steps=1, position=6))
    for gap in (0.9e-3, 1.1e-3):
        near = path.copy()
        near[-1] += gap
        x, m = np.tanh(near[-1]), np.tanh(path[-1])
        found = path_action(network, near, beta=1.3, position=6)[0]
        assert found == pytest.approx(relative_entropy(x, m).mean(), rel=1e-6)
        assert found == pytest.approx(((x - m) ** 2 / (2 * (1 - m**2))).mean(), rel=2e-3)


def test_the_least_action_of_a_reversible_chain_is_its_free_energy(coin):
    """Detailed balance: the law of m is exp N (s(m) + ln cosh βm), s the entropy of a bit."""
    beta, fixed = 1.3, 1.0
    for _ in range(3000):
        fixed = np.tanh(beta * fixed)
    up, down = 0.5 * (1 + fixed), 0.5 * (1 - fixed)
    entropy = -up * np.log(up) - down * np.log(down)
    expected = entropy + np.log(np.cosh(beta * fixed)) - np.log(2.0)
    guess = np.linspace(np.arctanh(fixed), 0.0, 81)[:, None]
    found = least_action(coin, guess, beta=beta, position=0)
    assert found.converged
    assert path_action(coin, found.value, beta=beta, position=0).sum() == pytest.approx(
        expected, rel=1e-4
    )
    assert found.value[0] == guess[0]
    assert found.value[-1] == guess[-1]


def test_a_path_of_least_action_has_no_slope():
    network = Network.document()
    guess = 0.3 * np.sin(np.arange(39.0)).reshape(13, 3)
    found = least_action(network, guess, beta=1.0, position=3)
    assert not least_action(network, guess, beta=1.0, position=3, max_steps=2).converged

    def cost(free):
        path = np.concatenate([guess[:4], free.reshape(-1, 3), guess[-4:]])
        return path_action(network, path, beta=1.0, position=3).sum()

    free = found.value[4:-4].ravel()
    assert found.converged
    assert cost(free) < 0.9 * cost(guess[4:-4].ravel())
    assert np.abs(approx_fprime(free, cost, 1e-6)).max() < 1e-4


def test_escapes_take_the_time_of_the_exact_chain(coin):
    beta, size, fixed = 1.2, 31, 1.0
    for _ in range(3000):
        fixed = np.tanh(beta * fixed)
    chances = transition_probabilities(coin, size, beta=beta, position=0)
    states = token_states(coin, size)[:, 0]
    times = mean_first_passage(chances, inside=states > 0)
    expected = times[np.argmin(np.abs(states - fixed))]
    starts = Context(np.array([[[0.5]], [[-0.5]]]), 0)
    cycles = cycle_overlaps(coin, starts, beta=beta, length=2, settle=2000)
    options = {
        "beta": beta, "window": np.array([[states[np.argmin(np.abs(states - fixed))]]]),
        "position": 0, "cycles": cycles, "home": 0, "every": 1, "settle": 60,
    }  # fmt: skip
    found = noise_escapes(coin, size, **options, horizon=160, runs=300, tolerance=0.2, seed=3)
    life = found.lifetime()
    assert found.escaped.sum() > 150
    assert not found.escaped.all()
    assert (found.times[~found.escaped] == 160).all()
    assert (found.ends[found.escaped] == 1).all()
    assert life.value == pytest.approx(expected, rel=4 / np.sqrt(life.ended))
    with pytest.raises(ValueError, match="every must be a multiple"):
        noise_escapes(
            Network.document(), 30, beta=1.0, window=np.zeros((4, 3)), position=3,
            cycles=np.zeros((1, 4, 3)), home=0, every=6, settle=8, horizon=12, runs=1, seed=0,
        )  # fmt: skip


def test_quenched_texts_follow_the_mean_field_and_are_recognized():
    network = Network.document()
    windows = np.tanh(np.random.default_rng(1).normal(size=(2, 4, 3)))
    end = quench(network, windows, beta=3.0, position=5, steps=23)
    assert end.position == (5 + 23) % 4
    orbits = cycle_overlaps(network, end, beta=3.0, length=8, settle=0)
    for window, orbit in zip(windows, orbits, strict=True):
        path = mean_path(network, 3.0, window=window, steps=31, position=5)
        # The first token of a record is the newest of the state.
        expected = semantic_overlaps(network, path)[26:34]
        np.testing.assert_allclose(orbit, expected, atol=1e-9)
    cycles = np.random.default_rng(2).normal(size=(3, 8, 2))
    moved = np.stack([np.roll(cycles[2], 4, axis=0), cycles[0] + 0.005, cycles[1] + 0.02])
    found = recognize(moved, cycles=cycles, clock=4, tolerance=0.01)
    assert found.tolist() == [2, 0, -1]


def test_the_law_of_escapes_is_the_maximum_of_the_censored_likelihood():
    rng = np.random.default_rng(4)
    x, horizon = np.array([1.0, 2.0, 3.0, 4.0]), 40.0
    slopes, errors, starts, start_errors, deviances, shares = [], [], [], [], [], []
    for draw in range(300):
        times = rng.exponential(np.exp(0.5 + 0.9 * x)[:, None], (4, 60))
        ended, total = (times < horizon).sum(axis=1), np.minimum(times, horizon).sum(axis=1)
        law = escape_law(x, total=total, ended=ended)
        slopes.append(law.slope.value)
        errors.append(law.slope.error)
        starts.append(law.intercept.value)
        start_errors.append(law.intercept.error)
        deviances.append(law.deviance)
        shares.append(law.share)
        if draw == 0:

            def minus(p, total=total, ended=ended):
                logs = p[0] + p[1] * x
                return ended @ logs + total @ np.exp(-logs)

            best = minimize(minus, [0.0, 1.0], tol=1e-12)
            assert law.intercept.value == pytest.approx(best.x[0], abs=1e-4)
            assert law.slope.value == pytest.approx(best.x[1], abs=1e-4)
            free = ended @ np.log(total / ended) + ended.sum()
            assert law.deviance == pytest.approx(2 * (best.fun - free), abs=1e-6)
    assert np.mean(slopes) == pytest.approx(0.9, abs=0.02)
    assert np.std(slopes) == pytest.approx(np.mean(errors), rel=0.15)
    assert np.std(starts) == pytest.approx(np.mean(start_errors), rel=0.15)
    assert np.mean(deviances) == pytest.approx(2.0, abs=0.4)  # two degrees of freedom
    # The share of worse fits is uniform where the law is true.
    assert np.mean(shares) == pytest.approx(0.5, abs=0.07)
    assert np.mean(np.array(shares) < 0.1) == pytest.approx(0.1, abs=0.06)
    assert law.degrees == 2


def test_a_text_that_stays_is_compared_at_the_clock_of_the_cycles():
    """Whatever the number of noise-free tokens; a text elsewhere has left half a stretch before."""
    network, beta = Network.document(), 1.25
    start = Context(np.full((1, 4, 3), 0.1), 0)
    # At this β it goes to a cycle of 16 steps: four flashes of the clock.
    cycle = cycle_overlaps(network, start, beta=beta, length=16, settle=20_000)
    cycles = np.concatenate([cycle, 2.0 * cycle])
    ensemble = Ensemble(network, start, beta=beta)
    ensemble.advance(20_001)
    state = ensemble.state()
    window = np.tanh(beta * state.attention[0] @ network.semantic[0])[::-1]
    for settle, home in ((6, 0), (7, 0), (7, 1)):
        found = noise_escapes(
            network, 3 * 10**9, beta=beta, window=window, position=state.position, cycles=cycles,
            home=home, every=4, settle=settle, horizon=8, runs=2, seed=0,
        )  # fmt: skip
        assert found.escaped.tolist() == [home == 1] * 2
        assert found.times.tolist() == [2.0 if home else 8.0] * 2
        assert found.ends.tolist() == [0 if home else -1] * 2

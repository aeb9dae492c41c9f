"""Escapes by noise: actions against closed forms, times against an exact chain, the tables."""

import numpy as np
import pytest
from known_networks import COIN
from scipy.optimize import brentq, minimize
from scipy.stats import binom, kstest

from compendium.c33b_lifetimes import finite_size_escapes as study
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.escape import escape_action, path_action
from spinformer.dmft.finite_size import mean_path, token_states
from spinformer.dmft.lifetimes import escape_law, estimate_lifetime
from spinformer.dmft.network import Context, Network


def rest(beta):
    """The positive m = tanh βm."""
    return brentq(lambda m: np.tanh(beta * m) - m, 0.1, 1.0, xtol=1e-15)


def relative_entropy(x, m):
    return 0.5 * (1 + x) * np.log((1 + x) / (1 + m)) + 0.5 * (1 - x) * np.log((1 - x) / (1 - m))


def test_the_action_is_the_relative_entropy_of_the_tokens():
    network = Network.poclopez2024()
    fields = np.random.default_rng(0).normal(size=(9, 3))
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
        x = np.tanh(near[-1])
        m = np.tanh(path[-1])
        found = path_action(network, near, beta=1.3, position=6)[0]
        assert found == pytest.approx(relative_entropy(x, m).mean(), rel=1e-6)
        assert found == pytest.approx(((x - m) ** 2 / (2 * (1 - m**2))).mean(), rel=2e-3)
    # A window that no token follows is no path.
    with pytest.raises(ValueError, match="tokens of fields"):
        path_action(network, fields[:4], beta=1.3, position=6)


def test_the_least_action_of_a_reversible_chain_is_its_free_energy():
    """Detailed balance: the law of m is exp N (s(m) + ln cosh βm), s the entropy of a bit."""
    beta = 1.3
    fixed = rest(1.3)
    up = 0.5 * (1 + fixed)
    down = 0.5 * (1 - fixed)
    entropy = -up * np.log(up) - down * np.log(down)
    expected = entropy + np.log(np.cosh(beta * fixed)) - np.log(2.0)
    guess = np.linspace(np.arctanh(fixed), 0.0, 81)[:, None]
    found = escape_action(COIN, guess, beta=beta, position=0)
    assert found.action == pytest.approx(expected, rel=1e-4)
    assert (found.fields[[0, -1]] == guess[[0, -1]]).all()


def test_escapes_take_the_time_of_the_exact_chain(monkeypatch):
    beta = 1.2
    size = 31
    fixed = rest(1.2)
    states = token_states(COIN, size)[:, 0]
    up = 0.5 * (1 + np.tanh(beta * states))[:, None]
    chances = binom.pmf(np.rint(0.5 * size * (1 + states)), size, up)
    stay = chances[np.ix_(states > 0, states > 0)]
    times = np.linalg.solve(np.eye(len(stay)) - stay, np.ones(len(stay)))
    expected = times[np.argmin(np.abs(states[states > 0] - fixed))]
    assert study.chain_lifetimes(COIN, np.array([size]), beta=beta) == pytest.approx(times[-1])
    cycles = fixed * np.array([[[1.0]] * 2, [[-1.0]] * 2])
    monkeypatch.setattr(study, "_SETTLE", 60)
    monkeypatch.setattr(study, "_TOLERANCE", 0.2)
    found, ends = study.noise_escapes(
        COIN,
        size,
        beta=beta,
        window=np.array([[states[np.argmin(np.abs(states - fixed))]]]),
        position=0,
        cycles=cycles,
        home=0,
        every=1,
        horizon=160,
        runs=300,
        seed=3,
    )
    escaped = found < 160
    life = estimate_lifetime(found, ended=escaped)
    assert 150 < life.ended < 300
    assert (found[~escaped] == 160).all()
    assert (ends[escaped] == 1).all()
    assert life.value == pytest.approx(expected, rel=4 / np.sqrt(life.ended))


def test_orbits_are_recognized():
    cycles = np.random.default_rng(2).normal(size=(3, 8, 2))
    moved = np.stack([np.roll(cycles[2], 4, axis=0), cycles[0] + 0.005, cycles[1] + 0.02])
    found = study.recognize(moved, cycles=cycles, clock=4)
    assert found.tolist() == [2, 0, -1]


def test_the_law_of_escapes_is_the_maximum_of_the_censored_likelihood():
    rng = np.random.default_rng(4)
    x = np.array([1.0, 2.0, 3.0, 4.0])
    horizon = 40.0
    laws = []
    for draw in range(300):
        times = rng.exponential(np.exp(0.5 + 0.9 * x)[:, None], (4, 60))
        ended = (times < horizon).sum(axis=1)
        total = np.minimum(times, horizon).sum(axis=1)
        law = escape_law(x, total=total, ended=ended)
        laws.append(law)
        if draw == 0:

            def minus(p, total=total, ended=ended):
                logs = p[0] + p[1] * x
                return ended @ logs + total @ np.exp(-logs)

            best = minimize(minus, [0.0, 1.0], tol=1e-12)
            assert law.value == pytest.approx(best.x, abs=1e-4)
            free = ended @ np.log(total / ended) + ended.sum()
            assert law.deviance == pytest.approx(2 * (best.fun - free), abs=1e-6)
    values = np.array([law.value for law in laws])
    errors = np.array([law.error for law in laws])
    deviances = np.array([law.deviance for law in laws])
    assert values[:, 1].mean() == pytest.approx(0.9, abs=0.02)
    assert values.std(axis=0) == pytest.approx(errors.mean(axis=0), rel=0.15)
    assert kstest(deviances, "chi2", args=(2,)).pvalue > 0.01


def test_a_text_that_stays_is_compared_at_the_clock_of_the_cycles(monkeypatch):
    """Whatever the number of noise-free tokens; a text elsewhere has left half a stretch before."""
    network = Network.poclopez2024()
    beta = 1.25
    start = Context(np.full((1, 4, 3), 0.1), 0)
    # At this β it goes to a cycle of 16 steps: four flashes of the clock.
    ensemble = Ensemble(network, start, beta=beta)
    ensemble.advance(20_000)
    cycle = ensemble.record(16)
    cycles = np.concatenate([cycle, 2.0 * cycle])
    ensemble.advance(1)
    state = ensemble.state()
    window = np.tanh(beta * state.attention[0] @ network.semantic[0])[::-1]
    # The last look is at the horizon: a text that has left by then is no survivor.
    for settle, home, horizon in ((6, 0, 8), (7, 0, 8), (7, 1, 8), (7, 1, 4)):
        monkeypatch.setattr(study, "_SETTLE", settle)
        times, ends = study.noise_escapes(
            network,
            3 * 10**9,
            beta=beta,
            window=window,
            position=state.position,
            cycles=cycles,
            home=home,
            every=4,
            horizon=horizon,
            runs=2,
            seed=0,
        )
        assert times.tolist() == [2.0 if home else horizon] * 2
        assert ends.tolist() == [0 if home else -1] * 2


def slopes(table, cycle, seed):
    """Slope against N of ln τ and of ln τ/√N, and χ² of lines in N and in ln N, by least squares.

    ln of a lifetime from k escapes has the variance 1/k.
    """
    rows = (table["beta"] == 3.0) & (table["cycle"] == cycle) & (table["seed"] == seed)
    size = table["size"][rows].astype(float)
    ended = table["escaped"][rows].astype(float)
    logs = np.log(table["total"][rows] / ended)
    weight = np.sqrt(ended)
    found = []
    for x, y in ((size, logs), (size, logs - 0.5 * np.log(size)), (np.log(size), logs)):
        line = np.polyfit(x, y, 1, w=weight)
        found.append((line[0], ((weight * (y - np.polyval(line, x))) ** 2).sum()))
    return found


@pytest.mark.claim("C18d")
def test_times_to_escape_grow_exponentially_at_the_rate_of_the_least_action():
    table = study.escapes_table.read()
    actions = study.actions_table.read()["action"]
    for seed in (0, 1):
        four = [slopes(table, cycle, seed) for cycle in range(4)]
        exponential = sum(one[0][1] for one in four)
        power = sum(one[2][1] for one in four)
        assert power - exponential > 50
        assert exponential < 35  # of about 15 expected: four lines through 24 points
        ratio = np.array([[one[k][0] for k in (0, 1)] for one in four]) / actions[:, None]
        assert 1.05 < ratio[:, 0].mean() < 1.25
        assert abs(ratio[:, 1].mean() - 1.0) < 0.1
    # With the root of N in front each cycle is within a quarter; with the actions of others not.
    rates = [study.rate_over_action(cycle, power=0.5, seeds=range(4)) for cycle in range(4)]
    ratio = np.array([rate.value for rate in rates])
    off = [
        np.sqrt(((ratio * actions / np.roll(actions, places) - 1.0) ** 2).mean())
        for places in range(4)
    ]
    assert off[0] < 0.1
    assert min(off[1:]) > 0.4


def test_a_rate_over_its_action_is_the_slope_of_a_line_through_the_logarithms():
    """`rate_over_action` takes the power of N out, the right sizes and the right seeds."""
    table = study.escapes_table.read()
    action = study.actions_table.read()["action"][1]
    chosen = (table["beta"] == 3.0) & (table["cycle"] == 1) & (table["seed"] == 2)
    size = table["size"][chosen]
    life = table["total"][chosen] / table["escaped"][chosen]
    for power in (0.0, 0.5):
        line = np.polyfit(size, np.log(life / size**power), 1, w=np.sqrt(table["escaped"][chosen]))
        rate = study.rate_over_action(1, power=power, seeds=[2])
        assert rate.value == pytest.approx(line[0] / action, rel=0.02)
        assert rate.samples == table["texts"][chosen].sum()
    half = size >= np.sort(size)[len(size) // 2]
    line = np.polyfit(size[half], np.log(life[half]), 1, w=np.sqrt(table["escaped"][chosen][half]))
    larger = study.rate_over_action(1, power=0.0, seeds=[2], larger_half=True)
    assert larger.value == pytest.approx(line[0] / action, rel=0.02)


def test_cycles_are_four_and_guesses_begin_and_end_on_them():
    known = study.coexisting_cycles(3.0)
    assert known.periods.tolist() == [24] * 4
    apart = np.abs(known.overlaps[:, None] - known.overlaps).max(axis=(2, 3))
    assert (apart + np.eye(4) > 0.05).all()
    network = Network.poclopez2024()
    costs = []
    for fields, position in study.first_guesses(0, size=900, texts=20):
        cost = path_action(network, fields, beta=3.0, position=position)
        costs.append(cost.sum())
        # After the escape the guess follows the dynamics; only the join at the end costs.
        assert cost[-40:-4].sum() < 1e-9
    assert costs == sorted(costs)
    # An action of a sampled path is far above the least one, which no path may undercut.
    assert min(costs) > study.actions_table.read()["action"][0]

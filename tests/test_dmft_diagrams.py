"""Orbit diagrams, phase diagrams, and statistics of attention."""

from functools import partial

import numpy as np
import pytest
from scipy.special import softmax

from spinformer.dmft import (
    Context,
    Map,
    Network,
    Regime,
    attention_statistics,
    diagrams as module,
    find_attractors,
    orbit_diagram,
    phase_diagram,
    random_contexts,
    step,
)
from spinformer.dmft.mean_field import token_overlaps

LOGISTIC = Map(step=lambda x, r: r * x * (1.0 - x), dimension=1, parameters={"r": 3.2})
NETWORK = Network.poclopez2024()
START = Context(np.full((4, 3), 0.1), 0)
short_diagram = partial(phase_diagram, transient=2000, kept=1000, exponent_steps=500)


def test_orbit_diagram_of_the_logistic_map_and_of_the_published_network():
    values = np.array([2.8, 3.2, 3.5, 3.9])
    found = orbit_diagram(LOGISTIC, [0.4], parameter="r", values=values, kept=64)
    counts = [len(np.unique(row.round(9))) for row in found.points[..., 0]]
    assert counts[:3] == [1, 2, 4]
    assert counts[3] == 64
    assert found.points[0, -1, 0] == pytest.approx(1.0 - 1.0 / 2.8)
    drawn = orbit_diagram(NETWORK, START, values=[0.5, 1.2], transient=2000, kept=8)
    assert drawn.points.shape == (2, 8, 3)
    np.testing.assert_allclose(drawn.points[:, :4], drawn.points[:, 4:], atol=1e-6)


def test_an_orbit_diagram_that_follows_shows_hysteresis():
    """Magnetization in a field, m = tanh(2m + h): up and down differ between the two folds."""
    magnet = Map(step=lambda x, h: np.tanh(2.0 * x + h), dimension=1, parameters={"h": 0.0})
    m = np.sqrt(0.5)
    fold = 2.0 * m - np.arctanh(m)
    fields = np.linspace(-1.0, 1.0, 81)
    followed = partial(orbit_diagram, magnet, parameter="h", transient=2000, kept=1, follow=True)
    # From the other side each, so that starting anew would not do.
    up = followed([1.0], values=fields).points[:, 0, 0]
    down = followed([-1.0], values=fields[::-1]).points[::-1, 0, 0]
    apart = np.abs(up - down) > 0.1
    between = np.abs(fields) < fold
    # Within a step of the fields of the folds.
    assert (apart != between).sum() <= 2
    assert apart.sum() > 30
    # Upwards the lower branch is kept, downwards the upper one.
    assert (up[apart] < down[apart]).all()


def test_a_phase_diagram_holds_what_find_attractors_says():
    betas = np.array([0.5, 1.25, 1.3])
    gammas = np.array([60.0, NETWORK.gamma])
    found = short_diagram(NETWORK, START, across=("beta", betas), upwards=("gamma", gammas))
    assert found.regime.shape == found.exponent.shape == (2, 3)
    one = find_attractors(
        NETWORK, START, beta=betas[2], gamma=gammas[0], exponents=1, bins=1,
        thresholds=module.classify_regimes.keywords["thresholds"],
        transient=2000, kept=1000, exponent_steps=500,
    )  # fmt: skip
    assert found.exponent[0, 2] == one.exponents.value[0]
    assert found.regime[0, 2] == one.regime
    assert found.regime[0, 0] == Regime.PERIODIC
    assert sum(found.fractions().values()) == pytest.approx(1.0)
    logistic = short_diagram(
        Map(step=lambda x, r, s: r * x * (1 - x) + s, dimension=1, parameters={"r": 3.0, "s": 0.0}),
        [0.4], across=("r", [2.8, 3.2]), upwards=("s", [0.0]),
    )  # fmt: skip
    assert logistic.period.tolist() == [[1, 2]]


def test_undecided_cells_say_what_to_run_longer():
    """Cells that a short run leaves open are decided by the run that their advice asks for."""
    axes = {"across": ("beta", [0.5, 1.2, 1.24]), "upwards": ("gamma", [NETWORK.gamma])}
    short = short_diagram(NETWORK, START, transient=0, **axes)
    undecided = short.regime == Regime.UNDECIDED
    assert undecided.any()
    assert ((short.reasons != "") == undecided).all()
    assert sum(short.advice().values()) == undecided.sum()
    assert all("transient" in words for words in short.advice())
    longer = short_diagram(NETWORK, START, transient=60_000, **axes)
    assert (longer.regime == Regime.PERIODIC).all()
    assert longer.advice() == {}


def test_statistics_of_attention_are_those_of_plain_steps():
    start = random_contexts(NETWORK, 0, count=3)
    found = attention_statistics(NETWORK, start, beta=1.3, steps=40, transient=8)
    context = start
    rows = []
    for number in range(48):
        if number >= 8:
            window = token_overlaps(NETWORK, context, 1.3)
            score = np.einsum("ba,bta->bt", window[:, 0, 2], window[:, :, 3])
            rows.append(softmax(NETWORK.gamma * score, axis=-1))
        context, _ = step(NETWORK, context, 1.3)
    weights = np.array(rows)
    np.testing.assert_allclose(found.mean, weights.mean(axis=0), atol=1e-7)
    np.testing.assert_allclose(found.deviation, weights.std(axis=0), atol=1e-6)
    entropy = -(weights * np.log(np.maximum(weights, 1e-300))).sum(axis=-1)
    np.testing.assert_allclose(found.entropy, entropy.mean(axis=0), atol=1e-7)
    np.testing.assert_allclose(found.effective, np.exp(entropy).mean(axis=0), atol=1e-7)
    np.testing.assert_allclose(found.largest, weights.max(axis=-1).mean(axis=0), atol=1e-7)
    uniform = attention_statistics(NETWORK, start, beta=1.3, gamma=0.0, steps=4)
    np.testing.assert_allclose(uniform.entropy, np.log(4.0))


def test_what_does_not_fit_is_refused_by_name():
    for call, word in (
        (lambda: orbit_diagram(LOGISTIC, [0.4], values=[3.0]), "parameter"),
        (lambda: orbit_diagram(LOGISTIC, [0.4], parameter="r", values=[[3.0]]), "values"),
        (
            lambda: phase_diagram(
                NETWORK, START, across=("beta", [1.0]), upwards=("beta", [1.0])
            ),
            "upwards",
        ),
        (lambda: phase_diagram(NETWORK, START, across=("b", [1.0]), upwards=("beta", [1.0])),
         "across"),
        (lambda: orbit_diagram(NETWORK, random_contexts(NETWORK, 0, count=2), values=[1.0, 1.1]),
         "start must be one state"),
        (
            lambda: short_diagram(
                LOGISTIC, [[0.4], [0.5]], across=("r", [3.0, 3.2]), upwards=("r", [3.0])
            ),
            "start must be one state",
        ),
        (lambda: attention_statistics(NETWORK, START), "beta must be given"),
        (lambda: attention_statistics(LOGISTIC, [0.4]), "network"),
        (lambda: find_attractors(NETWORK, START), "beta must be given"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=word):
            call()

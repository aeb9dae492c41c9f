"""Architectures beside exact means of two spins and the formula for weak couplings."""

import numpy as np
import pytest
import torch
from open_cells import run_open_cells

from compendium.c26_architectures import mixers, study
from spinformer.spins.exact_vectors import two_spins


def spread_weights(rng, *, tokens, spread):
    """Softmax weights of independent normal scores, and their relative variance c²."""
    weights = study.softmax_weights(rng.normal(scale=spread, size=(tokens, tokens)))
    off = weights[~np.eye(tokens, dtype=bool)]
    return weights, off.var() / off.mean() ** 2


@pytest.mark.claim("B20")
def test_pooling_and_attention_leave_the_same_of_weak_couplings():
    rng = np.random.default_rng(0)
    tokens, dim, strength = 60, 12, 0.01
    squares = {"none": 0.0, "pooling": 0.0, "attention": 0.0, "best": 0.0}
    predicted = []
    for _ in range(30):
        fields = rng.normal(size=(tokens, dim)) / dim**0.5
        weights, relative = spread_weights(rng, tokens=tokens, spread=0.8)
        predicted.append(relative)
        pair = strength * (weights + weights.T)
        exact = study.mean_field_spins(fields, pair, steps=30)
        uniform = 2 * strength * (1 - np.eye(tokens)) / (tokens - 1)
        factor = (2 + relative) / (1 + relative)
        for name, mixed in {
            "none": 0 * pair,
            "pooling": uniform,
            "attention": 2 * strength * weights,
            "best": factor * strength * weights,
        }.items():
            one = study.mean_field_spins(fields, mixed, steps=1)
            squares[name] += ((one - exact) ** 2).sum()
    relative = np.mean(predicted)
    left = {name: (square / squares["none"]) ** 0.5 for name, square in squares.items()}
    assert left["pooling"] == pytest.approx((relative / (2 + relative)) ** 0.5, rel=0.05)
    assert left["attention"] == pytest.approx(left["pooling"], rel=0.05)
    assert left["best"] == pytest.approx((relative / (2 + 2 * relative)) ** 0.5, rel=0.05)


@pytest.mark.claim("B20b")
def test_the_echo_of_a_spin_among_few_and_among_many():
    fields = np.array([[1.0, 0.5, 0.0], [-0.4, 0.3, 1.1]])
    couplings = 0.2 * np.array([[0.0, 1.0], [1.0, 0.0]])
    exact = two_spins(couplings, fields=fields, beta=1.0).magnetization / 3**0.5
    unit = fields / 3**0.5
    pair = couplings + couplings.T
    missed = {
        equation: np.linalg.norm(study.solve_equation(unit, pair, equation)[0] - exact)
        for equation in ("one step", "fixed point", "TAP")
    }
    assert missed["TAP"] < missed["one step"] < missed["fixed point"]
    sampled = study.sample_reference(fields, couplings, seed=0, sweeps=4000)
    assert np.linalg.norm(sampled.mean - exact) < 4 * sampled.noise**0.5
    assert sampled.relative_error(sampled.mean) == 0.0
    assert sampled.relative_error(sampled.free) == 1.0
    # Many spins with equal couplings and fields: u = ½ V⁻¹h of the saddle, exact for large D.
    many = np.full((40, 40), 0.5 / 39) * (1 - np.eye(40))
    field = np.zeros((40, 400))
    field[:, 0] = 1.0
    saddle = study.solve_equation(field, 2 * many, "saddle")[0]
    step = study.solve_equation(field, 2 * many, "one step")[0]
    fixed = study.solve_equation(field, 2 * many, "fixed point")[0]
    assert np.linalg.norm(fixed - saddle) < 0.3 * np.linalg.norm(step - saddle)


def test_the_open_cells_are_the_package():
    cells = run_open_cells("26_architectures")
    rng = np.random.default_rng(3)
    fields = rng.normal(size=(6, 3))
    np.testing.assert_allclose(cells["spin_mean"](fields), study.free_response(fields), rtol=1e-9)
    scores = rng.normal(size=(6, 6))
    np.testing.assert_allclose(
        cells["attention_weights"](scores), study.softmax_weights(scores), rtol=1e-12
    )
    left = cells["left"]
    assert left["pooling"] == pytest.approx(((np.e - 1) / (np.e + 1)) ** 0.5, rel=0.1)
    assert left["attention"] == pytest.approx(left["pooling"], rel=0.05)
    assert left["both ways"] < 0.1


def test_the_second_term_of_the_response_is_a_derivative():
    setting = study.Setting(tokens=4, dim=3, strength=0.7, gamma=1.5)
    system = study.draw_system(setting, 1)
    correlations = np.random.default_rng(0).uniform(size=(4, 4))
    response = study.coupling_response(system, setting, correlations)

    def energy(fields):
        scores = 1.5 * (fields @ system.queries) @ (fields @ system.keys).T / 3**0.5
        return 0.7 * 3 * (correlations * study.softmax_weights(scores)).sum()

    change = np.random.default_rng(1).normal(size=(4, 3))
    up = energy(system.fields + 1e-5 * change)
    down = energy(system.fields - 1e-5 * change)
    assert (response * change).sum() * 3**0.5 == pytest.approx((up - down) / 2e-5, rel=1e-6)


def test_what_the_mixers_put_in_the_place_of_the_couplings():
    setting = study.Setting(tokens=6, dim=4, gamma=2.0, position=1.0)
    system = study.draw_system(setting, 0)
    rows = np.ones(6)
    for name in ("uniform", "rows"):
        np.testing.assert_allclose(system.pairs[name] @ rows, 2.0, rtol=1e-12)
    for name in ("uniform", "fixed", "linear", "softmax", "Fourier"):
        np.testing.assert_allclose(system.pairs[name], system.pairs[name].T, atol=1e-14)
    # Where tokens are their positions, all texts have the same couplings.
    np.testing.assert_allclose(system.pairs["fixed"], system.pairs["softmax"], rtol=1e-12)
    # Without sharpness, attention is pooling.
    flat = study.draw_system(setting._replace(gamma=0.0), 0).pairs
    np.testing.assert_allclose(flat["rows"], flat["uniform"], rtol=1e-12)


@pytest.fixture
def settled_reference(monkeypatch):
    """In the place of Monte Carlo the fixed point of the mean field; seeds that were asked for."""
    seeds = []

    def reference(fields, couplings, *, seed, sweeps):
        unit = fields / fields.shape[1] ** 0.5
        pair = couplings + couplings.T
        mean = study.free_response(unit)
        for _ in range(100):
            mean = 0.5 * mean + 0.5 * study.free_response(unit + pair @ mean)
        seeds.append(seed)
        free = study.free_response(unit)
        return study.Reference(mean, 0.0, free, np.zeros((len(unit), len(unit))))

    monkeypatch.setattr(study, "sample_reference", reference)
    monkeypatch.setattr(study, "_STRENGTHS", np.linspace(0.0, 3.0, 13))
    monkeypatch.setattr(study, "_SYSTEMS", 2)
    monkeypatch.setattr(study, "TEXTS", 5)
    return seeds


def test_robustness_of_the_mixers_is_measured_against_the_reference(settled_reference, monkeypatch):
    """Where the reference is the fixed point of these couplings, that has no error left."""
    few = {"tokens": 5, "dim": 3, "gamma": 1.0, "position": 0.0, "strength": 0.4}
    gains = []
    for seed in (2000, 2001):
        system = study.draw_system(study.Setting(**few), seed)
        unit = system.fields / 3**0.5
        pair = 0.4 * (system.weights + system.weights.T)
        reference = study.sample_reference(system.fields, 0.4 * system.weights, seed=0, sweeps=0)
        step = study.free_response(unit + pair @ study.free_response(unit))
        gains.append(np.linalg.norm(step - reference.mean))
        gains[-1] /= np.linalg.norm(reference.free - reference.mean)
    settled_reference.clear()
    (row,) = study.gain_by_iteration(0, **few)
    assert row["value"] == pytest.approx(np.mean(gains), rel=1e-6)
    assert row["low"] < row["value"] < row["high"]
    assert row["runs"] == 2
    assert len(set(settled_reference)) == 2
    following = [unit["data"] for unit in study.settings_b20b.units[:2]]
    assert following[1] - following[0] == 5  # no system counts twice

    monkeypatch.setattr(study, "MIXERS", ("softmax",))
    one_step, settled = study.settings_b20.rows(data=0, **few)
    assert [one_step["equation"], settled["equation"]] == ["one step", "fixed point"]
    assert settled["value"] == pytest.approx(study.LEFT, abs=1e-6)
    assert study.LEFT - 1.0 < one_step["value"] < settled["value"]
    monkeypatch.setattr(study, "MIXERS", ("softmax", "uniform"))
    worse, worse_settled = study.settings_b20.rows(data=0, **few)
    # The worst of the mixers decides.
    assert worse["value"] < one_step["value"]
    assert worse_settled["value"] < settled["value"] - 0.01


def test_errors_of_architectures_are_shares_of_what_the_couplings_do(
    settled_reference, monkeypatch
):
    monkeypatch.setattr(study, "EQUATIONS", study.EQUATIONS[:4])
    setting = study.Setting(tokens=5, dim=3, strength=0.4)
    rows = study.architecture_errors(setting, 1, sweeps=16)
    error = {(row["couplings"], row["equation"]): row["error"] for row in rows}
    assert error["softmax", "fixed point"] < 1e-6
    assert 0.0 < error["softmax", "three steps"] < error["softmax", "one step"] < 1.0
    best = {row["couplings"]: row["best"] for row in rows if row["equation"] == "one step"}
    for couplings, value in best.items():
        assert value <= error[couplings, "one step"] + 1e-12
    # In a system of its own, the couplings of which are symmetric, a mixer settles without error.
    for row in study.own_errors(setting, 1, sweeps=16):
        if row["couplings"] in ("uniform", "fixed", "linear", "softmax"):
            assert (row["error"] < 1e-6) == (row["equation"] == "fixed point"), row


def test_a_linear_mixer_multiplies_less_for_many_tokens():
    attention = sum(study.mixing_cost("rows", tokens=64, dim=8))
    assert attention == 2 * 64**2 * 8
    assert sum(study.mixing_cost("linear", tokens=64, dim=8)) / attention == 8 / 64
    assert sum(study.mixing_cost("uniform", tokens=64, dim=8)) / attention == 1 / 128


@pytest.mark.parametrize("kind", mixers.KINDS)
def test_mixers_mix_as_their_names_say(kind):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mixer = mixers.Mixer(kind, 4, tokens=5)
        tokens = torch.randn(2, 5, 4)
        changed = tokens.clone()
        changed[:, 0] += 1.0
    with torch.no_grad():
        difference = (mixer(changed) - mixer(tokens)).abs().amax((0, 2))
        reached = mixer(tokens)
    assert (difference[1:] > 1e-6).any() == (kind != "none")
    if kind == "uniform":
        torch.testing.assert_close(reached, reached[:, :1].expand_as(reached))
    if kind == "three steps":
        one = mixers.Mixer("rows", 4, tokens=5)
        one.load_state_dict(mixer.state_dict())
        matrix = one.mixing(tokens)
        values = one.value(tokens)
        long = matrix @ (values + matrix @ (values + matrix @ values))
        torch.testing.assert_close(reached, one.output(long))
    shape = {"tokens": 8, "features": 8, "classes": 10, "readout": "mean"}
    numbers = [
        mixers.parameter_count(mixers.build_network(one, shape=shape)) for one in (kind, "rows")
    ]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.02)

"""The classical memory at a temperature: theory against other algebra, heat bath against sums."""

from functools import partial

import numpy as np
import pytest
from open_cells import run_open_cells
from scipy.optimize import brentq
from scipy.special import erf
from scipy.stats import norm

from compendium.c11b_load_and_temperature import generalization, study
from compendium.common.classical_capacity import retrieval_load
from spinformer.hopfield.discrete import energy

# E over a unit normal, by a library's adaptive quadrature.
average = partial(norm.expect, lb=-12, ub=12, limit=400, epsabs=1e-12, epsrel=1e-12)


def iterate(load, *, beta, m=1.0, steps=400):
    """Overlap, q and r of the equations of Amit et al., in steps of a fifth until they stay."""
    z = np.linspace(-10, 10, 2001)
    q = 1.0
    weight = norm.pdf(z) / norm.pdf(z).sum()
    for _ in range(steps):
        r = q / (1 - beta * (1 - q)) ** 2
        u = np.tanh(beta * (np.sqrt(load * r) * z + m))
        m = m + 0.2 * (weight @ u - m)
        q = q + 0.2 * (weight @ u**2 - q)
    return m, q, r


def free_energy(m, q, r, *, load, beta):
    """f of Amit, Gutfreund and Sompolinsky at any m, q, r, by quadrature."""
    left = 1 - beta + beta * q
    entropy = average(
        lambda z: np.logaddexp(*(s * beta * (np.sqrt(load * r) * z + m) for s in (1, -1)))
    )
    trace = load / (2 * beta) * (np.log(left) - beta * q / left)
    return load / 2 + m * m / 2 + trace + load * beta * r * (1 - q) / 2 - entropy / beta


@pytest.mark.parametrize(("load", "temperature"), [(0.05, 0.3), (0.1, 0.2), (0.01, 0.8)])
def test_states_solve_the_equations_and_have_their_free_energy(load, temperature):
    beta = 1 / temperature
    state = study.replica_state(load, temperature=temperature)
    m, q, r = iterate(load, beta=beta, steps=3000)
    assert (state.overlap, state.copies) == pytest.approx((m, q), rel=1e-8)
    assert state.free_energy == pytest.approx(free_energy(m, q, r, load=load, beta=beta), abs=1e-9)
    ends = beta * np.array([1 - 1e-4, 1 + 1e-4])
    boltzmann = [b * study.replica_state(load, temperature=1 / b).free_energy for b in ends]
    assert np.diff(boltzmann) / np.diff(ends) == pytest.approx(state.energy, rel=1e-5)


def test_spin_glass_state_and_where_it_melts():
    for load in (0.04, 0.25):
        frozen = 1 + np.sqrt(load)
        below = study.replica_state(load, temperature=0.999 * frozen, retrieval=False)
        above = study.replica_state(load, temperature=1.001 * frozen, retrieval=False)
        assert below.overlap == above.overlap == above.copies == 0.0
        assert 0.0 < below.copies < 0.02
        assert below.replicon < 0.0 < above.replicon
        assert above.replicon == pytest.approx(1 - load / (1.001 * frozen - 1) ** 2)
    state = study.replica_state(0.1, temperature=0.6, retrieval=False)
    _, q, r = iterate(0.1, beta=1 / 0.6, m=0.0, steps=5000)
    assert state.copies == pytest.approx(q, rel=1e-6)
    fourth = average(lambda z: np.cosh(np.sqrt(0.1 * r) * z / 0.6) ** -4.0)
    assert state.replicon == pytest.approx(1 - 0.1 * r / q / 0.6**2 * fourth, rel=1e-6)
    # At a pattern of load 0.05 it is positive: no glass.
    assert min(study.replica_state(0.05, temperature=t).replicon for t in (0.03, 0.3, 0.54)) > 0


def test_fold_at_zero_temperature_is_the_known_capacity():
    overlaps = np.linspace(0.96, 0.97, 10_001)
    capacity, overlap = max(zip(retrieval_load(overlaps), overlaps, strict=True))
    # At T = 0 the response is C = √(2/π) e^{−y²}/√(αr), m = erf y, √(αr) = m/(√2 y).
    y = brentq(lambda y: erf(y) - overlap, 1.0, 2.0)
    slope = capacity * np.sqrt(2 / np.pi) * np.exp(-(y**2)) * np.sqrt(2) * y / overlap
    loads = [study.retrieval_fold(t)[0] for t in (0.01, 0.02)]
    # Two temperatures remove the term in T²: what is left is of third order.
    first = (4 * (loads[0] - capacity) / 0.01 - (loads[1] - capacity) / 0.01) / 2
    assert loads[0] == pytest.approx(capacity, abs=3e-4)
    assert first == pytest.approx(slope, rel=0.2)
    assert study.retrieval_fold(0.01)[1] == pytest.approx(overlap, abs=5e-4)
    assert (1 - 0.999) / np.sqrt(study.retrieval_fold(0.999)[0]) == pytest.approx(1.95, abs=0.01)


def test_fold_is_where_iteration_loses_the_pattern():
    for temperature in (0.3, 0.6):
        load, overlap = study.retrieval_fold(temperature)
        inside, *_ = iterate(0.995 * load, beta=1 / temperature, steps=3000)
        outside, *_ = iterate(1.005 * load, beta=1 / temperature, steps=3000)
        assert inside > overlap > 0.5
        assert outside < 1e-3
        assert study.melting_temperature(load) == pytest.approx(temperature, abs=1e-7)
        assert study.replica_state(0.9999 * load, temperature=temperature).overlap > overlap
        with pytest.raises(ValueError, match="sign"):
            study.replica_state(1.01 * load, temperature=temperature)


def test_free_energies_cross_at_the_coexistence_load():
    for temperature in (0.05, 0.5):
        load = study.coexistence_load(temperature)

        def gap(load, temperature=temperature):
            glass = study.replica_state(load, temperature=temperature, retrieval=False)
            pattern = study.replica_state(load, temperature=temperature)
            return pattern.free_energy - glass.free_energy

        assert gap(0.9 * load) < -1e-5 < 1e-5 < gap(1.1 * load)
        assert abs(gap(load)) < 1e-9
    # At T = 0 the energies of the two states cross at 0.051 to 0.052 (Amit et al.).
    assert study.coexistence_load(0.01) == pytest.approx(0.052, abs=0.001)


def test_compiled_sweeps_are_the_plain_ones():
    """With the couplings written out and the draws of the same generator."""
    rng = np.random.default_rng(6)
    patterns = rng.choice([-1.0, 1.0], (5, 30))
    starts = patterns[:3]
    targets = rng.choice([-1.0, 1.0], (3, 30))
    states, overlaps, energies = study.run_heat_bath(
        patterns, starts=starts, targets=targets, temperature=0.6, sweeps=6, seed=1
    )
    couplings = patterns.T @ patterns / 30
    np.fill_diagonal(couplings, 0.0)
    rng = np.random.default_rng(1)
    for q, spins in enumerate(starts.copy()):
        for step in range(6):
            for i in range(30):
                up = 1 / (1 + np.exp(-2 / 0.6 * couplings[i] @ spins))
                spins[i] = 1.0 if rng.random() < up else -1.0
            assert overlaps[q, step] == pytest.approx(spins @ targets[q] / 30)
            energy = -0.5 * spins @ couplings @ spins / 30
            assert energies[q, step] == pytest.approx(energy, abs=1e-6)
        assert (states[q] == spins).all()


def test_overlap_and_energy_of_the_theory_are_those_of_networks():
    overlap, energy = study.retrieval(1500, load=0.08, fraction=0.7, networks=12, seed=11)
    theory = study.replica_state(0.08, temperature=0.7 * study.melting_temperature(0.08))
    assert overlap.value == pytest.approx(theory.overlap, abs=3 * overlap.error + 0.01)
    assert energy.value == pytest.approx(theory.energy, rel=0.015)
    assert overlap.error < 0.01


@pytest.mark.claim("A6b")
def test_patterns_are_lost_where_the_glass_is_still_there():
    """Sampled as `test_compiled_sweeps_are_the_plain_ones` holds it, against the theory."""
    rng = np.random.default_rng(17)
    left = []
    for _ in range(24):
        patterns = rng.choice([-1.0, 1.0], (10, 200))
        _, overlaps, _ = study.run_heat_bath(
            patterns, starts=patterns[:1], temperature=1.0, sweeps=150, seed=rng
        )
        left.append(overlaps[0, 75:].mean())
    assert abs(np.mean(left)) < 0.2
    squares = study.copies_overlap(200, load=0.05, temperature=1.0, networks=16, seed=4)
    # A paramagnet of 200 spins would have 1/200 times a factor near one.
    assert squares.value > 4 / 200
    glass = study.replica_state(0.05, temperature=1.0, retrieval=False).copies
    assert squares.value == pytest.approx(glass**2, rel=0.6)
    assert study.melting_temperature(0.05) < 1.0


@pytest.mark.parametrize(("load", "temperature"), [(0.05, 1.6), (0.25, 2.2)])
def test_copies_have_the_susceptibility_of_the_replicon(load, temperature):
    found = study.copies_overlap(250, load=load, temperature=temperature, networks=16, seed=3)
    theory = 1 / (1 - load / (temperature - 1) ** 2)
    assert 250 * found.value == pytest.approx(theory, abs=4 * 250 * found.error + 0.05)
    assert 250 * found.error < 0.25


def test_open_cells_find_the_capacity_and_the_melting_of_the_package():
    cells = run_open_cells("11b_load_and_temperature")
    assert cells["largest_load"] == pytest.approx(study.retrieval_fold(0.02)[0], abs=5e-4)
    # Just beyond the fold the iteration needs ever more steps to leave the pattern.
    melting = study.melting_temperature(0.05)
    assert cells["highest_temperature"] == pytest.approx(melting, abs=1e-3)
    state = study.replica_state(0.08, temperature=0.3)
    assert cells["retrieved_overlap"](0.08, 0.3) == pytest.approx(state.overlap, abs=1e-9)


@pytest.mark.claim("A7b")
@pytest.mark.parametrize(("name", "bar"), [("power 2", 0.06), ("power 3", 0.1), ("power 4", 0.1)])
def test_an_example_is_lost_where_the_field_of_the_others_is_larger(name, bar):
    """M at which turning a wrong spin of an example costs no energy on average, by energies."""
    dim = 400
    quality = 0.7
    separation = generalization.separation_of(name, dim=dim)
    rng = np.random.default_rng(5)
    counts = np.arange(2, 31, 4)
    costs = []
    for count in counts:
        cost = []
        for _ in range(30):
            right = rng.random((count, dim)) < 0.5 * (1.0 + quality)
            patterns = np.where(right, 1.0, -1.0)
            wrong = rng.choice(np.flatnonzero(~right[0]), 10, replace=False)
            turned = np.where(np.arange(dim) == wrong[:, None], 1.0, patterns[0])
            before = energy(patterns, states=patterns[:1], separation=separation)
            after = energy(patterns, states=turned, separation=separation)
            cost.append(np.mean(after - before))
        costs.append(np.mean(cost))
    slope, level = np.polyfit(counts, costs, 1)
    limit = generalization.example_limit(name, dim=dim, quality=quality)
    assert -level / slope == pytest.approx(limit, rel=bar)


@pytest.mark.parametrize("name", generalization.ENERGIES)
def test_the_limit_balances_the_force_of_an_example_and_of_its_class(name):
    """F'(d) of the example against q (M − 1) F'(q²d) of others at their mean overlap, by F."""
    quality = 0.6
    for dim in (16, 50):
        separation = generalization.separation_of(name, dim=dim)
        overlaps = np.array([dim, quality**2 * dim])
        own, other = separation(overlaps + 1e-4) - separation(overlaps - 1e-4)
        limit = generalization.example_limit(name, dim=dim, quality=quality)
        assert limit == pytest.approx(1.0 + own / (quality * other), rel=1e-6)


def test_one_stored_example_is_recalled_and_many_are_averaged():
    """One keeps all and draws new ones to itself; very many at equal weight leave the prototype."""
    choices = {"dim": 400, "quality": 0.5, "seed": 3}
    for name in generalization.ENERGIES:
        kept, new = generalization.kept_and_generalized(name, examples=1, classes=1, **choices)
        assert kept == 1.0
        # It is as far from the prototype as the new one was.
        assert new == pytest.approx(0.0, abs=0.15)
    kept, new = generalization.kept_and_generalized("power 2", examples=60, classes=1, **choices)
    assert kept == pytest.approx(0.0, abs=0.1)
    assert new == pytest.approx(1.0, abs=0.02)
    for name, beta in (("attention", 0.1), ("attention at 2β", 0.2)):
        separation = generalization.separation_of(name, dim=100)
        assert separation(np.array([3.0])) == pytest.approx(np.exp(3.0 * beta))

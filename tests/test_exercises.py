"""Every exercise's answer is computed, and the number that stands in its text is the one found.

Those of chapters 22 to 23c are in `test_exercises_spins.py`, those from 32b to 36 that are not
here in `test_exercises_limit.py`. What no test computes is in `PROOFS` (nothing to compute, or
nothing that a number would prove) or in `TOO_LONG`.
"""

import itertools
import math
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from exercises import CHAPTERS, DONE, answers, exercises, near, number, said
from scipy.integrate import quad
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfc, erfcinv
from scipy.stats import norm

from compendium.c11b_load_and_temperature import replica
from compendium.c12b_continuous_capacity import random_energy
from compendium.c13_memory_density.study import pair_mixing
from compendium.c15_demonstrations.boundary import spinodal
from compendium.c25_driven.order import critical_beta
from compendium.c51_synthesis.study import readers_in_equilibrium
from spinformer.dmft.network import Network
from spinformer.dmft.onset import onset
from spinformer.spins.ising import sherrington_kirkpatrick, solve_exact
from spinformer.spins.kinetic import kinetic_stationary
from spinformer.spins.mean_field import glass_state, solve_mean_field

# Nothing to compute: a derivation, an explanation, or a reading of the chapter's own figures.
PROOFS = {
    *("10.1", "11.1", "11.3", "11b.1", "12.1", "12.2", "12.5"),
    *("13.1", "13.3", "14.1", "14b.3", "15.1", "15.2"),
    *("42.1", "42.3", "42b.2", "42c.1"),
    *("16.3", "17.1", "17.3"),
    *("21a.1", "31.1", "31.2", "32.1", "32.2", "32b.1", "32b.2"),
    *("33.1", "33.3", "33b.1", "33d.2", "33e.1"),
    *("24.4", "24a.2", "24a.3"),
    *("34.1", "34.2", "51.1"),
}
# Trainings, sweeps and runs of more than some seconds; done by hand when the answer was written.
TOO_LONG: set[str] = set()


def test_every_exercise_is_computed_or_named_here():
    """Every one that a chapter asks is in one of the lists, and what the lists name is asked."""
    for path in Path(__file__).parent.glob("test_exercises_*.py"):
        import_module(path.stem)
    asked = set()
    for path in CHAPTERS:
        chapter = number(path.stem)
        # Questions stand before the answers; where both alternate, numbers do not repeat.
        text = re.split(r"\n:::\{admonition\} Answers\n", exercises(chapter))[0]
        asked |= {f"{chapter}.{count}" for count in re.findall(r"^(\d)\. ", text, re.M)}
    named = [*DONE, *PROOFS, *TOO_LONG]
    assert len(named) == len(set(named))
    assert set(named) - asked == set()
    assert sorted(asked - set(named)) == []


@answers("10.2", "10.3")
def test_attention():
    b, c = 32, 16
    length = brentq(lambda n: 4 * (b + (n - b) / (2 * c)) - n, 1, 1000)
    assert length == near(said("10", r"\\approx (\d+)\$ for"), 0)
    assert length == pytest.approx(2 * b * (2 * c - 1) / (c - 2))
    beta, q, k = 0.7, 0.4, -1.1
    mean = quad(lambda w: norm.pdf(w) * math.exp(math.sqrt(beta) * w * (q + k)), -12, 12)[0]
    assert mean * math.exp(-beta * (q * q + k * k) / 2) == pytest.approx(math.exp(beta * q * k))


@answers("11.2")
def test_discrete_memories():
    root, load = said("11", r"sqrt\\alpha=([\d.]+)\$, \$\\alpha=([\d.]+)\$: above", 2)
    assert 0.5 * erfc(erfcinv(0.02)) == pytest.approx(0.01)
    assert math.sqrt(2) * erfcinv(0.02) == near(root, 2)
    assert 0.5 / erfcinv(0.02) ** 2 == near(load, 2)


@answers("11b.2", "11b.3")
def test_load_and_temperature():
    top = minimize_scalar(
        lambda t: -replica.coexistence_load(t), bounds=(0.03, 0.3), method="bounded"
    )
    load, at = said("11b", r"all temperatures is ([\d.]+), near \$T=([\d.]+)", 2)
    assert -top.fun == near(load, 3)
    assert top.x == near(at, 2)
    overlap, magnet = said("11b", r"gives ([\d.]+); a magnet .*=([\d.]+)\$\.", 2)
    assert replica.retrieval_fold(0.99).overlap / 0.1 == near(overlap, 2)
    assert math.sqrt(3) == near(magnet, 2)


@answers("12.3")
def test_the_continuous_memory():
    pair = np.array([[0.6, 0.8], [-0.6, -0.8]]) * 1.7
    assert np.linalg.eigvalsh(np.cov(pair.T, bias=True))[-1] == pytest.approx(1.7**2)


@answers("12b.1", "12b.2", "12b.3")
def test_continuous_capacity():
    assert random_energy.capacity(1.3, ensemble="binary") == pytest.approx(
        1.3 - math.log(math.cosh(1.3)), abs=1e-9
    )
    half = said("12b", r"gives ([\d.]+) \$=I")
    assert random_energy.capacity(50, overlap=0.5, ensemble="binary") == near(half, 3)
    logarithm = said("12b", r"10\^6=([\d.]+)")
    assert math.log(1e6) == near(logarithm, 1)
    passed, asked = said("12b", r"near \$d=(\d+)\$; the expansion\s.* asks for about (\d+)", 2)
    below, above = (
        random_energy.retrieval_fold(d, beta=d**-0.5).log_count
        for d in (int(passed) - 2, int(passed) + 2)
    )
    assert below < math.log(1e6) < above
    assert brentq(
        lambda d: math.sqrt(d) - 0.5 * math.log(d) - 1.5 - math.log(1e6), 50, 1000
    ) == near(asked, 0)


@answers("12.4")
def test_hidden_neurons():
    # ρ ü + (1 + ρ) u̇ + (1 − a) u = 0 near a rest; rates of the slow mode.
    edge = said("12", r"at \$\\omega_0=(\d)\$, with")
    rates = np.roots([1.0, 2.0, 1.0 - 1j * edge])
    slow = rates[np.argmax(rates.real)]
    assert slow.real == pytest.approx(0.0, abs=1e-9)
    assert abs(slow.imag) == near(said("12", r"\(1\+\\rho\)=(\d)\$ in units"), 6)


@answers("13.2", "13.4")
def test_the_density():
    assert 2 * math.log(100) == near(said("13", r"a\^2-b\^2=([\d.]+)/"), 1)
    slow = said("13", r"lambda=([\d.]+)\$, for")
    assert slow == pytest.approx(0.9**0.01, abs=5e-6)
    far = brentq(
        lambda a: pair_mixing(torch.tensor([[a], [-a]], dtype=torch.float64)) - 0.9**0.01, 1.0, 6.0
    )
    # The chance to change sides is that of a Gaussian mean of a logistic function.
    change = quad(lambda z: norm.pdf(z) / (1 + math.exp(2 * far * (far + z))), -12, 12)[0]
    assert 1 - 2 * change == pytest.approx(0.9**0.01, abs=1e-9)


@answers("14.2")
def test_a_long_step_uphill_ends_lower():
    start, end = said("14", r"falls from \$(-[\d.]+)\$ to \$(-[\d.]+)\$\. This", 2)
    assert -math.log(math.cosh(1.0)) == near(start, 3)
    assert -math.log(math.cosh(-2.0)) == near(end, 3)


@answers("14b.1", "14b.2")
def test_classes_of_heads():
    edges = said("14b", r"1/32\$ give \$s = ([\d.]+)\$, \$([\d.]+)\$ and \$([\d.]+)", 3)
    for share, edge in zip((1 / 2, 1 / 8, 1 / 32), edges, strict=True):
        assert norm.ppf(0.9) - norm.ppf(share) == near(edge, 2)
    frozen = said("14b", r"which is \$([\d.]+)\$ and \$([\d.]+)\$", 2)
    for keys, edge in zip((128, 512), frozen, strict=True):
        assert math.sqrt(2 * math.log(keys)) == near(edge, 2)


@answers("15.3")
def test_the_weaker_basin_vanishes():
    found = brentq(lambda k: spinodal(k) - math.log(2), 1.1, 3.0)
    assert found == near(said("15", r"approx([\d.]+)\$\. At"), 2)


@answers("16.1", "16.2")
def test_energies_as_signal():
    angle = np.linspace(0.0, np.pi, 20_001)
    for a in (0.01, 1.0, 30.0):
        slope = np.sin(angle) / (1 + np.exp(np.minimum(a * (1 - np.cos(angle)), 700.0)))
        assert angle[slope.argmax()] < np.pi / 2
    for length in (0.1, 2.0):
        point = np.full(3, length)
        density = (1.5 / (2 * np.pi)) ** 1.5 * np.exp(-0.75 * np.square(point - point).sum())
        assert -np.log(density) == pytest.approx(-1.5 * np.log(1.5 / (2 * np.pi)))


@answers("17.2")
def test_three_bound_patterns():
    for strength, beta, stable in ((0.5, 5.9, True), (0.5, 6.1, False), (1.1, 500.0, True)):
        coupled = (1 - strength) * np.eye(3) + strength
        p = np.array([0.334, 0.333, 0.333])
        for _ in range(300):
            scores = beta * coupled @ p
            p = 0.9 * p + 0.1 * np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        assert bool(np.ptp(p) < 1e-3) is stable


@answers("21.1", "21.2", "21.3", "21.4")
def test_exact_sums():
    energy, entropy, free = said("21", r"\$(-[\d.]+) - ([\d.]+) = (-[\d.]+)\$", 3)
    assert energy - entropy == pytest.approx(free, abs=1e-9)
    hot = solve_exact(np.zeros((3, 3)), fields=np.full(3, 0.2), beta=1e-3)
    assert float(hot.free_energy) == pytest.approx(-3 / 1e-3 * math.log(2), rel=1e-6)
    mantissa, spins = said(
        "21",
        r"\$([\d.]+) \\times 10\^\{14\}\$ operations at \$N\$ a state: .* between (\d+) and",
        2,
    )
    assert near(mantissa, 1) == 86_400 * 1e10 / 1e14
    assert spins * 2**spins < 86_400 * 1e10 < (spins + 1) * 2 ** (spins + 1)
    triangle = np.ones((3, 3)) - np.eye(3)
    states = np.array(list(itertools.product((1, -1), repeat=3)))
    energies = 0.5 * np.einsum("ni,ij,nj->n", states, triangle, states)
    assert (energies == energies.min()).sum() == 6
    found = solve_exact(-triangle, fields=np.zeros(3), beta=5.0)
    assert float(found.log_partition) == pytest.approx(math.log(6) + 5.0, abs=1e-6)


@answers("21a.2", "21a.3")
def test_cheap_free_energies():
    for k in (0.3, 2.0):
        level = 0.5 * (1 + math.sqrt(1 + 4 * k * k))
        matrix = level * np.eye(2) - k * np.array([[0, 1], [1, 0]])
        assert np.linalg.inv(matrix)[0, 0] == pytest.approx(1.0)
    counts = {}
    for method in ("naive", "tap", "adaptive"):
        counts[method] = []
        for seed in range(2):
            couplings = sherrington_kirkpatrick(16, seed=seed, field_std=0.0)[0]
            starts = np.random.default_rng(seed).uniform(-0.9, 0.9, (10, 16))
            ends = [
                solve_mean_field(
                    couplings,
                    fields=np.zeros(16),
                    beta=4.0,
                    method=method,
                    start=start,
                    throw=False,
                )
                for start in starts
            ]
            places = {tuple(end.magnetization.round(2) + 0.0) for end in ends if end.converged}
            counts[method].append(len(places))
            if method == "tap":
                assert max(abs(x) for place in places for x in place) < 1e-3
    assert counts["tap"] == [1, 1]
    assert np.mean(counts["naive"]) > np.mean(counts["adaptive"]) > 1.5


@answers("21a.4", "21a.5")
def test_large_systems():
    state = glass_state(0.6, field_std=0.01)
    assert state.value == pytest.approx(0.36 * 1e-4 / (1 - 0.36), rel=0.01)
    assert state.stability == pytest.approx(0.36, rel=0.01)
    near_line, close = said("21a", r"0.58 = (\d+)\$; .*0.99 = ([\d{},]+)\$", 2)
    for factor, layers in ((0.58, near_line), (0.99, close)):
        assert 2 * math.log(1e-3) / math.log(factor) == near(layers, 0)


@answers("25.1", "25.2", "25.3")
def test_driven_spins():
    rng = np.random.default_rng(0)
    couplings = rng.standard_normal((4, 4))
    couplings, fields = couplings + couplings.T, rng.standard_normal(4)
    states = np.array(list(itertools.product((1, -1), repeat=4)))
    weight = np.exp(0.4 * states @ fields)
    weight = weight * np.prod(2 * np.cosh(0.4 * (fields + states @ couplings)), axis=1)
    found = kinetic_stationary(couplings, drive=fields, beta=0.4)
    np.testing.assert_allclose(found.magnetization, weight @ states / weight.sum(), atol=1e-9)
    chain = np.zeros((3, 3))
    chain[1, 0] = chain[2, 1] = 0.8
    drive = np.full(3, 0.3)
    base = kinetic_stationary(chain, drive=drive, beta=1.0).magnetization
    both = solve_exact(chain + chain.T, fields=drive, beta=1.0).magnetization
    for spin in range(3):
        pulled = drive + 0.1 * np.eye(3)[spin]
        driven = kinetic_stationary(chain, drive=pulled, beta=1.0).magnetization - base
        assert (np.abs(driven[:spin]) < 1e-12).all()
        assert (np.abs(driven[spin:]) > 1e-3).all()
        resting = solve_exact(chain + chain.T, fields=pulled, beta=1.0).magnetization - both
        assert (np.abs(resting) > 1e-3).all()
    assert critical_beta(0.0, field_scale=0.0) == near(said("25", r"returns ([\d.]+)\."), 6)


@answers("31.3")
def test_asymmetric_networks():
    rng = np.random.default_rng(1)
    couplings = rng.standard_normal((9, 9))
    couplings = couplings + couplings.T
    path = [np.where(rng.random(9) < 0.5, 1.0, -1.0)]
    for _ in range(200):
        path.append(np.where(couplings @ path[-1] >= 0, 1.0, -1.0))
    heights = [-x @ couplings @ y for x, y in itertools.pairwise(path)]
    assert (np.diff(heights) <= 1e-9).all()
    assert (path[-1] == path[-3]).all()


@answers("32.3")
def test_paths_and_mean_fields():
    odd = [s for n in (1, 3) for s in itertools.combinations(range(3), n)]
    assert len(odd) == 4
    signs = np.array(list(itertools.product((1, -1), repeat=3)))
    for attention, vanishes in (((0.3, 0.0, 0.9), True), ((0.3, 0.2, 0.9), False)):
        moment = signs.prod(1) @ np.tanh(2.0 * signs @ np.array(attention))
        assert bool(abs(moment) < 1e-12) is vanishes


@answers("32b.3")
def test_finite_size():
    rate, grown, bits = said(
        "32b", r"2\\lambda=([\d.]+)\$ about \$(\d)\\times10\^6\$ times: \$(\d)\\times10", 3
    )
    assert math.exp(50 * rate) / 1e6 == near(grown, 0)
    assert grown == bits


@answers("33.2")
def test_phase_transitions():
    strobes, steps = 11, said("33", r"it is back: (\d+) steps")
    assert math.gcd(3, strobes) == 1
    assert 4 * strobes == steps


@answers("33b.2")
def test_lifetimes():
    mantissa = said("33b", r"0\.9\) = ([\d.]+)\\times10\^5")
    assert 1 / math.log(1 / 0.9) == near(mantissa, 1)


@answers("33c.1", "33c.2")
def test_bifurcations():
    found = onset(Network.document())
    mu = found.mu[0]
    angle, turn, four, three = said(
        "33c",
        r"varphi = ([\d.]+)\$; .* = ([\d.]+)\\,\(T\+1\)\$ tokens, so ([\d.]+) "
        r"for \$T = 4\$ and ([\d.]+)",
        4,
    )
    phase = abs(np.angle(mu))
    assert phase == near(angle, 3)
    assert math.pi / phase == near(turn, 2)
    assert 5 * math.pi / phase == near(four, 1)
    assert 4 * math.pi / phase == near(three, 1)
    # T = 1: a step multiplies by βμ, so |z| = 1 at β = 1/|μ| and it turns by the angle of μ.
    z = np.exp(2j * phase / 5)
    beta = found.beta[0]
    assert z**4 == pytest.approx(
        beta * abs(mu) * np.exp(1j * phase) / 4 * (z ** np.arange(4)).sum()
    )


@answers("33d.1")
def test_phase_diagrams():
    starts, missed = said("33d", r"0\.05 at \$n = (\d+)\$\. .* in (\d+) of 100", 2)
    assert 0.9**starts < 0.05 < 0.9 ** (starts - 1)
    assert near(missed, 0) == 100 * 0.9**8


@answers("33e.2")
def test_census():
    angle = np.linspace(1e-3, np.pi, 400)
    beta = np.sin(angle / 5) / np.sin(4 * angle / 5) * 4
    assert (np.diff(beta) > 0).all()
    assert beta[-1] == pytest.approx(4.0)


@answers("34.3", "34.4")
def test_memory_beyond_the_window():
    assert math.log(1e6) / 0.1 == near(said("34", r"0\.1 = (\d+)\$ tokens"), 0)
    assert math.exp(2 * 0.05 * 10) == near(said("34", r"a factor of ([\d.]+)\."), 1)


@answers("51.2", "51.3")
def test_three_views():
    square = said("51", r"3\\cdot 1\.087\} = ([\d.]+)\$")
    # The mean square is 2/N times the slope of ln Z in β.
    low, high = (
        readers_in_equilibrium(np.array([[1.0], [-1.0]]), beta=beta, readers=3)[1]
        for beta in (0.499, 0.501)
    )
    assert (high - low) / 0.002 * 2 / 3 == near(square, 3)
    period = said("51", r"a period of ([\d.]+) steps")
    turn = brentq(lambda w: 0.1 / abs(np.exp(1j * w) - 0.9) - 0.5, 0.01, 3.0)
    assert 2 * math.pi / turn == near(period, 1)

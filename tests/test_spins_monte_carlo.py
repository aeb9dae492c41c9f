"""Heat-bath Monte Carlo against closed forms, enumeration and plain loops."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import ive

from compendium.c25b_learning_under_a_drive.directions import sample_von_mises_fisher
from spinformer.spins.ising import pair_couplings, sherrington_kirkpatrick, solve_exact
from spinformer.spins.monte_carlo import (
    MonteCarloEstimate,
    _exact_sums,
    parallel_tempering,
    sample_ising,
    sample_vector_spins,
)

# With a few hundred comparisons in this file, 4.5 standard errors leave room for chance only.
LIMIT = 4.5


def _pulls(found, expected):
    with np.errstate(divide="ignore", invalid="ignore"):  # a diagonal of ones has no error
        return np.abs(found.value - expected) / found.error


@pytest.fixture
def system():
    rng = np.random.default_rng(3)
    ordered = 0.25 * rng.normal(size=(6, 6))
    return ordered, 0.4 * rng.normal(size=6)


def test_one_component_spins_are_ising_spins_with_ordered_pairs(system):
    ordered, fields = system
    exact = solve_exact(pair_couplings(ordered), fields=fields, beta=0.8)
    run = sample_vector_spins(ordered, fields=fields[:, None], beta=0.8, sweeps=20_000, seed=2)
    assert _pulls(run.magnetization, exact.magnetization[:, None]).max() < 4
    # The diagonal of the ordered couplings adds its constant to the energy.
    assert _pulls(run.energy, exact.energy - np.trace(ordered)) < LIMIT


@pytest.mark.parametrize("dim", [2, 3, 5, 64])
def test_two_coupled_spins_match_bessel_functions(dim):
    # Without field <u_1.u_2> = I_{D/2}(K)/I_{D/2-1}(K), K = D beta (J_12 + J_21), ||sigma||^2 = D.
    beta, couplings = 0.6, np.array([[0.3, 0.5], [-0.1, -0.2]])
    run = {"fields": np.zeros((2, dim)), "beta": beta, "sweeps": 12_000, "seed": dim}
    run = sample_vector_spins(couplings, **run)
    strength = dim * beta * 0.4
    expected = ive(dim / 2, strength) / ive(dim / 2 - 1, strength)
    assert _pulls(run.correlations, expected)[0, 1] < LIMIT
    assert _pulls(run.magnetization, 0.0).max() < LIMIT
    energy = -dim * (0.4 * expected + np.trace(couplings))
    assert _pulls(run.energy, energy) < LIMIT


def test_sweeps_are_the_heat_bath_spin_by_spin():
    couplings, fields = sherrington_kirkpatrick(5, seed=1, field_std=0.5)
    counts = {"sweeps": 12, "burn_in": 5, "chains": 1, "blocks": 3, "seed": 7}
    run = sample_ising(couplings, fields=fields, beta=1.5, **counts)
    (rng,) = np.random.default_rng(7).spawn(1)
    s = np.where(rng.random(5) < 0.5, 1.0, -1.0)
    path = []
    for _ in range(17):
        for i in range(5):
            local = 1.5 * (fields[i] + couplings[i] @ s)
            s[i] = 1.0 if rng.random() < 1 / (1 + np.exp(-2 * local)) else -1.0
        path.append(s.copy())
    kept = np.array(path[5:])
    assert np.allclose(run.magnetization.value, kept.mean(0))
    assert np.allclose(run.correlations.value, kept.T @ kept / 12)
    energies = -0.5 * np.einsum("ti,ij,tj->t", kept, couplings, kept) - kept @ fields
    assert run.energy.value == pytest.approx(energies.mean())


@pytest.mark.parametrize("dim", [2, 3, 10])
@pytest.mark.parametrize("kappa", [0.0, 0.7, 30.0])
def test_von_mises_fisher_draws_follow_scipy_s_law(dim, kappa):
    axis = np.ones(dim) / np.sqrt(dim)
    draws = sample_von_mises_fisher(np.tile(kappa * axis, (4000, 1)), seed=11)
    assert np.allclose(np.linalg.norm(draws, axis=1), 1)
    if kappa == 0:
        other = stats.uniform_direction(dim, seed=5).rvs(4000)
    else:
        other = stats.vonmises_fisher(axis, kappa, seed=5).rvs(4000)
    for direction in (axis, np.eye(dim)[0]):
        assert stats.ks_2samp(draws @ direction, other @ direction).pvalue > 1e-3


def _calibration(runs, expected):
    """Mean square of (found - expected)/error over runs, for each number of an estimate."""
    found = np.array([run.value for run in runs]).reshape(len(runs), -1)
    error = np.array([run.error for run in runs]).reshape(len(runs), -1)
    keep = (error > 0).all(0)
    pulls = (found - np.ravel(expected))[:, keep] / error[:, keep]
    return (pulls**2).mean()


def test_error_bars_cover_correlated_chains():
    # A stiff chain is slow in its spins and in its energy, whose wall must walk to an end; the
    # scatter over seeds must agree with every error bar.
    couplings = 1.0 * (np.eye(5, k=1) + np.eye(5, k=-1))
    fields = np.array([0.3, 0.0, 0.0, 0.0, -0.1])
    system = {"fields": fields, "beta": 1.0, "sweeps": 8192}
    runs = [sample_ising(couplings, **system, seed=s) for s in range(60)]
    exact = solve_exact(couplings, fields=fields, beta=1.0)
    assert np.mean([r.autocorrelation_time for r in runs]) > 2
    assert np.mean([r.reliable for r in runs]) > 0.9
    # With 60 runs a mean square of one scatters by about 0.2: off by two it is 0.25 or 4.
    for name in ("magnetization", "correlations", "energy"):
        assert 0.5 < _calibration([getattr(r, name) for r in runs], getattr(exact, name)) < 1.8
    assert all(r.magnetization.samples == 64 for r in runs)


@pytest.mark.parametrize(
    ("length", "memory", "reliable"),
    [(100, 0.0, True), (99, 0.0, False), (100, 0.42, True), (100, 0.43, False)],
)
def test_reliable_means_ten_times_the_memory_and_blocks_that_forget(length, memory, reliable):
    averages = dict.fromkeys(("magnetization", "correlations", "energy"))
    chain = {"autocorrelation_time": 10.0, "block_memory": memory, "block_length": length}
    assert MonteCarloEstimate(**averages, **chain, blocks=64).reliable == reliable


@pytest.mark.parametrize("kappa", [1e3, 1e8, 1e16, 3e16, 1e100])
@pytest.mark.parametrize("dim", [2, 5])
def test_large_concentrations_keep_their_digits(dim, kappa):
    # κ (1 − cos) has mean (D − 1)/2 and variance (D − 1)/2 up to 1/κ; 2κ(1 − cos) = κ |tangent|².
    axis = np.eye(dim)[0]
    draws = sample_von_mises_fisher(np.tile(kappa * axis, (4000, 1)), seed=2)
    square = kappa * (draws[:, 1:] ** 2).sum(1)
    half = (dim - 1) / 2
    margin = 4.5 * np.sqrt(half / 4000) + 3 * half / kappa
    assert square.mean() / 2 == pytest.approx(half, abs=margin)
    assert square.var() / 4 == pytest.approx(half, rel=0.2)


def test_spins_near_zero_temperature_end_and_are_right():
    run = sample_ising(np.zeros((2, 2)), fields=np.array([1e4, -1e4]), beta=10.0, sweeps=64)
    assert np.array_equal(run.magnetization.value, [1.0, -1.0])
    system = {"fields": np.ones((2, 3)), "sweeps": 40, "burn_in": 20}
    for beta in (1e16, 1e40):
        run = sample_vector_spins(np.eye(2)[::-1], beta=beta, **system)
        # Ground state: σ along (1, 1, 1), so E = −2 σ·σ − 2 h·σ = −6 − 6.
        assert run.energy.value == pytest.approx(-12.0, abs=1e-6)
    with pytest.raises(ValueError, match="beta must keep"):
        sample_vector_spins(np.eye(2)[::-1], beta=1e160, **system)
    with pytest.raises(ValueError, match="concentration"):
        sample_von_mises_fisher(np.full(3, 1e151), seed=0)


def test_memory_is_seen_in_the_spins_and_in_the_energy():
    couplings = 3.0 * (np.ones((2, 2)) - np.eye(2))
    run = {"sweeps": 4000, "blocks": 80}
    # Both spins turn together once in hundreds of sweeps; the energy, the same up and down,
    # forgets at once.
    slow = sample_ising(couplings, fields=np.zeros(2), **run, beta=1.0)
    assert slow.autocorrelation_time < 2
    assert slow.block_memory > 0.5
    for seed in range(20):
        fast = sample_ising(couplings, fields=np.zeros(2), **run, beta=0.1, seed=seed)
        assert abs(fast.block_memory) < 0.2
        assert fast.reliable
    # Two cold pairs and a warm bond between them: here it is the energy that is slow.
    bars = np.kron(np.eye(2), 1 - np.eye(2)) * 3.0
    bars[1, 2] = bars[2, 1] = 1.0
    frozen = sample_ising(bars, fields=np.zeros(4), **run, beta=1.0)
    assert frozen.block_length == 50 < 10 * frozen.autocorrelation_time


def test_no_run_is_shorter_than_asked():
    run = sample_ising(np.zeros((1, 1)), fields=np.zeros(1), beta=1.0, sweeps=100, blocks=16)
    assert (run.block_length, run.blocks) == (7, 64)


@pytest.mark.parametrize("sampler", [sample_ising, sample_vector_spins])
def test_a_spin_that_never_turned_has_an_error_bar(sampler):
    # One turn in a run of 256 sweeps is expected; a third of the runs see none.
    field = 0.5 * np.log(255.0)
    fields = np.array([field]) if sampler is sample_ising else np.array([[field]])
    system = {"fields": fields, "beta": 1.0, "sweeps": 64, "burn_in": 8}
    runs = [sampler(np.zeros((1, 1)), **system, seed=seed).magnetization for seed in range(300)]
    values, errors = (np.ravel([getattr(r, part) for r in runs]) for part in ("value", "error"))
    still = values == 1.0
    assert 0.25 < still.mean() < 0.5
    assert np.allclose(errors[still], 2 / 256)
    assert 0.7 < values.std() / np.sqrt((errors**2).mean()) < 1.1


@pytest.mark.parametrize("size", [2, 8])
def test_chains_that_are_trapped_on_one_side_do_not_call_it_the_mean(size):
    """Spins tied to each other never turn: one run in eight sees all four chains on one side."""
    couplings = 100.0 * (np.ones((size, size)) - np.eye(size))
    fields = np.zeros(size)
    fields[-1] = 0.1
    agreed = 0
    for seed in range(24):
        run = sample_ising(couplings, fields=fields, beta=1.0, sweeps=400, burn_in=16, seed=seed)
        assert not run.reliable
        if np.abs(run.magnetization.value).min() == 1.0:
            agreed += 1
            assert np.all(run.magnetization.error == 1.0)
    assert agreed
    # A strong field is no trap: its state is found from either side.
    held = sample_ising(0 * couplings, fields=np.full(size, 20.0), beta=1.0, sweeps=400)
    assert held.reliable
    assert np.all(held.magnetization.value == 1.0)
    assert np.all(held.magnetization.error < 0.01)


def test_every_temperature_of_a_ladder_has_its_own_averages():
    couplings, fields = sherrington_kirkpatrick(9, seed=2, field_std=0.3)
    betas = np.array([0.4, 1.1, 2.5])
    counts = {"sweeps": 30_000, "burn_in": 200, "replicas": 4, "seed": 1}
    run = parallel_tempering(2 * couplings, fields=fields, betas=betas, **counts)
    for k, beta in enumerate(betas):
        exact = solve_exact(2 * couplings, fields=fields, beta=beta)
        spread = run.magnetization[:, k].std(0, ddof=1) / 2 + 2e-3
        pulls = (run.magnetization[:, k].mean(0) - exact.magnetization) / spread
        assert np.sqrt(np.mean(pulls**2)) < 2
        assert run.energy[:, k].mean() == pytest.approx(exact.energy / 9, abs=0.01)
        # <q> of two independent replicas is the mean square magnetization.
        assert run.overlaps[:, k].mean() == pytest.approx(np.mean(exact.magnetization**2), abs=0.03)
    assert ((run.swap_acceptance > 0.1) & (run.swap_acceptance < 1)).all()


def plain_ladders(couplings, *, fields, betas, sweeps, burn_in, replicas, every, seed):
    """The draws of `parallel_tempering` in plain Python, every local field summed anew."""
    j, h = (a.astype(float) for a in _exact_sums(couplings, fields=fields, beta=1.7))
    half = -(-replicas // 2)
    streams = np.random.default_rng(seed).spawn(2)
    chosen = [streams[c >= half] for c in range(replicas)]
    shapes = ((half, len(betas), len(h)), (replicas - half, len(betas), len(h)))
    starts = [rng.random(shape) < 0.5 for rng, shape in zip(streams, shapes, strict=True)]
    spins = np.where(np.concatenate(starts), 1.0, -1.0)
    kept, energies, swaps = [], [], []
    for step in range(burn_in + sweeps):
        for i in range(len(h)):
            for rng, ladder in zip(chosen, spins, strict=True):
                for beta, s in zip(betas, ladder, strict=True):
                    local = min(max(beta * (h[i] + j[i] @ s), -300.0), 300.0)
                    s[i] = 1.0 if rng.random() * (1 + math.exp(-2 * local)) < 1 else -1.0
        energy = -0.5 * np.einsum("cki,ij,ckj->ck", spins, j, spins) - spins @ h
        for c, rng in enumerate(chosen):
            for k in range(step % 2, len(betas) - 1, 2):
                gain = (betas[k + 1] - betas[k]) * (energy[c, k + 1] - energy[c, k])
                accepted = gain >= 0.0 or rng.standard_exponential() > -gain
                if accepted:
                    spins[c, [k, k + 1]] = spins[c, [k + 1, k]]
                    energy[c, [k, k + 1]] = energy[c, [k + 1, k]]
                swaps.append((k, accepted))
        if step >= burn_in:
            kept.append(spins.copy())
            energies.append(energy / len(h))
    states = np.array(kept[every - 1 :: every])
    pairs = [(a, b) for a in range(replicas) for b in range(a + 1, replicas)]
    return {
        "magnetization": np.mean(kept, axis=0),
        "energy": np.mean(energies, axis=0),
        "overlaps": np.stack([(states[:, a] * states[:, b]).mean(-1) for a, b in pairs], axis=-1),
        "swap_acceptance": [
            np.mean([a for n, a in swaps if n == k]) for k in range(len(betas) - 1)
        ],
    }


def test_ladders_follow_the_plain_loop_and_threads_change_nothing():
    couplings, fields = sherrington_kirkpatrick(70, seed=4, field_std=0.5)
    options = {
        "betas": np.array([0.9, 1.0, 1.1]),
        "sweeps": 9,
        "burn_in": 3,
        "replicas": 5,
        "every": 2,
    }
    plain = plain_ladders(couplings, fields=fields, **options, seed=3)
    # Some exchanges are accepted and some are not, so that their count is compared, too.
    assert all(0.0 < fraction < 1.0 for fraction in plain["swap_acceptance"])
    for threads in (1, 2):
        run = parallel_tempering(couplings, fields=fields, **options, seed=3, threads=threads)
        assert run.overlaps.shape == (4, 3, 10)
        for name, wanted in plain.items():
            np.testing.assert_allclose(getattr(run, name), wanted, rtol=0, atol=1e-13)
    single = {"betas": np.array([1.0]), "sweeps": 5, "burn_in": 0, "replicas": 1}
    first = parallel_tempering(couplings, fields=fields, **single)
    assert (first.overlaps.shape, first.swap_acceptance.shape) == ((5, 1, 0), (0,))


def test_sums_of_rounded_couplings_are_exact_in_any_order():
    couplings, fields = sherrington_kirkpatrick(700, seed=0, field_std=0.5)
    j, h = _exact_sums(couplings, fields=fields, beta=1.0)
    assert j.dtype == h.dtype == np.float32
    assert np.abs(j - couplings).max() < 1e-5
    signs = np.random.default_rng(1).choice([-1.0, 1.0], 700)
    exact = j.astype(float) @ signs + h
    running = h.copy()
    for column in np.random.default_rng(2).permutation(700):
        running += j[:, column] * np.float32(signs[column])
    assert np.array_equal(running, exact)
    # The worst case: all couplings of a spin pull one way.
    worst = np.sign(j[0])
    running = np.abs(h[:1]).copy()
    for value in j[0] * worst:
        running += value
    assert running[0] == np.abs(j[0]).astype(float).sum() + abs(float(h[0]))
    weak = 1e-3 * couplings
    assert np.abs(_exact_sums(weak, fields=0 * h, beta=1.0)[0] - weak).max() < 1e-8


@pytest.mark.parametrize("hard", [1e5, 1e6, 1e10, 1e39])
def test_a_small_field_beside_a_hard_coupling_is_sampled_or_refused(hard):
    """The third spin is free: tanh 0.1, and no rounded field; a third coupling decides the second
    and third of three, which hang on the first."""
    pair = hard * np.kron(np.diag([1.0, 0.0]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    pair[1, 2] = pair[2, 1] = 0.3
    fields = np.array([0.0, 0.0, 0.0, 0.1])
    run = {"betas": np.array([0.5, 1.0]), "sweeps": 20_000, "burn_in": 20, "replicas": 4}
    if hard > 1e11:
        with pytest.raises(ValueError, match=r"beta must keep beta \* couplings"):
            parallel_tempering(pair, fields=fields, **run)
        return
    j, h = _exact_sums(pair, fields=fields, beta=1.0)
    assert j.dtype == np.float64
    assert j[1, 2] == pytest.approx(0.3, rel=1e-4)
    assert h[3] == pytest.approx(0.1, rel=1e-4)
    found = parallel_tempering(pair, fields=fields, **run)
    spread = found.magnetization[:, 1, 3].std(ddof=1) / 2 + 2e-3
    assert abs(found.magnetization[:, 1, 3].mean() - np.tanh(0.1)) < 4 * spread
    # Energies of all rungs, which are exchanged, stay what the states have.
    wanted = -(hard + 0.1 * np.tanh(0.1) + 0.3 * np.tanh(0.3)) / 4
    assert found.energy[:, 1].mean() - wanted == pytest.approx(0.0, abs=0.02 + 1e-16 * hard)


def test_what_rounding_would_change_is_refused():
    # Half a unit of double precision beside such couplings, 2⁻¹⁴.
    pair, fields = np.array([[0.0, 4e10], [4e10, 0.0]]), np.array([16.5 * 2.0**-14, 0.0])
    run = {"sweeps": 4, "burn_in": 0}
    with pytest.raises(ValueError, match="couplings and fields must not differ in size"):
        parallel_tempering(pair, fields=fields, betas=np.array([5.0]), **run)
    # What changes no exponent may be lost.
    parallel_tempering(pair, fields=1e-9 * fields, betas=np.array([1.0]), **run)
    parallel_tempering(1e39 * pair, fields=fields, betas=np.array([0.0]), **run)
    # Single precision wherever it holds all entries.
    assert _exact_sums(pair, fields=pair[0], beta=1.0)[0].dtype == np.float32
    assert _exact_sums(pair, fields=fields, beta=1.0)[0].dtype == np.float64


def test_bad_input_is_named():
    system = {"couplings": np.zeros((2, 2)), "fields": np.zeros(2)}
    with pytest.raises(ValueError, match="fields"):
        sample_vector_spins(system["couplings"], fields=np.zeros((3, 1)), beta=1.0)
    with pytest.raises(ValueError, match=r"chains \* blocks"):
        sample_ising(**system, beta=1.0, chains=1, blocks=1)
    for message, change in (
        ("increase", {"betas": np.array([1.0, 0.5])}),
        ("every", {"every": 9}),
        ("one system", {"couplings": np.zeros((3, 2, 2))}),
        ("zero diagonal", {"couplings": np.eye(2)}),
    ):
        with pytest.raises(ValueError, match=message):
            parallel_tempering(
                **{**system, "betas": np.ones(1), "sweeps": 4, "burn_in": 0, **change}
            )

"""Heat-bath Monte Carlo against closed forms, enumeration and its own plain version."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import ive

from spinformer.core.statistics import Estimate, integrated_autocorrelation_time
from spinformer.spins.ising.couplings import pair_couplings
from spinformer.spins.ising.exact import solve_exact
from spinformer.spins.ising.monte_carlo import sample_ising
from spinformer.spins.monte_carlo import MonteCarloEstimate
from spinformer.spins.vectors.monte_carlo import sample_vector_spins, sample_von_mises_fisher

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


def test_ising_averages_match_enumeration(system):
    ordered, fields = system
    couplings = pair_couplings(ordered)
    exact = solve_exact(couplings, fields=fields, beta=1.1)
    run = sample_ising(couplings, fields=fields, beta=1.1, sweeps=20_000, seed=1)
    assert run.reliable
    upper = np.triu_indices(6, 1)
    pulls = np.concatenate(
        [
            _pulls(run.magnetization, exact.magnetization),
            _pulls(run.correlations, exact.correlations)[upper],
            [_pulls(run.energy, exact.energy)],
        ]
    )
    assert pulls.max() < LIMIT
    # Error bars are neither too small nor too large: squared pulls average to one.
    assert 0.4 < np.mean(pulls**2) < 2.5
    assert np.max(run.magnetization.error) < 0.01


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
    run = sample_vector_spins(
        couplings, fields=np.zeros((2, dim)), beta=beta, sweeps=12_000, seed=dim
    )
    strength = dim * beta * 0.4
    expected = ive(dim / 2, strength) / ive(dim / 2 - 1, strength)
    assert _pulls(run.correlations, expected)[0, 1] < LIMIT
    assert _pulls(run.magnetization, 0.0).max() < LIMIT
    energy = -dim * (0.4 * expected + np.trace(couplings))
    assert _pulls(run.energy, energy) < LIMIT


def test_one_spin_in_a_field_has_the_document_s_field_on_sigma():
    dim, beta = 4, 1.3
    field = np.array([[0.5, -0.2, 0.1, 0.3]])
    run = sample_vector_spins(np.zeros((1, 1)), fields=field, beta=beta, sweeps=20_000, seed=4)
    kappa = beta * np.sqrt(dim) * np.linalg.norm(field)
    length = np.sqrt(dim) * ive(dim / 2, kappa) / ive(dim / 2 - 1, kappa)
    expected = length * field / np.linalg.norm(field)
    assert _pulls(run.magnetization, expected).max() < LIMIT


@pytest.mark.parametrize(("size", "dim"), [(5, 1), (5, 2), (4, 7)])
def test_compiled_and_plain_sweeps_follow_the_same_trajectory(size, dim):
    rng = np.random.default_rng(dim)
    couplings, fields = 0.3 * rng.normal(size=(size, size)), rng.normal(size=(size, dim))
    fields[0] = 0.0
    couplings[0] = couplings[:, 0] = 0.0  # a free spin takes the branch without a direction
    arguments = {"sweeps": 40, "burn": 5, "chains": 2, "blocks": 4, "seed": 7}
    fast = sample_vector_spins(couplings, fields=fields, beta=1.5, **arguments)
    slow = sample_vector_spins(couplings, fields=fields, beta=1.5, engine="reference", **arguments)
    assert np.allclose(fast.magnetization.value, slow.magnetization.value, atol=1e-10)
    assert np.allclose(fast.correlations.value, slow.correlations.value, atol=1e-10)
    assert fast.energy.value == pytest.approx(slow.energy.value, abs=1e-9)
    pair = pair_couplings(couplings)
    fast = sample_ising(pair, fields=fields[:, 0], beta=1.5, **arguments)
    slow = sample_ising(pair, fields=fields[:, 0], beta=1.5, engine="reference", **arguments)
    assert np.array_equal(fast.magnetization.value, slow.magnetization.value)
    assert fast.energy.value == pytest.approx(slow.energy.value, abs=1e-10)


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


def test_autocorrelation_time_of_an_autoregressive_series():
    # x_t = a x_{t-1} + noise has rho(t) = a^t, so the time is (1 + a)/(1 - a).
    rng = np.random.default_rng(0)
    series = np.zeros((4, 50_000))
    noise = rng.normal(size=series.shape)
    for t in range(1, series.shape[1]):
        series[:, t] = 0.8 * series[:, t - 1] + noise[:, t]
    assert integrated_autocorrelation_time(series) == pytest.approx(9.0, rel=0.08)
    assert integrated_autocorrelation_time(noise) == pytest.approx(1.0, rel=0.08)
    assert integrated_autocorrelation_time(np.ones(10)) == 1.0


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
    runs = [
        sample_ising(couplings, fields=fields, beta=1.0, sweeps=8192, seed=s) for s in range(60)
    ]
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
    none = Estimate(value=0.0, error=0.0)
    run = MonteCarloEstimate(
        magnetization=none,
        correlations=none,
        energy=none,
        autocorrelation_time=10.0,
        block_memory=memory,
        block_length=length,
        blocks=64,
    )
    assert run.reliable == reliable


def test_error_bars_of_vector_spins_are_the_scatter_over_seeds():
    couplings = np.array([[0.2, 0.35], [0.15, -0.1]])
    runs = [
        sample_vector_spins(couplings, fields=np.zeros((2, 3)), beta=1.0, sweeps=1024, seed=s)
        for s in range(60)
    ]
    bond = 1 / np.tanh(1.5) - 1 / 1.5
    exact = {
        "magnetization": np.zeros((2, 3)),
        "correlations": np.array([[1.0, bond], [bond, 1.0]]),
        "energy": -3 * (0.5 * bond + 0.1),
    }
    for name, expected in exact.items():
        assert 0.5 < _calibration([getattr(r, name) for r in runs], expected) < 1.8


def test_a_chain_slower_than_its_blocks_is_not_called_reliable():
    couplings = 3.0 * (np.ones((2, 2)) - np.eye(2))
    run = {"fields": np.zeros(2), "sweeps": 4000, "blocks": 80}
    # Both spins turn together once in hundreds of sweeps; the energy, the same up and down,
    # forgets at once.
    slow = sample_ising(couplings, **run, beta=1.0)
    assert slow.autocorrelation_time < 2
    assert slow.block_length == 50
    assert slow.block_memory > 0.5
    assert not slow.reliable
    for seed in range(20):
        fast = sample_ising(couplings, **run, beta=0.1, seed=seed)
        assert abs(fast.block_memory) < 0.2
        assert fast.reliable
    # Two cold pairs and a warm bond between them: here it is the energy that is slow.
    bars = np.kron(np.eye(2), 1 - np.eye(2)) * 3.0
    bars[1, 2] = bars[2, 1] = 1.0
    frozen = sample_ising(bars, **{**run, "fields": np.zeros(4)}, beta=1.0)
    assert frozen.block_length < 10 * frozen.autocorrelation_time
    assert not frozen.reliable


@pytest.mark.parametrize("kind", ["ising", "vectors"])
def test_burn_in_is_dropped(kind):
    # A chain of aligned spins with a field at one end: random starts take long to notice it.
    size = 8
    pair = 1.2 * (np.eye(size, k=1) + np.eye(size, k=-1))
    fields = np.zeros(size)
    fields[0] = 1.0
    exact = solve_exact(pair, fields=fields, beta=1.0)

    def run(burn):
        many = {"beta": 1.0, "sweeps": 4, "burn": burn, "chains": 600, "blocks": 1, "seed": 5}
        if kind == "ising":
            return sample_ising(pair, fields=fields, **many)
        return sample_vector_spins(pair / 2, fields=fields[:, None], **many)

    for burn, arrived in ((400, True), (0, False)):
        found = run(burn).energy
        assert bool(abs(found.value - exact.energy) < 4 * found.error) is arrived


def test_a_generator_moves_on_and_a_number_repeats():
    system = {"fields": np.array([0.3]), "beta": 1.0, "sweeps": 64}
    none = np.zeros((1, 1))
    assert sample_ising(none, **system, seed=3) == sample_ising(none, **system, seed=3)
    rng = np.random.default_rng(3)
    first, second = (sample_ising(none, **system, seed=rng) for _ in range(2))
    assert first == sample_ising(none, **system, seed=3)
    assert first != second
    with pytest.raises(TypeError, match="seed"):
        sample_ising(none, **{**system, "seed": None})
    with pytest.raises(TypeError, match="seed"):
        sample_vector_spins(none, fields=np.ones((1, 1)), beta=1.0, seed=None)


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


@pytest.mark.parametrize("engine", ["numba", "reference"])
def test_vector_spins_near_zero_temperature_end_and_are_right(engine):
    system = {"fields": np.ones((2, 3)), "sweeps": 40, "burn": 20, "engine": engine}
    for beta in (1e16, 1e40):
        run = sample_vector_spins(np.eye(2)[::-1], beta=beta, **system)
        # Ground state: σ along (1, 1, 1), so E = −2 σ·σ − 2 h·σ = −6 − 6.
        assert run.energy.value == pytest.approx(-12.0, abs=1e-6)
    with pytest.raises(ValueError, match="beta must keep"):
        sample_vector_spins(np.eye(2)[::-1], beta=1e160, **system)
    with pytest.raises(ValueError, match="concentration"):
        sample_von_mises_fisher(np.full(3, 1e151), seed=0)


@pytest.mark.parametrize("sampler", [sample_ising, sample_vector_spins])
def test_a_spin_that_never_turned_has_an_error_bar(sampler):
    # One turn in a run of 256 sweeps is expected; a third of the runs see none.
    field = 0.5 * np.log(255.0)
    fields = np.array([field]) if sampler is sample_ising else np.array([[field]])
    system = {"fields": fields, "beta": 1.0, "sweeps": 64, "burn": 8}
    runs = [sampler(np.zeros((1, 1)), **system, seed=seed).magnetization for seed in range(300)]
    values = np.array([np.ravel(run.value)[0] for run in runs])
    errors = np.array([np.ravel(run.error)[0] for run in runs])
    still = values == 1.0
    assert 0.25 < still.mean() < 0.5
    assert np.allclose(errors[still], 2 / 256)
    assert 0.7 < values.std() / np.sqrt((errors**2).mean()) < 1.1


def test_extreme_fields_are_safe():
    couplings = np.zeros((2, 2))
    for engine in ("numba", "reference"):
        run = sample_ising(
            couplings, fields=np.array([1e4, -1e4]), beta=10.0, sweeps=64, engine=engine
        )
        assert np.array_equal(run.magnetization.value, [1.0, -1.0])
        run = sample_vector_spins(
            couplings,
            fields=np.array([[1e6, 0, 0], [0, 0, -1e6]]),
            beta=10.0,
            sweeps=64,
            engine=engine,
        )
        target = np.sqrt(3) * np.array([[1, 0], [0, -1]])
        assert np.allclose(run.magnetization.value[:, [0, 2]], target, atol=1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"couplings": np.ones((2, 3))}, "couplings"),
        ({"couplings": np.array([[0.0, np.nan], [0.0, 0.0]])}, "couplings must be finite"),
        ({"fields": np.ones(3)}, "fields"),
        ({"beta": -1.0}, "beta"),
        ({"sweeps": 0}, "sweeps"),
        ({"chains": 0}, "chains"),
        ({"engine": "fortran"}, "engine"),
        ({"chains": 1, "blocks": 1}, "chains \\* blocks"),
    ],
)
@pytest.mark.parametrize("sampler", [sample_ising, sample_vector_spins])
def test_bad_input_is_named(sampler, change, message):
    arguments = {"couplings": np.zeros((2, 2)), "fields": np.zeros(2), "beta": 1.0, **change}
    if sampler is sample_vector_spins and arguments["fields"].shape == (2,):
        arguments["fields"] = np.zeros((2, 3))
    with pytest.raises(ValueError, match=message):
        sampler(**arguments)


def test_ising_couplings_must_be_symmetric_with_zero_diagonal():
    with pytest.raises(ValueError, match="symmetric"):
        sample_ising(np.array([[0.0, 1.0], [0.0, 0.0]]), fields=np.zeros(2), beta=1.0)
    with pytest.raises(ValueError, match="zero diagonal"):
        sample_ising(np.eye(2), fields=np.zeros(2), beta=1.0)
    with pytest.raises(ValueError, match="series"):
        integrated_autocorrelation_time(np.zeros(2))

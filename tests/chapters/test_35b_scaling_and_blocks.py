"""Blocks and load: sums over all texts, finite networks, differences for tangents, stored rows."""

import numpy as np
import pytest
from open_cells import run_open_cells
from scipy.integrate import quad
from scipy.optimize import approx_fprime
from scipy.special import expit, softmax
from scipy.stats import linregress, multivariate_normal

from compendium.c35b_scaling_and_blocks import blocks as study, loaded
from compendium.c35b_scaling_and_blocks.blocks import BlockEnsemble, Blocks, block_step, make_blocks
from compendium.c35b_scaling_and_blocks.loaded import loaded_path, resting_state
from spinformer.core.states import spin_states
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.finite_size import mean_path
from spinformer.dmft.linear_stability import onset
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Context, Network

WINDOW = np.array([[1.0, 1.0, -1.0], [1.0, -1.0, 1.0], [-1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]])


def _blocks(residual, feed, *, gamma=3.0, linear=False):
    network = Network.poclopez2024().with_parameters(gamma=gamma, epsilon=0.1)
    hidden = study.random_hidden(1, features=3, kinds=2)
    return Blocks(network=network, residual=residual, feed=feed, hidden=hidden, linear=linear)


def test_the_open_cells_step_as_the_package_does():
    cells = run_open_cells("35b_scaling_and_blocks")
    hidden = np.stack([cells["hidden_in"], cells["hidden_out"]])
    rng = np.random.default_rng(0)
    for residual, feed in ((0.0, 0.0), (0.5, 0.0), (0.7, 1.3)):
        blocks = Blocks(network=Network.poclopez2024(), residual=residual, feed=feed, hidden=hidden)
        window = rng.uniform(-1.0, 1.0, (4, 3))
        for beta in (0.7, 1.6):
            ours = window
            theirs = window[None]
            for t in range(3):
                ours = block_step(blocks, ours, position=t, beta=beta)
                theirs = cells["next_windows"](theirs, t, np.array([[beta]]), residual, feed)
            assert theirs[0] == pytest.approx(ours, abs=1e-12)
    chaotic = {}
    for residual, rates in cells["by_residual"].items():
        beta = cells["inverse_temperatures"][:, 0]
        blocks = Blocks(network=Network.poclopez2024(), residual=residual)
        ensemble = BlockEnsemble([blocks] * len(beta), beta=beta)
        start = np.repeat(rng.uniform(-1.0, 1.0, (4, 3, 1)), len(beta), axis=2)
        package = ensemble.exponents(ensemble.advance(start, 2000), 1600, count=1).value[:, 0]
        chaotic[residual] = (rates > 0.01).mean()
        # Other starts: where attractors coexist some end elsewhere.
        assert chaotic[residual] == pytest.approx((package > 0.01).mean(), abs=0.15)
    assert chaotic[0.0] > chaotic[0.5] > chaotic[1.0] == 0.0


def _exact(blocks, *, size, beta):
    """⟨u⟩ after two steps, summed over every token of `size` bits and every hidden state."""
    network = blocks.network
    hidden = 2 * size // 3
    weights = network.weights(size)
    own = np.repeat(WINDOW, network.counts(size), axis=1)
    copies = hidden // blocks.hidden.shape[2]
    into = np.repeat(blocks.hidden[0], copies, axis=1)
    out = np.repeat(blocks.hidden[1], copies, axis=1)
    code = spin_states(network.bits)
    spins = spin_states(hidden)

    def means(newest, position):
        """Probability of each hidden state, and the mean bits that it makes, for each newest."""
        overlap = []
        for age in range(4):
            bits = newest if age == 0 else own[age - 1 if position == 4 else age]
            place = 0.1 * network.position @ code[(position - age) % 4] / network.bits
            overlap.append(0.9 * np.einsum("rai,...i->...ra", weights, bits) / size + place)
        overlap = np.array(np.broadcast_arrays(*overlap))
        score = network.gamma * (overlap[0, ..., 2, :] * overlap[..., 3, :]).sum(axis=-1)
        attention = (softmax(score, axis=0)[..., None] * overlap[..., 1, :]).sum(axis=0)
        logs = beta * np.einsum("zj,aj,...a->...zj", spins, into, attention)
        chance = expit(2.0 * logs).prod(axis=-1)
        stream = attention[..., None, :] + blocks.feed * spins @ out.T / hidden
        field = stream @ weights[0] + blocks.residual * newest[..., None, :]
        return chance, np.tanh(beta * field)

    chance, mean = means(own[0], 3)
    tokens = spin_states(size)
    likely = chance @ (0.5 * (1.0 + tokens[:, None] * mean)).prod(axis=-1).T
    again, after = means(tokens, 4)
    total = np.einsum("n,nz,nzi->i", likely, again, after)
    return total.reshape(3, -1).mean(axis=1)


def test_the_mean_field_is_the_limit_of_exact_sums_over_all_texts():
    blocks = _blocks(0.5, 0.6, gamma=1.0)
    beta = 0.7
    window = block_step(blocks, WINDOW, position=3, beta=beta)
    limit = block_step(blocks, window, position=4, beta=beta)[0]
    # Hidden spins in proportion to the bits: the error is a / N, so 3 u_9 - 2 u_6 has lost it.
    small = _exact(blocks, size=6, beta=beta)
    large = _exact(blocks, size=9, beta=beta)
    error = np.abs(large - limit).max()
    rest = np.abs(3.0 * large - 2.0 * small - limit).max()
    assert 0.002 < error < 0.2
    assert rest < 0.3 * error


def test_without_blocks_it_is_the_mean_field():
    network = Network.poclopez2024()
    context = random_contexts(network, 3, count=2)
    both = BlockEnsemble([Blocks(network=network)] * 2, beta=[1.27, 1.27])
    window = np.moveaxis(np.tanh(1.27 * context.attention @ network.semantic[0]), 0, -1)
    readout = (1.0 - network.epsilon) * network.fractions * network.semantic[0]
    record = Ensemble(network, context, beta=1.27).record(21)
    for step, wanted in enumerate(np.moveaxis(record, 1, 0)):
        np.testing.assert_allclose((readout @ window[0]).T, wanted, atol=1e-9)
        window = both.advance(window, 1, position=context.position + step)
    spectrum = lyapunov_spectrum(
        network, Context(context.attention, 0), beta=0.9, steps=2000, transient=2000, count=3
    )
    calm = BlockEnsemble([Blocks(network=network)] * 2, beta=[0.9, 0.9])
    found = calm.exponents(calm.advance(window, 2000), 1200, count=3)
    np.testing.assert_allclose(found.value, spectrum.exponents.value, atol=2e-3)


@pytest.mark.parametrize("linear", [False, True])
def test_many_systems_do_what_one_does_and_tangents_are_differences(linear):
    blocks = _blocks(0.4, 1.3, gamma=8.0, linear=linear)
    rng = np.random.default_rng(5)
    start = rng.uniform(-0.8, 0.8, (3, 4, 3))
    beta = np.array([0.7, 1.0, 1.4])
    many = BlockEnsemble([blocks] * 3, beta=beta)
    ends = many.advance(np.moveaxis(start, 0, -1), 6, position=1)
    for n, window in enumerate(start):
        for position in range(1, 7):
            window = block_step(blocks, window, position=position % 4, beta=float(beta[n]))
        np.testing.assert_allclose(ends[..., n], window, atol=1e-12)
    window = ends[..., 2]
    basis = np.eye(12).reshape(12, 4, 3, 1)
    _, pushed = BlockEnsemble([blocks], beta=beta[2:]).step(window[..., None], 7, basis)

    def after(flat):
        return block_step(blocks, flat.reshape(4, 3), position=7, beta=1.4).ravel()

    slopes = [approx_fprime(window.ravel(), after, size) for size in (1e-6, -1e-6)]
    np.testing.assert_allclose(pushed.reshape(12, 12).T, np.mean(slopes, axis=0), atol=1e-8)


def test_errors_stay_with_their_exponents_and_what_aligns_first_does_not_count(monkeypatch):
    """Growth made up: the second direction grows faster, the first scatters more."""
    calls = iter(range(10**6))

    def made(self, window, position, frame):
        n = next(calls)
        sign = 1.0 if (n // 40) % 2 else -1.0
        rates = np.array([0.1 + 0.05 * sign, 0.2 + 0.01 * sign]) + (1.0 if n < 400 else 0.0)
        return window, frame * np.exp(rates)[:, None, None, None]

    monkeypatch.setattr(BlockEnsemble, "step", made)
    one = BlockEnsemble([_blocks(0.1, 0.5)], beta=np.ones(1))
    found = one.exponents(0.1 * np.ones((4, 3, 1)), 400, count=2)
    np.testing.assert_allclose(found.value[0], [0.2, 0.1])
    # Ten stretches at ± 0.05 and ± 0.01: deviation √(10/9) of that, over √10.
    np.testing.assert_allclose(found.error[0], [0.01 / 3, 0.05 / 3])


def _parting(networks, condition):
    """Share of systems (networks,) whose twins, 1e-9 apart after the wait, part to 1e-3."""
    betas = np.repeat(study.TOP * np.arange(1, study.BETAS + 1) / study.BETAS, study.WINDOWS)
    systems = []
    windows = []
    for seed, network in networks.items():
        systems += [make_blocks(network, seed, condition=condition)] * len(betas)
        windows.append(np.random.default_rng((seed, 8)).uniform(-1.0, 1.0, (len(betas), 4, 3)))
    beta = np.tile(betas, len(networks))
    ensemble = BlockEnsemble(systems, beta=beta)
    one = ensemble.advance(np.moveaxis(np.concatenate(windows), 0, -1), 3000)
    ends = [ensemble.advance(start, 600) for start in (one, one + 1e-9)]
    apart = np.abs(ends[0] - ends[1]).max(axis=(0, 1)) > 1e-3
    return apart.reshape(len(networks), -1).mean(axis=1)


@pytest.mark.claim("C23")
def test_chaos_of_the_census_by_twins_that_part():
    table = study.census_table.read()
    first = table["family"] == 0
    bare = first & (table["condition"] == "bare")
    picked = np.sort(table["network"][bare][np.argsort(-table["chaos"][bare])[:6]])
    drawn = list(study._drawn(0, 0, 120).items())
    networks = dict(drawn[n] for n in picked)
    for condition in ("bare", "residual 1", "feed 1"):
        rows = first & (table["condition"] == condition) & np.isin(table["network"], picked)
        stored = table["chaos"][rows].mean()
        assert _parting(networks, condition).mean() == pytest.approx(stored, abs=0.06), condition
    # What the chapter quotes of this table and of the longer waits.
    conditions = [first & (table["condition"] == at) for at in study.CONDITIONS]
    chaos = [table["chaos"][here].mean() for here in conditions]
    quasi = [table["quasi"][here].mean() for here in conditions]
    assert chaos[0] / chaos[2] == pytest.approx(6, abs=0.5)
    assert [round(one / quasi[0]) for one in quasi[1:3]] == [3, 4]
    longer = study.longer_table.read()
    assert (longer["early"].sum(), longer["still"].sum()) == (51, 45)


def test_the_first_mode_is_the_closed_form_and_starts_to_grow_there():
    for network in (Network.segmented(0), Network.segmented(6), Network.poclopez2024()):
        wanted = onset(network, epsilon=0.0)
        network = network.with_parameters(epsilon=0.0)
        found = study.first_mode(Blocks(network=network))
        assert found == pytest.approx((wanted.critical_beta, wanted.critical_rotation), rel=1e-6)
    blocks = make_blocks(network, 3, condition="both 1/2, 1")
    beta, _ = study.first_mode(blocks)
    for factor, grows in ((0.97, False), (1.03, True)):
        window = 1e-6 * np.random.default_rng(0).standard_normal((4, 3))
        for _ in range(1500):
            window = block_step(blocks, window, position=0, beta=factor * beta)
        assert (np.abs(window).max() > 1e-4) == grows


SOFT = Network.poclopez2024().with_parameters(gamma=5.0, epsilon=0.1)


def test_without_load_it_is_the_mean_field_of_few_features():
    path = loaded_path(SOFT, WINDOW, beta=1.3, load=0.0, steps=12)
    mean = mean_path(SOFT, 1.3, window=WINDOW[::-1], steps=12)
    np.testing.assert_allclose(path.means, mean[4:], atol=1e-12)
    tiny = loaded_path(SOFT, WINDOW, beta=1.3, load=1e-5, steps=12)
    assert 1e-9 < np.abs(tiny.means - path.means).max() < 1e-3
    assert not path.noise.any()


def test_explicit_networks_follow_the_theory_at_their_load():
    size = 900
    draws = 24
    steps = 8
    path = loaded_path(SOFT, WINDOW, beta=1.4, load=0.4, steps=steps)
    runs = [
        loaded.simulate_loaded(
            SOFT, size=size, load=0.4, beta=1.4, steps=steps, seed=seed, window=WINDOW
        )
        for seed in range(draws)
    ]
    for name in ("means", "correlation", "noise"):
        got = np.array([getattr(run, name) for run in runs])
        error = got.std(axis=0, ddof=1) / np.sqrt(draws) + 4.0 / size
        assert (np.abs(got.mean(axis=0) - getattr(path, name)) < 4.5 * error).all(), name
    bare = loaded_path(SOFT, WINDOW, beta=1.4, load=0.0, steps=steps)
    means = np.mean([run.means for run in runs], axis=0)
    assert np.abs(means - bare.means).max() > 5.0 * np.abs(means - path.means).max()


def test_the_resting_state_is_that_of_a_sampled_process():
    # A Gaussian process with the covariance that the state claims for its fields, bit by bit.
    load = 0.6
    beta = 1.2
    rest = resting_state(beta, load=load, context=4)
    c = rest.value
    i, j, s, r = np.indices((6, 6, 4, 4))
    cover = load / 16 * c[np.abs(i - j + s - r)].sum(axis=(2, 3))
    assert cover[0, 0] == pytest.approx(rest.noise, rel=1e-8)
    rng = np.random.default_rng(0)
    fields = rng.multivariate_normal(np.zeros(6), cover, 400_000)
    bits = np.where(rng.random(fields.shape) < 0.5 * (1 + np.tanh(beta * fields)), 1.0, -1.0)
    for lag in (1, 2, 3):
        assert (bits[:, 0] * bits[:, lag]).mean() == pytest.approx(c[lag], abs=0.006)
    gain = beta * (1.0 - np.tanh(beta * fields) ** 2).mean()
    assert rest.gain == pytest.approx(gain, rel=0.01)


def test_pair_averages_are_sums_over_the_plane():
    first = np.array([0.3])
    second = np.array([[-0.2], [0.5]])
    there = np.array([0.4, 0.9])
    both = np.array([0.2, -0.5])
    grid = np.linspace(-6.0, 6.0, 1201)
    x, y = np.meshgrid(grid, grid, indexing="ij")
    for beta, tolerance in ((1.3, 1e-4), (8.0, 1e-3)):
        along = beta * both / np.sqrt(0.7)
        across = np.sqrt(beta**2 * there - along**2)
        found = loaded._pair_average(
            beta * first, beta * second, width=beta * 0.7**0.5, along=along, across=across
        )
        for n in range(2):
            law = multivariate_normal(cov=[[0.7, both[n]], [both[n], there[n]]])
            weight = law.pdf(np.stack([x, y], axis=-1))
            product = np.tanh(beta * (0.3 + x)) * np.tanh(beta * (second[n, 0] + y))
            wanted = (weight * product).sum() / weight.sum()
            assert found[n, 0] == pytest.approx(wanted, abs=tolerance)


def test_steep_bits_at_rest_obey_the_arcsine_law():
    rest = resting_state(50.0, load=2.0, context=4)
    width = 50.0 * np.sqrt(rest.noise)
    gain = quad(lambda u: np.exp(-((u / width) ** 2) / 2) / np.cosh(u) ** 2, -40, 40)[0]
    assert rest.gain == pytest.approx(50.0 * gain / width / np.sqrt(2 * np.pi), rel=1e-6)
    rest = resting_state(60.0, load=0.5, context=2)
    c = np.append(rest.value, rest.value[-1])
    cover = np.array([c[abs(d - 1)] + 2.0 * c[d] + c[d + 1] for d in range(20)]) * 0.125
    cover[0] = 0.125 * (2.0 + 2.0 * c[1])
    assert rest.noise == pytest.approx(cover[0], rel=1e-9)
    wanted = 2.0 / np.pi * np.arcsin(cover[1:] / cover[0])
    np.testing.assert_allclose(rest.value[1:20], wanted, atol=0.01)
    with pytest.raises(ValueError, match="beta and load"):
        resting_state(400.0, load=1.0, context=4)


@pytest.mark.claim("C22")
def test_the_powers_of_the_tables_by_a_plain_line():
    scores = loaded.scores_table.read()
    paths = loaded.paths_table.read()
    wanted = {"fixed": -0.5, "unit, P = 3 + alpha N": 0.0, "unit, P = 3": 1.0}
    for rule, exponent in wanted.items():
        rows = scores["rule"] == rule
        line = linregress(np.log(scores["size"][rows]), np.log(scores["deviation"][rows]))
        assert line.slope == pytest.approx(exponent, abs=0.1), rule
        fitted = loaded.power(scores, column="deviation", chosen=rows).slope.value
        assert fitted == pytest.approx(line.slope, abs=0.06)
    # Unit variance is unit deviation, in a text of no table, too.
    [fresh] = loaded.scores_table.rows(rule="unit, P = 3 + alpha N", size=600, seed=20)
    assert fresh["deviation"] == pytest.approx(1.0, abs=0.1)
    line = linregress(np.log(paths["size"]), np.log(paths["with"]))
    assert line.slope == pytest.approx(-0.5, abs=4 * line.stderr)


def test_the_largest_load_is_where_the_gain_meets_the_onset():
    limits = loaded.limits_table.read()
    critical = onset(Network.poclopez2024(), epsilon=0.0).critical_beta
    assert limits["onset"][0] == pytest.approx(critical, rel=1e-4)
    edge = loaded.largest_load(limits)

    # On a grid of temperatures no gain at a larger load, and one at a smaller, is enough.
    def largest_gain(load):
        betas = np.linspace(2.0, 8.0, 7)
        return max(resting_state(beta, load=load, context=4).gain for beta in betas)

    above = largest_gain(edge + 0.03)
    below = largest_gain(edge - 0.05)
    assert above < critical < below


def test_a_row_of_the_census_is_what_was_surveyed(monkeypatch):
    asked = []

    def surveyed(networks, *, condition, wait=study._WAIT):
        asked.append((list(networks), condition, wait))
        code = np.zeros((len(networks), 8), dtype=int)
        code[:, :4] = 2
        code[:, 4:6] = 1
        code[0, 0] = 0 if wait > study._WAIT else 2
        leading = np.where(code == 2, 0.3, -0.1)
        return code, 1.5 * (code == 2), leading

    monkeypatch.setattr(study, "_surveyed", surveyed)
    rows = study.census_table.rows("bare", family=1, chunk=2)
    chunk = len(rows)
    assert [row["network"] for row in rows] == list(range(2 * chunk, 3 * chunk))
    for row in rows:
        assert (row["chaos"], row["quasi"], row["dimension"]) == (0.5, 0.25, 0.75)
        assert row["exponent"] == pytest.approx(0.15)
        # Three labels with shares ½, ¼ and ¼, in nats.
        assert row["variety"] == pytest.approx(1.5 * np.log(2.0))
    seeds = [
        study.census_table.rows("bare", family=0, chunk=place) and asked[-1][0] for place in (0, 1)
    ]
    assert not {*seeds[0]} & {*seeds[1]}
    (row,) = study.longer_table.rows("feed 1")
    (few, condition, early), (same, _, late) = asked[-2:]
    assert condition == "feed 1"
    assert few == same
    assert late == 10 * early
    assert row == {"early": 4 * len(few), "still": 4 * len(few) - 1, "late": 4 * len(few) - 1}

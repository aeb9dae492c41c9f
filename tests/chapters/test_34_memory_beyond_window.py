"""Memory beyond the window: claims C11 and C12 by other means, exact inverses, closed forms."""

from dataclasses import replace

import numpy as np
import pytest
from known_networks import UNEVEN
from open_cells import run_open_cells
from scipy.signal import periodogram
from scipy.stats import binom, norm

from compendium.c34_memory_beyond_window import messages, study
from compendium.c34_memory_beyond_window.messages import label_information, predicted_information
from compendium.c34_memory_beyond_window.study import autocorrelation
from compendium.common.rows import median_interval
from spinformer.core.statistics import student_interval
from spinformer.dmft.corrections import noise_covariance, predicted_rms
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.finite_size import attention_of_window, linear_maps, mean_path, window_means
from spinformer.dmft.mean_field import poclopez2024_context
from spinformer.dmft.network import OUTPUT, Context, Network
from spinformer.dmft.poclopez2024 import MOTIONS, attractor_window
from spinformer.dmft.settling import perturbed_replicas

NETWORK = Network.poclopez2024()
SHORT = replace(UNEVEN, context=3)


def signals(context, *, beta, dropped, kept):
    """m^o_1 of a batch, (batch, kept)."""
    ensemble = Ensemble(NETWORK, context, beta=beta)
    ensemble.advance(dropped)
    return ensemble.record(kept)[..., 0]


def correlation(signal, lag):
    """Correlation coefficient between a signal and itself `lag` later, averaged over its rows."""
    return np.mean([np.corrcoef(row[:-lag], row[lag:])[0, 1] for row in signal])


def test_the_open_cells_have_the_memory_of_the_package():
    cells = run_open_cells("34_memory_beyond_window")
    for beta in (0.5, 1.255, 1.28):
        tokens = np.random.default_rng(0).uniform(-1.0, 1.0, (4, 3))
        for t in range(2000):
            tokens = cells["next_window"](tokens, t, beta)
        # The newest token, of time 2000, is the last of the package's window.
        path = mean_path(NETWORK, beta, window=tokens[::-1], steps=64, position=2000 % 4)
        if beta < 1.27:
            ahead = tokens
            for t in range(2000, 2064):
                ahead = cells["next_window"](ahead, t, beta)
            assert ahead == pytest.approx(path[:-5:-1], abs=1e-9)
        maps = linear_maps(NETWORK, beta, path=path, position=2000 % 4)
        newest = maps[0].swapaxes(0, 1).reshape(3, 12)
        assert cells["tangent_map"](tokens, 2000, beta)[:3] == pytest.approx(newest, abs=1e-7)
        noise = messages.token_noise(NETWORK, path)
        profile = messages.memory_profile(maps, noise=noise)[::-1]
        memory = cells["memory_of_tokens"](beta, steps=64)
        assert memory == pytest.approx(profile, abs=1e-4)
        assert memory.sum() == pytest.approx(12.0)


@pytest.mark.parametrize(("beta", "follows"), [(1.24, True), (1.246, False)])
def test_nothing_is_slower_than_the_context_where_motion_follows_the_clock(beta, follows):
    start = poclopez2024_context(NETWORK, steps=20_000, decimals=8)
    one = Context(start.attention[None], start.position)
    signal = signals(one, beta=beta, dropped=20_000, kept=1000)[0]
    window = NETWORK.context
    assert (np.abs(signal[window:] - signal[:-window]).max() < 1e-9) == follows


@pytest.mark.claim("C11")
def test_spectra_and_correlations_by_other_means():
    start = poclopez2024_context(NETWORK, steps=20_000, decimals=8)
    one = Context(start.attention[None], start.position)
    quasi = signals(one, beta=1.255, dropped=3000, kept=4000)
    # Turns of the orbit counted in the strobed plane of m and its change, no spectrum involved.
    strobed = quasi[0, ::4] - quasi[0, ::4].mean()
    angle = np.unwrap(np.angle(strobed[1:-1] + 1j * (strobed[2:] - strobed[:-2])))
    own = abs(angle[-1] - angle[0]) / (2 * np.pi * 4 * (len(angle) - 1))
    assert own == pytest.approx(0.0641, abs=2e-4)
    assert own < 1.0 / NETWORK.context
    frequency, power = periodogram(quasi[0], detrend="constant")
    assert power[frequency < 0.25].sum() / power.sum() > 0.9
    returns = [correlation(quasi, lag) for lag in range(1000, 1020)]
    assert np.abs(returns).max() > 0.9
    # Chaos, many copies of one start.
    copies = perturbed_replicas(start, count=64, size=1e-4, seed=5)
    chaos = signals(copies, beta=1.266, dropped=1000, kept=2400)
    frequency, power = periodogram(chaos, detrend="constant")
    shares = power[:, frequency < 0.25].sum(axis=1) / power.sum(axis=1)
    assert student_interval(shares)[0] > 0.5
    late = np.abs([correlation(chaos, lag) for lag in range(160, 200)]).max()
    rest = np.abs([correlation(chaos, lag) for lag in range(1000, 1040)]).max()
    assert rest < 0.1 < late
    table = study.spectra_table.read()
    assert abs(shares.mean() - table["below"].mean()) < 0.05
    # The largest of 40 lags; six draws of the starts give 0.19 to 0.23.
    assert abs(late - table["late"].mean()) < 0.12
    # A line is |X|²/n = n a²: its height grows with the samples, 20,000 in the table.
    height = power[:, -1].mean() * 20_000 / 2400
    assert table["half_least"].min() < height < table["half_most"].max()
    assert table["half_least"].min() < 15 < table["half_most"].max()


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("n", [3, 4, 17, 80])
def test_autocorrelation_is_the_sum_that_defines_it_and_a_constant_has_none(n, unbiased):
    signal = np.random.default_rng(n).standard_normal((2, n)).cumsum(axis=1)
    result = autocorrelation(signal, lags=n - 1, unbiased=unbiased)
    for x, row in zip(signal - signal.mean(axis=1, keepdims=True), result, strict=True):
        for lag in range(n):
            terms = n - lag if unbiased else n
            expected = np.sum(x[: n - lag] * x[lag:]) / (terms * np.mean(x**2))
            assert row[lag] == pytest.approx(expected, abs=1e-10)
    for signal in (np.ones(9), 1.0 + 1e-14 * np.arange(9.0)):
        with pytest.raises(ValueError, match="constant"):
            autocorrelation(signal, lags=3)


def traced(motion, number, steps):
    """A window with its position, the direction of a message, and the memory of it."""
    window, position = attractor_window(NETWORK, motion, number=number)
    direction = messages.message_direction(NETWORK, number)
    beta = MOTIONS[motion].beta
    memory, _ = messages.trace_message(
        NETWORK, window, direction, beta=beta, position=position, steps=steps
    )
    return window, position, direction, memory


def bits_and_loops(beta, window, position, size, steps, runs, seed):
    """Windows after `steps` tokens, bits drawn one by one in numpy, attention by the reference."""
    rng = np.random.default_rng(seed)
    each = size // NETWORK.segments

    def drawn(means):
        return 2.0 * rng.binomial(each, 0.5 * (1.0 + means)) / each - 1.0

    recent = drawn(np.repeat(window[None], runs, axis=0))
    for number in range(steps):
        attention = attention_of_window(NETWORK, recent, position=position + number)
        token = drawn(window_means(NETWORK, beta, attention=attention))
        recent = np.concatenate([recent[:, 1:], token[:, None]], axis=1)
    return recent.reshape(runs, -1)


@pytest.mark.claim("C12")
def test_memory_times_by_bits_and_loops():
    # Every row of the table stands on this: what linear noise says of a message agrees with
    # texts drawn by other code, beyond the window and in all five motions.
    size = 9_999_999
    runs = 1500
    for motion, delay in zip(MOTIONS, (6, 20, 24, 7, 9), strict=True):
        beta = MOTIONS[motion].beta
        window, position, direction, memory = traced(motion, 2, steps=delay)
        strength = 1.0 / np.sqrt(size * memory[-1])  # two standard deviations apart
        shift = strength * np.sqrt((1.0 - window[-1] ** 2) * NETWORK.segments) * direction
        clouds = []
        for seed, sign in enumerate((1.0, -1.0)):
            sent = np.concatenate([window[:-1], window[-1:] + sign * shift])
            clouds.append(bits_and_loops(beta, sent, position, size, delay, runs, seed))
        gap = clouds[0].mean(axis=0) - clouds[1].mean(axis=0)
        covariance = 0.5 * (np.cov(clouds[0].T) + np.cov(clouds[1].T))
        distance = gap @ np.linalg.solve(covariance, gap)
        # Expected: 4, and 12 · 2/runs from the noise of the means.
        assert distance == pytest.approx(4.0, rel=0.25), motion
    # The row itself, of twenty starts, by counting: at least fifteen times grow tenfold from one
    # size to the other in quasi-periodic motion, and fewer do in any other.
    tables = study.memory_times_table.read(), study.OTHER_TIMES.read()
    for motion in MOTIONS:
        count = 0
        for rows in tables:
            here = rows["motion"] == motion
            few = rows["measured"][here & (rows["size"] == study.SIZES[4])]
            many = rows["measured"][here & (rows["size"] == study.SIZES[8])]
            count += int(((few > 0) & ((many < 0) | (many > 10.0 * few))).sum())
        assert (count >= 15) == (motion == "quasi-periodic"), (motion, count)


def test_delays_at_which_a_message_is_forgotten():
    delays = np.array([1, 2, 4, 8, 16])
    # One estimate below is noise; two are not, and neither is the last.
    for bits, low, high in (
        ([1, 1, 1, 1, 0.2], np.inf, np.inf),
        ([0.1] * 5, 0.0, 0.0),
        ([1, 0.3, -0.1, -0.1, 0.0], 2.8284, 2.8285),
        ([1, 0.0, 1, 0.3, -0.1], 8.0, np.inf),
        ([1, 0.0, 0.2, 0.0, 0.0], 0.0, 8.1),
    ):
        assert low <= study.forgotten_at(delays, information=np.array(bits)) <= high


def test_starts_that_never_get_there_count_as_late():
    distance = np.zeros((5, 9))
    distance[0, 2:] = distance[1, 4:] = 1.0
    assert study.onset(distance, level=0.5) == (np.inf, 2)
    distance[2, 6] = 1.0
    assert study.onset(distance, level=0.5) == (6.0, 3)
    assert median_interval(np.array([np.inf, 3.0, 1.0, 2.0, 5.0, 4.0])) == (3.5, 1.0, np.inf)
    # The narrowest of 95 %: how often fewer of n coins than its place fall on one side.
    for count in range(6, 60):
        place = round(median_interval(np.arange(1.0, count + 1))[1])
        assert binom.cdf(place - 1, count, 0.5) <= 0.025 < binom.cdf(place, count, 0.5)


def test_perturbations_follow_the_exponents():
    # Rates from the chapter on phase transitions, nats per step.
    for motion, rate, span in (("driven", -0.327, (8, 40)), ("quasi-periodic", 0.0, (400, 800))):
        found = study.perturbed_distance(NETWORK, motion, size=1e-6, starts=24, steps=span[1])
        found = np.log(np.median(found, axis=0))
        slope = (found[span[1]] - found[span[0]]) / (span[1] - span[0])
        assert slope == pytest.approx(rate, abs=0.02)
    chaotic = study.perturbed_distance(NETWORK, "chaos at 1.28", size=1e-6, starts=24, steps=600)
    assert study.dephased_distance(NETWORK, "driven") < 1e-9  # the clock's own beat does not count
    far = study.dephased_distance(NETWORK, "chaos at 1.28")
    assert np.sqrt(np.mean(chaotic[:, 400:] ** 2)) == pytest.approx(far, rel=0.15)


def test_messages_of_equal_strength_are_equally_legible_when_written():
    for motion in MOTIONS:
        window, position, direction, memory = traced(motion, 1, steps=4)
        bits = predicted_information(memory, size=9999, strength=study.STRENGTH)
        assert bits[:4] == pytest.approx(0.3689, abs=1e-3)
        assert bits[4] < bits[3]
        assert (np.round(window, 8) == window).all()
    # Texts of either sign have noise of their own: those of no message differ by chance.
    for strength, wanted in ((study.STRENGTH, 0.3689), (0.0, 0.0)):
        [bits] = messages.measured_information(
            NETWORK,
            window,
            direction,
            size=9999,
            beta=1.28,
            position=position,
            strength=strength,
            delays=np.array([2]),
            runs=3000,
            seed=0,
        )
        assert abs(bits - wanted) < 0.15
    assert bits != pytest.approx(-1.0 / (3000 * np.log(2.0)))


def test_label_information_of_known_clouds():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 4000, 2))
    far = label_information(a, second=b + 20.0, seed=rng)
    assert far == pytest.approx(1.0, abs=1e-3)
    # Two unit Gaussians at distance 2: the best classifier errs with Phi(-1) = 0.15866.
    wrong = norm.sf(1.0)
    best = 1.0 + wrong * np.log2(wrong) + (1 - wrong) * np.log2(1 - wrong)
    assert predicted_information(1.0, size=1, strength=1.0) == pytest.approx(best, abs=1e-12)


def test_a_discriminant_sees_what_neighbours_do_not_and_the_other_way_round():
    rng = np.random.default_rng(4)
    # Eleven loud directions hide a quiet one from neighbours: distance 4 along it.
    a, b = rng.standard_normal((2, 800, 12)) * np.r_[0.01, np.full(11, 1.0)]
    b = b + np.r_[0.04, np.zeros(11)]
    quiet = label_information(a, second=b, seed=0)
    assert abs(quiet - predicted_information(4.0, size=1, strength=1.0)) < 0.15
    # Which of the two guesses is decided on points that neither has learned.
    assert label_information(a, second=b, seed=0, neighbours=1) == quiet
    # A ring around a disk has the same mean: no plane parts them.
    angle = rng.uniform(0, 2 * np.pi, 800)
    ring = 3.0 * np.stack([np.cos(angle), np.sin(angle)], 1)
    disk = 0.5 * rng.standard_normal((800, 2))
    assert label_information(ring, second=disk, seed=0) > 0.9


def test_equal_clouds_tell_nothing_on_average():
    rng = np.random.default_rng(2)
    clouds = enumerate(rng.standard_normal((300, 2, 80, 1)))
    found = [label_information(a, second=b, seed=seed) for seed, (a, b) in clouds]
    # The bias without correction is 1/(80 ln 2) = 0.018 bits, ten times the error here.
    assert abs(np.mean(found)) < 4 * np.std(found) / np.sqrt(300)
    assert np.std(found) / np.sqrt(300) < 0.0016


def along_a_path(network, beta, steps, seed=0):
    rng = np.random.default_rng(seed)
    window = rng.uniform(-0.6, 0.6, (network.context, network.segments))
    path = mean_path(network, beta, window=window, steps=steps, position=1)
    maps = linear_maps(network, beta, path=path, position=1)
    return path, maps, messages.token_noise(network, path)


def stacked(maps, noise):
    """The window as a linear function of all noises, (n, tokens · L), by plain sums over paths.

    The response of token t to the noise of token τ is built from the definition of the maps.
    """
    steps, context, segments = maps.shape[:3]
    total = context + steps
    response = np.zeros((total, total, segments, segments))
    for token in range(total):
        response[token, token] = np.eye(segments)
        for time in range(max(token + 1, context), total):
            recent = response[time - context : time, token][::-1]
            response[time, token] = (maps[time - context] @ recent).sum(axis=0)
    newest_first = range(total - 1, total - 1 - context, -1)
    rows = np.concatenate([np.concatenate(list(response[t]), axis=1) for t in newest_first])
    return rows * np.sqrt(noise.ravel())


@pytest.mark.parametrize("network", [Network.poclopez2024(), SHORT])
def test_memory_equals_the_inverse_covariance_between_responses(network):
    _, maps, noise = along_a_path(network, 1.3, 9)
    context = network.context
    segments = network.segments
    found = messages.fisher_memory(maps, noise=noise)
    for steps in (0, 1, 2, 4, 9):
        rows = stacked(maps[:steps], noise[: context + steps])
        shift = rows[:, (context - 1) * segments : context * segments]
        wanted = shift.T @ np.linalg.solve(rows @ rows.T, shift)
        assert np.abs(found[steps].T @ found[steps] - wanted).max() < 1e-9
    rows = stacked(maps, noise)
    inverse = np.linalg.inv(rows @ rows.T)
    each = np.einsum("ij,ik,kj->j", rows, inverse, rows).reshape(-1, segments).sum(axis=1)
    profile = messages.memory_profile(maps, noise=noise)
    assert np.abs(profile - each).max() < 1e-9
    assert profile.sum() == pytest.approx(context * segments)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_one_spin_by_hand(factor):
    steps = 600  # 2^600 overflows nothing: the covariance itself is never squared
    found = messages.fisher_memory(np.full((steps, 1, 1, 1), factor), noise=np.ones((steps + 1, 1)))
    # 1 / J(k) = sum of factor^(-2 j), j = 0 … k; past 300 terms the sums of 1/2 overflow.
    for k in (0, 1, 7, 300):
        wanted = 1.0 / np.sum(factor ** (-2.0 * np.arange(k + 1)))
        assert found[k, 0, 0] ** 2 == pytest.approx(wanted, rel=1e-10)
    assert np.isfinite(found).all()


def test_noise_grows_as_the_covariance_says():
    path, maps, noise = along_a_path(SHORT, 1.3, 12, seed=3)
    readout = (1.0 - SHORT.epsilon) * SHORT.semantic[OUTPUT] * SHORT.fractions
    wanted = predicted_rms(SHORT, noise_covariance(SHORT, path, maps=maps)[SHORT.context - 1 :])
    assert messages.noise_growth(maps, noise=noise, readout=readout) == pytest.approx(
        wanted, rel=1e-10
    )

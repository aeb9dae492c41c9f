"""Relaxation times against a closed form, and starts that have waited beside hasty ones."""

import numpy as np
import pytest
from known_networks import COIN

from compendium.c33_phase_transitions.slow import exponents_table, relaxation_times_table
from compendium.common.stored_exponents import exponent_of_chaos
from spinformer.dmft import settling
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.poclopez2024 import MOTIONS, attractor_window, chaotic_contexts
from spinformer.dmft.settling import relaxation_time, settled_contexts

NETWORK = Network.poclopez2024()


def mean_square(context, beta):
    """Mean square of the overlaps over the next eight tokens, of each context."""
    overlaps, _ = trajectory(NETWORK, context, beta=beta, steps=8)
    return (overlaps**2).sum(axis=-1).mean(axis=-1)


@pytest.mark.parametrize(("beta", "steps"), [(0.9, 120), (0.97, 360)])
def test_a_fixed_point_is_approached_at_its_multiplier(beta, steps):
    # Near 0 the map x → tanh βx multiplies by β, the mean square by β².
    starts = random_contexts(COIN, 0, count=400)
    found = relaxation_time(COIN, starts, beta=beta, steps=steps)
    assert found.value == pytest.approx(-0.5 / np.log(beta), rel=0.01)
    assert found.error < 0.01 * found.value


def test_errors_of_the_documents_relaxation_time_are_of_the_size_of_its_scatter():
    found = [
        relaxation_time(NETWORK, random_contexts(NETWORK, seed, count=4096), beta=1.255, steps=4800)
        for seed in range(6)
    ]
    values, errors = np.array([[one.value, one.error] for one in found]).T
    assert 0.3 < values.std(ddof=1) / errors.mean() < 2.5


def test_errors_of_a_relaxation_time_are_its_scatter():
    found = [
        relaxation_time(COIN, random_contexts(COIN, seed, count=400), beta=0.9, steps=120)
        for seed in range(60)
    ]
    values, errors = np.array([[one.value, one.error] for one in found]).T
    assert 0.75 < values.std(ddof=1) / np.sqrt((errors**2).mean()) < 1.1


def test_the_first_stretch_is_no_part_of_the_tail():
    """Even where nothing falls by e² before it is lost: what relaxes within it is averaged in."""
    excess = np.exp(-0.2 * np.arange(20))
    error = np.full(20, excess[8] / 8.5)
    assert settling._tail(excess, error=error, steps=200) == slice(1, 9)


def test_steps_that_show_no_relaxation_are_refused():
    starts = random_contexts(NETWORK, 0, count=2000)
    for call in (
        {"steps": 480, "beta": 0.5},  # over within a stretch
        {"steps": 1200, "beta": 1.266},  # not over at the end
        {"steps": 500, "beta": 1.28},
        {"steps": 60, "beta": 1.28},
    ):
        with pytest.raises(ValueError, match="steps must be"):
            relaxation_time(NETWORK, starts, **call)
    with pytest.raises(ValueError, match="context must hold contexts that differ"):
        relaxation_time(NETWORK, Context(np.full((40, 4, 3), 0.1), 0), beta=1.28, steps=480)
    with pytest.raises(ValueError, match="beta must be a single number"):
        relaxation_time(NETWORK, starts, beta=np.full(2000, 1.28), steps=480)
    with pytest.raises(ValueError, match="context must hold at least 20"):
        relaxation_time(NETWORK, starts.select(slice(5)), beta=1.28, steps=480)


def test_settled_starts_are_on_the_attractor_and_hasty_ones_are_not():
    starts = random_contexts(NETWORK, 7, count=2000)
    settled = settled_contexts(NETWORK, starts, beta=1.266, relaxation=520.0)
    assert settled == settled_contexts(NETWORK, starts, beta=1.266, relaxation=260.0, multiple=16)
    _, later = trajectory(NETWORK, settled, beta=1.266, steps=1, transient=3999)
    _, hasty = trajectory(NETWORK, starts, beta=1.266, steps=1, transient=59)
    wanted, found, early = (mean_square(one, 1.266) for one in (later, settled, hasty))
    error = np.hypot(wanted.std(), found.std()) / np.sqrt(len(found))
    assert abs(found.mean() - wanted.mean()) < 3.0 * error
    assert abs(early.mean() - wanted.mean()) > 8.0 * error


def test_settled_starts_are_rounded_and_come_from_the_compiled_steps():
    starts = Context(np.full((3, 4, 3), 0.1), 1)
    settled = settled_contexts(NETWORK, starts, beta=0.5, relaxation=0.9, multiple=10)
    _, plain = trajectory(NETWORK, starts, beta=0.5, steps=1, transient=8)
    assert settled.position == plain.position
    assert (settled.attention == np.round(plain.attention, 8)).all()
    with pytest.raises(ValueError, match="relaxation must be"):
        settled_contexts(NETWORK, starts, beta=0.5, relaxation=np.inf)


def test_every_motion_waits_for_eight_of_its_relaxation_times():
    table = relaxation_times_table.read()
    for motion, chosen in MOTIONS.items():
        assert chosen.transient >= 8.0 * chosen.relaxation
        measured = table["time"][table["motion"] == motion]
        if motion == "driven":
            start = Context(np.full((4, 3), 0.1), 0)
            rate = lyapunov_spectrum(NETWORK, start, beta=chosen.beta, steps=2000, count=1)
            measured = -1.0 / rate.exponents.value
        assert np.mean(measured) == pytest.approx(chosen.relaxation, rel=0.15)


def test_exponents_of_chaos_agree_with_other_contexts():
    for beta, slack in ((1.266, 4.0), (1.28, 4.0), (1.4, 4.0)):
        stored = exponent_of_chaos(beta)
        starts = random_contexts(NETWORK, 99, count=128)
        _, starts = trajectory(NETWORK, starts, beta=beta, steps=1, transient=4159)
        rates = lyapunov_spectrum(NETWORK, starts, beta=beta, steps=8000, count=1).exponents.value
        # On the closed curve beside the chaos, or near it, a context does not count.
        chaotic = rates[rates > 0.02]
        assert len(chaotic) > 120
        error = np.hypot(chaotic.std(ddof=1) / np.sqrt(len(chaotic)), stored.error)
        assert abs(chaotic.mean() - stored.value) < slack * error
    table = exponents_table.read()
    for beta in np.unique(table["beta"]):
        here = table["beta"] == beta
        one, other = table["exponent"][here]
        # Errors of independent means add in squares, each by its number of contexts.
        parts = table["contexts"][here] * table["exponent_error"][here]
        joined = np.hypot(*parts) / table["contexts"][here].sum()
        assert exponent_of_chaos(beta).error == pytest.approx(joined)
        assert abs(one - other) < 4.0 * np.hypot(*table["exponent_error"][table["beta"] == beta])


def test_starts_in_chaos_are_those_of_the_settled_ensemble():
    window, position = attractor_window(NETWORK, "chaos at 1.28", number=5)
    start = chaotic_contexts(NETWORK, "chaos at 1.28", seed=5, count=1)
    assert position == start.position == 216 % 4
    wanted = np.tanh(1.28 * start.attention[0, ::-1] @ NETWORK.semantic[0])
    assert np.abs(window - wanted).max() < 1e-8

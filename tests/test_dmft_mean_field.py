"""The mean field of self-attention against a step in plain loops, and exact identities."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from known_networks import merged, plain_step, step_in_torch
from numba import njit

from compendium.c32_paths_to_mean_fields.functional import (
    odd_correlations,
    overlaps_correlations,
)
from compendium.c35_other_tokens.letters import LetterNetwork
from spinformer.dmft import kernels
from spinformer.dmft.attractors import find_attractors
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.finite_size import (
    semantic_overlaps,
    token_probabilities,
    window_of_context,
)
from spinformer.dmft.lyapunov import detect_change_point, lyapunov_spectrum, period_map
from spinformer.dmft.mean_field import (
    attend,
    poclopez2024_context,
    random_contexts,
    step,
    trajectory,
)
from spinformer.dmft.network import OUTPUT, VALUE, Context, Network

NETWORK = Network.poclopez2024()


@settings(deadline=None, max_examples=40, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    features=st.integers(1, 3),
    segments=st.integers(1, 6),
    bits=st.integers(1, 5),
    beta=st.floats(0.0, 3.0),
    gamma=st.floats(0.0, 150.0),
    epsilon=st.floats(0.0, 1.0),
)
def test_fifty_steps_equal_the_plain_program(seed, features, segments, bits, beta, gamma, epsilon):
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, min(2**bits, 8) + 1))
    network = Network.segmented(
        seed, features=features, segments=segments, bits=bits, context=length
    )
    context = Context(rng.uniform(-1, 1, (length, features)), int(rng.integers(2**bits)))
    got, _ = trajectory(network, context, beta=beta, steps=50, gamma=gamma, epsilon=epsilon)
    changed = network.with_parameters(gamma=gamma, epsilon=epsilon)
    text = list(window_of_context(changed, context, beta=beta))
    for position in range(context.position, context.position + 49):
        text.append(plain_step(changed, beta, text[-length:], position))
    wanted = semantic_overlaps(changed, np.array(text[length - 1 :]))
    assert np.abs(got - wanted).max() < 1e-10


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    features=st.integers(1, 6),
    size=st.integers(1, 40),
    beta=st.floats(0.0, 5.0),
)
@pytest.mark.claim("C7")
def test_the_three_forms_of_the_average_agree(seed, features, size, beta):
    network = merged(Network.segmented(seed, segments=size, features=features))
    attention = np.random.default_rng(seed).uniform(-1, 1, (7, features))
    weights = network.weights(size)
    bits = np.tanh(beta * (attention @ weights[0]))
    direct = np.einsum("rai,...i->...ra", weights, bits) / size
    assert np.abs(network.mean_overlaps(attention, beta=np.array(beta)) - direct).max() < 1e-12
    moments = odd_correlations(network)
    pairs = [moments[feature,][1] for feature in range(features)]
    np.testing.assert_allclose(network.pair_correlations(OUTPUT, VALUE), pairs, atol=1e-12)
    assert np.abs(overlaps_correlations(moments, attention, beta=beta) - direct).max() < 1e-12
    patterns, readout = network.output_patterns()
    assert len(patterns) <= 2 ** (features - 1)
    compiled = np.einsum("rau,nu->nra", readout, np.tanh(beta * attention @ patterns.T))
    assert np.abs(compiled - direct).max() < 1e-12
    # Pairs alone are enough for one or two features.
    pairs = {key: c if len(key) == 1 else np.zeros_like(c) for key, c in moments.items()}
    missed = np.abs(overlaps_correlations(pairs, attention, beta=beta) - direct).max()
    assert missed < 1e-12 or features > 2


@njit
def each(x):
    """exp x and tanh x of every entry, lanes by lanes."""
    found = np.empty((2, x.size))
    for i in range(0, x.size, kernels.LANES):
        lanes = kernels.get(x[i:])
        e = kernels.expm1_double(lanes)
        kernels.put(found[0, i:], kernels.exp(lanes))
        kernels.put(found[1, i:], e / (e + 2.0))
    return found


def test_exponential_and_tanh_to_the_last_places():
    rng = np.random.default_rng(0)
    many = 300 * kernels.LANES
    x = np.resize([0.0, *-rng.uniform(0.0, 299.0, 15_000), *rng.uniform(-1e-3, 1e-3, 4000)], many)
    y = np.concatenate([rng.normal(0, s, many // 6) for s in (1e-9, 1e-3, 0.3, 2.0, 20.0, 1e4)])
    for found, points, function, places in (
        (each(x)[0], x, math.exp, 1),
        (each(y)[1], y, math.tanh, 3),
    ):
        exact = np.array([function(v) for v in points])
        assert (np.abs(found - exact) <= places * np.spacing(np.abs(exact))).all()
    far = np.resize([-1e9, -300.0, 1e300, -1e300], kernels.LANES)
    assert np.allclose(each(far)[0, :2], math.exp(-300.0), rtol=1e-15)
    assert (np.abs(each(far)[1, 2:]) == 1.0).all()


def test_results_do_not_depend_on_lanes_threads_or_chunks():
    contexts = random_contexts(NETWORK, 1, count=200)
    beta = np.linspace(1.24, 1.4, 200)
    given = {"steps": 400, "transient": 100}
    whole, end = trajectory(NETWORK, contexts, beta=beta, threads=2, **given)
    assert (whole == trajectory(NETWORK, contexts, beta=beta, threads=1, **given)[0]).all()
    for i in (0, 63, 64, 137, 199):
        single, last = trajectory(NETWORK, contexts.select(i), beta=beta[i], **given)
        assert (single == whole[i]).all()
        assert last == end.select(i)
    ensemble = Ensemble(NETWORK, contexts, beta=beta, threads=2)
    ensemble.advance(100)
    parts = [ensemble.record(steps) for steps in (150, 0, 250)]
    assert (np.concatenate(parts, axis=1) == whole).all()
    again, _ = trajectory(NETWORK, ensemble.state(), beta=beta, steps=50)
    assert (again == ensemble.record(50)).all()


LETTERS = LetterNetwork.segmented(0, letters=3)


@pytest.mark.parametrize("network", [NETWORK, LETTERS], ids=["bits", "letters"])
def test_a_system_moves_the_same_in_a_narrow_block_and_in_a_wide_one(network):
    many = 60
    contexts = random_contexts(network, 2, count=many)
    beta = np.linspace(1.2, 2.8, many)

    def measured(part):
        context = contexts.select(part)
        given = {"beta": beta[part]}
        orbit, end = trajectory(network, context, steps=50, **given)
        settled = find_attractors(
            network, context, transient=200, kept=300, exponent_steps=100, exponents=3, **given
        )
        turn, monodromy = period_map(network, context, steps=7, **given)
        return {
            "lanes": Ensemble(network, context, **given).lanes,
            "orbit": orbit,
            "end": end.attention,
            "histogram": settled.histogram,
            "section": settled.section,
            "digits": settled.digits,
            "period": settled.period,
            "exponents": settled.exponents.value,
            "errors": settled.exponents.error,
            "turn": turn.attention,
            "monodromy": monodromy,
        }

    wide = measured(slice(None))
    # One system, blocks of which one is not full, six blocks.
    for part in (slice(4, 5), slice(9, 14), slice(2, 26)):
        narrow = measured(part)
        assert (narrow.pop("lanes"), wide["lanes"]) == (4, 64)
        for name, values in narrow.items():
            assert values.tobytes() == wide[name][part].tobytes(), name


def test_the_start_of_the_document_is_a_growing_window():
    network = Network.segmented(5, bits=3, context=5)
    beta = 1.1
    context = poclopez2024_context(network, beta, steps=0)
    # The text written out: the first token given, the rest made, five seen at most.
    text = [network.semantic[0, 0]]
    for position in range(5):
        text.append(plain_step(network, beta, text[-5:], position))
    assert context.position == 5
    made = window_of_context(network, context, beta=beta)
    np.testing.assert_allclose(made, text[-5:], rtol=0, atol=1e-13)


def torch_path(network, context, leaves, *, steps):
    """Semantic m^o (..., steps, P) of β, γ, ε and weights by the form in torch."""
    changed = dict(zip(("beta", "gamma", "epsilon", "semantic"), leaves, strict=True))
    attention = torch.tensor(context.attention)
    found = []
    for position in range(context.position, context.position + steps):
        attention, overlap = step_in_torch(network, attention, position, **changed)
        found.append(overlap)
    return torch.stack(found, -2)


def test_torch_form_and_its_gradients():
    network = Network.segmented(7, gamma=4.0)
    uneven = merged(Network.segmented(3, segments=12, features=1, gamma=4.0))
    assert np.ptp(uneven.fractions) > 0.05
    for net in (network, uneven):
        context = random_contexts(net, 0, count=2)
        wanted, _ = trajectory(net, context, beta=1.2, steps=40)
        leaves = [1.2, net.gamma, net.epsilon, torch.tensor(net.semantic)]
        assert np.abs(torch_path(net, context, leaves, steps=40).numpy() - wanted).max() < 1e-12
    context = random_contexts(network, 0, count=2)
    leaves = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (1.2, 4.0, 0.05)]
    leaves.append(torch.tensor(network.semantic, requires_grad=True))
    assert torch.autograd.gradcheck(
        lambda *leaves: torch_path(network, context, leaves, steps=4), leaves, atol=1e-7
    )


def test_random_contexts_fill_the_range_of_the_values():
    weights = np.random.default_rng(1).normal(size=(4, 3, 5))
    network = Network(semantic=weights, context=4, gamma=1.0)
    drawn = np.abs(random_contexts(network, 0, count=2000).attention).max(axis=(0, 1))
    assert drawn == pytest.approx(np.abs(weights[VALUE]).mean(axis=1), rel=2e-3)


def test_counts_of_segments_are_whole():
    # Rounded counts that happen to add up are not whole ones.
    uneven = replace(Network.segmented(0, segments=2), fractions=np.array([0.45, 0.55]))
    assert uneven.counts(20).tolist() == [9, 11]
    # Of 1,001 sites 450.45 and 550.55, which add up when rounded, too.
    for size in (2, 1001):
        with pytest.raises(ValueError, match="size"):
            uneven.counts(size)


def test_parameters_of_a_batch_belong_to_their_systems():
    network = Network.segmented(3)
    start = random_contexts(network, 0, count=3)
    beta = np.array([0.5, 1.0, 2.0])
    gamma = np.array([1.0, 5, 90])
    epsilon = np.array([0, 0.1, 1])
    whole, _ = trajectory(network, start, beta=beta, gamma=gamma, epsilon=epsilon, steps=20)
    _, plain = step(network, start, beta, gamma=gamma, epsilon=epsilon)
    assert np.abs(plain - whole[:, 0]).max() < 1e-13
    # One context and many gammas: an overlap for each.
    one = start.select(0)
    context, overlap = step(network, one, 1.2, gamma=gamma)
    assert overlap.shape == (3, network.features) == context.attention[:, 0].shape
    for i in range(3):
        changed = network.with_parameters(gamma=gamma[i], epsilon=epsilon[i])
        alone, _ = trajectory(changed, start.select(i), beta=beta[i], steps=20)
        assert (alone == whole[i]).all()


def test_a_broken_task_ends_the_run():
    ensemble = Ensemble(NETWORK, random_contexts(NETWORK, 0, count=150), beta=1.2, threads=2)

    def broken(block, clock):
        raise RuntimeError("no such orbit")

    with pytest.raises(RuntimeError, match="no such orbit"):
        ensemble.run(broken)


BLIND = Network.segmented(0, features=2, segments=2, bits=0, context=2, epsilon=0.0)
PAIR = random_contexts(NETWORK, 0, count=2)


def test_what_does_not_fit_is_refused_by_name():
    networks = [
        ({"gamma": -1.0}, "gamma"),
        ({"epsilon": 1.1}, "epsilon"),
        ({"context": 0}, "context"),
        ({"semantic": np.ones((3, 3, 3))}, "semantic"),
        ({"position": np.ones((4, 2, 2))}, "position"),
        ({"position": np.ones((4, 3, 0))}, "epsilon"),
        ({"semantic": np.full((4, 3, 3), np.nan)}, "semantic"),
        ({"fractions": np.array([0.3, 0.3, 0.4 + 1e-9])}, "fractions"),
        ({"fractions": np.array([0.3, 0.3, 0.4 - 1e-9])}, "fractions"),
        # What overflows or vanishes in products later would be blamed on something else there.
        ({"semantic": np.full((4, 3, 3), 1e200)}, "semantic"),
        ({"semantic": np.full((4, 3, 3), 1e-200)}, "semantic"),
        ({"position": np.full((4, 3, 2), 1e200)}, "position"),
        ({"gamma": 1e300}, "gamma"),
    ]
    given = {"beta": 1.0, "steps": 3}
    calls = [
        (lambda: trajectory(NETWORK, PAIR, **given | {"beta": np.ones(3)}), "broadcast"),
        (lambda: trajectory(NETWORK, Context(np.ones((4, 3)), 4), **given), "position"),
        (lambda: step(NETWORK, Context(np.ones((4, 2)), 0), 1.0), "attention"),
        (lambda: step(NETWORK, Context(np.ones((2, 3)), 0), 1.0), "attention"),
        (lambda: step(BLIND, Context(np.ones((2, 2)), 0), 1.0, epsilon=0.5), "epsilon"),
        (lambda: step(NETWORK, Context(np.ones((4, 3)), 0), 1e300), "beta"),
        (lambda: step(NETWORK, Context(np.ones((4, 3)), 0), 1.0, gamma=1e300), "gamma"),
        (lambda: attend(np.full((2, 4, 3), 1e200), gamma=1.0), "window"),
        (lambda: Context(np.full((4, 3), 1e300), 0), "attention"),
        (lambda: NETWORK.overlaps(np.ones(4)), "token"),
        (lambda: NETWORK.with_position_code(np.zeros((4, 2)), 0), "overlaps"),
        (lambda: NETWORK.with_position_code(np.zeros((4, 3)), 1.5), "positions"),
        (lambda: Ensemble(NETWORK, PAIR, beta=1.0).run(None), "task"),
        (lambda: token_probabilities(NETWORK, 3 * 10**6, beta=1.0, attention=np.zeros(3)), "size"),
        (lambda: lyapunov_spectrum(NETWORK, PAIR, **given, qr_interval=500), "qr_interval"),
        (lambda: period_map(NETWORK, PAIR, beta=1.4, steps=30_000), "steps"),
        (lambda: detect_change_point(np.full((9, 1), 1e200)), "growth"),
        (lambda: NETWORK.pair_correlations(4, VALUE), "first"),
        (lambda: NETWORK.pair_correlations(VALUE, 4), "second"),
        *((lambda c=change: replace(NETWORK, **c), message) for change, message in networks),
    ]
    for call, message in calls:
        with pytest.raises((ValueError, TypeError), match=message):
            call()

"""Residual connection and feed-forward block: enumeration, finite networks, finite differences."""

import numpy as np
import pytest

from compendium.c35b_scaling_and_blocks.blocks import (
    BlockEnsemble,
    Blocks,
    block_step,
    generate_blocks,
    mean_tokens,
    random_hidden,
    rest_multipliers,
)
from spinformer.core.states import spin_states
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Context, Network

WINDOW = np.array([[1.0, 1.0, -1.0], [1.0, -1.0, 1.0], [-1.0, -1.0, 1.0], [-1.0, 1.0, -1.0]])


def _blocks(residual: float, feed: float, *, gamma: float = 3.0, linear: bool = False) -> Blocks:
    network = Network.document().with_parameters(gamma=gamma, epsilon=0.1)
    hidden = random_hidden(1, features=3, kinds=2)
    return Blocks(network=network, residual=residual, feed=feed, hidden=hidden, linear=linear)


def _exact(blocks: Blocks, *, size: int, beta: float) -> np.ndarray:
    """⟨u⟩ after two steps, summed over every token of `size` bits and every hidden state."""
    network, hidden = blocks.network, 2 * size // 3
    weights = network.weights(size)
    own = np.repeat(WINDOW, network.counts(size), axis=1)
    into, out = (np.repeat(part, hidden // part.shape[1], axis=1) for part in blocks.hidden)
    code, spins = spin_states(network.bits), spin_states(hidden)

    def means(newest: np.ndarray, position: int) -> tuple[np.ndarray, np.ndarray]:
        """Probability of each hidden state, and the mean bits that it makes, for each newest."""
        overlap = []
        for age in range(4):
            bits = newest if age == 0 else own[age - 1 if position == 4 else age]
            place = 0.1 * network.position @ code[(position - age) % 4] / network.bits
            overlap.append(0.9 * np.einsum("rai,...i->...ra", weights, bits) / size + place)
        score = [
            network.gamma * (overlap[0][..., 2, :] * one[..., 3, :]).sum(-1) for one in overlap
        ]
        weight = np.exp(np.array(score))
        value = sum(w[..., None] * one[..., 1, :] for w, one in zip(weight, overlap, strict=True))
        attention = value / weight.sum(axis=0)[..., None]
        logs = beta * np.einsum("zj,aj,...a->...zj", spins, into, attention)
        chance = np.exp(logs - np.log(2.0 * np.cosh(logs))).prod(axis=-1)
        stream = attention[..., None, :] + blocks.feed * spins @ out.T / hidden
        field = stream @ weights[0] + blocks.residual * newest[..., None, :]
        return chance, np.tanh(beta * field)

    chance, mean = means(own[0], 3)
    tokens = spin_states(size)
    likely = chance @ (0.5 * (1.0 + tokens[:, None] * mean)).prod(axis=-1).T
    again, after = means(tokens, 4)
    total = np.einsum("n,nz,nzi->i", likely, again, after)
    return total.reshape(3, -1).mean(axis=1)


def test_the_mean_field_is_the_limit_of_exact_sums_over_all_texts() -> None:
    blocks, beta = _blocks(0.5, 0.6, gamma=1.0), 0.7
    window, _ = block_step(blocks, WINDOW, position=3, beta=beta)
    limit = block_step(blocks, window, position=4, beta=beta)[0][0]
    # Hidden spins in proportion to the bits: the error is a / N, so 3 u_9 - 2 u_6 has lost it.
    small, large = (_exact(blocks, size=size, beta=beta) for size in (6, 9))
    error, rest = np.abs(large - limit).max(), np.abs(3.0 * large - 2.0 * small - limit).max()
    assert 0.002 < error < 0.2
    assert rest < 0.3 * error


@pytest.mark.parametrize(("residual", "feed"), [(0.6, 0.0), (0.0, 2.0), (0.5, 1.0)])
def test_a_large_network_follows_the_mean_field(residual: float, feed: float) -> None:
    blocks, beta = _blocks(residual, feed), 1.1
    size, steps = 60_000, 8
    texts = generate_blocks(
        blocks, WINDOW, size=size, position=3, beta=beta, steps=steps, seed=2, runs=200
    )
    window, path = WINDOW, []
    for n in range(steps):
        window, _ = block_step(blocks, window, position=(3 + n) % 4, beta=beta)
        path.append(window[0])
    gap = texts.mean(axis=0) - np.array(path)
    assert np.abs(gap).max() < 6.0 / np.sqrt(200 * size / 3) + 20.0 / size
    spread = texts[:, 0].var(axis=0) * size / 3
    assert (spread < 3.5).all()


def test_without_blocks_it_is_the_mean_field() -> None:
    network = Network.document()
    context = random_contexts(network, 3, count=2)
    plain = Ensemble(network, context, beta=1.27).record(41)
    blocks = Blocks(network=network)
    window = mean_tokens(blocks, context, beta=1.27)
    both = BlockEnsemble([blocks] * 2, window, beta=np.full(2, 1.27), position=context.position)
    np.testing.assert_allclose(both.record(40), plain[:, 1:], atol=1e-9)
    spectrum = lyapunov_spectrum(
        network, Context(context.attention, 0), beta=0.9, steps=2000, transient=2000, count=3
    )
    window = mean_tokens(blocks, context, beta=0.9)
    calm = BlockEnsemble([blocks] * 2, window, beta=np.full(2, 0.9), position=context.position)
    calm.advance(2000)
    found = calm.exponents(1200, count=3)
    np.testing.assert_allclose(found.value, spectrum.exponents.value, atol=2e-3)


def test_the_error_of_an_exponent_is_the_scatter_over_orbits() -> None:
    """Chaos from 24 starts; an orbit is correlated, so its own error may be somewhat too small."""
    network, count = Network.document(), 24
    blocks = Blocks(network=network)
    context = random_contexts(network, 5, count=count)
    beta = np.full(count, 1.4)
    window = mean_tokens(blocks, context, beta=1.4)
    many = BlockEnsemble([blocks] * count, window, beta=beta, position=context.position)
    many.advance(1000)
    found = many.exponents(1600, count=1)
    scatter = found.value[:, 0].std(ddof=1)
    assert found.value.min() > 0.0
    assert 0.5 < found.error[:, 0].mean() / scatter < 2.0


@pytest.mark.parametrize("linear", [False, True])
def test_many_systems_do_what_one_does_and_tangents_are_differences(linear: bool) -> None:
    blocks = _blocks(0.4, 1.3, gamma=8.0, linear=linear)
    rng = np.random.default_rng(5)
    start = rng.uniform(-0.8, 0.8, (3, 4, 3))
    beta = np.array([0.7, 1.0, 1.4])
    many = BlockEnsemble([blocks] * 3, start, beta=beta, position=1)
    many.advance(6)
    for n in range(3):
        window = start[n]
        for step in range(6):
            window, _ = block_step(blocks, window, position=(1 + step) % 4, beta=float(beta[n]))
        np.testing.assert_allclose(many.window[n], window, atol=1e-12)
    # Two directions, pushed by differences of plain steps; the area between them grows alike.
    one = BlockEnsemble([blocks], start[2:], beta=beta[2:], position=1)
    one.advance(200)
    window, position = one.window[0], one.position
    frame = np.linalg.qr(rng.standard_normal((12, 2)))[0]
    found = []
    for n in range(800):
        columns = []
        for direction in frame.T.reshape(2, 4, 3):
            ends = [
                block_step(
                    blocks, window + sign * 1e-6 * direction, position=(position + n) % 4, beta=1.4
                )[0]
                for sign in (1.0, -1.0)
            ]
            columns.append((ends[0] - ends[1]).ravel() / 2e-6)
        frame, triangle = np.linalg.qr(np.array(columns).T)
        found.append(np.log(np.abs(np.diagonal(triangle))).sum())
        window, _ = block_step(blocks, window, position=(position + n) % 4, beta=1.4)
    exponents = one.exponents(400, count=2, batches=2)
    assert exponents.value.sum() == pytest.approx(np.mean(found[400:]), abs=2e-3)


def test_rest_loses_stability_as_the_differences_of_a_step_say() -> None:
    network = Network.document().with_parameters(epsilon=0.0)
    hidden = random_hidden(2, features=3)
    for residual, feed in ((0.0, 0.0), (0.7, 0.0), (0.4, 1.2)):
        blocks = Blocks(network=network, residual=residual, feed=feed, hidden=hidden)
        columns = [
            block_step(blocks, 1e-5 * direction, position=0, beta=1.3)[0].ravel() / 1e-5
            for direction in np.eye(12).reshape(12, 4, 3)
        ]
        wanted = np.sort(np.abs(np.linalg.eigvals(np.array(columns).T)))
        found = np.sort(np.abs(rest_multipliers(blocks, beta=1.3)))
        np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="residual"):
        Blocks(network=Network.document(), residual=-1.0)
    with pytest.raises(ValueError, match="hidden"):
        Blocks(network=Network.document(), feed=1.0)
    systems = [_blocks(0.1, 1.0), _blocks(0.1, 1.0, linear=True)]
    with pytest.raises(ValueError, match="equal sizes"):
        BlockEnsemble(systems, np.zeros((2, 4, 3)), beta=np.ones(2))


def test_errors_stay_with_their_exponents_and_what_aligns_first_does_not_count(monkeypatch):
    """Lengths made up: the second direction grows faster, the first scatters more."""
    calls = iter(range(10**6))

    def made(frame, segments):
        n = next(calls)
        sign = 1.0 if (n // 10) % 2 else -1.0
        return np.array([[0.4 + 0.2 * sign], [0.8 + 0.04 * sign]]) + (100.0 if n < 100 else 0.0)

    monkeypatch.setattr("compendium.c35b_scaling_and_blocks.blocks._orthonormalize", made)
    one = BlockEnsemble([_blocks(0.1, 0.5)], 0.1 * np.ones((1, 4, 3)), beta=np.ones(1))
    found = one.exponents(400, count=2, batches=10)
    np.testing.assert_allclose(found.value[0], [0.2, 0.1])
    # Ten stretches at ± 0.05 and ± 0.01: deviation √(10/9) of that, over √10.
    np.testing.assert_allclose(found.error[0], [0.01 / 3, 0.05 / 3])
    kept = one.window
    kept[:] = 7.0
    assert np.abs(one.window).max() < 1.0

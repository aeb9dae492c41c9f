import numpy as np
import pytest
import torch
from known_memories import draw

from compendium.c17_interacting_patterns.interacting import (
    equivalent_patterns,
    safe_step_size,
    solve,
)
from spinformer.hopfield import continuous


def energy(patterns, *, states, weights, couplings, beta):
    """½ ξᵀξ − pᵀXξ − ½ pᵀJp + β⁻¹ Σ_i p_i log p_i."""
    held = (weights * (states @ patterns.mT + 0.5 * (weights @ couplings))).sum(-1)
    entropy = torch.special.entr(weights).sum(-1)
    return 0.5 * states.square().sum(-1) - held - entropy / beta


def update(patterns, *, states, weights, **options):
    """One step of the weights at fixed states."""
    options |= {"start": weights, "clamped": True, "max_steps": 1}
    return solve(patterns, queries=states, **options)[0]


def symmetric(size, *, seed=0):
    matrix = draw(size, size, seed=seed)
    return (matrix + matrix.T) / 2**0.5


def divergence(one, other):
    return (one * (one.log() - other.log())).sum(-1)


def test_without_couplings_it_is_attention_and_the_energy_of_the_plain_memory():
    patterns, queries, none = draw(6, 4), draw(5, 4, seed=1), torch.zeros(6, 6).double()
    found, _ = solve(patterns, queries=queries, couplings=none, beta=1.7, clamped=True)
    kernel = torch.nn.functional.scaled_dot_product_attention(
        queries, patterns, patterns, scale=1.7
    )
    torch.testing.assert_close(found @ patterns, kernel)
    at_rest = energy(patterns, states=queries, weights=found, couplings=none, beta=1.7)
    torch.testing.assert_close(at_rest, continuous.energy(patterns, states=queries, beta=1.7))
    free, _ = solve(patterns, queries=queries, couplings=none, beta=1.7)
    plain = continuous.retrieve(patterns, queries=queries, beta=1.7)
    torch.testing.assert_close(free @ patterns, plain.states, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("step_size", [1.0, 0.6, 0.2])
def test_a_step_changes_the_energy_by_the_divergences_of_the_derivation(step_size):
    """Also the gradient of the energy, by automatic differentiation: the step is mirror descent."""
    patterns, states, couplings = draw(6, 4), draw(5, 4, seed=1), 3 * symmetric(6)
    weights = torch.softmax(draw(5, 6, seed=2), -1).requires_grad_()
    given = {"states": states, "couplings": couplings, "beta": 1.3}
    before = energy(patterns, weights=weights, **given)
    slope = torch.autograd.grad(before.sum(), weights)[0]
    weights, before = weights.detach(), before.detach()
    after = update(patterns, weights=weights, step_size=step_size, **given)
    torch.testing.assert_close(
        after, torch.softmax(weights.log() - step_size * 1.3 * slope, -1), rtol=1e-12, atol=1e-14
    )
    moved, there, back = after - weights, divergence(after, weights), divergence(weights, after)
    wanted = -(there + back) / (1.3 * step_size) + there / 1.3
    wanted = wanted - 0.5 * ((moved @ couplings) * moved).sum(-1)
    torch.testing.assert_close(energy(patterns, weights=after, **given) - before, wanted)


def test_the_safe_step_size_never_raises_the_energy_and_is_the_largest_for_two_patterns():
    for seed in range(8):
        size, beta = 2 + seed, float(np.exp(np.random.default_rng(seed).uniform(-1, 3)))
        couplings = 2 * symmetric(size, seed=seed)
        step = safe_step_size(couplings, beta=beta)
        patterns, queries = draw(size, 3, seed=seed + 50), draw(20, 3, seed=seed + 90)
        for clamped in (True, False):
            weights, energies = torch.softmax(beta * queries @ patterns.T, -1), []
            for _ in range(200):
                states = queries if clamped else weights @ patterns
                given = {"states": states, "couplings": couplings, "beta": beta}
                energies.append(energy(patterns, weights=weights, **given))
                weights = update(patterns, weights=weights, step_size=step, **given)
            height = torch.stack(energies)
            assert float(height.diff(dim=0).max()) < 1e-12 * (1 + float(height.abs().max()))
    # Two patterns that repel themselves, near the even mixture, where both inequalities are tight.
    pair = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()
    for shift in (0.0, 3.0):  # what is the same for all pairs changes nothing
        assert safe_step_size(pair - shift, beta=6.0) == pytest.approx(4.0 / 8.0)
    zero = torch.zeros(2, 1).double()
    for factor, higher in ((0.99, False), (1.01, True)):
        step = factor * safe_step_size(pair, beta=6.0)
        weights = torch.tensor([0.5 + 1e-4, 0.5 - 1e-4], dtype=torch.float64)
        given = {"states": torch.zeros(1).double(), "couplings": pair, "beta": 6.0}
        after = update(zero, weights=weights, step_size=step, **given)
        change = energy(zero, weights=after, **given) - energy(zero, weights=weights, **given)
        assert (float(change) > 0) is higher


@pytest.mark.parametrize("kappa", [0.3, 1.0])
def test_repelling_patterns_are_a_plain_memory_of_others(kappa):
    """Step by step, not only at rest."""
    patterns = draw(6, 4)
    gram = patterns @ patterns.T
    couplings = -kappa * (gram - torch.diag(gram.diagonal()))
    other = equivalent_patterns(patterns, couplings=couplings)
    weights = torch.softmax(draw(1, 6, seed=3), -1)
    plain, interacting = weights, weights
    for _ in range(5):
        given = {"states": interacting @ patterns, "couplings": couplings, "beta": 2.0}
        interacting = update(patterns, weights=interacting, **given)
        plain = continuous.attention_weights(other, states=plain @ other, beta=2.0)
        torch.testing.assert_close(plain, interacting)


@pytest.mark.claim("A18a")
def test_only_interacting_patterns_keep_a_mixture_in_the_cold():
    """Two patterns, by hand: p1 − p2 = tanh(β(s − g − κ)(p1 − p2)/2), even if κ > s − g."""
    patterns = torch.eye(2).double()
    query = torch.tensor([[0.6, 0.5]]).double()
    for kappa, largest in ((0.9, 1.0), (1.1, 0.5)):
        couplings = kappa * (1 - torch.eye(2).double())
        step = safe_step_size(couplings, beta=300.0)
        given = {"couplings": couplings, "beta": 300.0, "step_size": step}
        found, rests = solve(patterns, queries=query, **given)
        assert bool(rests.all())
        assert float(found.max()) == pytest.approx(largest, abs=1e-6)
    # Plain memories of any patterns: the energy at temperature zero is concave in the weights.
    for seed in range(20):
        stored = draw(8, 5, seed=seed)
        rest = continuous.retrieve(stored, queries=draw(10, 5, seed=99), beta=1e4, max_steps=2000)
        mixed = rest.attention.amax(-1) < 0.99
        assert not bool((mixed & rest.converged).any())


def test_a_query_is_judged_by_its_own_step_whatever_its_neighbors_do():
    patterns, couplings = draw(6, 4), 0.5 * symmetric(6)
    queries = torch.cat([3.0 * patterns[:1], 0.1 * draw(3, 4, seed=4)])
    given = {"couplings": couplings, "beta": 1.4, "tolerance": 1e-4}
    both, rests = solve(patterns, queries=queries, **given)
    assert bool(rests.all())
    for index, query in enumerate(queries):
        alone, _ = solve(patterns, queries=query[None], **given)
        torch.testing.assert_close(both[index], alone[0], rtol=1e-10, atol=1e-12)
    # Damped, a step is small far from the rest.
    _, rests = solve(patterns, queries=queries, step_size=1e-5, max_steps=3, **given)
    assert not bool(rests.any())


def test_couplings_that_leave_no_plain_memory_are_refused():
    patterns = draw(6, 4)
    centering = torch.eye(6).double() - 1.0 / 6
    values, vectors = torch.linalg.eigh(centering @ patterns @ patterns.T @ centering)
    push = -values[-1] * torch.outer(vectors[:, -1], vectors[:, -1])
    equivalent_patterns(patterns, couplings=(1 - 1e-6) * push)
    with pytest.raises(ValueError, match="negative direction"):
        equivalent_patterns(patterns, couplings=(1 + 1e-6) * push)

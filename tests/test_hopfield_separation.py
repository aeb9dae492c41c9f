"""Sparsemax and α-entmax in the energy: against solvers of their own, autograd and the margin."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from known_memories import draw
from scipy.optimize import brentq
from torch.autograd.functional import jacobian as derive

from spinformer.core.solve import Status
from spinformer.hopfield import continuous, fixed_points
from spinformer.hopfield.attention import attention, masked_attention_weights, retrieval_step
from spinformer.hopfield.separation import (
    covariance_weights,
    entmax,
    entmax_conjugate,
    separation_margin,
)

INDICES = [1.05, 1.3, 1.5, 1.8, 2.0]
FUNCTIONS = {
    "energy": continuous.energy,
    "attention_weights": continuous.attention_weights,
    "gradient": continuous.gradient,
    "jacobian": continuous.jacobian,
    "update": continuous.update,
}


def project_on_simplex(point):
    """Quadratic programme min ½‖p − z‖² on the simplex: the best of all 2^N − 1 supports."""
    best = None
    least = math.inf
    for size in range(1, len(point) + 1):
        for support in itertools.combinations(range(len(point)), size):
            chosen = list(support)
            candidate = np.zeros_like(point)
            candidate[chosen] = point[chosen] + (1.0 - point[chosen].sum()) / size
            distance = np.sum((candidate - point) ** 2)
            if candidate.min() >= 0.0 and distance < least:
                best = candidate
                least = distance
    return best


def weights_by_bisection(scores, alpha):
    """The threshold τ by Brent's method: [(α − 1)z − τ]₊^{1/(α − 1)} sums to 1."""
    inner = (alpha - 1.0) * scores

    def weights(threshold):
        return np.maximum(inner - threshold, 0.0) ** (1.0 / (alpha - 1.0))

    def excess(threshold):
        return weights(threshold).sum() - 1.0

    root = brentq(excess, inner.max() - 1.0, inner.max(), xtol=1e-15, rtol=1e-15)
    return weights(root)


def negative_entropy(weights, alpha):
    return (np.sum(weights**alpha, axis=-1) - 1.0) / (alpha * (alpha - 1.0))


@settings(deadline=None, max_examples=40, derandomize=True)
@given(size=st.integers(1, 7), scale=st.floats(0.01, 20.0), seed=st.integers(0, 10**6))
def test_sparsemax_is_the_projection_on_the_simplex(size, scale, seed):
    scores = draw(size, seed=seed, scale=scale)
    weights = entmax(scores, alpha=2.0)
    wanted = project_on_simplex(scores.numpy())
    np.testing.assert_allclose(weights, wanted, rtol=0, atol=1e-13)
    value = wanted @ scores.numpy() - negative_entropy(wanted, 2.0)
    assert float(entmax_conjugate(scores, alpha=2.0)) == pytest.approx(value, rel=1e-13)


@pytest.mark.parametrize("alpha", INDICES)
def test_weights_are_those_of_a_bisection_and_maximize(alpha):
    scores = draw(60, 30, seed=1, scale=3.0)
    weights = entmax(scores, alpha=alpha)
    wanted = np.stack([weights_by_bisection(row, alpha) for row in scores.numpy()])
    np.testing.assert_allclose(weights, wanted, rtol=0, atol=1e-12)
    assert np.array_equal(weights > 0, wanted > 0)
    best = entmax_conjugate(scores, alpha=alpha)
    reached = (weights * scores).sum(-1) - torch.tensor(negative_entropy(wanted, alpha))
    torch.testing.assert_close(best, reached, rtol=0, atol=1e-12)
    for seed in range(50):
        others = np.random.default_rng(seed).dirichlet(np.full(30, 0.1), size=60)
        value = (others * scores.numpy()).sum(-1) - negative_entropy(others, alpha)
        assert bool((torch.tensor(value) <= best).all())


def test_softmax_is_the_limit_and_one_end():
    scores = draw(20, 9, seed=2, scale=2.0)
    torch.testing.assert_close(entmax(scores, alpha=1), torch.softmax(scores, -1))
    torch.testing.assert_close(entmax_conjugate(scores, alpha=1), torch.logsumexp(scores, -1))
    gap = [
        float((entmax(scores, alpha=alpha) - torch.softmax(scores, -1)).abs().max())
        for alpha in (1.01, 1.02, 1.04)
    ]
    # The first correction is linear in α − 1.
    assert gap[0] < 0.01
    np.testing.assert_allclose([gap[1] / gap[0], gap[2] / gap[1]], 2.0, atol=0.1)
    values = entmax_conjugate(scores, alpha=1.01) - torch.logsumexp(scores, -1)
    assert float(values.abs().max()) < 0.01 * math.log(9) ** 2


def test_many_scores_one_by_one():
    """Scores so placed that Newton's method drops one of them a step end at the same weights."""
    count = 300
    sums = 0.0
    places = [0.0]
    for number in range(1, count):
        # Each lies just below the threshold that those before it leave.
        sums += places[-1]
        places.append((sums - 1.0) / number - 1e-6)
    scores = torch.tensor(places, dtype=torch.float64)
    weights = entmax(scores, alpha=2.0)
    np.testing.assert_allclose(weights.sum(), 1.0, atol=1e-14)
    wanted = weights_by_bisection(scores.numpy(), 2.0)
    np.testing.assert_allclose(weights, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_other_types_are_near(dtype):
    scores = draw(20, 9, seed=3, scale=2.0)
    for alpha in (1.5, 2.0):
        weights = entmax(scores.to(dtype), alpha=alpha)
        assert weights.dtype == dtype
        wanted = entmax(scores.to(dtype).double(), alpha=alpha)
        error = (weights.double() - wanted).abs()
        if dtype == torch.float32:
            assert float(error.max()) < 4 * torch.finfo(dtype).eps
        else:
            # Half precision is rounded once, at the end.
            rounding = 0.51 * torch.finfo(dtype).eps * wanted + torch.finfo(dtype).tiny
            assert bool((error <= rounding).all())


def away_from_kinks(*shape, alpha, seed):
    """Scores at which no weight is about to become 0 or to leave it."""
    while True:
        scores = draw(*shape, seed=seed)
        weights = entmax(scores, alpha=alpha)
        inner = (alpha - 1.0) * scores
        top = inner.amax(-1, keepdim=True)
        threshold = top - weights.amax(-1, keepdim=True) ** (alpha - 1.0)
        if float((inner - threshold).abs().min()) > 1e-3:
            return scores.requires_grad_()
        seed += 1000


# Torch itself scripts its forward mode, and makes an instance of what it traces.
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'>")
@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0])
def test_derivatives_of_every_kind(alpha):
    scores = away_from_kinks(3, 5, alpha=alpha, seed=4)

    def weights(scores):
        return entmax(scores, alpha=alpha)

    def value(scores):
        return entmax_conjugate(scores, alpha=alpha)

    for function in (weights, value):
        assert torch.autograd.gradcheck(function, scores, check_forward_ad=True)
        assert torch.autograd.gradgradcheck(function, scores)
    slope = torch.autograd.grad(value(scores).sum(), scores)[0]
    torch.testing.assert_close(slope, weights(scores), rtol=0, atol=1e-12)
    distribution, factor = covariance_weights(weights(scores), alpha)
    covariance = (
        torch.diag_embed(distribution) - distribution[..., None] * distribution[..., None, :]
    )
    wanted = torch.func.vmap(torch.func.jacrev(weights))(scores)
    torch.testing.assert_close(factor[:, None, None] * covariance, wanted, rtol=0, atol=1e-12)
    forward = torch.func.vmap(torch.func.jacfwd(weights))(scores)
    torch.testing.assert_close(forward, wanted, rtol=0, atol=1e-12)
    torch._dynamo.reset()
    compiled = torch.compile(weights, backend="aot_eager", fullgraph=True)
    slopes = [
        torch.autograd.grad(run(scores).square().sum(), scores)[0] for run in (weights, compiled)
    ]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0])
def test_the_network_is_the_gradient_of_its_energy(alpha):
    """Energy first: −∇E moves the state, and the Jacobian is the derivative of the step."""
    patterns = draw(6, 4, seed=5)
    states = draw(3, 4, seed=6)
    beta = 1.3
    scores = beta * states.numpy() @ patterns.numpy().T
    weights = np.stack([weights_by_bisection(row, alpha) for row in scores])
    conjugate = (weights * scores).sum(-1) - negative_entropy(weights, alpha)
    wanted = 0.5 * (states.numpy() ** 2).sum(-1) - conjugate / beta
    result = continuous.energy(patterns, states=states, beta=beta, alpha=alpha)
    np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-12)
    moved = continuous.update(patterns, states=states, beta=beta, alpha=alpha)
    np.testing.assert_allclose(moved, weights @ patterns.numpy(), rtol=0, atol=1e-12)
    pairs = (("energy", "gradient"), ("update", "jacobian"))
    for state, (name, derivative) in itertools.product(states, pairs):
        auto = derive(
            lambda s, name=name: FUNCTIONS[name](patterns, states=s, beta=beta, alpha=alpha), state
        )
        hand = FUNCTIONS[derivative](patterns, states=state, beta=beta, alpha=alpha)
        torch.testing.assert_close(hand, auto, rtol=0, atol=1e-11)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("step_size", [0.25, 1.0, 1.95])
def test_the_energy_falls_below_a_step_of_two(alpha, step_size):
    rng = np.random.default_rng(12)
    for trial in range(20):
        size = int(rng.integers(1, 30))
        width = int(rng.integers(1, 20))
        patterns = draw(size, width, seed=trial, scale=float(rng.uniform(0.3, 3)))
        states = draw(20, width, seed=trial + 999, scale=2.0)
        beta = float(np.exp(rng.uniform(-3, 3)))
        kept = continuous.retrieve(
            patterns,
            queries=states,
            beta=beta,
            alpha=alpha,
            steps=30,
            step_size=step_size,
            keep_trajectory=True,
        )
        energies = continuous.energy(patterns, states=kept.trajectory, beta=beta, alpha=alpha)
        torch.testing.assert_close(kept.energies, energies, rtol=1e-12, atol=1e-12)
        slopes = continuous.gradient(patterns, states=kept.trajectory[:-1], beta=beta, alpha=alpha)
        promised = -step_size * (1 - step_size / 2) * slopes.square().sum(-1)
        rounding = 1e-12 * (1.0 + kept.energies.abs()[:-1]) * (1 + size)
        assert bool((kept.energies.diff(dim=0) - promised <= rounding).all())


@pytest.mark.parametrize("alpha", [1.25, 1.5, 2.0])
def test_retrieval_is_exact_from_the_margin_on_and_not_before(alpha):
    patterns = draw(40, 24, seed=7)
    needed = continuous.exact_retrieval_beta(patterns, alpha=alpha)
    overlaps = (patterns @ patterns.T).numpy()
    leads = [overlaps[i, i] - np.delete(overlaps[i], i).max() for i in range(40)]
    assert min(leads) > 0
    np.testing.assert_allclose(needed, separation_margin(alpha) / np.array(leads), rtol=1e-13)
    for index, beta in enumerate(needed.tolist()):
        pattern = patterns[index]
        exact = continuous.update(patterns, states=pattern, beta=1.001 * beta, alpha=alpha)
        assert torch.equal(exact, pattern)
        mixed = continuous.update(patterns, states=pattern, beta=0.98 * beta, alpha=alpha)
        assert not torch.equal(mixed, pattern)
    # Softmax mixes at every β, if by less than a number can show.
    assert bool(continuous.exact_retrieval_beta(patterns, alpha=1).isinf().all())
    # From a noisy query, too, where the margin is kept: one step, and no error at all.
    beta = float(2.0 * needed.max())
    queries = patterns + draw(40, 24, seed=8, scale=0.1)
    scores = beta * (queries @ patterns.T)
    own = scores.diagonal()
    others = scores.clone().fill_diagonal_(-math.inf).amax(-1)
    kept = own - others >= separation_margin(alpha)
    assert 30 <= int(kept.sum()) <= 40
    result = continuous.retrieve(patterns, queries=queries[kept], beta=beta, alpha=alpha)
    assert torch.equal(result.states, patterns[kept])
    assert bool((result.steps == 2).all())  # the second one stands still
    assert bool((result.residual == 0.0).all())
    assert bool(((result.attention > 0).sum(-1) == 1).all())


def test_patterns_that_nothing_singles_out_are_never_exact():
    patterns = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    needed = continuous.exact_retrieval_beta(patterns, alpha=2.0)
    assert needed.tolist() == [math.inf, 0.5, math.inf, math.inf]
    assert continuous.exact_retrieval_beta(patterns[:1], alpha=2.0).tolist() == [0.0]
    with pytest.raises(ValueError, match="overlaps"):
        continuous.exact_retrieval_beta(1e30 * patterns, alpha=2.0)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_fixed_points_and_the_loss_of_the_mean(alpha):
    """Two patterns ±v: along v the mean loses stability at β‖v‖² 2^{α − 1} = 1."""
    v = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    patterns = torch.stack([v, -v])
    norm = 6.0
    critical = fixed_points.mean_critical_beta(patterns, alpha=alpha)
    assert critical == pytest.approx(2.0 ** (1.0 - alpha) / norm, rel=1e-12)
    origin = torch.zeros(3, dtype=torch.float64)
    slope = continuous.jacobian(patterns, states=origin, beta=critical, alpha=alpha)
    assert float(torch.linalg.eigvalsh(slope)[-1]) == pytest.approx(1.0, rel=1e-12)
    below = fixed_points.find_fixed_points(patterns, beta=0.9 * critical, alpha=alpha)
    assert below.stable.tolist() == [True]
    start = torch.zeros(1, 3, dtype=torch.float64)
    lost = fixed_points.find_fixed_points(patterns, beta=1.1 * critical, alpha=alpha, starts=start)
    assert lost.stable.tolist() == [False]
    above = fixed_points.find_fixed_points(patterns, beta=20.0 * critical, alpha=alpha)
    assert above.kinds == ("single pattern", "single pattern", "global average")
    assert above.stable.tolist() == [True, True, False]
    assert torch.equal(above.points[:2].abs(), patterns.abs())


@pytest.mark.parametrize(("alpha", "beta"), [(1.5, 0.3), (2.0, 0.15)])
def test_fixed_points_stand_by_their_own_energy(alpha, beta):
    """Lowest first by the energy of this separation, which is not the order of the softmax's."""
    generator = torch.Generator().manual_seed(4)
    patterns = 2 * torch.randn(6, 3, generator=generator, dtype=torch.float64)
    points = fixed_points.find_fixed_points(patterns, beta=beta, alpha=alpha).points
    rises = {
        a: continuous.energy(patterns, states=points, beta=beta, alpha=a).diff()
        for a in (alpha, 1.0)
    }
    assert len(points) == 3
    assert (rises[alpha] > 0.1).all()
    assert (rises[1.0] < -0.1).any()


def test_sums_of_three_patterns_are_metastable():
    """Tight clusters: at a β between, the weights are those of one cluster and exactly 0 beyond."""
    centres = 3.0 * torch.eye(3, 16, dtype=torch.float64)
    patterns = centres.repeat_interleave(4, 0) + 0.6 * torch.eye(16, dtype=torch.float64)[3:15]
    patterns = patterns - patterns.mean(0)
    result = fixed_points.find_fixed_points(patterns, beta=1.0, alpha=2.0, starts=patterns)
    assert result.kinds == ("metastable",) * 3
    weights = continuous.attention_weights(patterns, states=result.points, beta=1.0, alpha=2.0)
    assert (weights > 0).sum(-1).tolist() == [4, 4, 4]
    torch.testing.assert_close(weights.amax(-1), torch.full((3,), 0.25, dtype=torch.float64))


@pytest.mark.parametrize("alpha", [1.4, 2.0])
def test_first_and_second_derivatives_of_a_sparse_fixed_point(alpha):
    keys = (0.9 * draw(2, 1, 4, 3, seed=5)).requires_grad_()
    beta = torch.tensor([0.3, 0.5]).double().view(2, 1, 1).requires_grad_()
    bias = (0.1 * draw(2, 1, 2, 4, seed=6)).requires_grad_()
    start = draw(2, 2, 2, 3, seed=7)

    def run(keys, beta, bias):
        return fixed_points.fixed_point(
            start, keys=keys, beta=beta, bias=bias, alpha=alpha, tolerance=1e-12, max_steps=3000
        )[0]

    assert torch.autograd.gradcheck(run, (keys, beta, bias), fast_mode=True)
    start = start[:1, :1, :1, :2]
    few = (keys[:1, :, :3, :2], beta[:1], bias[:1, :, :1, :3])
    few = tuple(x.detach().requires_grad_() for x in few)
    assert torch.autograd.gradgradcheck(run, few, fast_mode=True)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
def test_masks_leave_patterns_out(alpha):
    queries = draw(5, 3, seed=1)
    keys = draw(6, 3, seed=2)
    values = draw(6, 2, seed=3)
    mask = draw(5, 6, seed=4) > -0.3
    mask[:, 0] = True
    result = attention(queries, keys=keys, values=values, beta=2.0, mask=mask, alpha=alpha)
    for row in range(5):
        seen = mask[row]
        wanted = attention(
            queries[row : row + 1], keys=keys[seen], values=values[seen], beta=2.0, alpha=alpha
        )
        torch.testing.assert_close(result[row : row + 1], wanted, rtol=0, atol=1e-13)
    step = retrieval_step(queries, scaled=2.0 * keys, content=values, bias=mask, alpha=alpha)
    torch.testing.assert_close(step, result, rtol=0, atol=1e-13)
    mask[2] = False
    weights = masked_attention_weights(queries, scaled=2.0 * keys, bias=mask, alpha=alpha)
    assert float(weights[2].abs().max()) == 0.0
    assert bool((weights[~mask] == 0).all())


@pytest.mark.filterwarnings("ignore:<class 'torch.autograd.function.Function'>")
@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_not_finite_is_refused(name, alpha):
    function = FUNCTIONS[name]
    for bad, sign in itertools.product((torch.nan, torch.inf, -torch.inf), (-1.0, 0.0, 1.0)):
        sound = {"patterns": sign * torch.ones(3, 2), "states": torch.full((4, 2), 200.0)}
        for argument, tensor in sound.items():
            for place in itertools.product(*map(range, tensor.shape)):
                spoilt = tensor.clone()
                spoilt[place] = bad
                arguments = sound | {argument: spoilt}
                with pytest.raises(ValueError, match=f"^{argument} must be finite"):
                    function(arguments["patterns"], states=arguments["states"], alpha=alpha)
    with pytest.raises(ValueError, match="too large"):
        function(1e20 * torch.eye(3), states=1e20 * torch.eye(3), alpha=alpha)
    patterns = draw(4, 3)
    states = draw(5, 3, seed=1)
    wanted = function(patterns, states=states, beta=2.0, alpha=alpha)

    def one(state):
        return function(patterns, states=state, beta=2.0, alpha=alpha)

    torch.testing.assert_close(torch.vmap(one)(states), wanted)
    torch._dynamo.reset()
    compiled = torch.compile(one, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(states), wanted)


def test_the_index_and_the_scores_are_checked():
    scores = torch.zeros(2, 3)
    for alpha in (0.5, 1.001, 2.5, math.nan):
        with pytest.raises(ValueError, match="alpha must be"):
            entmax(scores, alpha=alpha)
    for alpha in (True, "sparsemax", None):
        with pytest.raises(TypeError, match="alpha must be"):
            entmax(scores, alpha=alpha)
    for bad in (torch.full((2, 3), -torch.inf), torch.tensor([0.0, math.nan]), torch.zeros(2, 0)):
        with pytest.raises(ValueError, match="scores must"):
            entmax_conjugate(bad, alpha=2.0)
    part = torch.tensor([0.0, -torch.inf, 0.0])
    assert entmax(part, alpha=1.5).tolist() == pytest.approx([0.5, 0.0, 0.5])
    assert math.isfinite(entmax_conjugate(part, alpha=1.5))
    # What overflows on the way does not stop a retrieval, but is said.
    lost = continuous.retrieve(
        draw(12, 8, seed=12), queries=draw(4, 8), alpha=2.0, step_size=3.0, max_steps=5000
    )
    assert bool((lost.status == Status.DIVERGED).all())

"""The continuous network against autograd, NumPy/SciPy and the theorems it should obey."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from known_memories import draw
from scipy.optimize import brentq
from scipy.special import logsumexp, softmax
from torch.autograd.functional import jacobian as derive

from spinformer.core.solve import NotConverged, Status
from spinformer.hopfield import fixed_points
from spinformer.hopfield.attention import retrieval_step
from spinformer.hopfield.continuous import (
    attention_weights,
    energy,
    gradient,
    jacobian,
    retrieve,
    update,
)


@pytest.mark.claim("B1")
def test_energy_and_update_equal_the_formulas_and_the_kernel_of_the_framework():
    patterns = draw(7, 4, seed=1)
    states = draw(5, 4, seed=2)
    beta = 1.7
    x = patterns.numpy()
    xi = states.numpy()
    scores = beta * xi @ x.T
    wanted = 0.5 * (xi**2).sum(1) - logsumexp(scores, axis=1) / beta
    result = energy(patterns, states=states, beta=beta)
    np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-13)
    moved = update(patterns, states=states, beta=beta)
    np.testing.assert_allclose(moved, softmax(scores, axis=1) @ x, atol=1e-13)
    kernel = torch.nn.functional.scaled_dot_product_attention(states, patterns, patterns)
    moved = update(patterns, states=states, beta=1 / math.sqrt(4))
    torch.testing.assert_close(moved, kernel, rtol=0, atol=1e-13)


@settings(deadline=None, max_examples=25, derandomize=True)
@given(
    size=st.integers(1, 12),
    width=st.integers(1, 8),
    beta=st.floats(0.05, 8.0),
    seed=st.integers(0, 10**6),
)
def test_gradient_and_jacobian_equal_autograd(size, width, beta, seed):
    patterns = draw(size, width, seed=seed)
    state = draw(width, seed=seed + 1)
    for function, derivative in ((energy, gradient), (update, jacobian)):
        auto = derive(lambda s, f=function: f(patterns, states=s, beta=beta), state)
        result = derivative(patterns, states=state, beta=beta)
        torch.testing.assert_close(result, auto, rtol=0, atol=1e-11)
    # A covariance has no negative eigenvalue: those of the Hessian 1 − J are at most one.
    assert float(torch.linalg.eigvalsh(result).min()) >= -1e-10


@pytest.mark.parametrize("step_size", [0.25, 1.0, 1.5, 1.95])
@pytest.mark.claim("A9")
def test_descent_below_two(step_size):
    # 1e5 steps: 40 memories of random size, width and beta, 50 queries each, 50 steps.
    rng = np.random.default_rng(11)
    for trial in range(40):
        size = int(rng.integers(1, 30))
        width = int(rng.integers(1, 20))
        patterns = draw(size, width, seed=trial, scale=float(rng.uniform(0.3, 3)))
        states = draw(50, width, seed=trial + 999, scale=2.0)
        beta = float(np.exp(rng.uniform(-3, 3)))
        kept = retrieve(
            patterns, queries=states, beta=beta, steps=50, step_size=step_size, keep_trajectory=True
        )
        slopes = gradient(patterns, states=kept.trajectory[:-1], beta=beta).square().sum(-1)
        promised = -step_size * (1 - step_size / 2) * slopes
        rounding = 1e-13 * (1.0 + kept.energies.abs()[:-1])
        excess = kept.energies.diff(dim=0) - promised
        assert bool((excess <= rounding * (1 + size)).all())


def test_two_opposite_patterns_have_the_magnets_fixed_point():
    # Patterns ±v: the component along v obeys m = tanh(β‖v‖² m), the Curie–Weiss equation.
    v = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)
    patterns = torch.stack([v, -v])
    norm = 6.0
    assert fixed_points.mean_critical_beta(patterns) == pytest.approx(1 / norm, rel=1e-12)
    # Both ends have one energy: the starts are counted each at its own.
    result = fixed_points.find_fixed_points(patterns, beta=1.0, starts=patterns[[0, 1, 0, 0, 1, 0]])
    ends = dict(zip((result.points @ v).sign().tolist(), result.basin.tolist(), strict=True))
    assert ends == {1.0: 4, -1.0: 2}
    others = draw(30, 6, seed=8)
    variance = np.linalg.eigvalsh(np.cov(others.numpy().T, bias=True))[-1]
    assert fixed_points.mean_critical_beta(others) == pytest.approx(1 / variance, rel=1e-12)
    for beta in (0.9 / norm, 1.02 / norm, 2.0 / norm):
        result = fixed_points.find_fixed_points(patterns, beta=beta)
        overlaps = sorted((result.points @ v / norm).tolist())
        if beta * norm < 1:
            assert bool(result.converged.all())
            np.testing.assert_allclose(overlaps, [0.0], atol=1e-8)
            assert result.stable.tolist() == [True]
            continue
        magnet = brentq(lambda m, b=beta: m - math.tanh(b * norm * m), 1e-3, 1, xtol=1e-14)
        np.testing.assert_allclose(overlaps, [-magnet, 0.0, magnet], atol=1e-8)
        assert result.stable.tolist() == [True, True, False]


@pytest.mark.claim("A15")
def test_three_kinds_appear_in_their_order():
    # Three tight clusters of four: the average, then clusters, then members.
    centres = 3.0 * torch.eye(3, 16, dtype=torch.float64)
    members = 0.6 * torch.eye(16, dtype=torch.float64)[3:15]
    patterns = centres.repeat_interleave(4, 0) + members
    patterns = patterns - patterns.mean(0)
    for beta, kind, count in (
        (0.05, "global average", 1),
        (1.5, "metastable", 3),
        (60.0, "single pattern", 12),
    ):
        result = fixed_points.find_fixed_points(patterns, beta=beta, starts=patterns)
        assert result.kinds == (kind,) * count
        assert bool(result.converged.all())
        assert bool(result.stable.all())


def test_effective_entries_counts_like_a_greedy_loop():
    weights = torch.softmax(draw(200, 17, seed=10, scale=2.0), -1)
    for row, count in zip(
        weights.tolist(), fixed_points.effective_entries(weights).tolist(), strict=True
    ):
        held = np.cumsum(sorted(row, reverse=True))
        assert held[count - 1] >= 0.9 > held[count - 1] - min(sorted(row)[-count:])
    assert fixed_points.effective_entries(torch.full((10,), 0.1)).item() == 9
    even = torch.eye(4).cumsum(0) / torch.arange(1, 5)[:, None]
    kinds = ("single pattern", "metastable", "global average", "global average")
    assert fixed_points.classify(even) == kinds


def test_batched_memories_and_gradients_through_retrieval():
    patterns = draw(3, 5, 4, seed=14)
    queries = draw(3, 2, 4, seed=15)
    together = retrieve(patterns, queries=queries, beta=0.9, steps=3)
    for memory in range(3):
        alone = retrieve(patterns[memory], queries=queries[memory], beta=0.9, steps=3)
        torch.testing.assert_close(together.states[memory], alone.states)
        torch.testing.assert_close(together.energies[:, memory], alone.energies)
    leaves = (patterns.requires_grad_(), queries.requires_grad_())
    assert torch.autograd.gradcheck(
        lambda x, q: retrieve(x, queries=q, beta=0.9, steps=3, step_size=0.8).states,
        leaves,
        fast_mode=True,
    )


def test_residual_steps_and_status_say_how_retrieval_ended():
    patterns = draw(12, 8, seed=12)
    queries = draw(40, 8, seed=13, scale=2.0)
    result = retrieve(patterns, queries=queries, beta=0.7, tolerance=1e-7, keep_trajectory=True)
    torch.testing.assert_close(result.attention @ patterns, result.states, rtol=0, atol=1e-13)
    moves = result.trajectory.diff(dim=0).norm(dim=-1)
    assert len(set(result.steps.tolist())) > 1
    assert (result.status == Status.CONVERGED).all()
    for q, steps in enumerate(result.steps.tolist()):
        alone = retrieve(patterns, queries=queries[q], beta=0.7, tolerance=1e-7)
        torch.testing.assert_close(alone.states, result.states[q], rtol=0, atol=1e-13)
        assert int(alone.steps) == steps
        assert float(moves[steps - 1, q]) <= 1e-7
        assert bool((moves[: steps - 1, q] > 1e-7).all())
    middle = int(result.steps.median())
    part = retrieve(patterns, queries=queries, beta=0.7, tolerance=1e-7, max_steps=middle)
    assert torch.equal(part.converged, result.steps <= middle)
    assert bool((part.status[~part.converged] == Status.STEP_LIMIT).all())
    torch.testing.assert_close(part.residual, moves[:middle][part.steps - 1, range(40)])
    with pytest.raises(NotConverged, match="fixed point"):
        part.require("a fixed point of the memory")
    # A given number of steps is taken to its end, and still said to have arrived where it has.
    given_steps = retrieve(patterns, queries=queries, beta=0.7, tolerance=1e-7, steps=middle)
    assert (given_steps.steps == middle).all()
    assert torch.equal(given_steps.converged, result.steps <= middle)
    wild = retrieve(patterns, queries=queries, beta=0.7, steps=2000, step_size=3.0)
    assert (wild.status == Status.DIVERGED).all()
    # What overflowed stops there, though it never arrives.
    lost = retrieve(patterns, queries=queries, beta=0.7, step_size=3.0, max_steps=5000)
    assert (lost.status == Status.DIVERGED).all()
    assert int(lost.steps.max()) < 2000


def test_search_counts_the_starts_that_did_not_arrive():
    patterns = draw(20, 5, seed=30)
    starts = draw(60, 5, seed=31, scale=3.0)
    result = fixed_points.find_fixed_points(patterns, beta=1.5, starts=starts, max_steps=1)
    assert 0 < int(result.basin.sum()) == int(result.converged.sum()) < 60
    scale = float(patterns.norm(dim=-1).max())
    assert float(gradient(patterns, states=result.points, beta=1.5).norm(dim=-1).max()) < 1e-8
    assert float(result.residual[result.converged].max()) < 1e-8
    assert float(result.residual[~result.converged].min()) > 1e-4
    assert float(torch.pdist(result.points).min()) > 1e-5 * scale
    # Newton may finish a start but not carry it elsewhere: same points, same basins.
    slow = fixed_points.find_fixed_points(patterns, beta=1.5, starts=starts)
    assert bool(slow.converged.all())
    for point in result.points:
        assert float((slow.points - point).norm(dim=-1).min()) < 1e-6 * scale
    slopes = torch.linalg.eigvalsh(jacobian(patterns, states=slow.points, beta=1.5))[:, -1]
    assert slow.stable.tolist() == (slopes < 1.0).tolist()
    weights = attention_weights(patterns, states=slow.points, beta=1.5)
    for row, slope in zip(weights, slopes, strict=True):
        assert fixed_points._largest_slope(patterns, row, 1.5) == pytest.approx(
            float(slope), rel=1e-10
        )
    assert bool((energy(patterns, states=slow.points, beta=1.5).diff() >= 0).all())


@pytest.mark.parametrize(
    "function", [energy, attention_weights, gradient, jacobian, update], ids=lambda f: f.__name__
)
def test_overflow_and_misfits_are_refused(function):
    one = torch.eye(3)
    for patterns, states, message in (
        (one * 1e20, one * 1e20, "too large"),
        (one, one.double(), "^states must"),
        (one, torch.ones(2), "^states must"),
        (one.expand(2, 3, 3), one.expand(3, 3, 3), "^states and patterns must"),
        # Weights (B, N) would multiply the patterns of every memory by those of all others.
        (one.expand(2, 3, 3), torch.ones(3), "^states must have an axis of states"),
        (one[:0], one, "^patterns must"),
        (one[0], one, "^patterns must"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            function(patterns, states=states)


@pytest.mark.parametrize(
    "function", [energy, attention_weights, gradient, jacobian, update], ids=lambda f: f.__name__
)
@pytest.mark.parametrize("batch", [(), (2,)], ids=["one memory", "two memories"])
def test_an_entry_that_is_not_finite_is_refused_wherever_it_is(function, batch):
    """Some of these functions look at their result alone, where such an entry must be seen."""
    for bad, sign in itertools.product((torch.nan, torch.inf, -torch.inf), (-1.0, 0.0, 1.0)):
        # Weights that underflow to 0 where the sign is that of the bad entry.
        given = {"patterns": sign * torch.ones(*batch, 3, 2), "states": torch.full((4, 2), 200.0)}
        for name, sound in given.items():
            for place in itertools.product(*map(range, sound.shape)):
                spoilt = sound.clone()
                spoilt[place] = bad
                arguments = given | {name: spoilt}
                with pytest.raises(ValueError, match=f"^{name} must be finite"):
                    function(arguments["patterns"], states=arguments["states"])
    # Nothing is computed of no states, so that nothing shows in a result.
    spoilt = torch.full((*batch, 3, 2), torch.nan)
    with pytest.raises(ValueError, match=r"^patterns must be finite"):
        function(spoilt, states=torch.ones(0, 2))


def settle(start, keys, beta, bias=None):
    """The fixed point, to a tolerance that its derivatives can be compared at."""
    return fixed_points.fixed_point(
        start, keys=keys, beta=beta, bias=bias, tolerance=1e-11, max_steps=3000
    )


def test_first_and_second_derivatives_of_a_fixed_point():
    keys = (0.9 * draw(2, 1, 4, 3, seed=5)).requires_grad_()
    beta = torch.tensor([0.3, 0.5]).double().view(2, 1, 1).requires_grad_()
    bias = (0.3 * draw(2, 1, 2, 4, seed=6)).requires_grad_()
    start = draw(2, 2, 2, 3, seed=7)

    def run(keys, beta, bias):
        return settle(start, keys, beta, bias)[0]

    moved = settle(start, keys, beta, bias)[1]
    assert float(moved.max()) <= 1e-11
    assert torch.autograd.gradcheck(run, (keys, beta, bias), fast_mode=True)
    start = start[:1, :1, :1, :2]
    few = (keys[:1, :, :3, :2], beta[:1], bias[:1, :, :1, :3])
    few = tuple(x.detach().requires_grad_() for x in few)
    # Along random directions: every entry of the second derivatives takes part.
    assert torch.autograd.gradgradcheck(run, few, fast_mode=True)


@pytest.mark.parametrize("mapped", ["start", "keys", "beta", "bias"])
def test_one_argument_of_a_fixed_point_is_mapped_alone(mapped):
    names = ("start", "keys", "beta", "bias")
    arguments = (draw(5, 3), draw(4, 3, seed=1), torch.tensor(0.5).double(), draw(5, 4, seed=2))
    given = dict(zip(names, arguments, strict=True))
    batch = given[mapped] + 0.3 * draw(3, *given[mapped].shape, seed=3).abs()
    batch.requires_grad_(mapped != "start")

    def one(value):
        return settle(*(given | {mapped: value}).values())

    result = torch.vmap(one)(batch)
    wanted = tuple(torch.stack(parts) for parts in zip(*map(one, batch), strict=True))
    torch.testing.assert_close(result, wanted, rtol=0, atol=1e-10)
    along_the_last = torch.vmap(one, in_dims=-1)(batch.movedim(0, -1))
    torch.testing.assert_close(along_the_last, wanted, rtol=0, atol=1e-10)
    if mapped != "start":
        slopes = [
            torch.autograd.grad(states.square().sum(), batch, retain_graph=True)
            for states, *_ in (result, wanted)
        ]
        torch.testing.assert_close(*slopes, rtol=0, atol=1e-9)
    if mapped == "bias":  # a batch of biases is met without a map, too
        torch.testing.assert_close(one(batch)[0], wanted[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("part", ["states", "scaled", "content", "bias"])
def test_a_step_and_a_fixed_point_hide_nothing_that_is_not_finite(part, biased):
    """The kernel itself returns 0 for some of these; only what a mask forbids may give 0."""
    shapes = {"states": (5, 3), "scaled": (4, 3), "content": (4, 3), "bias": (5, 4)}
    # Four axes, as the fused kernel wants them.
    given = {n: draw(1, 1, *shape, seed=i) for i, (n, shape) in enumerate(shapes.items())}
    given["bias"][..., 2, :] = -torch.inf
    if not biased:
        given["bias"] = None
    if given[part] is None:
        return
    torch._dynamo.reset()
    compiled = torch.compile(retrieval_step, backend="eager")

    def call(run, states, scaled, content, bias):
        return run(states, scaled=scaled, content=content, bias=bias)

    for bad in (torch.nan, torch.inf):
        spoilt = given | {part: given[part].clone()}
        spoilt[part][..., 0, :] = bad
        for run in (retrieval_step, compiled):
            sound = call(run, *given.values())
            assert bool(sound.isfinite().all())
            assert not biased or float(sound[..., 2, :].abs().max()) == 0.0
            lost = call(run, *spoilt.values())[0, 0].isnan().all(-1)
            # What is wrong with one state, or with the row of a mask, is told of that one alone.
            own = part in ("states", "bias")
            assert lost.tolist() == [True] + [not own] * 4
        keys = spoilt["scaled" if part == "scaled" else "content"]
        beta = torch.ones(()).double()
        state, moved, _ = fixed_points.fixed_point(
            spoilt["states"],
            keys=keys,
            beta=beta,
            bias=spoilt["bias"],
            tolerance=1e-6,
            max_steps=50,
        )
        assert state[0, 0].isnan().all(-1).tolist() == lost.tolist()
        assert moved[0, 0].isnan().tolist() == lost.tolist()


def test_scores_that_overflow_downwards_are_no_mask():
    for dtype, large in ((torch.float32, 1e30), (torch.float64, 1e200), (torch.bfloat16, 1e30)):
        keys = torch.full((1, 1, 3, 2), large, dtype=dtype)
        assert bool(retrieval_step(-keys, scaled=keys, content=keys).isnan().all())
    # Half precision is summed in single: nothing overflows there.
    keys = torch.full((1, 1, 3, 2), 6e4, dtype=torch.float16)
    assert bool(retrieval_step(-keys, scaled=keys, content=torch.ones_like(keys)).isfinite().all())


def test_transforms_and_compilers_find_no_check_in_their_way():
    patterns = draw(4, 3)
    states = draw(5, 3, seed=1)
    torch._dynamo.reset()
    for function in (update, energy, gradient, attention_weights, jacobian):
        wanted = function(patterns, states=states, beta=2.0)

        def one(x, function=function):
            return function(patterns, states=x, beta=2.0)

        torch.testing.assert_close(torch.vmap(one)(states), wanted)
        compiled = torch.compile(one, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(states), wanted)


@pytest.mark.parametrize("spoil", ["meta", "sparse", "eight bits", "complex"])
def test_tensors_of_no_use_are_refused_by_name(spoil):
    patterns = torch.eye(3)
    states = {
        "meta": patterns.to("meta"),
        "sparse": patterns.to_sparse(),
        "eight bits": patterns.to(torch.float8_e4m3fn),
        "complex": patterns.to(torch.complex64),
    }[spoil]
    with pytest.raises(TypeError, match="states must "):
        update(patterns, states=states)


def test_a_step_refuses_by_name_what_does_not_fit():
    given = {"states": draw(5, 3), "scaled": draw(4, 3, seed=1), "content": draw(4, 2, seed=2)}
    for changed, message in (
        ({"scaled": draw(4, 2)}, "scaled must be as wide as states"),
        ({"content": draw(3, 2)}, "as many as content"),
        ({"content": draw(4, 2).float()}, "content must be a tensor"),
        ({"bias": torch.zeros(5, 4).float()}, "bias must be boolean or torch.float64"),
        ({"bias": torch.zeros(5, 4).int()}, "bias must be boolean or torch.float64"),
        ({"dropout": 1.5}, "dropout must be"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            retrieval_step(**given | changed)


def test_squares_of_small_patterns_do_not_vanish():
    patterns = draw(5, 3).float()
    wanted = fixed_points.mean_critical_beta(patterns)
    for size in (1e-25, 1e25):
        result = fixed_points.mean_critical_beta(size * patterns)
        assert result == pytest.approx(wanted / size**2, rel=1e-5)


def test_converged_means_within_the_tolerance_and_not_nearly():
    """The same three steps, asked for ten times their residual and for a tenth of it."""
    patterns = torch.randn(6, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    start = {"queries": patterns[:1] + 0.3, "beta": 0.4, "max_steps": 3}
    left = float(retrieve(patterns, **start, tolerance=1e-300).residual[0])
    assert left > 1e-6
    for factor, reached in ((10.0, True), (0.1, False)):
        result = retrieve(patterns, **start, tolerance=factor * left)
        assert bool(result.converged[0]) is reached

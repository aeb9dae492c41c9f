from functools import partial
from itertools import product

import numpy as np
import pytest
import torch
from known_memories import draw
from open_cells import run_open_cells
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.linear_model import Ridge

from compendium.c17_interacting_patterns import interacting, pictures, readers, results
from compendium.c17_interacting_patterns.interacting import (
    equivalent_patterns,
    safe_step_size,
    solve,
)
from compendium.c17_interacting_patterns.readers import LABELS, REACH, TAG, draw_chains
from compendium.common.rows import array_of
from spinformer.core.statistics import student_interval
from spinformer.hopfield import continuous


def halves(seed, *, size=30, width=6):
    rows = np.random.default_rng(seed).standard_normal((size, width + 4)) / width**0.5
    return (rows[:, :width], rows[:, width:])


def test_methods_of_the_completion_equal_what_others_compute():
    stored = halves(0)
    queries = halves(1, size=5)[0]
    named = {name: method for name, (method, _) in pictures.METHODS.items()}
    keys = torch.as_tensor(stored[0])
    values = torch.as_tensor(stored[1])
    asked = torch.as_tensor(queries)
    attention = torch.nn.functional.scaled_dot_product_attention(asked, keys, values, scale=8.0)
    np.testing.assert_allclose(named["attention"](*stored, queries, 8.0), attention)
    near = torch.softmax(-4.0 * torch.cdist(asked, keys).square(), -1) @ values
    np.testing.assert_allclose(named["distances"](*stored, queries, 8.0), near)
    ridge = Ridge(alpha=0.3, fit_intercept=False).fit(*stored).predict(queries)
    np.testing.assert_allclose(named["linear"](*stored, queries, 0.3), ridge)
    twice = continuous.retrieve(keys, queries=asked, beta=8.0, steps=2).attention @ values
    np.testing.assert_allclose(named["attention, iterated"](*stored, queries, 8.0, 2), twice)
    for row, query in zip(named["local linear"](*stored, queries, 4.0, 0.1), queries, strict=True):
        near = np.exp(-2.0 * ((stored[0] - query) ** 2).sum(1))
        local = Ridge(alpha=0.1, fit_intercept=False)
        local.fit(*stored, sample_weight=near / near.sum())
        np.testing.assert_allclose(row, local.predict(query[None])[0], rtol=1e-6)
    steps, _ = solve(
        keys,
        queries=asked,
        couplings=-0.5 * keys @ keys.T,
        beta=8.0,
        clamped=True,
        step_size=0.2,
        tolerance=0.0,
        max_steps=pictures.LOOKS,
    )
    found = named["interacting"](*stored, queries, 8.0, 0.5, 0.2)
    np.testing.assert_allclose(found, steps @ values)


def test_repelling_patterns_fit_the_query_by_a_mixture():
    """κ/2 ‖q/κ − Xᵀp‖² − entropy/β on the simplex, minimised by a general method."""
    stored = halves(2)[0]
    query = 2 * halves(3, size=1)[0][0]

    def cost(logits):
        p = softmax(logits)
        miss = query / 0.7 - p @ stored
        return 0.35 * miss @ miss + (p * np.log(p)).sum() / 20.0

    best = softmax(minimize(cost, np.zeros(len(stored)), options={"gtol": 1e-7}).x)
    x = torch.as_tensor(stored)
    q = torch.as_tensor(query)[None]
    found, _ = solve(x, queries=q, couplings=-0.7 * x @ x.T, beta=20.0, clamped=True, step_size=0.1)
    np.testing.assert_allclose(found[0], best, atol=1e-4)


@pytest.mark.claim("A18b")
def test_interactions_gain_over_a_look_at_the_same_tokens():
    """From the rows of the tables; readers that only look would gain nothing."""
    for links in readers.LINKS:
        tables = [
            readers.hops_table.read(),
            *([readers.hops_again_table.read()] if links == 2 else []),
        ]
        best = {}
        for arm, rate in product(("interacting", "dense"), readers.RATES):
            columns = {
                name: np.concatenate(
                    [array_of(t, name, "seed", arm=arm, links=links, rate=rate) for t in tables]
                )
                for name in ("validation", "test")
            }
            line = (columns["validation"].mean(), *columns["test"])
            best[arm] = max(best.get(arm, (0.0,)), line)
        gains = results.over_a_look(f"hops {links}")
        np.testing.assert_allclose(gains, np.subtract(*best.values())[1:])
    # The measure sees a reader without links: the window alone does not beat the look.
    hops = results.scores("hops 4")
    assert hops["window"].mean() < hops["dense"].mean()
    for task in results.TASKS:
        assert student_interval(results.over_a_look(task))[0] > 0
    recall = results.scores("recall")
    np.testing.assert_array_equal(
        results.over_a_look("recall"), recall["interacting"] - recall["attention"]
    )


@pytest.mark.claim("A18c")
def test_fits_beat_a_look_but_not_a_regression_on_other_faces():
    """Seeds outside of the table; the regression is that of scikit-learn."""
    look = []
    linear = []
    for seed in range(200, 206):
        truth, found = pictures.complete(seed, data="faces")
        error = {name: ((lower - truth) ** 2).mean() for name, lower in found.items()}
        look.append(error["attention"] - error["interacting"])
        linear.append(error["linear"] - error["interacting"])
    assert student_interval(look)[0] > 0
    assert student_interval(linear)[1] < 0
    for task in results.TASKS:
        assert student_interval(results.over_equals(task)[1])[0] < 0


def test_more_patterns_are_more_than_the_few():
    """The control that stores more is attention to other patterns, and completes better."""
    truth, found = pictures.complete(200, data="digits", count=30)
    error = {name: ((lower - truth) ** 2).mean() for name, lower in found.items()}
    assert error[pictures.MORE] < 0.95 * error["attention"]


def test_recall_chooses_numbers_by_other_queries_than_it_reports(monkeypatch):
    """Of distinct faces of unit mean square; every arm is tried at all its numbers."""
    calls = []

    def recalled(arm, stored, queries, *numbers):
        calls.append((arm, stored, queries, numbers))
        return -abs(numbers[0] - 30.0) - abs(numbers[1] - 0.1) - numbers[2]

    monkeypatch.setattr(pictures, "_recalled", recalled)
    rows = pictures.recalled(3, count=100)
    assert [row["arm"] for row in rows] == list(pictures.ARMS)
    stored = calls[0][1]
    assert len(np.unique(stored, axis=0)) == 100
    assert np.mean((stored**2).sum(axis=1)) == pytest.approx(1.0)
    reported = {arm: (queries, numbers) for arm, _, queries, numbers in calls}
    for arm, (queries, numbers) in reported.items():
        *tried, last = [one for one in calls if one[0] == arm]
        assert all(one[2] is tried[0][2] for one in tried)
        assert last[2] is queries
        # Three queries a face, in the order of the faces, in both sets, from different draws.
        for one in (tried[0][2], queries):
            assert one.shape == (300, stored.shape[1])
            assert (one == 0.0).mean() == pytest.approx(12 / 25, abs=0.02)
            seen = np.where(one == 0.0, np.nan, one - np.tile(stored, (3, 1)))
            assert np.nanstd(seen) == pytest.approx(pictures.NOISE * stored.std(), rel=0.05)
        assert not np.array_equal(tried[0][2], queries)
        assert len({one[3] for one in tried}) == len(tried)
        assert numbers == max((one[3] for one in tried), key=lambda n: recalled(arm, 0, 0, *n))


def test_the_strongest_control_is_that_of_the_lowest_end(monkeypatch):
    """Not of the lowest mean; what interacts itself or stores more is none."""
    noise = np.random.default_rng(0).standard_normal(10)
    given = {"interacting": 0 * noise, "steady": 0.1 + 0.01 * noise, "wide": noise}
    given |= {"directed": 9 + noise, "more patterns": 9 + noise}
    monkeypatch.setattr(results, "scores", lambda task: given)
    name, gains = results.over_equals("recall")
    assert name == "wide"
    np.testing.assert_array_equal(gains, -noise)


@pytest.mark.parametrize("kappa", [-0.4, 0.3, 1.4])
def test_eigenvalues_of_groups(kappa):
    stored = interacting.group_patterns(3, members=4, overlap=0.6)
    gram = (stored @ stored.T).numpy()
    joint = gram + kappa * (gram - np.diag(gram.diagonal()))
    spectrum = np.linalg.eigvalsh(joint - joint.mean())
    for value in interacting.eigenvalues(kappa, groups=3, members=4, overlap=0.6):
        assert np.abs(spectrum - value).min() < 1e-12
    np.testing.assert_allclose(gram.sum(1), 0.0, atol=1e-12)


def test_kinds_change_where_the_rest_loses_stability():
    stored = interacting.group_patterns(3, members=3, overlap=0.5)
    within, between = interacting.eigenvalues(0.4, groups=3, members=3, overlap=0.5)
    betas = [0.97 * 9 / between, 1.03 * 9 / between, 0.9 * 3 / within, 1.1 * 3 / within]
    found = interacting.kinds(stored, betas=betas, kappas=[0.4], start="mean", max_steps=20_000)
    below = found[0, ::2]
    above = found[0, 1::2]
    assert below.tolist() == [9, 3]
    assert (above < below).all()
    # From one pattern the state beside the mean is reached while the mean is still stable.
    assert interacting.kinds(stored, betas=betas[:1], kappas=[0.4], start="pattern")[0, 0] < 9


def test_chains_are_linked_and_their_ends_lie_where_they_should():
    for links in (1, 4):
        chains = draw_chains(200, links=links, seed=3)
        before = chains.tokens[..., :TAG]
        after = chains.tokens[..., TAG : 2 * TAG]
        labels = chains.tokens[..., 2 * TAG :]
        row = torch.arange(200)
        place = chains.place
        torch.testing.assert_close(before[row, place], chains.query)
        for _ in range(links):
            assert float(labels[row, place].sum()) == 0.0
            following = torch.cdist(after[row, place][:, None], before)[:, 0].argmin(-1)
            assert int((following - place).abs().max()) <= REACH
            place = following
        assert torch.equal(labels[row, place].argmax(-1), chains.label)
        assert (chains.label.bincount(minlength=LABELS) > 20).all()


@pytest.mark.parametrize(
    ("arm", "links", "numbers"),
    [
        # Sharp layers copy the label of the next token, one link a layer.
        ("tied layers", 4, {"layer link": 60.0, "sharpness": 60.0}),
        ("directed", 1, {"pair link": 20.0, "sharpness": 20.0, "pair outside": 0.0}),
        ("interacting", 1, {"pair link": 60.0, "sharpness": 10.0, "pair outside": -10.0}),
    ],
)
def test_readers_follow_a_chain_with_numbers_by_hand(arm, links, numbers):
    found = readers.first_numbers(arm, count=1)
    for name, value in (numbers | {"gain": 9.0}).items():
        found[name].fill_(value)
    assert float(readers.accuracy(arm, found, draw_chains(300, links=links, seed=5))) > 0.85


def energy(patterns, *, states, weights, couplings, beta):
    """½ ξᵀξ − pᵀXξ − ½ pᵀJp + β⁻¹ Σ_i p_i log p_i."""
    held = (weights * (states @ patterns.mT + 0.5 * (weights @ couplings))).sum(-1)
    entropy = torch.special.entr(weights).sum(-1)
    return 0.5 * states.square().sum(-1) - held - entropy / beta


def update(patterns, *, states, weights, couplings, beta, step_size=1.0):
    """One step of the weights at fixed states."""
    moved, _ = solve(
        patterns,
        queries=states,
        couplings=couplings,
        beta=beta,
        clamped=True,
        start=weights,
        step_size=step_size,
        max_steps=1,
    )
    return moved


def symmetric(size, *, seed=0):
    matrix = draw(size, size, seed=seed)
    return (matrix + matrix.T) / 2**0.5


def divergence(one, other):
    return (one * (one.log() - other.log())).sum(-1)


def test_without_couplings_it_is_attention_and_the_energy_of_the_plain_memory():
    patterns = draw(6, 4)
    queries = draw(5, 4, seed=1)
    none = torch.zeros(6, 6).double()
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
    patterns = draw(6, 4)
    states = draw(5, 4, seed=1)
    couplings = 3 * symmetric(6)
    weights = torch.softmax(draw(5, 6, seed=2), -1).requires_grad_()
    height = partial(energy, patterns, states=states, couplings=couplings, beta=1.3)
    before = height(weights=weights)
    slope = torch.autograd.grad(before.sum(), weights)[0]
    weights = weights.detach()
    before = before.detach()
    after = update(
        patterns,
        states=states,
        weights=weights,
        couplings=couplings,
        beta=1.3,
        step_size=step_size,
    )
    torch.testing.assert_close(
        after, torch.softmax(weights.log() - step_size * 1.3 * slope, -1), rtol=1e-12, atol=1e-14
    )
    moved = after - weights
    there = divergence(after, weights)
    back = divergence(weights, after)
    wanted = -(there + back) / (1.3 * step_size) + there / 1.3
    wanted = wanted - 0.5 * ((moved @ couplings) * moved).sum(-1)
    torch.testing.assert_close(height(weights=after) - before, wanted)


def test_the_safe_step_size_never_raises_the_energy_and_is_the_largest_for_two_patterns():
    for seed in range(8):
        size = 2 + seed
        beta = float(np.exp(np.random.default_rng(seed).uniform(-1, 3)))
        couplings = 2 * symmetric(size, seed=seed)
        step = safe_step_size(couplings, beta=beta)
        patterns = draw(size, 3, seed=seed + 50)
        queries = draw(20, 3, seed=seed + 90)
        for clamped in (True, False):
            weights = torch.softmax(beta * queries @ patterns.T, -1)
            energies = []
            for _ in range(200):
                states = queries if clamped else weights @ patterns
                energies.append(
                    energy(patterns, states=states, weights=weights, couplings=couplings, beta=beta)
                )
                weights = update(
                    patterns,
                    states=states,
                    weights=weights,
                    couplings=couplings,
                    beta=beta,
                    step_size=step,
                )
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
        origin = torch.zeros(1).double()
        height = partial(energy, zero, states=origin, couplings=pair, beta=6.0)
        after = update(
            zero, states=origin, weights=weights, couplings=pair, beta=6.0, step_size=step
        )
        assert (float(height(weights=after) - height(weights=weights)) > 0) is higher


@pytest.mark.parametrize("kappa", [0.3, 1.0])
def test_repelling_patterns_are_a_plain_memory_of_others(kappa):
    """Step by step, not only at rest."""
    patterns = draw(6, 4)
    gram = patterns @ patterns.T
    couplings = -kappa * (gram - torch.diag(gram.diagonal()))
    other = equivalent_patterns(patterns, couplings=couplings)
    weights = torch.softmax(draw(1, 6, seed=3), -1)
    plain = weights
    interacting = weights
    for _ in range(5):
        interacting = update(
            patterns,
            states=interacting @ patterns,
            weights=interacting,
            couplings=couplings,
            beta=2.0,
        )
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
        found, rests = solve(
            patterns, queries=query, couplings=couplings, beta=300.0, step_size=step
        )
        assert bool(rests.all())
        assert float(found.max()) == pytest.approx(largest, abs=1e-6)
    # Plain memories of any patterns: the energy at temperature zero is concave in the weights.
    for seed in range(20):
        stored = draw(8, 5, seed=seed)
        rest = continuous.retrieve(stored, queries=draw(10, 5, seed=99), beta=1e4, max_steps=2000)
        mixed = rest.attention.amax(-1) < 0.99
        assert not bool((mixed & rest.converged).any())


def test_a_query_is_judged_by_its_own_step_whatever_its_neighbors_do():
    patterns = draw(6, 4)
    couplings = 0.5 * symmetric(6)
    queries = torch.cat([3.0 * patterns[:1], 0.1 * draw(3, 4, seed=4)])
    to_rest = partial(solve, patterns, couplings=couplings, beta=1.4, tolerance=1e-4)
    both, rests = to_rest(queries=queries)
    assert bool(rests.all())
    for index, query in enumerate(queries):
        alone, _ = to_rest(queries=query[None])
        torch.testing.assert_close(both[index], alone[0], rtol=1e-10, atol=1e-12)
    # Damped, a step is small far from the rest.
    _, rests = to_rest(queries=queries, step_size=1e-5, max_steps=3)
    assert not bool(rests.any())


def test_couplings_that_leave_no_plain_memory_are_refused():
    patterns = draw(6, 4)
    centering = torch.eye(6).double() - 1.0 / 6
    values, vectors = torch.linalg.eigh(centering @ patterns @ patterns.T @ centering)
    push = -values[-1] * torch.outer(vectors[:, -1], vectors[:, -1])
    equivalent_patterns(patterns, couplings=(1 - 1e-6) * push)
    with pytest.raises(ValueError, match="negative direction"):
        equivalent_patterns(patterns, couplings=(1 + 1e-6) * push)


def test_the_open_cells_do_what_the_package_does():
    """Of a pair and of a random memory the weights at the end; which memories stay mixed."""
    cells = run_open_cells("17_interacting_patterns")
    pair = torch.eye(2, dtype=torch.float64)
    for kappa, found in cells["ends_of_pair"].items():
        given = {"couplings": kappa * (1 - pair), "beta": 6.0, "step_size": 0.2}
        start = torch.tensor([[0.7, 0.3]], dtype=torch.float64)
        wanted, rests = solve(pair, queries=pair[:1], start=start, **given)
        assert bool(rests.all())
        np.testing.assert_allclose(found, wanted[0], atol=1e-8)
    memory = torch.as_tensor(cells["random_patterns"])
    links = 2.5 * torch.as_tensor(cells["partner"])
    begin = torch.as_tensor(cells["near_first"])[None]
    size = safe_step_size(links, beta=300.0)
    assert cells["damping"] == pytest.approx(size)
    wanted, _ = solve(
        memory,
        queries=memory[:1],
        couplings=links,
        start=begin,
        beta=300.0,
        step_size=size,
        tolerance=0.0,
        max_steps=2000,
    )
    np.testing.assert_allclose(cells["weights"], wanted[0], atol=1e-6)
    assert cells["fraction_mixed"]["plain"] < 0.1
    assert cells["fraction_mixed"]["attracting"] > 0.9

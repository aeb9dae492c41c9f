from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.linear_model import Ridge

from compendium.c17_interacting_patterns import interacting, pictures, readers, results
from compendium.c17_interacting_patterns.interacting import solve
from compendium.c17_interacting_patterns.readers import LABELS, REACH, TAG, draw_chains
from compendium.common.rows import array_of
from spinformer.core.statistics import mean_interval
from spinformer.hopfield import continuous


def halves(seed, *, size=30, width=6):
    rows = np.random.default_rng(seed).standard_normal((size, width + 4)) / width**0.5
    return (rows[:, :width], rows[:, width:])


def test_methods_of_the_completion_equal_what_others_compute():
    stored, queries = halves(0), halves(1, size=5)[0]
    named = {name: method for name, (method, _) in pictures.METHODS.items()}
    keys, values, asked = (torch.as_tensor(x) for x in (*stored, queries))
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
    options = {"beta": 8.0, "step_size": 0.2, "clamped": True, "max_steps": pictures.LOOKS}
    steps, _ = solve(keys, queries=asked, couplings=-0.5 * keys @ keys.T, tolerance=0.0, **options)
    found = named["interacting"](*stored, queries, 8.0, 0.5, 0.2)
    np.testing.assert_allclose(found, steps @ values)


def test_repelling_patterns_fit_the_query_by_a_mixture():
    """κ/2 ‖q/κ − Xᵀp‖² − entropy/β on the simplex, minimised by a general method."""
    stored, query = halves(2)[0], 2 * halves(3, size=1)[0][0]

    def cost(logits):
        p = softmax(logits)
        miss = query / 0.7 - p @ stored
        return 0.35 * miss @ miss + (p * np.log(p)).sum() / 20.0

    best = softmax(minimize(cost, np.zeros(len(stored)), options={"gtol": 1e-7}).x)
    x, q = torch.as_tensor(stored), torch.as_tensor(query)[None]
    found, _ = solve(x, queries=q, couplings=-0.7 * x @ x.T, beta=20.0, clamped=True, step_size=0.1)
    np.testing.assert_allclose(found[0], best, atol=1e-4)


@pytest.mark.claim("A18b")
def test_interactions_gain_over_a_look_at_the_same_tokens():
    """From the rows of the tables; readers that only look would gain nothing."""
    for links in readers.LINKS:
        tables = [readers.HOPS.read(), *([readers.HOPS_AGAIN.read()] if links == 2 else [])]
        best = {}
        for arm, rate in product(("interacting", "dense"), readers.RATES):
            about = {"arm": arm, "links": links, "rate": rate}
            validation, test = (
                np.concatenate([array_of(table, name, "seed", **about) for table in tables])
                for name in ("validation", "test")
            )
            best[arm] = max(best.get(arm, (0.0,)), (validation.mean(), *test))
        gains = results.over_a_look(f"hops {links}")
        np.testing.assert_allclose(gains, np.subtract(*best.values())[1:])
    # The measure sees a reader without links: the window alone does not beat the look.
    hops = results.scores("hops 4")
    assert hops["window"].mean() < hops["dense"].mean()
    for task in results.TASKS:
        assert mean_interval(results.over_a_look(task))[0] > 0
    recall = results.scores("recall")
    np.testing.assert_array_equal(
        results.over_a_look("recall"), recall["interacting"] - recall["attention"]
    )


@pytest.mark.claim("A18c")
def test_fits_beat_a_look_but_not_a_regression_on_other_faces():
    """Seeds outside of the table; the regression is that of scikit-learn."""
    look, linear = [], []
    for seed in range(200, 206):
        truth, found = pictures.complete(seed, data="faces")
        error = {name: ((lower - truth) ** 2).mean() for name, lower in found.items()}
        look.append(error["attention"] - error["interacting"])
        linear.append(error["linear"] - error["interacting"])
    assert mean_interval(look)[0] > 0
    assert mean_interval(linear)[1] < 0
    for task in results.TASKS:
        assert mean_interval(results.over_equals(task)[1])[0] < 0


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
    below, above = found[0, ::2], found[0, 1::2]
    assert below.tolist() == [9, 3]
    assert (above < below).all()
    # From one pattern the state beside the mean is reached while the mean is still stable.
    assert interacting.kinds(stored, betas=betas[:1], kappas=[0.4], start="pattern")[0, 0] < 9


def test_chains_are_linked_and_their_ends_lie_where_they_should():
    for links in (1, 4):
        chains = draw_chains(200, links=links, seed=3)
        before, after = chains.tokens[..., :TAG], chains.tokens[..., TAG : 2 * TAG]
        labels = chains.tokens[..., 2 * TAG :]
        row, place = torch.arange(200), chains.place
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

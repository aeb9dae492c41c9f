"""Learning through the limit: the tasks, the tables, and what their claims rest on."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from compendium.c36_learning_through_the_limit.differentiable import torch_trajectory
from compendium.c36_learning_through_the_limit.horizons import (
    GROWTH,
    SHARE_SIZES,
    SHARES_LEFT,
    gradient_norms,
    growth_rows,
    growth_slopes,
    lost_at,
    sampled_derivative,
    share_rows,
)
from compendium.c36_learning_through_the_limit.quality import QUALITY, quality_rows
from compendium.c36_learning_through_the_limit.tasks import (
    BYTE,
    draw_cycle,
    examples,
    tables,
    text_bytes,
)
from compendium.c36_learning_through_the_limit.training import (
    ARMS,
    LEARNING,
    SIZES,
    TUNING,
    Lessons,
    chosen,
    column,
    initial,
    learning_rows,
    losses,
    train,
)
from spinformer.core.statistics import fit_power, mean_interval
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context
from spinformer.dmft.tokens import generate, mean_path, semantic_overlaps


def _stored(table, rows, where, *, tolerance):
    """Rows computed again against those of a stored table at `where`."""
    held = table.read()
    own = np.flatnonzero(where(held))[: len(rows)]
    assert len(own) == len(rows)
    for place, row in zip(own, rows, strict=True):
        for name, value in row.items():
            if isinstance(value, str):
                assert held[name][place] == value
            else:
                assert held[name][place] == pytest.approx(value, rel=tolerance, abs=tolerance)


# --- the tasks ---------------------------------------------------------------------------------


def test_targets_follow_their_windows():
    cycle = draw_cycle(5)
    drawn = examples("cycle", seeds=[5])
    for start in range(8):
        path = torch.cat([drawn.window[0, start], drawn.targets[0, start]]).numpy()
        assert np.array_equal(path, cycle[(start + np.arange(16)) % 8])
    held = examples("bytes", seeds=[7, 8], part="test")
    assert torch.equal(held.window[0], held.window[1])
    assert float(held.window[:, :, ::2].abs().max()) == 0.0
    signs = torch.cat([held.window[0, :, 1::2, :BYTE], held.targets[0, :, 1::2]], 1).numpy()
    text = bytes(text_bytes("test"))
    for stretch in np.packbits(signs > 0, axis=-1)[..., 0]:
        assert bytes(stretch) in text
    assert torch.equal(held.targets[0, :, ::2], held.targets[0, :, 1::2])
    # In the training part every seed and every update has its own.
    first, again = (examples("bytes", seeds=[7, 8], draw=draw).targets for draw in (0, 1))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first, again)


def test_shuffled_targets_keep_their_tokens_and_lose_their_order():
    for task in ("cycle", "bytes"):
        plain = examples(task, seeds=[3]).targets[0].flatten(0, 1)
        mixed = examples(task, seeds=[3], shuffled=True).targets[0].flatten(0, 1)
        assert not torch.equal(plain, mixed)
        assert torch.equal(plain.unique(dim=0), mixed.unique(dim=0))
        assert torch.equal(plain.sum(0), mixed.sum(0))


def test_the_tables_of_bytes_are_counts():
    read = list(text_bytes("train"))
    pairs, alone = Counter(pairwise(read)), Counter(read)
    held = examples("bytes", seeds=[0], part="test")
    signs = torch.cat([held.window[0, :, 3:, :BYTE], held.targets[0, :, 1::2]], 1).numpy()
    total, count = np.zeros(2), 0
    for stretch in np.packbits(signs > 0, axis=-1)[..., 0]:
        for before, after in pairwise(stretch):
            share = (alone[after] + 0.5) / (len(read) + 128)
            follow = alone[before] - (read[-1] == before)
            total -= np.log2([share, (pairs[before, after] + 10 * share) / (follow + 10)])
            count += 1
    found = tables()
    assert [found["bytes alone"], found["bytes after a byte"]] == pytest.approx(total / count)
    assert found["bits alone"] > found["bits after a byte"] > found["bytes after a byte"]


# --- trainings ---------------------------------------------------------------------------------


def test_seeds_that_are_trained_together_do_not_touch_each_other():
    for gradient, size in (("limit", 0), ("straight", 99)):
        setting = {"task": "cycle", "gradient": gradient, "size": size, "updates": 3}
        both = train(Lessons(seeds=(4, 5), **setting))[1.0]
        alone = train(Lessons(seeds=(4,), **setting))[1.0]
        assert torch.equal(initial([4, 5])[:1], initial([4]))
        if gradient == "limit":  # draws are shared, the limit has none
            assert torch.allclose(both[0], alone[0], atol=1e-12)
        assert float((both - initial([4, 5])).abs().max()) > 0.01


def test_a_short_training_learns_the_cycle_but_not_shuffled_targets():
    setting = {"task": "cycle", "updates": 40, "seeds": (200, 201), "rate": 0.1}
    plain = losses(train(Lessons(**setting))[1.0], task="cycle", seeds=(200, 201))
    mixed = losses(train(Lessons(shuffled=True, **setting))[1.0], task="cycle", seeds=(200, 201))
    assert plain.max() < 0.7
    assert mixed.min() > 0.8


def test_bad_lessons_are_refused():
    with pytest.raises(ValueError, match="size must be 0 in the limit"):
        Lessons(task="cycle", size=99)
    with pytest.raises(ValueError, match="task"):
        Lessons(task="words")


def test_units_of_the_tables_come_out_again():
    unit = {"task": "cycle", "arm": "limit", "block": 0}
    rows = learning_rows(**unit, shares=(1 / 16,))
    _stored(
        LEARNING,
        rows,
        lambda held: (
            (held["task"] == "cycle") & (held["arm"] == "limit") & (held["share"] == 1 / 16)
        ),
        tolerance=1e-3,
    )
    _stored(
        QUALITY,
        quality_rows(0, size=3),
        lambda held: (held["seed"] == 0) & (held["size"] == 3),
        tolerance=1e-4,
    )
    _stored(
        GROWTH,
        growth_rows("chaos at 1.28", start=0, longest=16),
        lambda held: (held["motion"] == "chaos at 1.28") & (held["start"] == 0),
        tolerance=1e-2,
    )
    _stored(
        SHARES_LEFT,
        share_rows("chaos at 1.28", size=SHARE_SIZES[0], start=0)[:8],
        lambda held: (held["size"] == SHARE_SIZES[0]) & (held["start"] == 0),
        tolerance=1e-2,
    )


def test_the_chosen_rate_is_that_of_the_lowest_validation_loss():
    held = TUNING.read()
    for task in ("cycle", "bytes"):
        for arm, (_, _, several, _, shuffled) in ARMS.items():
            if shuffled:
                continue
            own = (held["task"] == task) & (held["arm"] == arm)
            assert own.sum() == 3 * len(several)
            copies, rate = chosen(task, arm=arm)
            best = own & (held["copies"] == copies) & (held["rate"] == rate)
            assert float(held["loss"][best][0]) == held["loss"][own].min()


# --- the claims --------------------------------------------------------------------------------


FRESH = (300, 301, 302)


@pytest.fixture(scope="module")
def fresh():
    """Short trainings of seeds that no table holds, with a tenth of its budget."""
    shared = {"task": "cycle", "seeds": FRESH, "updates": 32, "rate": 0.1}
    arms = {"limit": (0, 1), "straight": (9900, 1), "score": (9900, 8)}
    return {
        name: train(Lessons(gradient=name, size=size, copies=copies, **shared))[1.0]
        for name, (size, copies) in arms.items()
    }


@pytest.mark.claim("C19")
def test_at_equal_work_the_limit_beats_reinforce_and_equals_straight_through(fresh):
    """Tables of ten or twenty seeds, and a replication with others and a smaller budget."""
    found = {
        name: losses(theta, task="cycle", seeds=FRESH, size=9900) for name, theta in fresh.items()
    }
    assert mean_interval(found["limit"] - found["score"])[1] < -0.1
    assert abs((found["limit"] - found["straight"]).mean()) < 0.1
    held = LEARNING.read()
    for task in ("cycle", "bytes"):
        limit, straight, score = (
            column(held, task=task, arm=arm, measure="n9900")
            for arm in ("limit", "straight, 9900", "score, 9900")
        )
        assert mean_interval(limit - score)[1] < 0.0
        assert mean_interval(limit - straight)[1] < 0.02


def _excess(held, task):
    """Loss at every N less that in the limit, (sizes, seeds), of trainings in the limit."""
    limit = column(held, task=task, arm="limit", measure="limit")
    return np.array(
        [column(held, task=task, arm="limit", measure=f"n{size}") - limit for size in SIZES]
    )


@pytest.mark.claim("C19b")
def test_what_was_trained_in_the_limit_works_at_finite_size(fresh):
    """In the tables, and in trainings of other seeds, tenfold better for ten times the bits."""
    limit = losses(fresh["limit"], task="cycle", seeds=FRESH)
    excess = [
        losses(fresh["limit"], task="cycle", seeds=FRESH, size=size, copies=100) - limit
        for size in (990, 9900)
    ]
    assert 3.0 < excess[0].mean() / excess[1].mean() < 40.0
    assert mean_interval(excess[1])[1] < 0.02
    for task in ("cycle", "bytes"):
        assert mean_interval(_excess(LEARNING.read(), task)[2])[1] < 0.02


@pytest.mark.claim("C19d")
def test_the_excess_of_the_loss_falls_faster_than_the_size_grows():
    """Unweighted powers, of seeds drawn with replacement: beyond −1.25 in most of the draws."""
    held, rng = LEARNING.read(), np.random.default_rng(0)

    def power(excess):
        return np.polyfit(np.log(SIZES), np.log(excess.mean(1)), 1)[0]

    cycle, read = _excess(held, "cycle"), _excess(held, "bytes")
    assert power(cycle) < -1.25
    assert abs(power(read) + 1.0) < 0.25
    drawn = [power(cycle[:, rng.integers(20, size=20)]) for _ in range(400)]
    assert np.mean(np.array(drawn) < -1.0) > 0.95


@pytest.mark.claim("C19c")
def test_the_gradient_grows_at_the_exponent_of_the_motion():
    network = Network.document()
    held = GROWTH.read()
    rate = lyapunov_spectrum(
        network, Context(np.full((4, 3), 0.2), 0), beta=1.28, steps=20_000, transient=2000, count=1
    ).exponents
    low, high = mean_interval(growth_slopes(held, "chaos at 1.28", first=32, last=128))
    assert low < float(rate.value[0]) < high < 2.0 * float(rate.value[0])
    low, high = mean_interval(growth_slopes(held, "periodic", first=32, last=128))
    assert high < 0.02
    assert low > -0.05


def test_gradient_norms_are_those_of_finite_differences():
    network = Network.document()
    start = Context(np.random.default_rng(0).uniform(-0.5, 0.5, (4, 3)), 1)
    found = gradient_norms(network, start, beta=1.2, horizons=(1, 5))
    slopes = np.zeros((2, 4, 3, 3))
    for place in np.ndindex(4, 3, 3):
        paths = []
        for side in (1e-6, -1e-6):
            weights = torch.tensor(network.semantic)
            weights[place] += side
            paths.append(torch_trajectory(network, start, 1.2, steps=5, semantic=weights)[:, 0])
        slopes[(slice(None), *place)] = ((paths[0] - paths[1]) / 2e-6)[[0, 4]]
    assert np.allclose(found, np.sqrt((slopes**2).sum((1, 2, 3))), rtol=1e-6)


def test_the_sampled_derivative_is_a_difference_of_sampled_means():
    network, beta, step, runs = Network.document().with_parameters(gamma=10.0), 1.2, 0.05, 20_000
    window = np.array([[0.5, -0.5, 0.2]] * 4)
    setting = {"window": window, "position": 3, "steps": 3}
    found = sampled_derivative(network, 99, beta=beta, runs=runs, seed=0, **setting)
    sides = [
        generate(
            network, 99, beta=beta + side, runs=runs, seed=1, draw_window=False, **setting
        ).tokens[:, 4:].mean(0)
        for side in (step, -step)
    ]  # fmt: skip
    wanted = semantic_overlaps(network, (sides[0] - sides[1]) / (2 * step))
    assert np.abs(found - wanted).max() < 0.03
    path = [
        mean_path(network, beta + side, window=window, steps=3, position=3)[4:]
        for side in (step, -step)
    ]
    limit = semantic_overlaps(network, (path[0] - path[1]) / (2 * step))
    assert np.abs(limit).max() > 0.05


def test_where_half_of_the_gradient_is_lost():
    held = {
        "motion": np.array(["m"] * 6),
        "size": np.full(6, 9),
        "horizon": np.array([2, 4, 6] * 2),
        "share": np.array([1.0, 0.8, 0.2, 1.0, 0.5, 0.0]),
    }
    assert lost_at(held, "m", 9) == pytest.approx(4 + 2 * 0.15 / 0.55)
    held["share"] = np.ones(6)
    assert lost_at(held, "m", 9) == float("inf")
    assert growth_slopes(
        {
            "motion": np.array(["m"] * 2),
            "start": np.zeros(2),
            "horizon": np.array([1, 3]),
            "norm": np.exp([0.0, 4.0]),
        },
        "m",
        first=1,
        last=3,
    ) == pytest.approx([2.0])


def test_variances_follow_their_powers_of_the_size():
    held = QUALITY.read()
    for estimator, power in (("straight", -1.0), ("score", 0.0), ("score, no baseline", 1.0)):
        own = (held["estimator"] == estimator) & (held["size"] >= 99)
        sizes = np.unique(held["size"][own]).astype(float)
        rows = [np.log(held["variance"][own & (held["size"] == size)]) for size in sizes]
        # The logarithm is normal over seeds; between sizes each seed is its own control.
        slopes = [np.polyfit(np.log(sizes), row, 1)[0] for row in np.array(rows).T]
        assert abs(np.mean(slopes) - power) < 0.05
    limit = (held["estimator"] == "limit") & (held["size"] < 50)
    sizes = np.unique(held["size"][limit]).astype(float)
    bias = np.array([held["bias"][limit & (held["size"] == size)].mean() for size in sizes])
    assert fit_power(sizes, values=bias, errors=0.02 * bias).slope.value < -0.4

"""Parameters given by name, batches of them, and positions mean the same in every function."""

import dataclasses
from functools import partial

import numpy as np
import pytest

from spinformer.dmft import (
    Context,
    Map,
    Network,
    attention_statistics,
    find_attractors,
    find_cycle,
    lyapunov_spectrum,
    orbit_diagram,
    period_map,
    phase_diagram,
    step,
    stroboscopic_section,
    trajectory,
)
from spinformer.dmft.attractor_continuation import continue_attractors
from spinformer.dmft.basin_boundaries import ends_apart
from spinformer.dmft.basins import (
    basin_fractions,
    basins_of_attraction,
    find_coexisting_attractors,
)
from spinformer.dmft.fingerprints import fingerprint_moments, settled_fingerprints
from spinformer.dmft.settling import settled_contexts

# A shifted Hénon map: x = 1 + c − a x² + b x at a fixed point.
HENON = Map(
    step=lambda x, a, b, c: np.array([1.0 - a * x[0] ** 2 + x[1] + c, b * x[0]]),
    dimension=2,
    parameters={"a": 0.2, "b": 0.3, "c": 0.0},
)
OTHER = {"b": 0.1, "c": 0.2}
NETWORK = Network.poclopez2024()
OTHERS = {"gamma": 60.0, "epsilon": 0.1}
START = Context(np.random.default_rng(0).uniform(-0.5, 0.5, (2, 4, 3)), 1)
FIRST = START.select(0)
BOX = np.random.default_rng(1).uniform(-0.5, 0.5, (6, 2))
SHORT = {"transient": 100, "exponent_steps": 40}


def fixed_point(a, b, c):
    """The stable one of the map."""
    x = (b - 1.0 + np.sqrt((1.0 - b) ** 2 + 4.0 * a * (1.0 + c))) / (2.0 * a)
    return np.array([[x, b * x]])


SETS = [fixed_point(0.2, **OTHER)]
OF_MAPS = {
    "basin_fractions": partial(
        basin_fractions, starts=lambda rng, n: rng.normal(size=(n, 2)), count=4, sets=SETS,
        horizon=200,
    ),
    "basins_of_attraction": partial(basins_of_attraction, starts=BOX, sets=SETS, horizon=200),
    "continue_attractors": partial(
        continue_attractors, starts=BOX, parameter="a", values=[0.45], threshold=0.5, **SHORT
    ),
    "ends_apart": partial(
        ends_apart, starts=BOX, sets=SETS, distances=[3.0, 0.1], count=6, seed=0, horizon=200
    ),
    "find_attractors": partial(find_attractors, start=BOX, kept=80, **SHORT),
    "find_cycle": partial(find_cycle, start=BOX[0], period=1),
    "fingerprint_moments": partial(fingerprint_moments, start=BOX, kept=80),
    "orbit_diagram": partial(
        orbit_diagram, start=BOX[0], parameter="a", values=[0.1, 0.2], transient=2, kept=3
    ),
    "orbit_diagram that follows": partial(
        orbit_diagram, start=BOX[0], parameter="a", values=[0.1, 0.2], transient=2, kept=3,
        follow=True,
    ),
    "phase_diagram": partial(
        phase_diagram, start=BOX[0], across=("a", [0.1, 0.2]), upwards=("b", [0.1, 0.2]), kept=80,
        **SHORT,
    ),
    "settled_fingerprints": partial(settled_fingerprints, start=BOX, kept=80, **SHORT),
}  # fmt: skip


def same(one, other):
    if isinstance(one, tuple):
        return all(map(same, one, other))
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=True))
    if isinstance(one, Context):
        return same(one.attention, other.attention) and one.position == other.position
    return one == other


@pytest.mark.parametrize("name", OF_MAPS)
def test_a_parameter_given_by_name_is_that_of_the_map(name):
    call = OF_MAPS[name]
    given = call(HENON, **OTHER) if name != "phase_diagram" else call(HENON, c=0.2)
    own = dataclasses.replace(HENON, parameters=HENON.parameters | OTHER)
    built_in = call(own)
    if name == "find_cycle":
        assert given.parameters == {"a": 0.2} | OTHER
        built_in, given = built_in.value, given.value
        np.testing.assert_allclose(given, SETS[0][0])
    assert same(given, built_in)
    assert not same(given, call(HENON) if name != "find_cycle" else call(HENON).value)


OF_NETWORKS = {
    "attention_statistics": partial(attention_statistics, steps=8, transient=3),
    "find_attractors": partial(find_attractors, kept=80, **SHORT),
    "lyapunov_spectrum": partial(lyapunov_spectrum, steps=40, count=2, align=8, transient=3),
    "period_map": partial(period_map, steps=5),
    "settled_contexts": partial(settled_contexts, relaxation=3.0),
    "step": step,
    "stroboscopic_section": partial(stroboscopic_section, count=4, transient=2),
    "trajectory": partial(trajectory, steps=6, transient=3),
}


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_a_parameter_given_by_name_is_that_of_the_network(name):
    call = OF_NETWORKS[name]
    given = call(NETWORK, START, beta=1.2, **OTHERS)
    assert same(given, call(NETWORK.with_parameters(**OTHERS), START, beta=1.2))
    for name, value in OTHERS.items():
        assert not same(given, call(NETWORK, START, beta=1.2, **OTHERS | {name: value / 2}))


@pytest.mark.parametrize("name", OF_NETWORKS)
def test_a_batch_is_its_systems_one_by_one(name):
    """Of contexts along one axis and of temperatures along another."""
    call = OF_NETWORKS[name]
    together = call(NETWORK, START, beta=np.array([[0.5], [1.2]]))
    for place in np.ndindex(2, 2):
        alone = call(NETWORK, START.select(place[1]), beta=(0.5, 1.2)[place[0]])
        for one, other in zip(parts(together), parts(alone), strict=True):
            # What is not of the batch are settings.
            if np.ndim(one):
                np.testing.assert_allclose(one[place], other, rtol=1e-6, atol=1e-9)


def parts(result):
    """The arrays with the axes of the batch in front of what a function returns."""
    if isinstance(result, tuple):
        return [part for one in result for part in parts(one)]
    if isinstance(result, Context):
        return [result.attention]
    if dataclasses.is_dataclass(result):
        fields = [getattr(result, field.name) for field in dataclasses.fields(result)]
        return [part for one in fields for part in parts(one)]
    return [np.asarray(result)] if isinstance(result, np.ndarray | np.generic | float | int) else []


def test_a_start_at_any_position_ends_where_plain_steps_take_it():
    """Magnetization of either sign, driven: sets are those of position 0, moments those of each."""
    position = np.array([1.0, 0.5, 0.2, -0.3]).reshape(4, 1, 1)
    driven = Network(
        semantic=np.ones((4, 1, 1)), position=position, context=2, gamma=3.0, epsilon=0.2
    )
    starts = np.array([[[0.4], [0.6]], [[-0.4], [-0.6]]])
    _, settled = trajectory(driven, Context(starts, 0), beta=2.0, steps=0, transient=200)
    sets = list(settled.attention.reshape(2, 1, 2))
    found = find_coexisting_attractors(
        driven, Context(starts, 1), beta=2.0, transient=201, exponent_steps=100
    )
    assert found.labels == ["periodic 2", "periodic 2"]
    np.testing.assert_allclose(np.sort(found.sets, axis=0), np.sort(sets, axis=0), atol=1e-9)
    moments = fingerprint_moments(driven, settled, beta=2.0)[0]
    for position in (0, 1):
        begin = Context(starts, position)
        ends = basins_of_attraction(driven, begin, sets=sets, beta=2.0, horizon=400)
        assert ends.tolist() == [0, 1]
        _, begin = trajectory(driven, begin, beta=2.0, steps=0, transient=200)
        there = fingerprint_moments(driven, begin, beta=2.0)[0]
        np.testing.assert_allclose(there, moments, atol=1e-9)
        # Without a weight the positions are names only.
        plain = fingerprint_moments(driven, begin, beta=2.0, epsilon=0.0)[0]
        np.testing.assert_array_equal(plain[:, 0], plain[:, 1])
    # Farther apart than what counts as on a set.
    assert np.abs(moments[:, 0] - moments[:, 1]).max() > 5e-4

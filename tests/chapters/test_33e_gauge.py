"""Gauge of networks against the dynamics itself, and counts against enumeration."""

from dataclasses import replace
from itertools import permutations, product

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from compendium.common.gauge import canonical_code, canonical_form, count_networks, random_gauge
from spinformer.dmft.mean_field import step
from spinformer.dmft.network import Context, Network


def fingerprint(network):
    """What no relabeling of fields or clock can change: sums over all images of one start."""
    total = np.zeros(12)
    start = np.array([[0.9, 0.4, -0.6], [-0.2, 0.7, 0.3]])[:, : network.features]
    patterns, readout = network.output_patterns()
    seen = readout[1:].any(axis=(0, 1))
    for order in permutations(range(network.features)):
        for signs in product((1.0, -1.0), repeat=network.features):
            for position in range(network.positions):
                # Attention vectors along an orbit of the plain reference.
                context = Context(start[:, list(order)] * signs, position)
                vectors = []
                for _ in range(6):
                    vectors.append(context.attention[0])
                    context, _ = step(network, context, 1.7)
                fields = np.array(vectors) @ patterns[seen].T
                total += np.concatenate([(fields**2).sum(axis=1), (fields**4).sum(axis=1)])
    return tuple(np.round(total, 8))


def gauges(semantic, position):
    """Weights after each of the changes that generate all gauges; W^{o,pos} is left out."""
    _, features, segments = semantic.shape
    for sign in 1 - 2 * np.eye(segments, dtype=int):
        yield semantic * sign, position
    if segments > 1:
        yield np.roll(semantic, 1, axis=2), position
        yield semantic[:, :, [1, 0, *range(2, segments)]], position
    for roles, marks in (([0, 1], [0]), ([2, 3], [1, 2])):
        one, two = semantic.copy(), position.copy()
        one[roles, 0] *= -1
        two[marks, 0] *= -1
        yield one, two
        if features > 1:
            one, two = semantic.copy(), position.copy()
            one[roles], two[marks] = one[roles][:, ::-1], two[marks][:, ::-1]
            yield one, two
    if position.shape[2]:
        yield semantic, np.concatenate([-position[..., :1], position[..., 1:]], axis=2)


def orbits(features, segments, bits):
    """One network of each orbit, by enumeration."""
    size = 4 * features * segments
    width = size + 3 * features * bits
    # All signs of a network as rows of integers; a gauge moves numbered places and turns signs.
    signs = 1 - 2 * ((np.arange(2**width)[:, None] >> np.arange(width)) & 1)
    place = 1 + np.arange(width)
    semantic = place[:size].reshape(4, features, segments)
    position = place[size:].reshape(3, features, bits)
    start, graph = np.arange(2**width), 0
    for one, two in gauges(semantic, position):
        moved = np.concatenate([one.ravel(), two.ravel()])
        image = signs[:, np.abs(moved) - 1] * np.sign(moved)
        end = (1 - image) // 2 @ (1 << np.arange(width))
        graph = graph + coo_array((np.ones(2**width), (start, end)), (2**width, 2**width))
    _, label = connected_components(graph, directed=False)
    for row in signs[np.unique(label, return_index=True)[1]]:
        position = np.append(np.ones(features * bits), row[size:])
        yield Network(
            semantic=row[:size].reshape(4, features, segments),
            position=position.reshape(4, features, bits),
            context=2,
            gamma=2.0,
            epsilon=0.3 if bits else 0.0,
        )


@pytest.mark.parametrize(
    "sizes",
    [
        *((1, 1, 0), (1, 1, 1), (1, 2, 1)),
        *(pytest.param(sizes, marks=pytest.mark.nightly) for sizes in [(2, 1, 1), (2, 2, 0)]),
    ],
)
def test_counts_and_forms_against_enumeration(sizes):
    features, segments, bits = sizes
    found = list(orbits(features, segments, bits))
    assert len(found) == count_networks(features=features, segments=segments, bits=bits)
    forms = [canonical_form(network) for network in found]
    prints = [fingerprint(network) for network in found]
    # Networks of one form move alike (where anything moves), and few others do.
    pairs = {pair for pair in zip(forms, prints, strict=True) if len(pair[0]) > 1}
    assert len(pairs) == len({form for form, _ in pairs})
    assert 0.7 * len(pairs) < len({motion for _, motion in pairs})


@pytest.mark.parametrize("sizes", [(3, 3, 2), (2, 5, 1), (4, 3, 3), (6, 16, 3), (3, 4, 0)])
def test_a_gauge_changes_neither_code_nor_motion(sizes):
    features, segments, bits = sizes
    for seed in range(6):
        own = {"bits": bits, "epsilon": 0.1 if bits else 0.0, "context": 2, "gamma": 3.0}
        network = Network.segmented(seed, features=features, segments=segments, **own)
        other = random_gauge(network, seed + 1)
        assert canonical_code(other) == canonical_code(network)
        if features < 4 and seed == 0:
            assert fingerprint(other) == pytest.approx(fingerprint(network))
        # One sign more or less is another network.
        semantic = network.semantic.copy()
        semantic[seed % 4, 0, 0] *= -1
        assert canonical_code(replace(network, semantic=semantic)) != canonical_code(network)


def test_the_documents_size():
    assert count_networks(features=3, segments=3, bits=2) == 84_032_999_680


def test_nearly_equal_averages_are_told_apart():
    network = Network.segmented(0, features=2, segments=2, bits=1)
    near = replace(network, fractions=np.array([0.501, 0.499]))
    assert canonical_code(near) != canonical_code(network)

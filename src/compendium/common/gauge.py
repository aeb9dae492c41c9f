"""Which networks are the same up to relabeling, and how many different ones there are.

The changes that leave the mean field [poclopez2024dynamical, Eqs. (13)-(16)] as it is, listed in
chapter 33e, are the gauge: B_L × B_P × B_P × Z_2 for L equal segments, P features of attention, P
of scores and at least one position bit, with B_n the signed permutations of n things.

A form that no gauge changes: bits with equal output signs (up to one sign for all) have equal
fields h_u = Σ_b W^o_{b,u} A_b, and of their other weights only the averages m^α_u enter
(`Network.output_patterns`), and only through

    V = W^{o⊤} [m^v, W^{v,pos}]  (U × (U + K)) ,
    S = [m^q, W^{q,pos}]^⊤ [m^k, W^{k,pos}]  ((U + K) × (U + K)) .

What is left are signs and order of the fields, and the half period; `canonical_form` is the first,
in the order of tuples, of all forms that these give. Networks of one form move alike, and of others
a few: if V = 0, say, nothing moves, whatever S is.
"""

import hashlib
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import gcd

import numpy as np

from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network

# Averages over segments are told apart to so many digits.
_DIGITS = 9

# Fields in the order chosen so far, each with its sign.
Chosen = tuple[tuple[int, float], ...]
# The cycles of a signed permutation, in order, as (length, sign).
Kind = tuple[tuple[int, int], ...]


def random_gauge(network: Network, seed: Seed) -> Network:
    """The same network in another gauge, drawn at random."""
    rng = numpy_generator(seed)
    features = network.features
    segments = network.segments
    bits = network.bits
    place = rng.permutation(segments)
    semantic = network.semantic[:, :, place] * rng.choice((-1.0, 1.0), segments)
    position = network.position.copy()
    for roles in ([OUTPUT, VALUE], [QUERY, KEY]):
        order = rng.permutation(features)
        sign = rng.choice((-1.0, 1.0), features)[:, None]
        semantic[roles] = semantic[roles][:, order] * sign
        position[roles] = position[roles][:, order] * sign
    position[OUTPUT] = rng.choice((-1.0, 1.0), (features, bits))
    if bits:
        # The leading bit is the first of a code.
        position[:, :, 0] *= rng.choice((-1.0, 1.0))
    fractions = network.fractions[place]
    return replace(network, semantic=semantic, position=position, fractions=fractions)


def canonical_form(network: Network) -> tuple[tuple[float, ...], ...]:
    """One form for all gauges of a network: equal if and only if V and S are, up to the gauge.

    The first row holds the scores of positions with positions; then come the fields: the entries of
    V and S of each with the positions, then those with itself and with the fields before. Field
    after field is chosen so that its row is the smallest possible; all choices that tie are kept.
    """
    return min(_form(network, flip) for flip in ((1.0, -1.0) if network.bits else (1.0,)))


def canonical_code(network: Network) -> str:
    """Twelve hexadecimal digits of a hash of the sizes and the canonical form."""
    text = repr(((network.features, network.bits), canonical_form(network)))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _form(network: Network, flip: float) -> tuple[tuple[float, ...], ...]:
    """The smallest form at one sign of the leading position bit."""
    patterns, readout = network.output_patterns()
    position = network.position.copy()
    position[:, :, :1] *= flip
    weights = np.concatenate([readout, position], axis=-1)
    value = weights[VALUE]
    query = weights[QUERY]
    key = weights[KEY]
    # Averages over segments are rounded; no −0 in a tuple that is hashed.
    values = np.round(patterns @ value, _DIGITS) + 0.0
    scores = np.round(query.T @ key, _DIGITS) + 0.0
    count = len(patterns)
    seen = values[:, :count].any(0) | scores[:count].any(1) | scores[:, :count].any(0)

    def row(u: int, s: float, before: Chosen) -> tuple[float, ...]:
        found = [s * values[u, count:], s * scores[u, count:], s * scores[count:, u]]
        for k, t in (*before, (u, s)):
            mutual = [values[u, k], values[k, u], scores[u, k], scores[k, u]]
            found.append(s * t * np.array(mutual))
        return tuple((np.concatenate(found) + 0.0).tolist())

    ties: list[Chosen] = [()]
    form = [tuple(scores[count:, count:].ravel().tolist())]
    for _ in range(int(seen.sum())):
        rows = {
            (*before, (u, s)): row(u, s, before)
            for before in ties
            for u in set(np.flatnonzero(seen).tolist()) - {k for k, _ in before}
            for s in (1.0, -1.0)
        }
        smallest = min(rows.values())
        form.append(smallest)
        ties = [chosen for chosen, found in rows.items() if found == smallest]
    return tuple(form)


def count_networks(*, features: int, segments: int, bits: int) -> int:
    """How many networks of L equal segments there are that no gauge turns into each other.

    By Burnside's lemma: the mean over the gauge group of how many networks an element leaves.
    """
    flips = (1, -1) if bits else (1,)
    codes = [tuple((1, 1 if bit else flip) for bit in range(bits)) for flip in flips]
    total = Fraction(0)
    kinds = _classes(segments).items()
    for (one, many_one), (two, many_two) in product(_classes(features).items(), repeat=2):
        # The features of o and v carry `one`, those of q and k `two`.
        semantic = sum(many * (_kept(one, kind) * _kept(two, kind)) ** 2 for kind, many in kinds)
        positional = sum(_kept(one, code) * _kept(two, code) ** 2 for code in codes)
        total += many_one * many_two * semantic * Fraction(positional, len(codes))
    return int(total)


def _kept(one: Kind, two: Kind) -> int:
    """How many signs W_{a,l} an element leaves as they are: 2^c, c its cycles, or none."""
    total = 0
    for (m, s), (n, t) in product(one, two):
        both = gcd(m, n)
        if s ** (n // both) * t ** (m // both) < 0:
            return 0
        total += both
    return 2**total


@cache
def _classes(size: int) -> dict[Kind, Fraction]:
    """Conjugacy classes of the signed permutations of `size` things, with their share."""
    if size == 0:
        return {(): Fraction(1)}
    found: dict[Kind, Fraction] = defaultdict(Fraction)
    # The cycle that holds the first thing has any length and sign with equal chance.
    for length, sign in product(range(1, size + 1), (1, -1)):
        for rest, share in _classes(size - length).items():
            found[tuple(sorted((*rest, (length, sign))))] += share / (2 * size)
    return found

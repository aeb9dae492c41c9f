"""Compiled sweeps of the discrete memories; `reference` spells them out.

All work in place on `spins`, (Q, d) int8, and visit the spins in `order`. A field of zero leaves
a spin as it is; an unknown spin (0) becomes +1.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from spinformer.hopfield.separation import Tables

# 2^−k: weights of entries k doublings below the largest; what is further down does not count.
_DOUBLINGS = 1100
_HALVES = 0.5 ** np.arange(_DOUBLINGS)


@njit(nogil=True, cache=True)
def sweep_couplings(
    weights: np.ndarray, spins: np.ndarray, field: np.ndarray, order: np.ndarray
) -> np.ndarray:
    """One sweep at a cost of d per flip: `field` (Q, d) is kept up to date. Returns flips (Q,)."""
    count, d = spins.shape
    flips = np.zeros(count, dtype=np.int64)
    for q in range(count):
        for i in order:
            old = spins[q, i]
            new = _turned(field[q, i], old)
            if new != old:
                step = weights.dtype.type(new - old)
                row = weights[i]
                for j in range(d):
                    field[q, j] += step * row[j]
                spins[q, i] = new
                flips[q] += 1
    return flips


@njit(nogil=True, cache=True)
def sweep_overlaps(
    bits: np.ndarray,
    spins: np.ndarray,
    products: np.ndarray,
    order: np.ndarray,
    tables: Tables,
    bias: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """One sweep at a cost of N per visit, for any separation function.

    bits: (d, N) int8, patterns transposed. products: (Q, N) x_μ·ξ, kept up to date. tables: see
    `separation.Tables`. Returns (flips, rises), both (Q,): rises are flips of a known spin after
    which the energy, summed anew over all patterns, was higher.
    """
    count, d = spins.shape
    flips = np.zeros(count, dtype=np.int64)
    rises = np.zeros(count, dtype=np.int64)
    counts = np.zeros(2 * d + 1, dtype=np.int64)
    biased = bias.any()
    for q in range(count):
        product = products[q]
        for i in order:
            old = spins[q, i]
            own = np.int8(0) if tables.gradient else old
            if tables.exact:
                field = _plain_field(bits[i], product, own, tables.gain, d)
            else:
                field, power = _counted_field(bits[i], product, own, tables, counts)
                if biased:
                    field *= 2.0**power
            if biased:
                field -= bias[i]
            new = _turned(field, old)
            if new == old:
                continue
            flips[q] += 1
            spins[q, i] = new
            rise, scale, power = _turn(bits[i], product, new - old, tables)
            if biased:
                rise = rise * 2.0**power + (new - old) * bias[i]
                scale *= 2.0**power
            if old != 0 and rise > 1e-13 * scale:
                rises[q] += 1
    return flips, rises


@njit(nogil=True, cache=True)
def log_sums(products: np.ndarray, tables: Tables) -> np.ndarray:
    """ln Σ_μ F(x_μ·ξ) of each row of products (Q, N), where the sum is positive."""
    found = np.empty(products.shape[0])
    for q in range(products.shape[0]):
        value, _, power = total(products[q], tables)
        found[q] = np.log(value) + power * np.log(2.0)
    return found


@njit(nogil=True, cache=True)
def total(product: np.ndarray, tables: Tables) -> tuple[float, float, int]:
    """Σ_μ F as (sum, sum of magnitudes, power of two that multiplies both)."""
    zero = (tables.value.size - 1) // 2
    value, scale = 0.0, 0.0
    if tables.exact:
        for mu in range(product.size):
            entry = tables.value[product[mu] + zero]
            value += entry
            scale += abs(entry)
        return value, scale, 0
    top = -(2**62)
    for mu in range(product.size):
        k = product[mu] + zero
        if tables.value[k] != 0.0:
            top = max(top, tables.value_power[k])
    for mu in range(product.size):
        k = product[mu] + zero
        below = top - tables.value_power[k]
        if tables.value[k] != 0.0 and below < _DOUBLINGS:
            entry = tables.value[k] * _HALVES[below]
            value += entry
            scale += abs(entry)
    return value, scale, top if scale > 0.0 else 0


@njit(nogil=True, cache=True)
def _turn(
    bit: np.ndarray, product: np.ndarray, change: int, tables: Tables
) -> tuple[float, float, int]:
    """Move `product` on by a flip; what −Σ_μ F gains by it, Σ_μ |F| before, and the power of two
    that multiplies both."""
    rise, scale = 0.0, 0.0
    if tables.exact:
        zero = (tables.value.size - 1) // 2
        for mu in range(product.size):
            here = product[mu]
            there = here + bit[mu] * change
            product[mu] = there
            before = tables.value[here + zero]
            rise += before - tables.value[there + zero]
            scale += abs(before)
        return rise, scale, 0
    before, scale, low = total(product, tables)
    for mu in range(product.size):
        product[mu] += bit[mu] * change
    after, _, high = total(product, tables)
    top = max(low, high)
    down, up = 2.0 ** (low - top), 2.0 ** (high - top)
    return before * down - after * up, scale * down, top


@njit(nogil=True, cache=True)
def _plain_field(
    bit: np.ndarray, product: np.ndarray, own: np.int8, gain: np.ndarray, zero: int
) -> float:
    field = 0.0
    for mu in range(product.size):
        field += gain[product[mu] - bit[mu] * own + zero] * bit[mu]
    return field


@njit(nogil=True, cache=True)
def _counted_field(
    bit: np.ndarray, product: np.ndarray, own: np.int8, tables: Tables, counts: np.ndarray
) -> tuple[float, int]:
    """Σ_μ gain · x_μi as (sum, power of two); `counts` is scratch, zero before and after.

    Patterns are counted by the rank of their gain before the gains are summed, largest first.
    """
    zero = (counts.size - 1) // 2
    low, high = counts.size - 1, 0
    if tables.rank.size == 0:
        for mu in range(product.size):
            place = zero - product[mu] + bit[mu] * own
            counts[place] += bit[mu]
            low, high = min(low, place), max(high, place)
    else:
        for mu in range(product.size):
            place = tables.rank[zero - product[mu] + bit[mu] * own]
            counts[place] += bit[mu]
            low, high = min(low, place), max(high, place)
    first = low
    while first < high and counts[first] == 0:
        first += 1
    top = tables.gain_power[first]
    field = 0.0
    for place in range(first, high + 1):
        weight = _HALVES[min(top - tables.gain_power[place], _DOUBLINGS - 1)]
        # All that is left is below the last digit of the sum.
        if product.size * weight < 1e-17 * abs(field):
            break
        field += counts[place] * tables.gain[place] * weight
    counts[low : high + 1] = 0
    return field, top


@njit(nogil=True, cache=True)
def _turned(field: float, old: np.int8) -> np.int8:
    if field > 0:
        return np.int8(1)
    if field < 0:
        return np.int8(-1)
    return np.int8(1) if old == 0 else old

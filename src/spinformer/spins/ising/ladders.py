"""The compiled loop of `tempering`: blocks of spins first among themselves, then told to all.

A visit needs the local field of one spin. A turn of spin i adds 2 s_i J_ij to the fields of all N
spins j, but those beyond the next few are not asked for some time. So spins are taken in blocks.
Within a block the fields of the block are brought up to date at once; then the turns of the whole
block go to all N fields of each replica together, in panels of columns whose fields stay in
registers for all turns and whose couplings stay in the nearest memory for all replicas. Both steps
use vector instructions: of sixteen replicas that visit a spin at once, and of sixteen columns. All
sums are exact (`tempering.exact_sums`), hence the order in which they are taken does not show.

The heat bath turns spin i up if u (1 + exp(−2βh)) < 1, that is, if 2βh exceeds ln u/(1 − u). A
table holds this logarithm at the edges of 1,024 cells of u: only where 2βh falls between the two
edges of the cell of u, once in 1,024 visits, is the exponential taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_LANES, _BLOCK, _COLUMNS, _CELLS = 16, 32, 128, 1024
_EDGES = np.arange(1, _CELLS) / _CELLS
_LOGITS = np.concatenate([[-np.inf], np.log(_EDGES / (1.0 - _EDGES)), [np.inf]])
# Wider by more than single precision errs in 2βh.
_LOW = (_LOGITS[:-1] - 1e-5 * (1.0 + np.abs(_LOGITS[:-1]))).astype(np.float32)
_HIGH = (_LOGITS[1:] + 1e-5 * (1.0 + np.abs(_LOGITS[1:]))).astype(np.float32)

# Operations on all lanes at once, written for the compiler: it finds them in plain loops only where
# it can prove that no two arrays overlap. A processor without registers so wide takes several.
_FLOATS = ir.VectorType(ir.FloatType(), _LANES)
_DOUBLES = ir.VectorType(ir.DoubleType(), _LANES)


def _instruction(make: Callable[..., Any]) -> Any:
    """`intrinsic`, whose types forget that callers do not give the first argument."""
    return intrinsic(make)


def _lanes(context: Any, builder: Any, kind: Any, array: Any, row: Any, vector: Any) -> Any:
    """Pointer to all lanes of a row of an array (rows, lanes)."""
    data = context.make_array(kind)(context, builder, array).data
    start = builder.mul(row, ir.Constant(row.type, _LANES))
    return builder.bitcast(builder.gep(data, [start]), vector.as_pointer())


def _spread(builder: Any, value: Any) -> Any:
    """One number in all lanes."""
    empty = ir.Constant(_FLOATS, ir.Undefined)
    first = builder.insert_element(empty, value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), _LANES), [0] * _LANES)
    return builder.shuffle_vector(first, empty, zeros)


@_instruction
def _decide(
    typing: Any, twice: Any, near: Any, low: Any, high: Any, own: Any, turns: Any, row: Any
) -> Any:
    """Turn the spins of a row up or down, all lanes at once; whether any is not decided."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds, row = signature.args, args[6]
        places = [
            _lanes(context, builder, kinds[n], args[n], row if n else row.type(0), _FLOATS)
            for n in range(6)
        ]
        factor, field, bottom, top, old = (builder.load(p, align=4) for p in places[:5])
        scaled = builder.fmul(factor, field)
        up = builder.fcmp_ordered(">", scaled, top)
        one, minus = (ir.Constant(_FLOATS, [x] * _LANES) for x in (1.0, -1.0))
        new = builder.select(up, one, minus)
        builder.store(builder.fsub(new, old), places[5], align=4)
        builder.store(new, places[4], align=4)
        above = builder.fcmp_ordered(">=", scaled, bottom)
        unsure = builder.bitcast(builder.xor(above, up), ir.IntType(_LANES))
        return builder.icmp_unsigned("!=", unsure, unsure.type(0))

    return types.boolean(twice, near, low, high, own, turns, row), generate


@_instruction
def _push(typing: Any, near: Any, later: Any, weight: Any, turns: Any, row: Any) -> Any:
    """near[later] += weight · turns[row], all lanes at once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args
        place = _lanes(context, builder, kinds[0], args[0], args[1], _FLOATS)
        turn = builder.load(_lanes(context, builder, kinds[3], args[3], args[4], _FLOATS), align=4)
        more = builder.fmul(_spread(builder, args[2]), turn, flags=("contract",))
        total = builder.fadd(builder.load(place, align=4), more, flags=("contract",))
        builder.store(total, place, align=4)
        return context.get_dummy_value()

    return types.none(near, later, weight, turns, row), generate


@_instruction
def _lose(typing: Any, lost: Any, near: Any, turns: Any, row: Any) -> Any:
    """lost += turns[row] · near[row] in double precision, all lanes at once."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds, row = signature.args, args[3]
        place = _lanes(context, builder, kinds[0], args[0], row.type(0), _DOUBLES)
        field, turn = (
            builder.fpext(
                builder.load(_lanes(context, builder, kinds[n], args[n], row, _FLOATS), align=4),
                _DOUBLES,
            )
            for n in (1, 2)
        )
        more = builder.fmul(field, turn, flags=("contract",))
        total = builder.fadd(builder.load(place, align=8), more, flags=("contract",))
        builder.store(total, place, align=8)
        return context.get_dummy_value()

    return types.none(lost, near, turns, row), generate


@_instruction
def _add_rows(typing: Any, fields: Any, matrix: Any, turned: Any, change: Any, count: Any) -> Any:
    """fields += Σ_n change[n] matrix[turned[n]], the fields in registers all along."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds, count = signature.args, args[4]
        data = [context.make_array(kinds[n])(context, builder, args[n]).data for n in range(4)]
        width = ir.Constant(count.type, _COLUMNS)

        def place(start: Any, part: int) -> Any:
            at = builder.gep(start, [ir.Constant(count.type, part * _LANES)])
            return builder.bitcast(at, _FLOATS.as_pointer())

        parts = range(_COLUMNS // _LANES)
        totals = [cgutils.alloca_once(builder, _FLOATS) for _ in parts]
        for part in parts:
            builder.store(builder.load(place(data[0], part), align=4), totals[part])
        with cgutils.for_range(builder, count) as loop:
            row = builder.load(builder.gep(data[2], [loop.index]))
            start = builder.gep(data[1], [builder.mul(row, width)])
            spread = _spread(builder, builder.load(builder.gep(data[3], [loop.index])))
            for part in parts:
                more = builder.fmul(
                    spread, builder.load(place(start, part), align=4), flags=("contract",)
                )
                total = builder.fadd(builder.load(totals[part]), more, flags=("contract",))
                builder.store(total, totals[part])
        for part in parts:
            builder.store(builder.load(totals[part]), place(data[0], part), align=4)
        return context.get_dummy_value()

    return types.none(fields, matrix, turned, change, count), generate


def run_ladders(
    matrix: np.ndarray,
    *,
    field: np.ndarray,
    betas: np.ndarray,
    spins: np.ndarray,
    burn: int,
    sweeps: int,
    every: int,
    first: np.random.Generator,
    second: np.random.Generator,
    split: int,
    states: np.ndarray,
    sums: np.ndarray,
    energies: np.ndarray,
    swaps: np.ndarray,
) -> None:
    """Ladders of `tempering.tempered_chains`; what it finds is written to the last four arrays.

    spins (C·K, N) float32: where copy c at temperature k starts, in row c K + k. The copies before
    `split` draw from `first`, the others from `second`.

    >>> rng, sums = np.random.default_rng(0), np.zeros((1, 1, 1))
    >>> run_ladders(
    ...     np.zeros((1, 1), np.float32), field=np.ones(1, np.float32), betas=np.ones(1),
    ...     spins=np.ones((1, 1), np.float32), burn=0, sweeps=500, every=500, first=rng,
    ...     second=rng, split=1, states=np.zeros((1, 1, 1, 1), np.int8), sums=sums,
    ...     energies=np.zeros((1, 1)), swaps=np.zeros((1, 2, 1)),
    ... )
    >>> bool(abs(sums[0, 0, 0] / 500 - np.tanh(1.0)) < 0.15)
    True
    """
    size = len(field)
    local = spins @ matrix + field
    energy = -0.5 * np.einsum("ri,ri->r", spins.astype(float), local.astype(float) + field)
    # Columns in panels, the last one filled up with zeros.
    panels = -(-size // _COLUMNS)
    split_matrix, split_local = (_aligned((panels, len(a), _COLUMNS)) for a in (matrix, local))
    for panel in range(panels):
        part = slice(panel * _COLUMNS, (panel + 1) * _COLUMNS)
        for split_array, array in ((split_matrix, matrix), (split_local, local)):
            split_array[panel, :, : len(array[0, part])] = array[:, part]
    _run(
        split_matrix, split_local, betas, spins, energy, burn, sweeps, every, first, second, split,
        states, sums, energies, swaps,
    )  # fmt: skip


def _aligned(shape: tuple[int, ...]) -> np.ndarray:
    """Zeros in float32 that start where a line of the processor's memory does."""
    room = np.zeros(math.prod(shape) + 16, np.float32)
    offset = -room.ctypes.data % 64 // 4
    return room[offset : offset + math.prod(shape)].reshape(shape)


@njit(nogil=True, cache=True)
def _run(
    matrix: np.ndarray,
    local: np.ndarray,
    betas: np.ndarray,
    spins: np.ndarray,
    energy: np.ndarray,
    burn: int,
    sweeps: int,
    every: int,
    first: np.random.Generator,
    second: np.random.Generator,
    split: int,
    states: np.ndarray,
    sums: np.ndarray,
    energies: np.ndarray,
    swaps: np.ndarray,
) -> None:
    """`run_ladders` with couplings (panels, N, columns), fields and energies (C·K) of the start."""
    rows, size = spins.shape
    rungs = len(betas)
    copies, packs = rows // rungs, -(-rows // _LANES)
    # place[c, k]: the row at the k-th temperature, so that an exchange moves no spins.
    place = np.arange(rows).reshape(copies, rungs)
    beta = np.zeros((packs, _LANES))
    # What happens in lanes without a replica is not looked at.
    low = np.ones((packs, _BLOCK, _LANES), np.float32)
    high = np.ones((packs, _BLOCK, _LANES), np.float32)
    draws = np.ones((packs, _BLOCK, _LANES))
    near = np.zeros((_BLOCK, _LANES), np.float32)
    own = np.ones((_BLOCK, _LANES), np.float32)
    turns = np.zeros((_BLOCK, _LANES), np.float32)
    pulls = np.zeros((_BLOCK, _BLOCK), np.float32)
    lost = np.zeros(_LANES)
    counts = np.zeros(rows, np.int64)
    turned = np.zeros((rows, _BLOCK + 1), np.uint64)
    change = np.zeros((rows, _BLOCK + 1), np.float32)
    for step in range(burn + sweeps):
        for c in range(copies):
            for k in range(rungs):
                row = place[c, k]
                beta[row // _LANES, row % _LANES] = betas[k]
        for start in range(0, size, _BLOCK):
            count = min(_BLOCK, size - start)
            panel, inside = start // _COLUMNS, start % _COLUMNS
            _draw(count, place[:split], first, draws, low, high)
            _draw(count, place[split:], second, draws, low, high)
            for b in range(count):
                pulls[b] = matrix[panel, start + b, inside : inside + _BLOCK]
            for pack in range(packs):
                base = pack * _LANES
                lanes = min(_LANES, rows - base)
                for lane in range(lanes):
                    fields, mine = local[panel, base + lane], spins[base + lane]
                    for b in range(count):
                        near[b, lane] = fields[inside + b]
                        own[b, lane] = mine[start + b]
                lost[:] = 0.0
                _visit(
                    count, pulls, beta[pack], draws[pack], low[pack], high[pack], near, own,
                    turns, lost,
                )  # fmt: skip
                for lane in range(lanes):
                    row = base + lane
                    energy[row] -= lost[lane]
                    mine, who, by = spins[row], turned[row], change[row]
                    number = np.uint64(0)
                    for b in range(count):
                        turn = turns[b, lane]
                        mine[start + b] = own[b, lane]
                        who[number] = start + b
                        by[number] = turn
                        number += np.uint64(turn != 0.0)
                    counts[row] = number
            _tell(matrix, counts, turned, change, local)
        # The energies are exact, too: what each turn gained, in double precision.
        for c in range(copies):
            rng = first if c < split else second
            for k in range(step % 2, rungs - 1, 2):
                warm, cold = place[c, k], place[c, k + 1]
                gain = (betas[k + 1] - betas[k]) * (energy[cold] - energy[warm])
                swaps[c, 0, k] += 1
                if gain >= 0.0 or rng.standard_exponential() > -gain:
                    place[c, k], place[c, k + 1] = cold, warm
                    swaps[c, 1, k] += 1
            if step >= burn:
                for k in range(rungs):
                    mine, total = spins[place[c, k]], sums[c, k]
                    energies[c, k] += energy[place[c, k]] / size
                    for i in range(size):
                        total[i] += mine[i]
                    if (step - burn + 1) % every == 0:
                        kept = states[c, (step - burn) // every, k]
                        for i in range(size):
                            kept[i] = np.int8(mine[i])


@njit(nogil=True, cache=True)
def _draw(
    count: int,
    place: np.ndarray,
    rng: np.random.Generator,
    draws: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
) -> None:
    """A uniform number for each of `count` visits of each replica, and the edges of its cell."""
    for b in range(count):
        for c in range(place.shape[0]):
            for k in range(place.shape[1]):
                row = np.uint64(place[c, k])
                pack, lane = row // np.uint64(_LANES), row % np.uint64(_LANES)
                u = rng.random()
                cell = np.uint64(u * _CELLS)
                draws[pack, b, lane] = u
                low[pack, b, lane] = _LOW[cell]
                high[pack, b, lane] = _HIGH[cell]


@njit(nogil=True, cache=True)
def _visit(
    count: int,
    pulls: np.ndarray,
    beta: np.ndarray,
    draws: np.ndarray,
    low: np.ndarray,
    high: np.ndarray,
    near: np.ndarray,
    own: np.ndarray,
    turns: np.ndarray,
    lost: np.ndarray,
) -> None:
    """Visit the spins of a block in their order, in all lanes; `lost` is what energies lose."""
    twice = (2.0 * beta).astype(np.float32)
    for b in range(count):
        if _decide(twice, near, low, high, own, turns, b):
            for lane in range(_LANES):
                scaled = twice[lane] * near[b, lane]
                if low[b, lane] <= scaled <= high[b, lane]:
                    exact = -2.0 * beta[lane] * np.float64(near[b, lane])
                    up = draws[b, lane] * (1 + math.exp(exact)) < 1
                    old = own[b, lane] - turns[b, lane]
                    own[b, lane] = np.float32(1.0) if up else np.float32(-1.0)
                    turns[b, lane] = own[b, lane] - old
        _lose(lost, near, turns, b)
        pull = pulls[b]
        for later in range(b + 1, count):
            _push(near, later, pull[later], turns, b)


@njit(nogil=True, cache=True)
def _tell(
    matrix: np.ndarray,
    counts: np.ndarray,
    turned: np.ndarray,
    change: np.ndarray,
    local: np.ndarray,
) -> None:
    """Add the turns of a block to the fields of all spins."""
    for panel in range(matrix.shape[0]):
        for row in range(len(counts)):
            _add_rows(local[panel, row], matrix[panel], turned[row], change[row], counts[row])

"""Corrections to the mean field of a finite network: of order 1/N, and the Gaussian closure."""

from collections.abc import Sequence

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.finite_size import deviation, spread_windows, whole_bits
from compendium.common.rows import parameter_product
from spinformer.dmft.corrections import (
    FiniteSizeCorrections,
    finite_size_corrections,
    gaussian_closure,
)
from spinformer.dmft.finite_size import semantic_overlaps
from spinformer.dmft.network import Network

# Inverse temperature, and tokens until a random context has settled, eight relaxation times or
# more; on the driven cycle, one orbit of four tokens, starts differ only before.
REGIMES = {
    "driven": (0.5, 8),
    "quasi-periodic": (1.255, 3000),
    "periodic": (1.27, 20_000),
    "chaotic": (1.28, 216),
}


def _limit(regime: str, *, start: int, steps: int, seed: int) -> FiniteSizeCorrections:
    beta, settle = REGIMES[regime]
    # A different number of tokens for each start, so that starts on one orbit differ in phase.
    windows, position = spread_windows(beta, count=1, settle=settle + start, seed=seed + start)
    return finite_size_corrections(
        Network.poclopez2024(), beta, window=windows[0], steps=steps, position=position
    )


def _closure(limit: FiniteSizeCorrections, size: int, *, independent: bool = False) -> np.ndarray:
    """What the closure says of the overlaps of the mean text, minus the limit."""
    path = gaussian_closure(limit, size, independent=independent)
    return semantic_overlaps(limit.network, path - limit.path)


def _root(limit: FiniteSizeCorrections, part: np.ndarray) -> np.ndarray:
    """Root mean square over the first n tokens after the window, (steps,)."""
    square = (part[limit.network.context :] ** 2).sum(axis=1)
    return np.sqrt(square.cumsum() / np.arange(1, len(square) + 1))


@stored(
    "closures",
    parameter_product(regime=REGIMES, start=range(10)),
    small={"regime": "quasi-periodic", "start": 0, "texts": 200, "exponents": [3.0, 4.0]},
    rtol=0.01,
    seconds=1.5,
)
def closures_table(
    regime: str,
    *,
    start: int,
    texts: int = 4_000,
    steps: int = 30,
    exponents: Sequence[float] = tuple(np.arange(2.0, 7.1, 0.5)),
) -> Rows:
    """Errors of three predictions of the average text, root mean square over `steps` tokens.

    sampling: the standard error of that average, which no prediction can beat.
    """
    limit = _limit(regime, start=start, steps=steps, seed=1000)
    rows = []
    for size in (whole_bits(10.0**exponent) for exponent in exponents):
        bias = deviation(limit, size, texts=texts, seed=start).bias
        parts = {
            "naive": bias.value,
            "corrected": bias.value - limit.shift / size,
            "closure": bias.value - _closure(limit, size),
            "sampling": bias.error,
        }
        errors = {name: _root(limit, part)[-1] for name, part in parts.items()}
        rows.append({"bits": size} | errors)
    return rows


def closed_gains(
    regime: str,
    *,
    start: int,
    bits: int,
    horizons: Sequence[int],
    texts: int = 1000,
    independent: bool = False,
) -> np.ndarray:
    """ln of the naive mean field's error over the closure's, after each horizon, from one start.

    With `independent` bits the closure is the Gaussian mean field of kinetic Ising models. The
    criterion of C18f, written before any of its figures: that theory refines the naive mean field
    if over thirty tokens its mean gain is above zero with its whole 95 % interval, from 10³ to 10⁷
    bits, in driven, quasi-periodic and periodic motion. Expected: it does if driven, where a text
    forgets its noise within a window, and not if quasi-periodic, where the phase keeps it.
    """
    limit = _limit(regime, start=start, steps=max(horizons), seed=1000)
    bias = deviation(limit, bits, texts=texts, seed=start).bias.value
    naive = _root(limit, bias)
    closed = _root(limit, bias - _closure(limit, bits, independent=independent))
    last = np.array(horizons) - 1
    return np.log(naive[last] / closed[last])


_NEARLY = {"measured": 8.0, "expected": 8.0}


@stored("breaks", parameter_product(start=range(120)), checked=3, seconds=0.2, within=_NEARLY)
def breaks_table(start: int) -> Rows:
    """First token at which the 1/N law of the average text is wrong by half, from a start in chaos.

    expected: that at which 300 |b|²/σ² passes N. 60 where neither comes.
    """
    limit = _limit("chaotic", start=start, steps=60, seed=2000)
    context = limit.network.context

    def first(happens: np.ndarray) -> int:
        return int(np.argmax(happens)) + 1 if happens.any() else 60

    rows = []
    for size in (whole_bits(10.0**exponent) for exponent in range(4, 13)):
        bias = deviation(limit, size, texts=400, seed=start).bias.value
        law = limit.shift / size
        off = np.linalg.norm((bias - law)[context:], axis=1)
        whole = np.linalg.norm(law[context:], axis=1)
        late = limit.onset()[context:] > size
        rows.append({"bits": size, "measured": first(off > 0.5 * whole), "expected": first(late)})
    return rows


# Drawn after the region of C18a.
BREAKS_AGAIN = stored(
    "breaks_again", parameter_product(start=range(120, 240)), checked=3, seconds=0.2, within=_NEARLY
)(breaks_table.rows)

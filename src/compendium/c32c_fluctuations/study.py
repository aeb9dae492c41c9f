"""The measurements behind the tables of `compendium.c32c_fluctuations`.

Predictions, written after pilots on two starts and before the tables were made. The 1/N law of
the average text breaks in chaos at a time that grows by 1/(2λ) tokens for each e-fold of N. The
closure is nearer to the texts than the plain mean field for N from 10² to 10⁸ in driven,
quasi-periodic and periodic motion; in chaos a Gaussian is no picture of a folded cloud, and it
loses somewhere between 10³ and 10⁷. The stationary law tends to the attractor's measure: as
N^{-1/2} on the driven cycle (points become Gaussians), as N^{-3/4} on the quasi-periodic curve
(the density of an overlap has inverse roots at its ends), with a power between 1/2 and 1 in
chaos. Exponents at N = 10⁸ are those of the mean field; at β = 1.27 that of N below 10⁶ is
positive, although the mean field is periodic, because noise holds texts on the chaotic set around
the cycle.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from scipy.stats import wasserstein_distance

from bookmaker.tables import Rows, Table
from compendium.c32b_finite_size.study import Limit, deviation, follow_limit, sample
from compendium.c32c_fluctuations.closure import gaussian_closure
from compendium.c32c_fluctuations.coupling import coupled_growth
from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network
from spinformer.dmft.tokens import generate, semantic_overlaps, window_of_context

_FOLDER = Path(__file__).parent
# Inverse temperature, and tokens until a random context has settled. The driven cycle is one
# orbit of four tokens: starts of few tokens are what differs there.
REGIMES = {
    "driven": (0.5, 8),
    "quasi-periodic": (1.255, 3000),
    "periodic": (1.27, 3000),
    "chaotic": (1.28, 100),
}
# β of the stationary laws, each with one attractor for all of 96 random contexts.
_LAWS = {"driven": 0.5, "quasi-periodic": 1.255, "chaos at 1.28": 1.28, "chaos at 1.4": 1.4}
_SNAPSHOTS, _BETWEEN = 20, 101


def spread_windows(beta: float, *, count: int, settle: int, seed: Seed) -> tuple[np.ndarray, int]:
    """Windows (count, T, L) that random contexts reach after `settle` tokens, and their position.

    >>> windows, position = spread_windows(1.28, count=2, settle=20, seed=0)
    >>> windows.shape, position
    ((2, 4, 3), 0)
    """
    network = Network.document()
    start = random_contexts(network, seed, count=count)
    ensemble = Ensemble(network, start, beta=beta, threads=1)
    ensemble.advance(settle)
    state = ensemble.state()
    return window_of_context(network, state, beta=beta), state.position


def _limit(regime: str, *, start: int, steps: int, seed: int) -> Limit:
    beta, settle = REGIMES[regime]
    # A different number of tokens for each start, so that starts on one orbit differ in phase.
    windows, position = spread_windows(beta, count=1, settle=settle + start, seed=seed + start)
    return follow_limit(Network.document(), beta, window=windows[0], steps=steps, position=position)


def closure_rows(regime: str, *, start: int, texts: int = 4_000, steps: int = 30) -> Rows:
    """Errors of three predictions of the average text, root mean square over `steps` tokens.

    A row for each size. naive, corrected, closure: distance of the overlaps from the average of
    the texts; sampling: the standard error of that average, which no prediction can beat. spread
    and closure_spread: measured and predicted root-mean-square deviation of a text from the
    average one.

    >>> row = closure_rows("driven", start=0, texts=200, steps=4)[-1]
    >>> row["naive"] > 3.0 * row["closure"]
    True
    """
    network = Network.document()
    limit = _limit(regime, start=start, steps=steps, seed=1000)
    context = network.context
    pattern = (1.0 - network.epsilon) * network.semantic[0] * network.fractions

    def root(part: np.ndarray) -> float:
        return float(np.sqrt((part[context:] ** 2).sum(axis=1).mean()))

    rows = []
    for exponent in np.arange(2.0, 7.1, 0.5):
        size = network.segments * round(10.0**exponent / network.segments)
        runs = sample(limit, size, runs=texts, seed=start)
        found = deviation(runs, limit=limit).bias
        mean, covariance = gaussian_closure(
            network,
            size,
            beta=limit.beta,
            window=limit.path[:context],
            steps=steps,
            position=limit.position,
        )
        closure = semantic_overlaps(network, mean - limit.path)
        scatter = semantic_overlaps(network, runs.tokens).var(axis=0)
        expected = np.einsum("al,tlm,am->ta", pattern, covariance, pattern)
        rows.append(
            {
                "bits": size,
                "naive": root(found.value),
                "corrected": root(found.value - limit.shift / size),
                "closure": root(found.value - closure),
                "sampling": root(found.error),
                "spread": root(np.sqrt(scatter)),
                "closure_spread": root(np.sqrt(expected)),
            }
        )
    return rows


def break_rows(start: int, *, texts: int = 400, steps: int = 60) -> Rows:
    """First token at which the 1/N law of the average text is wrong by half, from a start in chaos.

    A row for each size: measured time, and the time at which theory expects N to be too small,
    300 |b|²/σ² = N. `steps` where neither comes.

    >>> rows = break_rows(0, texts=40, steps=8)
    >>> rows[0]["measured"] <= rows[-1]["measured"]
    True
    """
    limit = _limit("chaotic", start=start, steps=steps, seed=2000)
    context = limit.network.context
    rows = []
    for exponent in range(4, 13):
        size = limit.network.segments * round(10.0**exponent / limit.network.segments)
        bias = deviation(sample(limit, size, runs=texts, seed=start), limit=limit).bias.value
        law = limit.shift / size
        off = np.linalg.norm((bias - law)[context:], axis=1)
        wrong = off > 0.5 * np.linalg.norm(law[context:], axis=1)
        late = 300.0 * limit.crossing()[context:] > size
        rows.append(
            {
                "bits": size,
                "measured": int(np.argmax(wrong)) + 1 if wrong.any() else steps,
                "expected": int(np.argmax(late)) + 1 if late.any() else steps,
            }
        )
    return rows


def law_rows(
    regime: str, *, exponent: float, texts: int = 500, burn: int = 1000, seed: int = 0
) -> Rows:
    """Distance of the stationary law of N = 10^exponent bits from the measure of the attractor.

    Mean over the three overlaps of the Wasserstein-1 distance of their distributions, over
    `texts` texts and twenty looks at four tokens each. null: the same for two halves of the
    texts; floor: for two independent samples of the attractor's measure.

    >>> row, = law_rows("driven", exponent=2.0, texts=20, burn=10)
    >>> row["distance"] > row["null"]
    True
    """
    network, beta = Network.document(), _LAWS[regime]
    size = network.segments * round(10.0**exponent / network.segments)
    rng = numpy_generator(seed)
    windows, position = spread_windows(beta, count=texts, settle=5_000, seed=rng)
    found, place = [], position
    for look in range(_SNAPSHOTS):
        steps = burn if look == 0 else _BETWEEN
        windows = generate(
            network,
            size,
            beta=beta,
            window=windows,
            steps=steps,
            runs=texts,
            seed=rng,
            position=place,
            draw_window=look == 0,
        ).tokens[:, -network.context :]
        place += steps
        found.append(semantic_overlaps(network, windows))
    law = np.concatenate(found, axis=1)
    limits = []
    for _ in range(2):
        start = random_contexts(network, rng, count=texts)
        ensemble = Ensemble(network, start, beta=beta, threads=1)
        ensemble.advance(5_000)
        looks = []
        for _ in range(_SNAPSHOTS):
            looks.append(ensemble.record(network.context))
            ensemble.advance(_BETWEEN - network.context)
        limits.append(np.concatenate(looks, axis=1))
    return [
        {
            "bits": size,
            "distance": _transport(law, limits[0]),
            "null": _transport(law[::2], law[1::2]),
            "floor": _transport(limits[0], limits[1]),
            "width": float(limits[0].std(axis=(0, 1)).mean()),
        }
    ]


def _transport(one: np.ndarray, other: np.ndarray) -> float:
    """Wasserstein-1 distance of samples (texts, tokens, P), averaged over the last axis."""
    return float(
        np.mean(
            [
                wasserstein_distance(one[..., a].ravel(), other[..., a].ravel())
                for a in range(one.shape[-1])
            ]
        )
    )


@cache
def limit_exponent(beta: float) -> float:
    """Leading Lyapunov exponent of the mean field: median of those of sixteen random contexts.

    >>> limit_exponent(0.5) < -0.3
    True
    """
    network = Network.document()
    found = lyapunov_spectrum(
        network,
        random_contexts(network, 0, count=16),
        beta=beta,
        transient=20_000,
        steps=20_000,
        count=1,
        threads=1,
    )
    return float(np.median(found.exponents.value[:, 0]))


def exponent_rows(
    beta: float, *, exponent: float, pairs: int = 24, steps: int = 400, seed: int = 0
) -> Rows:
    """Growth per token of the distance of two texts that share their uniform numbers.

    limit: the exponent of the mean field.

    >>> row, = exponent_rows(0.5, exponent=6.0, pairs=2, steps=8)
    >>> bool(row["growth"] < 0.0)
    True
    """
    network = Network.document()
    size = network.segments * round(10.0**exponent / network.segments)
    windows, position = spread_windows(beta, count=pairs, settle=3000, seed=seed)
    found = coupled_growth(
        network,
        size,
        beta=beta,
        windows=windows,
        position=position,
        steps=steps,
        transient=steps // 2,
        seed=seed,
    )
    return [
        {
            "bits": size,
            "growth": found.growth.value,
            "error": found.growth.error,
            "merged": found.merged,
            "limit": limit_exponent(beta),
        }
    ]


BREAKS = Table(
    path=_FOLDER / "breaks.csv", units=[{"start": start} for start in range(40)], rows=break_rows
)
CLOSURES = Table(
    path=_FOLDER / "closures.csv",
    units=[{"regime": regime, "start": start} for regime in REGIMES for start in range(10)],
    rows=closure_rows,
)
LAWS = Table(
    path=_FOLDER / "laws.csv",
    units=[
        {"regime": regime, "exponent": float(exponent), "seed": seed}
        for seed in (0, 1)
        for regime in _LAWS
        for exponent in range(2, 8)
    ],
    rows=law_rows,
)
EXPONENTS = Table(
    path=_FOLDER / "exponents.csv",
    units=[
        {"beta": beta, "exponent": float(exponent), "seed": seed}
        for seed in (0, 1)
        for beta in (1.255, 1.27, 1.28, 1.4)
        for exponent in range(4, 9)
    ],
    rows=exponent_rows,
)

"""How far a network of N bits is from its mean field, to first order of the noise and of 1/N.

Along a mean-field path the deviation δx of a text obeys δx_{t+1} = Σ_s M_{t,s} δx_{t−s} + ξ_{t+1}
(`finite_size.linear_maps`), ξ the binomial noise of the new token. The *linear law* of a text is
this answer to the text's own noise; the *onset* is the size from which on it misses at most a tenth
of the deviation from the limit.

`path` (T + steps, L) is that of `mean_path`, its first T tokens drawn with N bits, too; `maps` are
its `linear_maps`. Overlaps are the semantic output overlaps with their factor 1 − ε.
"""

from collections.abc import Sequence

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.finite_size import deviation
from compendium.common.networks import draw_networks
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate
from spinformer.dmft.corrections import (
    FiniteSizeCorrections,
    finite_size_corrections,
)
from spinformer.dmft.finite_size import (
    semantic_overlaps,
    window_of_context,
)
from spinformer.dmft.mean_field import poclopez2024_context, random_contexts, trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.poclopez2024 import MOTIONS, attractor_window
from spinformer.dmft.settling import settled_window

_OTHERS = "other networks"
# Inverse temperatures of the four regimes.
BETAS = {"driven": 0.5, "quasi-periodic": 1.255, "periodic": 1.27, "chaotic": 1.28}
# Sizes by decades, and tokens at which the onset in chaos is stored.
_DECADES = 3 * np.rint(10.0 ** np.arange(2, 15.01, 1.0) / 3).astype(int)
LATER = np.arange(3, 43, 3)
_CHUNK = 30
_TEXTS = 2000  # behind an error of `laws_table`
_MISSED = 0.1  # largest share that the linear law may miss


def growth_rate(maps: np.ndarray, *, drop: int = 0) -> float:
    """Mean logarithmic growth (nats per token) of a small generic perturbation of the window.

    The first `drop` steps only turn the perturbation into its own direction.
    """
    steps, context, segments = maps.shape[:3]
    remaining = iter(maps)

    def push(frame: np.ndarray) -> np.ndarray:
        window = frame.reshape(context, segments)
        newest = np.einsum("slm,sm->l", next(remaining), window)
        return np.vstack([newest, window[:-1]]).reshape(-1, 1)

    rate = lyapunov_exponents(push, dimension=context * segments, steps=steps - drop, align=drop)
    return float(rate.value[0])


def onset_size(sizes: np.ndarray, *, missed: np.ndarray, errors: np.ndarray) -> Estimate:
    """ln N of the onset: where the share `missed` at `sizes` (n,) falls below a tenth for good.

    Interpolated between the last size above a tenth and the next one; the error is that of `missed`
    over its slope. Infinite where it is known to lie beyond the sizes only (censored).
    """
    logs = np.log(sizes)
    above = np.flatnonzero(missed > _MISSED)
    last = int(above[-1]) if above.size else -1
    if last in (-1, len(logs) - 1):
        return Estimate(value=np.inf if above.size else -np.inf, error=np.nan)
    low = max(missed[last + 1], 1e-300)
    high = missed[last]
    fall = np.log(high / low)
    step = logs[last + 1] - logs[last]
    share = np.log(high / _MISSED) / fall
    # The two neighbours' relative errors, weighted as the interpolation weighs them.
    relative = np.hypot((1 - share) * errors[last] / high, share * errors[last + 1] / low)
    return Estimate(value=float(logs[last] + share * step), error=float(relative * step / fall))


def onset_rows(
    limits: list[FiniteSizeCorrections], *, tokens: np.ndarray, sizes: np.ndarray, first: int = 0
) -> Rows:
    """Log10 of the onset, measured from 60 texts a size and computed, at given tokens.

    A row for each start, numbered from `first`, and token (k,), numbered from 1 after the window.
    """
    rng = numpy_generator(0)
    rows = []
    for start, limit in enumerate(limits, first):
        missed = [deviation(limit, n, texts=60, seed=rng).missed.value for n in sizes.tolist()]
        at = limit.network.context - 1 + tokens
        none = np.zeros(len(sizes))
        collected = [
            onset_size(sizes, missed=one, errors=none).value for one in np.transpose(missed)[at]
        ]
        with np.errstate(divide="ignore"):
            computed = np.log10(limit.onset()[at])
        onset = np.array(collected) / np.log(10.0)
        rows += rows_of(start=start, token=tokens, onset=onset, computed=computed)
    return rows


def settled_limits(
    network: Network, beta: float, *, count: int, settle: int, steps: int, seed: Seed
) -> list[FiniteSizeCorrections]:
    """Limits of `steps` tokens from `count` random contexts, `settle` tokens later."""
    contexts = random_contexts(network, seed, count=count)
    _, last = trajectory(network, contexts, beta=beta, steps=1, transient=settle)
    return [
        finite_size_corrections(network, beta, window=window, steps=steps, position=last.position)
        for window in window_of_context(network, last, beta=beta)
    ]


def agreement_times(limit: FiniteSizeCorrections, *, sizes: np.ndarray, share: float) -> np.ndarray:
    """Tokens for which linear noise stays below `share` of the orbit's own width: (sizes,).

    The width is the root-mean-square distance of two independent points of the limit's path.
    """
    context = limit.network.context
    width = np.sqrt(2.0 * semantic_overlaps(limit.network, limit.path).var(axis=0).sum())
    beyond = limit.sigma[context:] > share * width * np.sqrt(sizes)[:, None]
    return np.where(beyond.any(axis=1), beyond.argmax(axis=1), beyond.shape[1])


# ---- the tables


def _limits(motion: str, chunk: int, *, steps: int) -> list[FiniteSizeCorrections]:
    """Limits from thirty starts on an attractor of the published network, or of other networks."""
    collected = []
    if motion == _OTHERS:
        new = draw_networks(family=5, features=3, segments=3, context=4, epsilon=0.02, count=_CHUNK)
        for seed, network in new.items():
            collected += settled_limits(
                network, 2.0, count=1, settle=10_000, steps=steps, seed=seed
            )
        return collected
    network = Network.poclopez2024()
    beta = MOTIONS[motion].beta
    for number in range(_CHUNK * chunk + 1, _CHUNK * (chunk + 1) + 1):
        window, position = attractor_window(network, motion, number=number)
        collected.append(
            finite_size_corrections(network, beta, window=window, steps=steps, position=position)
        )
    return collected


_NEARLY = {"average": 0.2, "missed_error": 0.01}


@stored("laws", parameter_product(regime=BETAS), checked=2, seconds=0.5, rtol=0.05, within=_NEARLY)
def laws_table(
    regime: str,
    *,
    texts: int = _TEXTS,
    token: int = 8,
    seed: int = 0,
    exponents: Sequence[float] = tuple(np.arange(1.5, 9.01, 0.5)),
) -> Rows:
    """Both laws `token` tokens after a start on an attractor, a row for each size 10^exponent.

    single, average: what `texts` texts give over theory, with errors.
    """
    network = Network.poclopez2024()
    beta = BETAS[regime]
    if regime == "chaotic":
        window, position = attractor_window(network, "chaos at 1.28", number=seed)
    else:
        origin = poclopez2024_context(network)
        settle = 2000
        if regime == "periodic":
            origin = random_contexts(network, seed, count=32)
            settle = 20_000
        window, position = settled_window(network, beta, context=origin, transient=settle)
    limit = finite_size_corrections(network, beta, window=window, steps=token, position=position)
    sigma = limit.sigma[-1]
    length = np.linalg.norm(limit.shift[-1])
    along = limit.shift[-1] / length
    rows = []
    for number, exponent in enumerate(exponents, seed):
        size = network.segments * round(10.0**exponent / network.segments)
        rms, bias, missed = deviation(limit, size, texts=texts, seed=number)
        rows += rows_of(
            bits=size,
            sigma=sigma,
            shift=length,
            crossing=limit.onset()[-1],
            single=rms.value[-1] * np.sqrt(size) / sigma,
            single_error=rms.error[-1] * np.sqrt(size) / sigma,
            average=bias.value[-1] @ along * size / length,
            average_error=np.sqrt(bias.error[-1] ** 2 @ along**2) * size / length,
            missed=missed.value[-1],
            missed_error=missed.error[-1],
        )
    return rows


# Decades: a text's median may pass another line of its grid of sizes.
_CLOSE = {"onset": 0.1, "computed": 1e-3}


@stored(
    "onsets",
    [*parameter_product(motion=MOTIONS, chunk=range(2)), {"motion": _OTHERS, "chunk": 0}],
    seconds=1.0,
    within=_CLOSE,
)
def onsets_table(motion: str, chunk: int) -> Rows:
    """Onset eight tokens after each start, log10 of the bits, measured and computed."""
    limits = _limits(motion, chunk, steps=8)
    rows = onset_rows(limits, tokens=np.array([8]), sizes=_DECADES, first=_CHUNK * chunk)
    return [{name: row[name] for name in ("start", "onset", "computed")} for row in rows]


@stored("growth", parameter_product(chunk=range(10)), seconds=1.5, within=_CLOSE)
def growth_table(chunk: int) -> Rows:
    """Onset in chaos at β = 1.28 after 3, 6, … 42 tokens, log10 bits (`onsets_table`)."""
    limits = _limits("chaos at 1.28", chunk, steps=int(LATER[-1]))
    return onset_rows(limits, tokens=LATER, sizes=_DECADES, first=_CHUNK * chunk)


@stored(
    "steepness", [{"gamma": float(2**power)} for power in range(2, 10)], seconds=1.0, within=_CLOSE
)
def steepness_table(gamma: float) -> Rows:
    """Onset four and eight tokens after thirty random windows, at a steepness of the softmax."""
    document = Network.poclopez2024()
    drawn = random_contexts(document, 1, count=_CHUNK)
    network = document.with_parameters(gamma=gamma)
    limits = [
        finite_size_corrections(network, 1.28, window=window, steps=8, position=0)
        for window in window_of_context(document, drawn, beta=1.28)
    ]
    sizes = 3 * np.rint(10.0 ** np.arange(1.5, 10.01, 0.5) / 3).astype(int)
    return onset_rows(limits, tokens=np.array([4, 8]), sizes=sizes)

"""Token by token at finite N: the stochastic network that the mean field is the limit of.

Document 002, Eqs. (7) and (8). From the window of the last T tokens attention makes A_t, and
every bit of the next token is drawn on its own, `P(x_i = ±1) ∝ exp(±beta sum_a W^o_ia A_a)`.

Bits of one segment share their probability, so the sum of n such bits is a binomial draw: a
token is L binomial draws, exact in distribution for any N, and N = 10⁸ costs what N = 10² does
(`generate`). `generate_bits` draws every bit of explicit weights; it is the plain reference.

Everywhere here a token is its segment means, shape (L,), entries in [-1, 1]; windows and paths
run from old to new; gamma is the factor directly in front of the dot product.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from scipy.special import softmax
from tqdm import tqdm

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network

_BATCH = 500  # runs between two moves of the progress bar


@dataclass(frozen=True, eq=False)
class TokenRuns:
    """Sampled paths: R runs of `steps` new tokens after a window of T.

    tokens: (R, T + steps, L) segment means, the first T of them the window the run began with.
    means: (R, T + steps, L) the conditional mean of each token given all earlier ones, i.e.
        `tanh(beta W^o A)`; for the window, the means that it was drawn from.
    position: index of the position of the first token of the path.
    """

    network: Network
    size: int
    beta: float
    position: int
    tokens: np.ndarray
    means: np.ndarray

    def overlaps(self, role: int = OUTPUT) -> np.ndarray:
        """Semantic part (factor 1 − ε included) of m^role, shape (R, T + steps, P)."""
        return semantic_overlaps(self.network, self.tokens, role=role)


def semantic_overlaps(network: Network, tokens: np.ndarray, *, role: int = OUTPUT) -> np.ndarray:
    """`(1 − ε) m^role_a` of tokens given by segment means (..., L); shape (..., P).

    `role` indexes the roles o, v, q, k of `network.ROLES`. This is the first term of document
    002, Eq. (15), the one its figures show.
    """
    role = check_integer("role", role, low=0, high=3)
    pattern = network.semantic[role] * network.fractions
    return (1.0 - network.epsilon) * (tokens @ pattern.T)


def window_means(network: Network, beta: float, *, attention: np.ndarray) -> np.ndarray:
    """Mean tokens `tanh(beta W^o A)`, shape (..., L), of attention vectors (..., P)."""
    beta = check_real("beta", beta, low=0.0)
    attention = check_array("attention", attention)
    if attention.shape[-1:] != (network.features,):
        raise ValueError(
            f"attention must have last axis {network.features}, got shape {attention.shape}"
        )
    return np.tanh(beta * (attention @ network.semantic[OUTPUT]))


def attention_of_window(network: Network, window: np.ndarray, *, position: int) -> np.ndarray:
    """A, shape (..., P), of windows (..., T, L) of tokens, oldest first.

    `position` is the position index of the *newest* token, which is also the query
    (document 002, Eqs. 4, 5, 8 and 15). Plain reference of the compiled step.
    """
    window = check_array("window", window)
    if window.shape[-2:] != (network.context, network.segments):
        raise ValueError(
            f"window must have shape (..., {network.context}, {network.segments}), "
            f"got {window.shape}"
        )
    position = check_integer("position", position)
    places = (position + np.arange(1 - network.context, 1)) % network.positions
    m = (1.0 - network.epsilon) * network.overlaps(np.clip(window, -1.0, 1.0))
    m = m + network.epsilon * network.position_overlaps()[places]
    score = np.einsum("...tb,...b->...t", m[..., KEY, :], m[..., -1, QUERY, :])
    weights = softmax(network.gamma * score, axis=-1)
    return np.einsum("...t,...ta->...a", weights, m[..., VALUE, :])


def mean_path(
    network: Network, beta: float, *, window: np.ndarray, steps: int, position: int | None = None
) -> np.ndarray:
    """The path of an infinitely large network, (T + steps, L) segment means, window first.

    Every token equals its conditional mean (document 002, Eq. 13 before the projection on
    features): what `generate` tends to as N grows. A plain loop, for short paths; `position`
    as in `generate`.
    """
    window = check_array(
        "window", window, shape=(network.context, network.segments), low=-1.0, high=1.0
    )
    steps = check_integer("steps", steps, low=0)
    position = network.context - 1 if position is None else check_integer("position", position)
    path = np.concatenate([window, np.empty((steps, network.segments))])
    for step in range(steps):
        recent = path[step : step + network.context]
        attention = attention_of_window(network, recent, position=position + step)
        path[network.context + step] = window_means(network, beta, attention=attention)
    return path


@numba.njit
def _attention(value, query, key, newest, gamma, weight, result):
    """A from ring buffers (T, P); `newest` is the row of the query. Overwrites `result`."""
    context, features = value.shape
    highest = -np.inf
    for row in range(context):
        score = 0.0
        for b in range(features):
            score += query[newest, b] * key[row, b]
        weight[row] = gamma * score
        highest = max(highest, weight[row])
    total = 0.0
    for row in range(context):
        weight[row] = np.exp(weight[row] - highest)
        total += weight[row]
    for a in range(features):
        result[a] = 0.0
        for row in range(context):
            result[a] += weight[row] * value[row, a]
        result[a] /= total


@numba.njit
def _run(rng, semantic, output, place, counts, beta, gamma, context, first, tokens, means):
    """Fill `tokens` and `means` after the first `context` rows of every run.

    semantic: (4, P, L) with fractions and 1 − ε multiplied in; place: (2^K, 4, P) times ε.
    """
    runs, length, segments = tokens.shape
    features = output.shape[0]
    codes = place.shape[0]
    value = np.empty((context, features))
    query = np.empty((context, features))
    key = np.empty((context, features))
    weight = np.empty(context)
    attention = np.empty(features)
    for run in range(runs):
        for time in range(length):
            if time >= context:
                newest = (time - 1) % context
                _attention(value, query, key, newest, gamma, weight, attention)
                for s in range(segments):
                    field = 0.0
                    for a in range(features):
                        field += output[a, s] * attention[a]
                    mean = np.tanh(beta * field)
                    means[run, time, s] = mean
                    ups = rng.binomial(counts[s], 0.5 * (1.0 + mean))
                    tokens[run, time, s] = 2.0 * ups / counts[s] - 1.0
            row = time % context
            code = (first + time) % codes
            for a in range(features):
                v, q, k = place[code, 1, a], place[code, 2, a], place[code, 3, a]
                for s in range(segments):
                    v += semantic[1, a, s] * tokens[run, time, s]
                    q += semantic[2, a, s] * tokens[run, time, s]
                    k += semantic[3, a, s] * tokens[run, time, s]
                value[row, a] = v
                query[row, a] = q
                key[row, a] = k


def generate(
    network: Network,
    size: int,
    *,
    beta: float,
    window: np.ndarray,
    steps: int,
    runs: int,
    seed: int,
    position: int | None = None,
    draw_window: bool = True,
    progress: bool = False,
) -> TokenRuns:
    """R independent runs of `steps` tokens of N = `size` bits, each L binomial draws.

    window: (T, L) or (R, T, L) means of the initial tokens, oldest first. With `draw_window`
        they are drawn too, so that noise of order N^{-1/2} is there from the first step;
        without it the window is taken as it stands (it then need not be reachable with N bits).
    position: position index of the newest token of the window, default T − 1.
    size: N; the segments must hold whole numbers of bits (multiples of L for equal ones).
    """
    counts = network.counts(size)
    beta = check_real("beta", beta, low=0.0)
    steps = check_integer("steps", steps, low=0)
    runs = check_integer("runs", runs, low=1)
    seed = check_integer("seed", seed, low=0)
    context, segments = network.context, network.segments
    window = check_array("window", window, low=-1.0, high=1.0)
    if window.shape not in ((context, segments), (runs, context, segments)):
        raise ValueError(
            f"window must have shape {(context, segments)} or {(runs, context, segments)}, "
            f"got {window.shape}"
        )
    position = context - 1 if position is None else check_integer("position", position)
    rng = np.random.default_rng(seed)
    tokens = np.empty((runs, context + steps, segments))
    means = np.empty_like(tokens)
    means[:, :context] = window
    if draw_window:
        ups = rng.binomial(counts, 0.5 * (1.0 + means[:, :context]))
        tokens[:, :context] = 2.0 * ups / counts - 1.0
    else:
        tokens[:, :context] = window
    first = (position - context + 1) % network.positions
    semantic = (1.0 - network.epsilon) * network.semantic * network.fractions
    place = network.epsilon * network.position_overlaps()
    for begin in tqdm(range(0, runs, _BATCH), disable=not progress, unit="batch"):
        part = slice(begin, begin + _BATCH)
        _run(
            rng,
            semantic,
            network.semantic[OUTPUT].copy(),
            place,
            counts,
            beta,
            network.gamma,
            context,
            first,
            tokens[part],
            means[part],
        )
    return TokenRuns(network, size, beta, first, tokens, means)


def generate_bits(
    weights: np.ndarray,
    network: Network,
    *,
    beta: float,
    window: np.ndarray,
    steps: int,
    seed: int,
    position: int | None = None,
) -> np.ndarray:
    """One run drawn bit by bit from explicit weights (4, P, N); int8 array (T + steps, N).

    Of `network` only the position weights, T, gamma and epsilon are used. `window`, (T, N) of
    ±1, holds the initial tokens, oldest first. Slow (N draws a token), simple, and independent
    of the segments: the reference that `generate` is held to.
    """
    weights = check_array("weights", weights, shape=(4, network.features, None), values=(-1, 1))
    beta = check_real("beta", beta, low=0.0)
    steps = check_integer("steps", steps, low=0)
    context, size = network.context, weights.shape[2]
    window = check_array("window", window, shape=(context, size), values=(-1, 1))
    position = context - 1 if position is None else check_integer("position", position)
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    place = network.epsilon * network.position_overlaps()
    path = list(window)
    for step in range(steps):
        codes = (position + step + np.arange(1 - context, 1)) % network.positions
        recent = np.array(path[-context:])
        m = (1.0 - network.epsilon) * np.einsum("rai,ti->tra", weights, recent) / size
        m += place[codes]
        score = softmax(network.gamma * (m[:, KEY] @ m[-1, QUERY]))
        mean = np.tanh(beta * ((score @ m[:, VALUE]) @ weights[OUTPUT]))
        path.append(np.where(rng.random(size) < 0.5 * (1.0 + mean), 1.0, -1.0))
    return np.array(path, dtype=np.int8)

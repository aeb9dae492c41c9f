"""Token by token at finite N: the stochastic network, and how far it is from its mean field.

[poclopez2024dynamical, Eqs. (7) and (8)]: attention over the last T tokens makes A_t, and every bit
of the next token is drawn on its own, `P(x_i = ±1) ∝ exp(±β Σ_a W^o_ia A_a)`: L binomial draws.

Along a mean-field path the deviation δx of a sampled path obeys, to first order,
`δx_{t+1} = Σ_s M_{t,s} δx_{t−s} + ξ_{t+1}`, with M of `linear_maps` and ξ the binomial noise of the
new token, of variance (1 − m²)/n for a segment of n bits.

Conventions. A token is its segment means, shape (L,), entries in [−1, 1]. Windows (..., T, L) and
paths (..., T + steps, L) run from *old to new*, a `network.Context` from new to old; `position` is
that of the newest token of a window, which is also the query, counted modulo 2^K, by default T − 1.
γ is the factor directly in front of the dot product.
"""

import math

import numpy as np

from spinformer.core.checks import (
    check_array,
    check_flag,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.dmft import kernels
from spinformer.dmft.mean_field import attend, softmax_weights
from spinformer.dmft.network import (
    KEY,
    LARGEST,
    LARGEST_ATTENTION,
    OUTPUT,
    QUERY,
    VALUE,
    Context,
    Network,
    fitting,
)

_MOST_STATES = 2**21  # that still fit comfortably in memory


@record
class TokenRuns:
    """Sampled paths: R runs of `steps` new tokens after a window of T.

    tokens: (R, T + steps, L) segment means, the first T of them the window the run began with.
    means: (R, T + steps, L) the conditional mean `tanh(β W^o A)` of each token; for the window, the
        means that it was drawn from.
    """

    network: Network
    tokens: np.ndarray
    means: np.ndarray


def semantic_overlaps(network: Network, tokens: np.ndarray) -> np.ndarray:
    """`(1 − ε) m^o_a` of tokens given by segment means (..., L); shape (..., P).

    The first term of [poclopez2024dynamical, Eq. (15)], the one its figures show; linear, so
    differences of tokens may be given, too.

    >>> machine = Network.document()
    >>> np.round(semantic_overlaps(machine, machine.semantic[OUTPUT, 0]), 4)
    array([0.98  , 0.3267, 0.3267])
    """
    check_instance("network", network, Network)
    shape = (..., network.segments)
    tokens = check_array("tokens", tokens, shape=shape, low=-LARGEST, high=LARGEST)
    pattern = network.semantic[OUTPUT] * network.fractions
    return (1.0 - network.epsilon) * (tokens @ pattern.T)


def window_of_context(network: Network, context: Context, *, beta: float) -> np.ndarray:
    """The window (..., T, L), oldest first, that a context of the mean field stands for.

    Its newest token has the position `context.position`.

    >>> newest_first = Context(np.array([[9.0] * 3, *np.zeros((3, 3))]), position=3)
    >>> window_of_context(Network.document(), newest_first, beta=1.0)[-1].round(3)
    array([-1.,  1.,  1.])
    """
    attention, _ = fitting(network, context)
    return window_means(network, beta, attention=attention[..., ::-1, :])


def window_means(network: Network, beta: float, *, attention: np.ndarray) -> np.ndarray:
    """Mean tokens `tanh(β W^o A)`, shape (..., L), of attention vectors (..., P), order kept.

    [poclopez2024dynamical, Eq. (8)].

    >>> window_means(Network.document(), 0.5, attention=np.array([0.0, 2.0, 0.0])).round(4)
    array([-0.7616,  0.7616, -0.7616])
    """
    check_instance("network", network, Network)
    beta = check_real("beta", beta, low=0.0, high=LARGEST)
    far = LARGEST_ATTENTION
    attention = check_array(
        "attention", attention, shape=(..., network.features), low=-far, high=far
    )
    return np.tanh(beta * (attention @ network.semantic[OUTPUT]))


def attention_of_window(network: Network, window: np.ndarray, *, position: int) -> np.ndarray:
    """A, shape (..., P), of windows (..., T, L) [poclopez2024dynamical, Eqs. (4), (5), (8), (15)].

    The plain reference of the compiled step.

    >>> machine = Network.document().with_parameters(gamma=0.0, epsilon=0.0)
    >>> attention_of_window(machine, np.ones((4, 3)), position=3)  # plain mean of the values
    array([-0.33333333, -0.33333333,  0.33333333])
    """
    check_instance("network", network, Network)
    shape = (..., network.context, network.segments)
    window = check_array("window", window, shape=shape, low=-1.0, high=1.0)
    position = check_integer("position", position)
    places = position + np.arange(1 - network.context, 1)
    m = network.placed(network.overlaps(window), places)
    return attend(m, gamma=network.gamma, newest=-1)


def mean_path(
    network: Network, beta: float, *, window: np.ndarray, steps: int, position: int | None = None
) -> np.ndarray:
    """The path of an infinitely large network, (T + steps, L), the window (T, L) first.

    Every token equals its conditional mean ([poclopez2024dynamical, Eq. (13)] before the
    projection on features). A plain loop, for short paths.

    >>> still = Network.document().with_parameters(epsilon=0.0)
    >>> path = mean_path(still, 0.5, window=np.ones((4, 3)), steps=200)  # β below the onset
    >>> path.shape, bool(np.abs(path[-1]).max() < 1e-6)
    ((204, 3), True)
    """
    check_instance("network", network, Network)
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


def generate(
    network: Network,
    size: int,
    *,
    beta: float,
    window: np.ndarray,
    steps: int,
    runs: int,
    seed: Seed,
    position: int | None = None,
    draw_window: bool = True,
) -> TokenRuns:
    """R independent runs of `steps` tokens of N = `size` bits, each L binomial draws.

    window: (T, L) or (R, T, L) means of the initial tokens. With `draw_window` they are drawn
        too; without it the window is taken as it stands.
    size: N; the segments must hold whole numbers of bits (multiples of L for equal ones).

    >>> runs = generate(
    ...     Network.document(), 300, beta=1.27, window=np.zeros((4, 3)), steps=2, runs=5, seed=0
    ... )
    >>> runs.tokens.shape, bool((runs.means[:, :4] == 0.0).all())
    ((5, 6, 3), True)
    """
    check_instance("network", network, Network)
    counts = network.counts(size)
    beta = check_real("beta", beta, low=0.0, high=LARGEST)
    steps = check_integer("steps", steps, low=0)
    runs = check_integer("runs", runs, low=1)
    check_flag("draw_window", draw_window)
    context, segments = network.context, network.segments
    window = check_array("window", window, low=-1.0, high=1.0)
    if window.shape not in ((context, segments), (runs, context, segments)):
        raise ValueError(
            f"window must have shape {(context, segments)} or {(runs, context, segments)}, "
            f"got {window.shape}"
        )
    position = context - 1 if position is None else check_integer("position", position)
    rng = numpy_generator(seed)
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
    kernels.write_texts(
        rng, semantic, network.semantic[OUTPUT].copy(), place, counts, beta, network.gamma,
        context, first, tokens, means,
    )  # fmt: skip
    return TokenRuns(network=network, tokens=tokens, means=means)


# ---- exact sums: a token of N bits is one of S = Π_l (n_l + 1) vectors of counts


def token_states(network: Network, size: int) -> np.ndarray:
    """Every distinguishable token of `size` bits as segment means, shape (S, L).

    `S = Π_l (n_l + 1)`, at most 2²¹, for segments of n_l bits; the first segment varies slowest,
    each from −1 to 1: for segments of one bit `core.states.spin_states`.

    >>> token_states(Network.document(), 6)[[0, 1]]
    array([[-1., -1., -1.],
           [-1., -1.,  0.]])
    """
    counts = _enumerable_counts(network, size)
    shape = tuple(int(count) + 1 for count in counts)
    ups = np.indices(shape).reshape(len(counts), -1).T
    return 2.0 * ups / counts - 1.0


def token_probabilities(
    network: Network, size: int, *, beta: float, attention: np.ndarray
) -> np.ndarray:
    """p(token | A), shape (..., S), for all S `token_states`, given A (..., P); sums to 1.

    [poclopez2024dynamical, Eq. (8)].

    >>> token_probabilities(Network.document(), 6, beta=1.0, attention=np.zeros(3))[[0, 1]]
    array([0.015625, 0.03125 ])
    """
    from scipy.stats import binom  # takes a second, which all that draws texts would pay

    counts = _enumerable_counts(network, size)
    up = 0.5 * (1.0 + window_means(network, beta, attention=attention))
    table = np.ones((*up.shape[:-1], 1))
    for segment, bits in enumerate(counts):
        chance = binom.pmf(np.arange(bits + 1), bits, up[..., segment, None])
        table = (table[..., :, None] * chance[..., None, :]).reshape(*up.shape[:-1], -1)
    return table


def _enumerable_counts(network: Network, size: int) -> np.ndarray:
    """Bits of each segment (L,); ValueError if the tokens are too many to be listed."""
    counts = check_instance("network", network, Network).counts(size)
    if math.prod(counts.astype(float) + 1.0) > _MOST_STATES:
        raise ValueError(f"size must leave at most {_MOST_STATES} tokens, got {size}")
    return counts


# ---- to first order in N^{-1/2}


def linear_maps(
    network: Network, beta: float, *, path: np.ndarray, position: int | None = None
) -> np.ndarray:
    """`M[t, s] = ∂x_{T+t} / ∂x_{T+t−1−s}` along a mean-field path, shape (steps, T, L, L).

    path: (T + steps, L), as `mean_path` gives it for this `position`, at least one step.

    >>> machine = Network.document().with_parameters(gamma=0.0)  # every token weighs the same
    >>> maps = linear_maps(machine, 1.0, path=np.zeros((5, 3)))
    >>> maps.shape, bool(np.allclose(maps, maps[:, :1]))
    ((1, 4, 3, 3), True)
    """
    check_instance("network", network, Network)
    beta = check_real("beta", beta, low=0.0, high=LARGEST)
    context, segments = network.context, network.segments
    path = check_array("path", path, shape=(None, segments), low=-1.0, high=1.0)
    position = context - 1 if position is None else check_integer("position", position)
    steps = check_integer("steps of path", len(path) - context, low=1)
    linear = (1.0 - network.epsilon) * network.semantic * network.fractions
    output = network.semantic[OUTPUT]
    result = np.empty((steps, context, segments, segments))
    for t in range(steps):
        # The axis s of the result counts back.
        recent = path[t : t + context][::-1]
        m = network.placed(network.overlaps(recent), position + t - np.arange(context))
        query, value, key = m[0, QUERY], m[:, VALUE], m[:, KEY]
        weight = softmax_weights(m, gamma=network.gamma)
        attention = weight @ value
        spread = network.gamma * weight[:, None] * (value - attention)  # dA/d(score_s), (T, P)
        jacobian = weight[:, None, None] * linear[VALUE]
        jacobian = jacobian + spread[:, :, None] * (query @ linear[KEY])
        jacobian[0] += spread.T @ key @ linear[QUERY]
        slope = beta * (1.0 - path[t + context] ** 2)
        result[t] = slope[:, None] * np.einsum("al,sam->slm", output, jacobian)
    return result

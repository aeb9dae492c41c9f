"""Finite-size networks: tokens of N bits, sampled, enumerated, and linearized around the mean
field.

In the stochastic network of [poclopez2024dynamical, Eqs. (7) and (8)] attention over the last T
tokens gives A_t, and every bit of the next token is drawn independently,
`P(x_i = ±1) ∝ exp(±β Σ_a W^o_ia A_a)`, which takes L binomial draws.

Along a mean-field path the deviation δx of a sampled path obeys, to first order,
`δx_{t+1} = Σ_s M_{t,s} δx_{t−s} + ξ_{t+1}`, with M of `linear_maps` and ξ the binomial noise of the
new token, of variance (1 − m²)/n for a segment of n bits.

Conventions. A token is given by its segment means, shape (L,), entries in [−1, 1]. Windows
(..., T, L) and paths (..., T + steps, L) run from *old to new*, a `network.Context` from new to
old; `position` is that of the newest token of a window, which is also the query, counted modulo
2^K, by default T − 1. γ is the factor directly in front of the dot product.
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
    check_context,
)

_MOST_STATES = 2**21  # that still fit comfortably in memory


@record
class TokenRuns:
    """Sampled paths: R runs of `steps` new tokens after a window of T tokens.

    Attributes
    ----------
    network : Network
        The network.
    tokens : ndarray, shape (R, T + steps, L)
        Segment means of the tokens, the first T of them the window with which the run began.
    means : ndarray, shape (R, T + steps, L)
        Conditional mean `tanh(β W^o A)` of each token; for the window, the means from which it was
        drawn.
    """

    network: Network
    tokens: np.ndarray
    means: np.ndarray


def semantic_overlaps(network: Network, tokens: np.ndarray) -> np.ndarray:
    """Compute the semantic overlaps (1 − ε) m^o_a of tokens.

    This is the term that the figures of the paper show. It is linear, so that differences of tokens
    may be given, too.

    Parameters
    ----------
    network : Network
        The network.
    tokens : ndarray, shape (..., L)
        Segment means of tokens.

    Returns
    -------
    ndarray, shape (..., P)
        Semantic overlaps with the output features, with their factor 1 − ε.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If the last axis of `tokens` is not L.

    References
    ----------
    The first term of [poclopez2024dynamical, Eq. (15)].

    Examples
    --------
    >>> machine = Network.poclopez2024()
    >>> np.round(semantic_overlaps(machine, machine.semantic[OUTPUT, 0]), 4)
    array([0.98  , 0.3267, 0.3267])
    """
    check_instance("network", network, Network)
    shape = (..., network.segments)
    tokens = check_array("tokens", tokens, shape=shape, low=-LARGEST, high=LARGEST)
    pattern = network.semantic[OUTPUT] * network.fractions
    return (1.0 - network.epsilon) * (tokens @ pattern.T)


def window_of_context(network: Network, context: Context, *, beta: float) -> np.ndarray:
    """Convert a context of the mean field to a window of mean tokens, the oldest first.

    The newest token of the window has the position `context.position`.

    Parameters
    ----------
    network : Network
        The network.
    context : Context
        State of the mean field, of one system or of a batch.
    beta : float
        Inverse temperature β of the tokens.

    Returns
    -------
    ndarray, shape (..., T, L)
        Segment means of the window.

    Raises
    ------
    ValueError
        If the context does not fit the network, or `beta` is negative.

    Examples
    --------
    >>> newest_first = Context(np.array([[9.0] * 3, *np.zeros((3, 3))]), position=3)
    >>> window_of_context(Network.poclopez2024(), newest_first, beta=1.0)[-1].round(3)
    array([-1.,  1.,  1.])
    """
    attention, _ = check_context(network, context)
    return window_means(network, beta, attention=attention[..., ::-1, :])


def window_means(network: Network, beta: float, *, attention: np.ndarray) -> np.ndarray:
    """Compute the mean tokens tanh(β W^o A) of attention vectors, in the same order.

    Parameters
    ----------
    network : Network
        The network.
    beta : float
        Inverse temperature β of the tokens.
    attention : ndarray, shape (..., P)
        Attention vectors A.

    Returns
    -------
    ndarray, shape (..., L)
        Conditional means of the segments, in [−1, 1].

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If the last axis of `attention` is not P, or `beta` is negative.

    References
    ----------
    [poclopez2024dynamical, Eq. (8)]

    Examples
    --------
    >>> window_means(Network.poclopez2024(), 0.5, attention=np.array([0.0, 2.0, 0.0])).round(4)
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
    """Compute the attention vector A of windows of tokens.

    This is the plain reference of the compiled step.

    Parameters
    ----------
    network : Network
        The network.
    window : ndarray, shape (..., T, L)
        Segment means of the last T tokens, the oldest first.
    position : int
        Position of the newest token, counted modulo 2^K.

    Returns
    -------
    ndarray, shape (..., P)
        Attention vectors A.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If the last axes of `window` are not (T, L), or entries are outside of [−1, 1].

    References
    ----------
    [poclopez2024dynamical, Eqs. (4), (5), (8), (15)]

    Examples
    --------
    >>> machine = Network.poclopez2024().with_parameters(gamma=0.0, epsilon=0.0)
    >>> attention_of_window(machine, np.ones((4, 3)), position=3)  # plain mean of the values
    array([-0.33333333, -0.33333333,  0.33333333])
    """
    check_instance("network", network, Network)
    shape = (..., network.context, network.segments)
    window = check_array("window", window, shape=shape, low=-1.0, high=1.0)
    position = check_integer("position", position)
    places = position + np.arange(1 - network.context, 1)
    m = network.with_position_code(network.overlaps(window), places)
    return attend(m, gamma=network.gamma, newest=-1)


def mean_path(
    network: Network, beta: float, *, window: np.ndarray, steps: int, position: int | None = None
) -> np.ndarray:
    """Compute the path of an infinitely large network, in which every token equals its mean.

    This is a plain loop, for short paths.

    Parameters
    ----------
    network : Network
        The network.
    beta : float
        Inverse temperature β of the tokens.
    window : ndarray, shape (T, L)
        Segment means of the initial tokens, the oldest first.
    steps : int
        Number of new tokens.
    position : int, optional
        Position of the newest token of the window; None is T − 1.

    Returns
    -------
    ndarray, shape (T + steps, L)
        Segment means of all tokens, the window first.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If `window` does not have the shape (T, L), or an argument is out of its range.

    References
    ----------
    [poclopez2024dynamical, Eq. (13)] before the projection on features.

    Examples
    --------
    >>> still = Network.poclopez2024().with_parameters(epsilon=0.0)
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
    r"""Sample texts of a network of N bits: R independent runs of `steps` tokens.

    A token takes one binomial draw per segment, so that the cost does not depend on N.

    Parameters
    ----------
    network : Network
        The network.
    size : int
        Number N of bits; the segments must hold whole numbers of them (multiples of L for equal
        ones).
    beta : float
        Inverse temperature β of the tokens.
    window : ndarray, shape (T, L) or (R, T, L)
        Means of the initial tokens, the oldest first.
    steps : int
        Number of new tokens.
    runs : int
        Number R of independent runs.
    seed : Seed
        Seed or random generator.
    position : int, optional
        Position of the newest token of the window; None is T − 1.
    draw_window : bool, default True
        Whether the initial tokens are drawn, too; otherwise the window is taken as it is.

    Returns
    -------
    TokenRuns
        Tokens and their conditional means.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If the segments do not hold whole numbers of bits, `window` has another shape, or an
        argument is out of its range.

    Notes
    -----
    Every bit of the next token is drawn independently,

    .. math::

        P(x_i = \pm 1) \propto \exp\Big(\pm \beta \sum_a W^o_{ia} A_a\Big).

    References
    ----------
    [poclopez2024dynamical, Eqs. (7) and (8)]

    Examples
    --------
    >>> runs = generate(
    ...     Network.poclopez2024(), 300, beta=1.27, window=np.zeros((4, 3)), steps=2, runs=5, seed=0
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
    context = network.context
    segments = network.segments
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
    """List every distinguishable token of `size` bits.

    There are S = Π_l (n_l + 1) of them, at most 2²¹, for segments of n_l bits. The first segment
    varies slowest, each from −1 to 1; for segments of one bit these are `core.states.spin_states`.

    Parameters
    ----------
    network : Network
        The network.
    size : int
        Number N of bits.

    Returns
    -------
    ndarray, shape (S, L)
        Segment means of the tokens.

    Raises
    ------
    ValueError
        If there are more than 2²¹ tokens, or the segments do not hold whole numbers of bits.

    Examples
    --------
    >>> token_states(Network.poclopez2024(), 6)[[0, 1]]
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
    r"""Compute the exact next-token distribution p(token given A).

    Parameters
    ----------
    network : Network
        The network.
    size : int
        Number N of bits.
    beta : float
        Inverse temperature β of the tokens.
    attention : ndarray, shape (..., P)
        Attention vectors A.

    Returns
    -------
    ndarray, shape (..., S)
        Probabilities of all S tokens of `token_states`, in the same order, with the sum 1.

    Raises
    ------
    ValueError
        If there are more than 2²¹ tokens, the segments do not hold whole numbers of bits, or the
        last axis of `attention` is not P.

    Notes
    -----
    The distribution is a product of binomial distributions. With k_l bits of segment l that are +1,

    .. math::

        p = \prod_l \binom{n_l}{k_l} p_l^{k_l} (1 - p_l)^{n_l - k_l},
        \qquad p_l = \tfrac12 \Big[1 + \tanh\Big(\beta \sum_a W^o_{a,l} A_a\Big)\Big].

    References
    ----------
    [poclopez2024dynamical, Eq. (8)]

    Examples
    --------
    >>> token_probabilities(Network.poclopez2024(), 6, beta=1.0, attention=np.zeros(3))[[0, 1]]
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
    r"""Compute the Jacobian of each step along a mean-field path, for linear noise propagation.

    Parameters
    ----------
    network : Network
        The network.
    beta : float
        Inverse temperature β of the tokens.
    path : ndarray, shape (T + steps, L)
        Segment means, as `mean_path` gives them for this `position`, with at least one step.
    position : int, optional
        Position of the newest token of the first window; None is T − 1.

    Returns
    -------
    ndarray, shape (steps, T, L, L)
        Jacobians M[t, s], the derivatives of the token T + t by the token s + 1 steps before it.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If `path` is too short or has another number of segments, or an argument is out of its
        range.

    Notes
    -----
    The Jacobian and the linear equation of the deviations, with binomial noise ξ, are

    .. math::

        M_{t,s} = \frac{\partial x_{T+t}}{\partial x_{T+t-1-s}}, \qquad
        \delta x_{T+t} = \sum_{s=0}^{T-1} M_{t,s}\, \delta x_{T+t-1-s} + \xi_{T+t}.

    Examples
    --------
    >>> machine = Network.poclopez2024().with_parameters(gamma=0.0)  # every token weighs the same
    >>> maps = linear_maps(machine, 1.0, path=np.zeros((5, 3)))
    >>> maps.shape, bool(np.allclose(maps, maps[:, :1]))
    ((1, 4, 3, 3), True)
    """
    check_instance("network", network, Network)
    beta = check_real("beta", beta, low=0.0, high=LARGEST)
    context = network.context
    segments = network.segments
    path = check_array("path", path, shape=(None, segments), low=-1.0, high=1.0)
    position = context - 1 if position is None else check_integer("position", position)
    steps = check_integer("steps of path", len(path) - context, low=1)
    linear = (1.0 - network.epsilon) * network.semantic * network.fractions
    output = network.semantic[OUTPUT]
    result = np.empty((steps, context, segments, segments))
    for t in range(steps):
        # The axis s of the result counts back.
        recent = path[t : t + context][::-1]
        m = network.with_position_code(network.overlaps(recent), position + t - np.arange(context))
        query = m[0, QUERY]
        value = m[:, VALUE]
        key = m[:, KEY]
        weight = softmax_weights(m, gamma=network.gamma)
        attention = weight @ value
        spread = network.gamma * weight[:, None] * (value - attention)  # dA/d(score_s), (T, P)
        jacobian = weight[:, None, None] * linear[VALUE]
        jacobian = jacobian + spread[:, :, None] * (query @ linear[KEY])
        jacobian[0] += spread.T @ key @ linear[QUERY]
        slope = beta * (1.0 - path[t + context] ** 2)
        result[t] = slope[:, None] * np.einsum("al,sam->slm", output, jacobian)
    return result

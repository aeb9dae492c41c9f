"""Dynamical mean-field theory of self-attention with tokens of bits, in the limit N → ∞.

One step of the map is [poclopez2024dynamical, Eqs. (13)-(16)], with A the newest attention vector
and p the position of the token that it produces:

    m^α_a = (1 − ε) ⟨W^α_a tanh(β Σ_b W^o_b A_b)⟩ + ε (1/K) Σ_k W^{α,pos}_{a,k} p_k
    A'_a  = Σ_τ m^v_{a,τ} softmax_τ(γ Σ_b m^q_b m^k_{b,τ})

over the last T tokens τ, the newest of which is the query; ⟨·⟩ averages over the bits. β, γ and ε
are numbers or arrays that broadcast against the batch axes `...` of a context; None takes the γ and
ε of the network.

`step` is the plain NumPy reference, `torch_step` the same with gradients, and `trajectory` runs the
compiled kernels. The average over the bits is `Network.mean_overlaps`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import numpy as np
from scipy.special import softmax

from spinformer.core.checks import (
    check_array,
    check_choice,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.ensemble import Ensemble, Parameters
from spinformer.dmft.network import (
    KEY,
    LARGEST,
    OUTPUT,
    QUERY,
    VALUE,
    AttentionNetwork,
    Context,
    Network,
    check_context,
    parameters,
)

if TYPE_CHECKING:
    from torch import Tensor

# Laws of random contexts; the half width of the narrow one.
START_LAWS = ("uniform", "narrow", "normal")
_NARROW = 0.05

# ---- one step


def token_overlaps(
    network: AttentionNetwork,
    context: Context,
    beta: float | np.ndarray,
    *,
    epsilon: float | np.ndarray | None = None,
) -> np.ndarray:
    """Compute the overlaps m^α_a, position included, of the T tokens in the window.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        State of the mean field, of one system or of a batch.
    beta : float or ndarray
        Inverse temperature β of the tokens.
    epsilon : float or ndarray, optional
        Weight ε of the position; None takes that of the network.

    Returns
    -------
    ndarray, shape (..., T, 4, P)
        Overlaps, the newest token first, roles in the order o, v, q, k.

    Raises
    ------
    ValueError
        If the context does not fit the network, or a parameter is out of its range.

    References
    ----------
    [poclopez2024dynamical, Eqs. (13) and (15)]

    Examples
    --------
    >>> window = token_overlaps(Network.poclopez2024(), Context(np.zeros((4, 3)), 0), 1.2)
    >>> window.shape, bool(np.abs(window).max() <= 0.02)
    ((4, 4, 3), True)
    """
    attention, position = check_context(network, context)
    beta, _, share, _ = parameters(network, beta, None, epsilon, batch=attention.shape[:-2])
    return _tokens(network, attention, position, beta=beta, share=share)


def _tokens(
    network: AttentionNetwork,
    attention: np.ndarray,
    position: int,
    *,
    beta: np.ndarray,
    share: np.ndarray,
) -> np.ndarray:
    semantic = network.mean_overlaps(attention, beta=beta[..., None])
    positions = position - np.arange(network.context)
    return network._with_position_code(semantic, positions, share[..., None, None, None])


def softmax_weights(
    window: np.ndarray, *, gamma: float | np.ndarray, newest: int = 0
) -> np.ndarray:
    r"""Compute the attention weights of the tokens in a window.

    Arguments are not checked.

    Parameters
    ----------
    window : ndarray, shape (..., n, 4, P)
        Overlaps of n tokens, roles in the order o, v, q, k.
    gamma : float or ndarray
        Inverse temperature γ in front of the dot product.
    newest : int, default 0
        Index of the query among the n tokens.

    Returns
    -------
    ndarray, shape (..., n)
        Attention weights, which are positive and sum to 1.

    Notes
    -----
    With the query of the newest token and the keys of all,

    .. math::

        \pi_\tau = \operatorname{softmax}_\tau\Big(\gamma \sum_b m^q_b\, m^k_{b,\tau}\Big).

    Examples
    --------
    >>> softmax_weights(np.ones((2, 4, 3)), gamma=5.0)
    array([0.5, 0.5])
    """
    query = window[..., newest, QUERY, :]
    score = np.einsum("...a,...ta->...t", query, window[..., KEY, :])
    return softmax(np.asarray(gamma)[..., None] * score, axis=-1)


def attend(window: np.ndarray, *, gamma: float | np.ndarray, newest: int = 0) -> np.ndarray:
    r"""Compute the attention vector of the newest token from the tokens in a window.

    Parameters
    ----------
    window : ndarray, shape (..., n, 4, P)
        Overlaps of n ≥ 1 tokens, roles in the order o, v, q, k.
    gamma : float or ndarray
        Inverse temperature γ in front of the dot product.
    newest : {0, -1}, default 0
        Whether the newest token comes first (0) or last (−1).

    Returns
    -------
    ndarray, shape (..., P)
        Attention vector A, the weighted average of the values.

    Raises
    ------
    ValueError
        If a shape does not fit, `gamma` is negative, or `newest` is neither 0 nor −1.

    Notes
    -----
    The attention vector is

    .. math::

        A_a = \sum_\tau m^v_{a,\tau} \operatorname{softmax}_\tau\Big(\gamma \sum_b m^q_b\,
            m^k_{b,\tau}\Big).

    References
    ----------
    [poclopez2024dynamical, Eq. (14)]

    Examples
    --------
    >>> attend(np.ones((2, 4, 3)), gamma=5.0)
    array([1., 1., 1.])
    """
    far = 2.0 * LARGEST
    window = check_array("window", window, shape=(..., "n", 4, "P"), low=-far, high=far)
    gamma = check_array("gamma", gamma, low=0.0, high=LARGEST)
    newest = check_choice("newest", newest, (0, -1))
    return _attend(window, gamma=gamma, newest=newest)


def _attend(window: np.ndarray, *, gamma: np.ndarray, newest: int = 0) -> np.ndarray:
    weight = softmax_weights(window, gamma=gamma, newest=newest)
    return np.einsum("...t,...ta->...a", weight, window[..., VALUE, :])


def step(
    network: AttentionNetwork,
    context: Context,
    beta: float | np.ndarray,
    *,
    gamma: float | np.ndarray | None = None,
    epsilon: float | np.ndarray | None = None,
) -> tuple[Context, np.ndarray]:
    """Iterate the mean-field map once, in plain NumPy.

    This is the reference of the compiled kernels.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        State of the mean field, of one system or of a batch.
    beta : float or ndarray
        Inverse temperature β of the tokens.
    gamma : float or ndarray, optional
        Inverse temperature γ of attention; None takes that of the network.
    epsilon : float or ndarray, optional
        Weight ε of the position; None takes that of the network.

    Returns
    -------
    context : Context
        The next context.
    semantic : ndarray, shape (..., P)
        Semantic overlaps m^o of the new token, with their factor 1 − ε.

    Raises
    ------
    ValueError
        If the context does not fit the network, or a parameter is out of its range.

    References
    ----------
    [poclopez2024dynamical, Eqs. (13)-(16)]

    Examples
    --------
    >>> following, overlap = step(Network.poclopez2024(), Context(np.zeros((4, 3)), 3), 1.2)
    >>> following.position, overlap
    (0, array([0., 0., 0.]))
    """
    attention, position = check_context(network, context)
    beta, gamma, share, batch = parameters(
        network, beta, gamma, epsilon, batch=attention.shape[:-2]
    )
    attention = np.broadcast_to(attention, (*batch, *attention.shape[-2:]))
    made = network.mean_overlaps(attention[..., 0, :], beta=beta)
    window = _tokens(network, context.attention, position, beta=beta, share=share)
    newest = _attend(window, gamma=gamma)
    following = np.concatenate([newest[..., None, :], attention[..., :-1, :]], axis=-2)
    semantic = (1.0 - share[..., None]) * made[..., OUTPUT, :]
    return Context(following, (position + 1) % network.positions), semantic


def torch_step(
    semantic: Tensor,
    *,
    fractions: Tensor,
    position_overlaps: Tensor,
    attention: Tensor,
    position: int,
    beta: Tensor | float,
    gamma: Tensor | float,
    epsilon: Tensor | float,
) -> tuple[Tensor, Tensor]:
    """Iterate the mean-field map once in torch, differentiable in all real arguments.

    It is differentiable in weights, context, β, γ and ε. Arguments are not checked.

    Parameters
    ----------
    semantic : Tensor, shape (4, P, L)
        Weights of the segments, any real entries, roles in the order o, v, q, k.
    fractions : Tensor, shape (L,)
        Fraction of the bits in each segment.
    position_overlaps : Tensor, shape (2^K, 4, P)
        Overlaps of the positional code, as `Network.position_overlaps` gives them.
    attention : Tensor, shape (..., T, P)
        Window of attention vectors, the newest first.
    position : int
        Position of the token that the newest vector produces.
    beta : Tensor or float
        Inverse temperature β of the tokens, a scalar.
    gamma : Tensor or float
        Inverse temperature γ of attention, a scalar.
    epsilon : Tensor or float
        Weight ε of the position, a scalar.

    Returns
    -------
    attention : Tensor, shape (..., T, P)
        The next window of attention vectors.
    semantic : Tensor, shape (..., P)
        Semantic overlaps m^o of the new token, with their factor 1 − ε.

    References
    ----------
    [poclopez2024dynamical, Eqs. (13)-(16)]
    """
    import torch

    hidden = torch.tanh(beta * (attention @ semantic[OUTPUT]))
    average = (1.0 - epsilon) * torch.einsum("ral,...tl->...tra", semantic * fractions, hidden)
    places = [(position - age) % len(position_overlaps) for age in range(attention.shape[-2])]
    window = average + epsilon * position_overlaps[places]
    score = torch.einsum("...a,...ta->...t", window[..., 0, QUERY, :], window[..., KEY, :])
    weight = torch.softmax(gamma * score, dim=-1)
    newest = torch.einsum("...t,...ta->...a", weight, window[..., VALUE, :])
    following = torch.cat([newest[..., None, :], attention[..., :-1, :]], dim=-2)
    return following, average[..., 0, OUTPUT, :]


# ---- where a trajectory starts


def poclopez2024_context(
    network: Network, beta: float = 3.0, *, steps: int = 100_000, decimals: int | None = None
) -> Context:
    """Compute the initial context of the paper: from the token W^o_1 at β = 3, after 100,000 steps.

    The first steps see a window of fewer than T tokens, until W^o_1, at position 0, has left it.

    Parameters
    ----------
    network : Network
        The network.
    beta : float, default 3.0
        Inverse temperature β of the tokens.
    steps : int, default 100000
        Number of steps after the window has filled.
    decimals : int, optional
        Number of decimals to which the context is rounded, so that it is exactly the same state on
        every machine, and so is what starts from it; None does not round.

    Returns
    -------
    Context
        The context after these steps.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If `beta`, `steps` or `decimals` is negative.

    References
    ----------
    [poclopez2024dynamical, the protocol of Figures 3 to 5]

    Examples
    --------
    >>> poclopez2024_context(Network.poclopez2024(), steps=1000).attention.shape
    (4, 3)
    """
    check_instance("network", network, Network)
    beta = check_real("beta", beta, low=0.0, high=LARGEST)
    text = [network.with_position_code(network.overlaps(np.sign(network.semantic[OUTPUT, 0])), 0)]
    history: list[np.ndarray] = []
    for position in range(1, network.context + 1):
        history.append(attend(np.stack(text), gamma=network.gamma, newest=-1))
        token = network.mean_overlaps(history[-1], beta=np.asarray(beta))
        text.append(network.with_position_code(token, position))
    start = Context(np.stack(history[::-1]), position % network.positions)
    ensemble = Ensemble(network, start, beta=beta)
    ensemble.advance(steps)
    state = ensemble.state()
    if decimals is None:
        return state
    decimals = check_integer("decimals", decimals, low=0, high=15)
    return Context(np.round(state.attention, decimals), state.position)


def random_contexts(
    network: AttentionNetwork, seed: Seed, *, count: int, law: str = "uniform"
) -> Context:
    """Draw contexts of independent random attention vectors at position 0.

    The unit of every component is the largest value that the weights allow, 1 for signs.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    seed : Seed
        Seed or random generator.
    count : int
        Number of contexts.
    law : {"uniform", "narrow", "normal"}, default "uniform"
        Law of the components: uniform in [−1, 1]; uniform in [−0.05, 0.05], about what random bits
        of a large network give; or normal with the variance of the first law, cut at ±1.

    Returns
    -------
    Context
        A batch of contexts, attention of shape (count, T, P).

    Raises
    ------
    ValueError
        If `count` is below 1 or `law` is unknown.

    Examples
    --------
    >>> random_contexts(Network.poclopez2024(), 0, count=5).attention.shape
    (5, 4, 3)
    """
    check_instance("network", network, AttentionNetwork)  # type: ignore[type-abstract]
    rng = numpy_generator(seed)
    count = check_integer("count", count, low=1)
    law = check_choice("law", law, START_LAWS)
    shape = (count, network.context, network.features)
    drawn = rng.uniform(-1.0, 1.0, shape)
    if law == "narrow":
        drawn = _NARROW * drawn
    elif law == "normal":
        drawn = np.clip(rng.standard_normal(shape) / np.sqrt(3.0), -1.0, 1.0)
    return Context(drawn * network.overlap_bound[VALUE], 0)


# ---- trajectories


def trajectory(
    network: AttentionNetwork,
    context: Context,
    *,
    steps: int,
    transient: int = 0,
    **parameters: Unpack[Parameters],
) -> tuple[np.ndarray, Context]:
    """Iterate the mean-field map with the compiled kernels, and return the trajectory.

    The parameters and the batch of the context broadcast like arrays: contexts (C, 1, T, P) and β
    (B,) give (C, B).

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        Initial state, of one system or of a batch.
    steps : int
        Number of tokens that are kept.
    transient : int, default 0
        Number of tokens that are dropped first.
    **parameters : Unpack[Parameters]
        The inverse temperatures `beta` and `gamma`, `epsilon` and `threads`, as in `Ensemble`.

    Returns
    -------
    overlaps : ndarray, shape (..., steps, P)
        Semantic overlaps m^o of the kept tokens, with their factor 1 − ε.
    context : Context
        The final state.

    Raises
    ------
    ValueError
        If the context does not fit the network, or a parameter is out of its range.

    References
    ----------
    [poclopez2024dynamical, Eqs. (13)-(16)]

    Examples
    --------
    >>> network = Network.poclopez2024()
    >>> start = random_contexts(network, 0, count=2)
    >>> overlaps, end = trajectory(network, start, beta=1.2, steps=8)
    >>> overlaps.shape, end.position
    ((2, 8, 3), 0)
    """
    ensemble = Ensemble(network, context, **parameters)
    ensemble.advance(check_integer("transient", transient, low=0))
    overlaps = ensemble.record(steps)
    return overlaps, ensemble.state()

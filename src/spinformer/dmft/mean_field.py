"""Mean field of self-attention with 1-bit tokens in the limit N → ∞.

One step [poclopez2024dynamical, Eqs. (13)-(16)], with A the newest attention vector, p the
position of the token that it makes:

    m^α_a = (1 − ε) ⟨W^α_a tanh(β Σ_b W^o_b A_b)⟩ + ε (1/K) Σ_k W^{α,pos}_{a,k} p_k
    A'_a  = Σ_τ m^v_{a,τ} softmax_τ(γ Σ_b m^q_b m^k_{b,τ})

over the last T tokens τ, the newest of them the query. ⟨·⟩ averages over the bits. β, γ and ε are
numbers or arrays that broadcast against the batch axes `...` of a context; None takes the network's
own γ, ε.

`step` is the plain NumPy reference, `torch_step` the same with gradients; `trajectory` runs the
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
    fitting,
    parameters,
)

if TYPE_CHECKING:
    from torch import Tensor

# ---- one step


def tokens(
    network: AttentionNetwork,
    context: Context,
    beta: float | np.ndarray,
    *,
    epsilon: float | np.ndarray | None = None,
) -> np.ndarray:
    """Overlaps m^α_a, position included, of the T tokens in the window: (..., T, 4, P).

    Newest first, roles in the order o, v, q, k.

    >>> window = tokens(Network.document(), Context(np.zeros((4, 3)), 0), 1.2)
    >>> window.shape, bool(np.abs(window).max() <= 0.02)
    ((4, 4, 3), True)
    """
    attention, position = fitting(network, context)
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
    return network._placed(semantic, positions, share[..., None, None, None])


def softmax_weights(
    window: np.ndarray, *, gamma: float | np.ndarray, newest: int = 0
) -> np.ndarray:
    """softmax_τ(γ Σ_b m^q_b m^k_{b,τ}), (..., n), over tokens (..., n, 4, P).

    newest: where among the n the query stands.

    >>> softmax_weights(np.ones((2, 4, 3)), gamma=5.0)
    array([0.5, 0.5])
    """
    query = window[..., newest, QUERY, :]
    score = np.einsum("...a,...ta->...t", query, window[..., KEY, :])
    return softmax(np.asarray(gamma)[..., None] * score, axis=-1)


def attend(window: np.ndarray, *, gamma: float | np.ndarray, newest: int = 0) -> np.ndarray:
    """Attention vector (..., P) of the newest token, from the tokens (..., n, 4, P).

    [poclopez2024dynamical, Eq. (14)]; the newest of the n ≥ 1 tokens comes first, or last where
    `newest` is −1.

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
    """One step in plain NumPy: the next context and the new token's semantic m^o, (..., P).

    The semantic part carries its factor 1 − ε.

    >>> following, overlap = step(Network.document(), Context(np.zeros((4, 3)), 3), 1.2)
    >>> following.position, overlap
    (0, array([0., 0., 0.]))
    """
    attention, position = fitting(network, context)
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
    """`step` in torch, differentiable in weights, context, β, γ and ε; arguments are not checked.

    semantic (4, P, L), any real entries; fractions (L,); position_overlaps (2^K, 4, P) as
    `Network.position_overlaps` gives them; attention (..., T, P), newest first; beta, gamma and
    epsilon scalars. Returns the next attention window (..., T, P) and semantic m^o (..., P), which
    carries its factor 1 − ε.
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


def document_context(network: Network, beta: float = 3.0, *, steps: int = 100_000) -> Context:
    """The initial context of the document: at β = 3, from the token W^o_1, after 100,000 steps.

    The first steps see a window that holds fewer than T tokens, until W^o_1, at position 0, has
    left it [poclopez2024dynamical, the protocol of Figures 3 to 5].

    >>> document_context(Network.document(), steps=1000).attention.shape
    (4, 3)
    """
    check_instance("network", network, Network)
    beta = check_real("beta", beta, low=0.0, high=LARGEST)
    text = [network.placed(network.overlaps(np.sign(network.semantic[OUTPUT, 0])), 0)]
    history: list[np.ndarray] = []
    for position in range(1, network.context + 1):
        history.append(attend(np.stack(text), gamma=network.gamma, newest=-1))
        token = network.mean_overlaps(history[-1], beta=np.asarray(beta))
        text.append(network.placed(token, position))
    start = Context(np.stack(history[::-1]), position % network.positions)
    ensemble = Ensemble(network, start, beta=beta)
    ensemble.advance(steps)
    return ensemble.state()


def random_contexts(network: AttentionNetwork, seed: Seed, *, count: int) -> Context:
    """`count` contexts of independent attention vectors, position 0.

    Each component is uniform within the `reach` of the values: in [−1, 1] for signs.

    >>> random_contexts(Network.document(), 0, count=5).attention.shape
    (5, 4, 3)
    """
    check_instance("network", network, AttentionNetwork)  # type: ignore[type-abstract]
    rng = numpy_generator(seed)
    count = check_integer("count", count, low=1)
    shape = (count, network.context, network.features)
    return Context(rng.uniform(-1.0, 1.0, shape) * network.reach[VALUE], 0)


# ---- trajectories


def trajectory(
    network: AttentionNetwork,
    context: Context,
    *,
    steps: int,
    transient: int = 0,
    **parameters: Unpack[Parameters],
) -> tuple[np.ndarray, Context]:
    """Semantic m^o (factor 1 − ε included) of `steps` tokens after `transient` dropped ones.

    parameters: β, γ, ε and threads, as in `Ensemble`. They and the batch of the context broadcast
    like arrays: contexts (C, 1, T, P) and β (B,) give (C, B). Returns overlaps (..., steps, P) and
    the final context.

    >>> network = Network.document()
    >>> start = random_contexts(network, 0, count=2)
    >>> overlaps, end = trajectory(network, start, beta=1.2, steps=8)
    >>> overlaps.shape, end.position
    ((2, 8, 3), 0)
    """
    ensemble = Ensemble(network, context, **parameters)
    ensemble.advance(check_integer("transient", transient, low=0))
    overlaps = ensemble.record(steps)
    return overlaps, ensemble.state()

"""Mean field of self-attention with 1-bit tokens in the limit N → ∞ (document 002, Eqs. (13)-(16)).

One step, with A the newest attention vector, p the position of the token that it makes:

    m^α_a = (1 − ε) ⟨W^α_a tanh(β Σ_b W^o_b A_b)⟩ + ε (1/K) Σ_k W^{α,pos}_{a,k} p_k
    A'_a  = Σ_τ m^v_{a,τ} softmax_τ(γ Σ_b m^q_b m^k_{b,τ})

over the last T tokens τ, the newest of them the query. ⟨·⟩ averages over the bits. The state is
a `Context`: the last T attention vectors and a position, because each token is a function of one
attention vector and its position. γ stands directly in front of the dot product (the document's
own γ is √P times it).

The average comes in three forms that agree to rounding: over explicit weights, over segments,
and from correlations. `step` is the plain NumPy reference; `trajectory` runs the compiled
kernels; `torch_step` is differentiable in everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch

from spinformer.core.checks import check_array, check_integer, check_real, check_tensor
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network


@dataclass(frozen=True, eq=False)
class Context:
    """State of the mean field.

    attention: (..., T, P), the newest vector first.
    position: position in 0 … 2^K − 1 of the token that attention[..., 0, :] makes.
    """

    attention: np.ndarray
    position: int


# ---- the average over bits, three times


def overlaps_explicit(
    weights: np.ndarray, *, attention: np.ndarray, beta: float | np.ndarray
) -> np.ndarray:
    """(1/N) Σ_i W^α_{a,i} tanh(β Σ_b W^o_{b,i} A_b) from explicit weights (4, P, N), Eq. (13).

    attention (..., P), beta broadcast to the batch (...). Returns (..., 4, P): no 1 − ε.
    """
    weights = check_array("weights", weights, shape=(4, None, None), values=(-1.0, 1.0))
    attention, beta = _batch(weights.shape[1], attention, beta)
    field = beta[..., None] * (attention @ weights[OUTPUT])
    return np.einsum("rai,...i->...ra", weights, np.tanh(field)) / weights.shape[2]


def overlaps_segments(
    network: Network, attention: np.ndarray, *, beta: float | np.ndarray
) -> np.ndarray:
    """The same average as a sum over segments weighted by their fractions."""
    attention, beta = _batch(network.features, attention, beta)
    return network.overlaps(np.tanh(beta[..., None] * (attention @ network.semantic[OUTPUT])))


def overlaps_correlations(
    correlations: Mapping[tuple[int, ...], np.ndarray],
    attention: np.ndarray,
    *,
    beta: float | np.ndarray,
) -> np.ndarray:
    """The same average from `Network.correlations()` alone, any P (document 002, Eq. (29)).

    2^{−P} Σ_{σ∈{±1}^P} [Σ_{S odd} (Π_{b∈S} σ_b) C^α_{S,a}] tanh(β Σ_b σ_b A_b); tanh is odd, so
    the half with σ_1 = 1 counts twice. ValueError if a subset is missing.
    """
    sizes = {subset[0] for subset in correlations if len(subset) == 1}
    features = len(sizes)
    if sizes != set(range(features)) or len(correlations) != 2 ** (features - 1):
        raise ValueError(
            "correlations must hold every odd subset of the features, "
            f"got {len(correlations)} subsets over features {sorted(sizes)}"
        )
    attention, beta = _batch(features, attention, beta)
    signs = np.array([(1.0, *rest) for rest in product((1.0, -1.0), repeat=features - 1)])
    parity = np.array([signs[:, list(subset)].prod(axis=1) for subset in correlations])
    moments = np.array([check_array(f"correlations[{s}]", c, shape=(4, features))
                        for s, c in correlations.items()])  # fmt: skip
    readout = np.einsum("sra,sn->ran", moments, parity) / 2 ** (features - 1)
    hidden = np.tanh(beta[..., None] * (attention @ signs.T))
    return np.einsum("ran,...n->...ra", readout, hidden)


# ---- one step


def tokens(
    network: Network,
    context: Context,
    beta: float | np.ndarray,
    *,
    epsilon: float | np.ndarray | None = None,
) -> np.ndarray:
    """Overlaps m^α_a, position included, of the T tokens in the window: (..., T, 4, P)."""
    attention, position = _context(network, context)
    epsilon = _parameter("epsilon", epsilon, network.epsilon, high=1.0)[..., None, None, None]
    beta = _parameter("beta", beta, None)[..., None]
    positions = (position - np.arange(network.context)) % network.positions
    semantic = overlaps_segments(network, attention, beta=beta)
    return (1.0 - epsilon) * semantic + epsilon * network.position_overlaps()[positions]


def attend(window: np.ndarray, *, gamma: float | np.ndarray) -> np.ndarray:
    """Attention vector (..., P) of the newest token, from the tokens (..., n, 4, P), Eq. (14)."""
    window = np.asarray(window, dtype=np.float64)
    score = np.einsum("...a,...ta->...t", window[..., 0, QUERY, :], window[..., KEY, :])
    score = np.asarray(gamma)[..., None] * score
    weight = np.exp(score - score.max(axis=-1, keepdims=True))
    weight /= weight.sum(axis=-1, keepdims=True)
    return np.einsum("...t,...ta->...a", weight, window[..., VALUE, :])


def step(
    network: Network,
    context: Context,
    beta: float | np.ndarray,
    *,
    gamma: float | np.ndarray | None = None,
    epsilon: float | np.ndarray | None = None,
) -> tuple[Context, np.ndarray]:
    """One step in plain NumPy: the next context and the new token's semantic m^o, (..., P).

    The semantic part carries its factor 1 − ε. beta, gamma and epsilon broadcast against the
    context's batch; None takes the network's own γ, ε.
    """
    window = tokens(network, context, beta, epsilon=epsilon)
    gamma = _parameter("gamma", gamma, network.gamma)
    share = _parameter("epsilon", epsilon, network.epsilon, high=1.0)
    newest = attend(window, gamma=gamma)
    position_part = network.position_overlaps()[context.position, OUTPUT]
    semantic = window[..., 0, OUTPUT, :] - share[..., None] * position_part
    older = np.broadcast_to(
        context.attention[..., :-1, :], (*newest.shape[:-1], network.context - 1, network.features)
    )
    attention = np.concatenate([newest[..., None, :], older], axis=-2)
    return Context(attention, (context.position + 1) % network.positions), semantic


def context_from_tokens(
    network: Network,
    overlaps: np.ndarray,
    *,
    beta: float | np.ndarray,
    gamma: float | np.ndarray | None = None,
    epsilon: float | np.ndarray | None = None,
) -> Context:
    """Context reached from n ≥ 1 given tokens at positions 0, 1, …, n − 1, oldest first.

    overlaps: (..., n, 4, P), semantic parts without 1 − ε (as `Network.overlaps` gives them).
    The network continues the text on its own, with a window that holds fewer than T tokens
    while there are not more, until the last given token has left the window.
    """
    overlaps = check_array("overlaps", overlaps, low=-1.0, high=1.0)
    if overlaps.ndim < 3 or overlaps.shape[-2:] != (4, network.features) or not overlaps.shape[-3]:
        raise ValueError(
            f"overlaps must have shape (..., n, 4, {network.features}) with n at least 1, "
            f"got {overlaps.shape}"
        )
    beta = _parameter("beta", beta, None)
    gamma = _parameter("gamma", gamma, network.gamma)
    share = _parameter("epsilon", epsilon, network.epsilon, high=1.0)
    batch = np.broadcast_shapes(overlaps.shape[:-3], beta.shape, gamma.shape, share.shape)
    share = np.broadcast_to(share, batch)[..., None, None]
    drive = network.position_overlaps()

    def placed(semantic: np.ndarray, position: int) -> np.ndarray:
        return (1.0 - share) * semantic + share * drive[position % network.positions]

    count = overlaps.shape[-3]
    window = [
        placed(np.broadcast_to(overlaps[..., i, :, :], (*batch, 4, network.features)), i)
        for i in range(max(0, count - network.context), count)
    ][::-1]
    history: list[np.ndarray] = []
    position = count
    while True:
        history.insert(0, attend(np.stack(window, axis=-3), gamma=gamma))
        if len(history) == network.context:
            return Context(np.stack(history, axis=-2), position % network.positions)
        semantic = overlaps_segments(network, history[0], beta=beta)
        window = [placed(semantic, position), *window][: network.context]
        position += 1


def context_from_token(
    network: Network,
    token: np.ndarray | int,
    *,
    beta: float | np.ndarray,
    gamma: float | np.ndarray | None = None,
    epsilon: float | np.ndarray | None = None,
) -> Context:
    """Context reached from one token at position 0.

    token: its mean bit on every segment (..., L) in [−1, 1], or the index of an output feature
    a for the token W^o_a (the document starts from a = 0).
    """
    if np.ndim(token) == 0:
        token = network.semantic[
            OUTPUT, check_integer("token", token, low=0, high=network.features - 1)
        ]
    return context_from_tokens(
        network,
        network.overlaps(np.asarray(token))[..., None, :, :],
        beta=beta,
        gamma=gamma,
        epsilon=epsilon,
    )


def document_context(network: Network, beta: float = 3.0, *, steps: int = 100_000) -> Context:
    """The document's initial context: at β = 3, from the token W^o_1, after 100,000 steps."""
    beta = check_real("beta", beta, low=0.0)
    start = context_from_token(network, 0, beta=beta)
    ensemble = Ensemble(network, start.attention, start.position, beta)
    ensemble.advance(steps)
    return Context(ensemble.attention(), ensemble.position)


def random_contexts(network: Network, seed: int, *, count: int) -> Context:
    """`count` contexts of independent attention vectors, uniform in [−1, 1]^P, position 0."""
    rng = np.random.default_rng(check_integer("seed", seed, low=0))
    count = check_integer("count", count, low=1)
    return Context(rng.uniform(-1.0, 1.0, (count, network.context, network.features)), 0)


# ---- trajectories


def trajectory(
    network: Network | Sequence[Network],
    context: Context,
    *,
    beta: float | np.ndarray,
    steps: int,
    gamma: float | np.ndarray | None = None,
    epsilon: float | np.ndarray | None = None,
    transient: int = 0,
    every: int = 1,
    threads: int | None = None,
    progress: bool = False,
) -> tuple[np.ndarray, Context]:
    """Semantic m^o (factor 1 − ε included) of `steps` tokens after `transient` dropped ones.

    beta, gamma, epsilon and the context's batch broadcast to (B,); for a sequence of M networks
    of equal P, T, K, to (M, B). Returns overlaps (..., steps, P), of every `every`-th token, and
    the final context. Compiled; `step` is the plain reference.
    """
    transient = check_integer("transient", transient, low=0)
    ensemble = Ensemble(network, context.attention, context.position, beta, gamma, epsilon, threads)
    ensemble.advance(transient, progress)
    overlaps = ensemble.record(steps, every, progress)
    return overlaps, Context(ensemble.attention(), ensemble.position)


# ---- differentiable


def torch_step(
    semantic: torch.Tensor,
    *,
    position_overlaps: torch.Tensor,
    attention: torch.Tensor,
    position: int,
    beta: torch.Tensor | float,
    gamma: torch.Tensor | float,
    epsilon: torch.Tensor | float,
    fractions: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """One step, differentiable in weights, context, β, γ and ε.

    semantic (4, P, L), any real entries; position_overlaps (2^K, 4, P) as
    `Network.position_overlaps` gives them; attention (..., T, P), newest first; beta, gamma and
    epsilon scalars. Returns the next attention window (..., T, P) and semantic m^o (..., P).
    """
    semantic = check_tensor("semantic", semantic, ndim=3)
    attention = check_tensor("attention", attention)
    context = attention.shape[-2]
    weighted = semantic / semantic.shape[2] if fractions is None else semantic * fractions
    hidden = torch.tanh(beta * (attention @ semantic[OUTPUT]))
    average = (1.0 - epsilon) * torch.einsum("ral,...tl->...tra", weighted, hidden)
    positions = [(position - age) % len(position_overlaps) for age in range(context)]
    window = average + epsilon * position_overlaps[positions]
    score = torch.einsum("...a,...ta->...t", window[..., 0, QUERY, :], window[..., KEY, :])
    weight = torch.softmax(gamma * score, dim=-1)
    newest = torch.einsum("...t,...ta->...a", weight, window[..., VALUE, :])
    following = torch.cat([newest[..., None, :], attention[..., :-1, :]], dim=-2)
    return following, average[..., 0, OUTPUT, :]


def torch_trajectory(
    network: Network,
    context: Context,
    beta: torch.Tensor | float,
    *,
    steps: int,
    gamma: torch.Tensor | float | None = None,
    epsilon: torch.Tensor | float | None = None,
    semantic: torch.Tensor | None = None,
) -> torch.Tensor:
    """Semantic m^o of `steps` tokens, (..., steps, P), differentiable; float64.

    `semantic` replaces the network's weights (4, P, L) by a tensor that may require a gradient.
    """
    steps = check_integer("steps", steps, low=1)
    weights = torch.tensor(network.semantic) if semantic is None else semantic
    drive = torch.tensor(network.position_overlaps())
    fractions = torch.tensor(network.fractions)
    attention = torch.as_tensor(context.attention, dtype=torch.float64)
    gamma = network.gamma if gamma is None else gamma
    epsilon = network.epsilon if epsilon is None else epsilon
    position, output = context.position, []
    for _ in range(steps):
        attention, overlap = torch_step(
            weights,
            position_overlaps=drive,
            attention=attention,
            position=position,
            beta=beta,
            gamma=gamma,
            epsilon=epsilon,
            fractions=fractions,
        )
        output.append(overlap)
        position = (position + 1) % network.positions
    return torch.stack(output, dim=-2)


def _batch(
    features: int, attention: np.ndarray, beta: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    attention = check_array("attention", attention)
    if attention.ndim < 1 or attention.shape[-1] != features:
        raise ValueError(
            f"attention must have a last axis of {features} features, got shape {attention.shape}"
        )
    return attention, check_array("beta", beta, low=0.0)


def _context(network: Network, context: Context) -> tuple[np.ndarray, int]:
    attention = check_array("context.attention", context.attention)
    if attention.shape[-2:] != (network.context, network.features):
        raise ValueError(
            f"context.attention must end in {(network.context, network.features)}, "
            f"got shape {attention.shape}"
        )
    position = check_integer(
        "context.position", context.position, low=0, high=network.positions - 1
    )
    return attention, position


def _parameter(
    name: str, value: float | np.ndarray | None, default: float | None, high: float | None = None
) -> np.ndarray:
    return check_array(name, default if value is None else value, low=0.0, high=high)

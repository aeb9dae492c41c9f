"""Hopfield networks of two groups of spins, attention as their conditional, tokens by bits.

[poclopez2024dynamical, Sec. 2], without fields. Features are rows (P, N), as in `core.states`;
`left` belongs to the group x, `right` to y.
"""

import numpy as np
import torch
from scipy.special import logsumexp, softmax

from spinformer.core.random import Seed, numpy_generator
from spinformer.core.states import hebbian_couplings, overlaps, spin_states
from spinformer.dmft.mean_field import attend
from spinformer.dmft.network import OUTPUT, Network


def bipartite_log_probability(left: np.ndarray, *, right: np.ndarray, beta: float) -> np.ndarray:
    """Exact ln p(x, y), (2^N_x, 2^N_y): p ∝ exp(β/N_x Σ_ij x_i J_ij y_j), J = Σ left_a right_aᵀ."""
    x = spin_states(left.shape[1])
    y = spin_states(right.shape[1])
    exponent = beta / left.shape[1] * (x @ hebbian_couplings(left, other=right) @ y.T)
    return exponent - logsumexp(exponent)


def conditional_means(
    states: np.ndarray, *, left: np.ndarray, right: np.ndarray, beta: float
) -> np.ndarray:
    """Means ⟨y_j⟩ (..., N_y) given `states` x (..., N_x): tanh(β Σ_a right_aj m_a(x)), Eq. (3)."""
    return np.tanh(beta * (overlaps(states, patterns=left) @ right))


def iterate_pair(
    states: np.ndarray, *, left: np.ndarray, right: np.ndarray, beta: float, steps: int, seed: Seed
) -> np.ndarray:
    """Feed the output back as input: x(t+1) drawn from p(y | x(t)). Shape (steps + 1, ..., N)."""
    rng = numpy_generator(seed)
    path = [states]
    for _ in range(steps):
        means = conditional_means(path[-1], left=left, right=right, beta=beta)
        path.append(np.where(rng.random(means.shape) < 0.5 * (1.0 + means), 1.0, -1.0))
    return np.stack(path)


def restricted_conditional(
    query: np.ndarray, *, allowed: np.ndarray, left: np.ndarray, right: np.ndarray, gamma: float
) -> np.ndarray:
    """The bipartite conditional over the T rows of `allowed`, from its energy: shape (T,).

    p(y = allowed[t] | query) ∝ exp(γ/(N_x N_y) Σ_ij query_i J_ij allowed[t]_j)
    [poclopez2024dynamical, Eq. (4)-(5)]. Entries may be any real numbers, not only ±1.
    """
    couplings = hebbian_couplings(left, other=right)
    return softmax(gamma / couplings.size * (query @ couplings @ allowed.T))


def torch_attention(
    tokens: np.ndarray, *, left: np.ndarray, right: np.ndarray, gamma: float
) -> np.ndarray:
    """Weights (T,) of torch's attention over `tokens` (T, N), the newest of them the query.

    The values are one-hot, so that what comes out are the weights [poclopez2024dynamical, Eq. (5)].
    """
    q = torch.from_numpy(overlaps(tokens[-1:], patterns=left))
    k = torch.from_numpy(overlaps(tokens, patterns=right))
    v = torch.eye(len(tokens), dtype=torch.float64)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=gamma)[0].numpy()


def generate_bits_reference(
    weights: np.ndarray,
    network: Network,
    *,
    beta: float,
    window: np.ndarray,
    steps: int,
    seed: Seed,
    position: int,
) -> np.ndarray:
    """One run from weights (4, P, N); int8 array (T + steps, N) [poclopez2024dynamical, Eq. (8)].

    Of `network` only the position weights, T, γ and ε are used. `window`, (T, N) of ±1, holds
    the initial tokens, `position` is that of the newest. Plain, and independent of the segments.
    """
    rng = numpy_generator(seed)
    path = list(window)
    for step in range(steps):
        recent = np.array(path[-network.context :])
        overlaps = np.einsum("rai,ti->tra", weights, recent) / weights.shape[2]
        m = network.with_position_code(
            overlaps, position + step + np.arange(1 - network.context, 1)
        )
        mean = np.tanh(beta * (attend(m, gamma=network.gamma, newest=-1) @ weights[OUTPUT]))
        path.append(np.where(rng.random(len(mean)) < 0.5 * (1.0 + mean), 1.0, -1.0))
    return np.array(path, dtype=np.int8)

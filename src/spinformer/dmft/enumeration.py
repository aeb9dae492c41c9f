"""A network of few bits solved exactly: the Markov chain of its windows, state by state.

The bits of one segment are exchangeable, so a token of N bits is a vector of counts, one of
S = Π_l (n_l + 1), and a window one of M = S^T. From each window the next token is L independent
binomial draws [poclopez2024dynamical, Eqs. (7) and (8)]. All averages over texts are then sums
over M states, with no sampling and no expansion: what `finite_size` and `closure` approximate.

Conventions of `tokens`: tokens are segment means, windows run from old to new.
"""

from __future__ import annotations

import numpy as np
from scipy.stats import binom

from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.dmft.network import Network
from spinformer.dmft.tokens import attention_of_window, window_means

# Entries of the largest table, windows times tokens: a third of a gigabyte.
_LARGEST = 40_000_000


def token_states(network: Network, size: int) -> np.ndarray:
    """All tokens of N = `size` bits as segment means, (S, L), counts of the last segment fastest.

    Raises ValueError where the segments do not hold whole numbers of bits.

    >>> token_states(Network.document(), 3)[:3]
    array([[-1., -1., -1.],
           [-1., -1.,  1.],
           [-1.,  1., -1.]])
    """
    check_instance("network", network, Network)
    axes = [2.0 * np.arange(count + 1) / count - 1.0 for count in network.counts(size)]
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, network.segments)


def transition_probabilities(
    network: Network, size: int, *, beta: float, position: int
) -> np.ndarray:
    """Probability of every next token after every window, (S, …, S; S), oldest token first.

    `position` is that of the window's newest token. Raises ValueError where the table would be
    larger than 40 million entries.

    >>> signs, none = np.ones((4, 1, 1)), np.ones((4, 1, 0))
    >>> coin = Network(semantic=signs, position=none, context=1, gamma=1.0, epsilon=0.0)
    >>> transition_probabilities(coin, 1, beta=0.5, position=0).round(4)  # e^{±1/2} / 2 cosh(1/2)
    array([[0.7311, 0.2689],
           [0.2689, 0.7311]])
    """
    states = token_states(network, size)
    count, context = len(states), network.context
    if float(count) ** (context + 1) > _LARGEST:
        raise ValueError(
            f"size must leave at most {_LARGEST} entries of windows times tokens, got "
            f"{count} tokens and windows of {context}"
        )
    grid = np.indices((count,) * context).reshape(context, -1).T
    attention = attention_of_window(network, states[grid], position=position)
    up = 0.5 * (1.0 + window_means(network, beta, attention=attention))
    table = np.ones((len(grid), 1))
    for segment, bits in enumerate(network.counts(size)):
        chance = binom.pmf(np.arange(bits + 1), bits, up[:, segment, None])
        table = (table[:, :, None] * chance[:, None, :]).reshape(len(grid), -1)
    return table.reshape(*(count,) * context, count)


def exact_moments(
    network: Network, size: int, *, beta: float, window: np.ndarray, steps: int, position: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mean (T + steps, L) and covariance (T + steps, L, L) of every token over all texts.

    window: (T, L) means that the first T tokens are drawn from. `position` as above. Raises
    ValueError for bad input.

    >>> signs, none = np.ones((4, 1, 1)), np.ones((4, 1, 0))
    >>> coin = Network(semantic=signs, position=none, context=1, gamma=1.0, epsilon=0.0)
    >>> mean, _ = exact_moments(coin, 1, beta=0.5, window=np.array([[0.5]]), steps=1, position=0)
    >>> float(mean[1, 0].round(6))  # ½ tanh(½)
    0.231059
    """
    check_instance("network", network, Network)
    context, segments = network.context, network.segments
    window = check_array("window", window, shape=(context, segments), low=-1.0, high=1.0)
    beta = check_real("beta", beta, low=0.0)
    steps = check_integer("steps", steps, low=0)
    position = check_integer("position", position)
    states = token_states(network, size)
    first = [np.ones(1) for _ in range(context)]
    for token in range(context):
        for segment, bits in enumerate(network.counts(size)):
            chance = binom.pmf(np.arange(bits + 1), bits, 0.5 * (1.0 + window[token, segment]))
            first[token] = np.outer(first[token], chance).ravel()
    law = first[0]
    for chance in first[1:]:
        law = law[..., None] * chance
    means, covariances = [], []

    def note(weights: np.ndarray) -> None:
        mean = weights @ states
        means.append(mean)
        covariances.append((states - mean).T @ (weights[:, None] * (states - mean)))

    for token in range(context):
        note(first[token])
    # Chances depend on the position of the newest token alone: one table for each of them.
    tables: dict[int, np.ndarray] = {}
    for step in range(steps):
        place = (position + step) % network.positions
        if place not in tables:
            tables[place] = transition_probabilities(network, size, beta=beta, position=place)
        law = np.einsum("i...,i...j->...j", law, tables[place])
        note(law.reshape(-1, len(states)).sum(axis=0))
    return np.array(means), np.array(covariances)


def mean_first_passage(chances: np.ndarray, *, inside: np.ndarray) -> np.ndarray:
    """Mean number of steps until a Markov chain (M, M) leaves the states `inside`, (M,).

    Zero for states that are not inside. Solves (1 − Q) τ = 1 with Q the block of `inside` by
    leaving out one state after the other (Grassmann, Taksar and Heyman 1985): sums of positive
    numbers alone, so that times of any length have all their digits, where 1 − Q would round a
    chance of leaving below 1e-16 away. Raises ValueError for another shape, or where there is no
    way out.

    >>> coin = np.array([[0.9, 0.1], [0.1, 0.9]])
    >>> mean_first_passage(coin, inside=np.array([True, False])).round(6) + 0.0
    array([10.,  0.])
    """
    chances = check_array("chances", chances, ndim=2, low=0.0, high=1.0)
    count = len(chances)
    check_array("chances", chances, shape=(count, count))
    inside = np.asarray(inside)
    if inside.dtype != bool or inside.shape != (count,):
        raise ValueError(f"inside must be ({count},) booleans, got {inside.dtype} {inside.shape}")
    move = chances[np.ix_(inside, inside)]
    out = chances[np.ix_(inside, ~inside)].sum(axis=1)
    wait, leave = np.ones(len(move)), np.zeros(len(move))
    for n in range(len(move) - 1, -1, -1):
        leave[n] = move[n, :n].sum() + out[n]
        if not leave[n] > 0.0:
            raise ValueError("inside must be left from everywhere, got a state without a way out")
        # What enters n before it is left, by whom it is left, and for how long it waits.
        enters = move[:n, n] / leave[n]
        move[:n, :n] += np.outer(enters, move[n, :n])
        out[:n] += enters * out[n]
        wait[:n] += enters * wait[n]
    found = np.zeros(len(move))
    for n in range(len(move)):
        found[n] = (wait[n] + move[n, :n] @ found[:n]) / leave[n]
    times = np.zeros(count)
    times[inside] = found
    return times

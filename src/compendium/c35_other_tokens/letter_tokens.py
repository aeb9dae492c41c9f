"""Token by token at finite N with letters: paths, draws, exact sums, first-order noise, words.

[poclopez2024dynamical, Eqs. (7), (8)] with q letters a site. Given the attention vector the sites
of a token are independent, and those of one segment share their probabilities, so that a segment
of n sites is one multinomial draw: a token costs L draws, whatever N.

Conventions of `spinformer.dmft.finite_size`: a token is (L, q), how often each letter occurs in
each segment. Windows (..., T, L, q) and paths (..., steps, L, q) run from *old to new*; `position`
is the position index of the newest token of a window, which is also the query.

A *vocabulary* is the other way to draw a token: one softmax over a list of V words. It is a network
of letters with a single site, whose q = V letters are the words (`vocabulary`), so that everything
here applies to it, with N = 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.linalg import block_diag
from scipy.special import softmax
from torch import Tensor
from torch.func import jacrev

from compendium.c35_other_tokens.letters import LetterNetwork
from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.mean_field import attend
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Context, fitting


def letter_overlaps(network: LetterNetwork, tokens: np.ndarray) -> np.ndarray:
    """`(1 − ε) m^o_a`, (..., P), of tokens (..., L, q)."""
    return (1.0 - network.epsilon) * network.overlaps(tokens)[..., OUTPUT, :]


def attention_of_letters(
    network: LetterNetwork, window: np.ndarray, *, position: int
) -> np.ndarray:
    """A, shape (..., P), of windows (..., T, L, q) [poclopez2024dynamical, Eqs. (4), (5), (15)]."""
    return attend(_window_overlaps(network, window, position), gamma=network.gamma)


def _window_overlaps(network: LetterNetwork, window: np.ndarray, position: int) -> np.ndarray:
    """m^α_a, positions included, (..., T, 4, P), *newest first*."""
    drive = network.position_overlaps()[(position - np.arange(network.context)) % network.positions]
    overlaps = network.overlaps(window[..., ::-1, :, :])
    return (1.0 - network.epsilon) * overlaps + network.epsilon * drive


def letter_window(network: LetterNetwork, context: Context, *, beta: float) -> np.ndarray:
    """The window (..., T, L, q), oldest first, of mean tokens that a context stands for."""
    attention, _ = fitting(network, context)
    return network.probabilities(attention[..., ::-1, :], beta=beta)


def mean_letter_path(
    network: LetterNetwork, beta: float, *, window: np.ndarray, steps: int, position: int
) -> np.ndarray:
    """The path (T + steps, L, q) of a network of infinitely many sites, the window first.

    Every token equals its probabilities. A plain loop, for short paths.
    """
    path = list(window)
    for step in range(steps):
        recent = np.array(path[-network.context :])
        attention = attention_of_letters(network, recent, position=position + step)
        path.append(network.probabilities(attention, beta=beta))
    return np.array(path)


def generate_letters(
    network: LetterNetwork,
    size: int,
    *,
    beta: float,
    window: np.ndarray,
    steps: int,
    runs: int,
    seed: Seed,
    position: int,
) -> np.ndarray:
    """Tokens (R, T + steps, L, q) of R = `runs` texts of N = `size` sites, the window first.

    Every token is L multinomial draws, those of the window, too: (T, L, q) probabilities. The
    segments must hold whole numbers of sites.
    """
    counts, context = network.counts(size), network.context
    rng = numpy_generator(seed)

    def draw(chance: np.ndarray) -> np.ndarray:
        return rng.multinomial(counts, chance) / counts[:, None]

    tokens = np.empty((runs, context + steps, network.segments, network.letters))
    tokens[:, :context] = draw(np.broadcast_to(window, tokens[:, :context].shape))
    for step in range(steps):
        attention = attention_of_letters(
            network, tokens[:, step : step + context], position=position + step
        )
        tokens[:, context + step] = draw(network.probabilities(attention, beta=beta))
    return tokens


def enumerate_next(
    network: LetterNetwork, size: int, *, beta: float, attention: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The exact law of one step: all q^N tokens (q^N, L, q) with their probabilities (q^N,).

    N = `size` sites after an attention vector (P,), as one softmax. The energy of a token is
    −N Σ_a A_a m^o_a, a sum over its sites: its Boltzmann weight factorizes, which is what makes
    the sites independent.
    """
    counts = network.counts(size)
    sites = np.indices((network.letters,) * size).reshape(size, -1).T
    owner = np.repeat(np.eye(network.segments), counts, axis=0)
    tokens = np.einsum("nis,il->nls", np.eye(network.letters)[sites], owner) / counts[:, None]
    energy = -size * (network.overlaps(tokens)[:, OUTPUT] @ attention)
    return tokens, softmax(-beta * energy)


def overlap_covariance(network: LetterNetwork, chance: np.ndarray) -> np.ndarray:
    """N times the covariance of the 4P overlaps of a token drawn from `chance` (..., L, q).

    Σ_l f_l Cov_s(W^α_a, W^γ_b), (..., 4P, 4P), without the factor 1 − ε: the sites of a segment
    are independent, so a multinomial's covariance, whatever N.
    """
    size = 4 * network.features
    values = network.semantic.reshape(size, network.segments, network.letters)
    mean = np.einsum("als,...ls->...al", values, chance)
    square = np.einsum("l,als,bls,...ls->...ab", network.fractions, values, values, chance)
    return square - np.einsum("l,...al,...bl->...ab", network.fractions, mean, mean)


def predicted_deviation(
    network: LetterNetwork, beta: float, *, path: np.ndarray, position: int
) -> np.ndarray:
    """√N times the root mean square of |m − m_∞| over runs, to first order in N^{-1/2}.

    path: (T + steps, L, q) of `mean_letter_path`; `position` is that of the window's newest token.
    m are the semantic output overlaps; result (T + steps,), for a window that is drawn, too.
    Deviations of the overlaps in a window obey a linear recursion: they move the next attention
    vector, that the mean of the next token, and its draw adds `overlap_covariance` / N.
    """
    context, width = network.context, 4 * network.features
    share = 1.0 - network.epsilon
    noise = share**2 * overlap_covariance(network, path)
    outputs = slice(OUTPUT * network.features, (OUTPUT + 1) * network.features)

    def attended(m: Tensor) -> Tensor:
        return torch.softmax(network.gamma * (m[:, KEY] @ m[0, QUERY]), 0) @ m[:, VALUE]

    joint = block_diag(*noise[context - 1 :: -1])
    result = [np.trace(one[outputs, outputs]) for one in noise[:context]]
    for t in range(len(path) - context):
        m = torch.tensor(_window_overlaps(network, path[t : t + context], position + t))
        pull = jacrev(attended)(m).flatten(1).numpy()
        answer = share * network.response(attended(m).numpy(), beta=np.array(beta))
        push = np.eye(len(joint), k=-width)
        push[:width] = answer.reshape(width, -1) @ pull
        joint = push @ joint @ push.T
        joint[:width, :width] += noise[context + t]
        result.append(np.trace(joint[outputs, outputs]))
    return np.sqrt(result)


def vocabulary(network: LetterNetwork, size: int, *, words: int, seed: Seed) -> LetterNetwork:
    """One softmax over a list of V = `words` whole tokens of N = `size` sites, as a network.

    A word has its own letter frequencies in each segment, uniform on the simplex, and its N sites
    are drawn from these; its logit is β Σ_a A_a m^o_a(word). Overlaps are centered over the list
    and, where one exceeds 1, all are scaled down. The result has one site, whose letters are the
    words.
    """
    counts = network.counts(size)
    rng = numpy_generator(seed)
    chance = rng.dirichlet(np.ones(network.letters), size=(words, network.segments))
    tokens = rng.multinomial(counts, chance) / counts[:, None]
    overlaps = network.overlaps(tokens)
    centered = overlaps - overlaps.mean(axis=0)
    centered /= max(1.0, float(np.abs(centered).max()))
    shared: dict[str, Any] = {"context": network.context, "gamma": network.gamma}
    shared |= {"position": network.position, "epsilon": network.epsilon}
    return LetterNetwork(semantic=np.moveaxis(centered, 0, -1)[:, :, None], **shared)

"""A self-attention network whose tokens are made of letters: sites with q values.

A feature of a role gives every letter s of site i a value W^α_{a,i}(s) that averages to zero over
the letters. A Potts feature (Wu 1982) is 1 for one letter of each site and −1/(q − 1) for others;
in units in which its variance 1/(q − 1) is 1, as for bits, β and γ are smaller by that factor.
Sites fall into segments of equal features, each one multinomial draw. A *vocabulary*, one softmax
over a list of V words, is a network of N = 1 site and q = V letters.

Conventions of `spinformer.dmft.finite_size`: a token is (L, q), the shares of the letters in each
segment. Windows (..., T, L, q) and paths (..., steps, L, q) run from *old to new*; `position` is
that of the newest token of a window, which is also the query.
"""

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Self

import numpy as np
import torch
from scipy.linalg import block_diag
from scipy.special import softmax
from torch import Tensor
from torch.func import jacrev

from spinformer.core.checks import check_array
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.dmft.mean_field import attend
from spinformer.dmft.network import (
    KEY,
    OUTPUT,
    QUERY,
    VALUE,
    AttentionNetwork,
    Context,
    Network,
    check_context,
)

# Of the networks that are drawn, in units of features of variance 1.
GAMMA = 220.0 / 3.0**0.5


def potts(labels: np.ndarray, *, letters: int) -> np.ndarray:
    """Potts features (4, P, L, q): `labels` (4, P, L) below q name the letter of each segment."""
    named = labels[..., None] == np.arange(letters)
    return np.where(named, 1.0, -1.0 / (letters - 1))


@record
class LetterNetwork(AttentionNetwork):
    """The network of [poclopez2024dynamical, Eqs. (7), (8), (15)] with q letters a site.

    semantic: (4, P, L, q) values W^α_a(s) of each segment and letter. The rest is as in `Network`.
    """

    def _checked_semantic(self) -> np.ndarray:
        return check_array("semantic", self.semantic, shape=(4, "P", "L", "q"))

    @classmethod
    def from_binary(cls, network: Network) -> Self:
        """The network of bits as one of two letters, the bit −1 first."""
        own = {field.name: getattr(network, field.name) for field in fields(network)}
        return cls(**own | {"semantic": network.semantic[..., None] * np.array([-1.0, 1.0])})

    @classmethod
    def segmented(cls, seed: Seed, *, letters: int, segments: int = 3) -> Self:
        """Three Potts features with independent uniform labels, and random position signs."""
        rng = numpy_generator(seed)
        return cls(
            semantic=potts(rng.integers(letters, size=(4, 3, segments)), letters=letters),
            position=rng.choice((-1.0, 1.0), size=(4, 3, 2)),
            context=4,
            gamma=(letters - 1) * GAMMA,
            epsilon=0.02,
        )

    @property
    def letters(self) -> int:
        """q, letters that a site can have."""
        return self.semantic.shape[3]

    def overlaps(self, token: np.ndarray) -> np.ndarray:
        """m^α_a = Σ_l f_l Σ_s x_{l,s} W^α_a(l, s) of tokens (..., L, q): (..., 4, P)."""
        return np.einsum("rals,...ls->...ra", self.semantic * self.fractions[:, None], token)

    def probabilities(self, attention: np.ndarray, *, beta: np.ndarray | float) -> np.ndarray:
        """P(s) of every segment, (..., L, q), given attention vectors (..., P); β broadcasts."""
        logit = np.einsum("...b,bls->...ls", attention, self.semantic[OUTPUT])
        return softmax(np.asarray(beta)[..., None, None] * logit, axis=-1)

    def mean_overlaps(self, attention: np.ndarray, *, beta: np.ndarray) -> np.ndarray:
        """m^α_a of the token of these probabilities: (..., 4, P)."""
        return self.overlaps(self.probabilities(attention, beta=beta))

    def response(self, attention: np.ndarray, *, beta: np.ndarray) -> np.ndarray:
        """∂m^α_a / ∂A_b = β Σ_l f_l Cov_s(W^α_a, W^o_b), (..., 4, P, P)."""
        chance = self.probabilities(attention, beta=beta)
        output = self.semantic[OUTPUT]
        mean = np.einsum("bls,...ls->...bl", output, chance)
        lean = chance[..., None, :, :] * (output - mean[..., None])
        weighted = self.semantic * self.fractions[:, None]
        covariance = np.einsum("rals,...bls->...rab", weighted, lean)
        return np.asarray(beta)[..., None, None, None] * covariance

    def hidden_units(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The cheapest exact form of the average over sites and letters (`kernels`).

        Letters of a segment with equal output features form a class; segments with the same
        classes, in any order, form a group. Returns `patterns` (rows, P), output features of the
        classes relative to a group's first one; `readout` (4, P, rows); and `degeneracy`
        (groups, classes), how many letters a class holds.
        """
        groups: dict[bytes, list[tuple[int, np.ndarray, np.ndarray, np.ndarray]]] = {}
        for segment in range(self.segments):
            columns = np.round(self.semantic[OUTPUT, :, segment].T, 12) + 0.0
            found = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
            classes, member, sizes = found
            key = np.column_stack([classes, sizes]).tobytes()
            groups.setdefault(key, []).append((segment, classes, member.ravel(), sizes))
        most = max(2, *(len(one[0][1]) for one in groups.values()))
        rows = most - 1
        patterns = np.zeros((len(groups) * rows, self.features))
        readout = np.zeros((4, self.features, len(patterns)))
        degeneracy = np.zeros((len(groups), most))
        for number, members in enumerate(groups.values()):
            for segment, classes, member, sizes in members:
                here = slice(number * rows, number * rows + len(sizes) - 1)
                degeneracy[number, : len(sizes)] = sizes
                patterns[here] = classes[1:] - classes[0]
                mean = np.eye(len(sizes))[member] / sizes[member, None]
                weighted = self.fractions[segment] * self.semantic[:, :, segment]
                readout[:, :, here] += (weighted @ mean)[..., 1:]
        return patterns, readout, degeneracy


# ---- token by token


def letter_overlaps(network: LetterNetwork, tokens: np.ndarray) -> np.ndarray:
    """`(1 − ε) m^o_a`, (..., P), of tokens (..., L, q)."""
    return (1.0 - network.epsilon) * network.overlaps(tokens)[..., OUTPUT, :]


def attention_of_letters(
    network: LetterNetwork, window: np.ndarray, *, position: int
) -> np.ndarray:
    """A, shape (..., P), of windows (..., T, L, q) [poclopez2024dynamical, Eqs. (4), (5), (15)]."""
    m = network.with_position_code(
        network.overlaps(window), position + np.arange(1 - network.context, 1)
    )
    return attend(m, gamma=network.gamma, newest=-1)


def letter_window(network: LetterNetwork, context: Context, *, beta: float) -> np.ndarray:
    """The window (..., T, L, q), oldest first, of mean tokens that a context stands for."""
    return network.probabilities(check_context(network, context)[0][..., ::-1, :], beta=beta)


def letter_path(
    network: LetterNetwork,
    window: np.ndarray,
    *,
    beta: float,
    steps: int,
    position: int,
    draw: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> np.ndarray:
    """The path (..., T + steps, L, q) of tokens that `draw` makes of their probabilities."""
    for place in range(position, position + steps):
        recent = window[..., -network.context :, :, :]
        attention = attention_of_letters(network, recent, position=place)
        token = draw(network.probabilities(attention, beta=beta))
        window = np.concatenate([window, token[..., None, :, :]], axis=-3)
    return window


def generate_letters(
    network: LetterNetwork,
    window: np.ndarray,
    *,
    size: int,
    beta: float,
    steps: int,
    position: int,
    runs: int,
    seed: Seed,
) -> np.ndarray:
    """Tokens (R, T + steps, L, q) of `runs` texts of N = `size` sites, the window drawn, too."""
    counts = network.counts(size)
    rng = numpy_generator(seed)

    def draw(chance: np.ndarray) -> np.ndarray:
        return rng.multinomial(counts, chance) / counts[:, None]

    drawn = draw(np.broadcast_to(window, (runs, *window.shape)))
    return letter_path(network, drawn, beta=beta, steps=steps, position=position, draw=draw)


def enumerate_next(
    network: LetterNetwork, size: int, *, beta: float, attention: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The law after an attention vector (P,): all tokens (q^N, L, q), probabilities (q^N,)."""
    counts = network.counts(size)
    sites = np.indices((network.letters,) * size).reshape(size, -1).T
    owner = np.repeat(np.eye(network.segments), counts, axis=0)
    tokens = np.einsum("nis,il->nls", np.eye(network.letters)[sites], owner) / counts[:, None]
    return tokens, softmax(beta * size * (network.overlaps(tokens)[:, OUTPUT] @ attention))


def overlap_covariance(network: LetterNetwork, chance: np.ndarray) -> np.ndarray:
    """N times the covariance of 4P overlaps, without 1 − ε, drawn from `chance` (..., L, q)."""
    size = 4 * network.features
    values = network.semantic.reshape(size, network.segments, network.letters)
    mean = np.einsum("als,...ls->...al", values, chance)
    square = np.einsum("l,als,bls,...ls->...ab", network.fractions, values, values, chance)
    return square - np.einsum("l,...al,...bl->...ab", network.fractions, mean, mean)


def predicted_deviation(
    network: LetterNetwork, beta: float, *, path: np.ndarray, position: int
) -> np.ndarray:
    """√N times the root mean square of |m^o − m^o_∞| over runs, to first order in N^{-1/2}.

    (T + steps,), for a path of `letter_path` whose window is drawn, too.
    """
    context = network.context
    width = 4 * network.features
    share = 1.0 - network.epsilon
    noise = share**2 * overlap_covariance(network, path)
    outputs = slice(OUTPUT * network.features, (OUTPUT + 1) * network.features)

    def attended(m: Tensor) -> Tensor:
        return torch.softmax(network.gamma * (m[:, KEY] @ m[0, QUERY]), 0) @ m[:, VALUE]

    joint = block_diag(*noise[context - 1 :: -1])
    result = [np.trace(one[outputs, outputs]) for one in noise[:context]]
    for t in range(len(path) - context):
        places = position + t + np.arange(1 - context, 1)
        placed = network.with_position_code(network.overlaps(path[t : t + context]), places)
        m = torch.tensor(placed[::-1].copy())
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

    The sites of a word are drawn from letter frequencies of its own, uniform on the simplex.
    Overlaps are centered over the list and, where one exceeds 1, all are scaled down.
    """
    counts = network.counts(size)
    rng = numpy_generator(seed)
    chance = rng.dirichlet(np.ones(network.letters), size=(words, network.segments))
    overlaps = network.overlaps(rng.multinomial(counts, chance) / counts[:, None])
    centered = overlaps - overlaps.mean(axis=0)
    centered /= max(1.0, float(np.abs(centered).max()))
    semantic = np.moveaxis(centered, 0, -1)[:, :, None]
    return replace(network, semantic=semantic, fractions=np.ones(1))

"""Weights of a self-attention network whose tokens are made of letters: sites with q values.

[poclopez2024dynamical] has tokens of N bits and says that the results extend "to other
configurations". Here a site i of a token takes one of q letters s, and a feature of a role gives
every letter of a site a value W^α_{a,i}(s) that averages to zero over the letters. The overlap of
a token is m^α_a = (1/N) Σ_i W^α_{a,i}(s_i), and given the attention vector A every site is drawn
on its own from a softmax over its letters,

    P(s_i = s) ∝ exp(β Σ_a A_a W^o_{a,i}(s)) .

With two letters and W(s) = ±w this is the network of bits. With Potts features (Wu 1982) a feature
names one letter ξ of each site, and W(s) = (q δ_{s,ξ} − 1)/(q − 1): 1 where the site has the
letter, and −1/(q − 1) else. Their variance over the letters is 1/(q − 1); in units in which it is
1, as for bits, β and γ are smaller by that factor.

For N → ∞ overlaps are averages over independent sites and equal their means, so that the mean
field is that of bits with the average over ±1 replaced by the one over the letters. Sites fall
into segments of equal features, which makes the average exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import softmax

from spinformer.core.checks import check_array
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.dmft.network import OUTPUT, AttentionNetwork, Network

# Of the networks that are drawn, in units of features of variance 1.
GAMMA = 220.0 / 3.0**0.5
# What a network shares with the same one of other tokens.
_SHARED = ("position", "context", "gamma", "epsilon", "fractions")


def potts(labels: np.ndarray, *, letters: int) -> np.ndarray:
    """Potts features (4, P, L, q): `labels` (4, P, L) below q name the letter of each segment."""
    named = labels[..., None] == np.arange(letters)
    return np.where(named, 1.0, -1.0 / (letters - 1))


@record
class LetterNetwork(AttentionNetwork):
    """The network of [poclopez2024dynamical, Eqs. (7), (8), (15)] with q letters a site.

    semantic: (4, P, L, q) values W^α_a(s) of each segment and letter, roles in the order o, v,
        q, k, each averaging to zero over the letters (a constant would be no
        information, and no push).
    position, context, gamma, epsilon, fractions: as in `network.Network`. A token is (..., L, q),
    how often each letter occurs in each segment.
    """

    def _checked_semantic(self) -> np.ndarray:
        return check_array("semantic", self.semantic, shape=(4, None, None, None))

    # ---- constructors

    @classmethod
    def from_binary(cls, network: Network) -> LetterNetwork:
        """The network of bits as one of two letters, the bit −1 first."""
        shared: dict[str, Any] = {name: getattr(network, name) for name in _SHARED}
        return cls(semantic=network.semantic[..., None] * np.array([-1.0, 1.0]), **shared)

    @classmethod
    def segmented(cls, seed: Seed, *, letters: int, segments: int = 3) -> LetterNetwork:
        """Three Potts features with independent uniform labels on `segments` equal segments.

        γ is `GAMMA` in units of features of variance 1, q − 1 times that in the network's. Position
        signs, of two bits for a context of four tokens, are random.
        """
        rng = numpy_generator(seed)
        return cls(
            semantic=potts(rng.integers(letters, size=(4, 3, segments)), letters=letters),
            position=rng.choice((-1.0, 1.0), size=(4, 3, 2)),
            context=4,
            gamma=(letters - 1) * GAMMA,
            epsilon=0.02,
        )

    # ---- what the dynamics needs

    @property
    def letters(self) -> int:
        """q, letters that a site can have."""
        return self.semantic.shape[3]

    def overlaps(self, token: np.ndarray) -> np.ndarray:
        """m^α_a = Σ_l f_l Σ_s x_{l,s} W^α_a(l, s) of tokens (..., L, q): (..., 4, P)."""
        weighted = self.semantic * self.fractions[:, None]
        return np.einsum("rals,...ls->...ra", weighted, token)

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
        classes, in any order of the letters, form a group. Returns `patterns` (rows, P), the
        output features of the classes relative to a group's first one; `readout` (4, P, rows);
        and `degeneracy` (groups, classes), how many letters a class holds.
        With Potts features a segment has at most P + 1 classes, however many letters there are.
        """
        groups: dict[tuple[tuple[float, ...], ...], list[tuple[int, np.ndarray]]] = {}
        for segment in range(self.segments):
            columns = np.round(self.semantic[OUTPUT, :, segment].T, 12)
            classes, member = np.unique(columns, axis=0, return_inverse=True)
            sizes = np.bincount(member.ravel())
            key = tuple((*map(float, row), float(g)) for row, g in zip(classes, sizes, strict=True))
            groups.setdefault(key, []).append((segment, member.ravel()))
        most = max(2, *(len(key) for key in groups))
        rows = most - 1
        patterns = np.zeros((len(groups) * rows, self.features))
        readout = np.zeros((4, self.features, len(patterns)))
        degeneracy = np.zeros((len(groups), most))
        for number, (key, members) in enumerate(groups.items()):
            classes = np.array(key)
            degeneracy[number, : len(key)] = classes[:, -1]
            here = slice(number * rows, number * rows + len(key) - 1)
            patterns[here] = classes[1:, :-1] - classes[0, :-1]
            for segment, member in members:
                mean = np.eye(len(key))[member] / classes[member, -1:]
                weighted = self.fractions[segment] * self.semantic[:, :, segment]
                readout[:, :, here] += (weighted @ mean)[..., 1:]
        return patterns, readout, degeneracy

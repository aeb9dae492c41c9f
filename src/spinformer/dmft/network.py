"""Weights of a self-attention network with 1-bit tokens, and what of them survives N → ∞.

[poclopez2024dynamical]: tokens are N bits x ∈ {−1, 1}^N, every role α ∈ {o, v, q, k} (output,
value, query, key) has P features W^α_a ∈ {−1, 1}^N, and a position is a code of K bits
(`core.states.spin_states`, row p for position p). All that the limit N → ∞ knows of the weights
is which *kinds of bit* exist (the 4P signs that a bit carries) and which fraction of the bits is
of each kind. A `Network` stores exactly that: `semantic`, one column of signs for every kind,
called a segment, and `fractions`. A network of N given bits is the special case of N segments of
weight 1/N.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np

from spinformer.core.checks import check_array, check_choice, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.dmft.weights import AttentionNetwork

ROLES: tuple[str, ...] = ("o", "v", "q", "k")
OUTPUT, VALUE, QUERY, KEY = range(4)

# Beyond this the 2^{P-1} sign patterns of the correlation form no longer fit in memory.
MAX_FEATURES = 16


@record
class Network(AttentionNetwork):
    """The network of [poclopez2024dynamical, Eqs. (7), (8) and (15)].

    semantic: (4, P, L) signs W^α_a of each segment, roles in the order of `ROLES`.
    position: (4, P, K) signs W^{α,pos}_a of each position bit; K = 0 means no position.
    context: T, how many tokens attention sees, the newest (the query) included; at most 2^K
        when there is a position, since two tokens of one window must not share a position.
    gamma: inverse temperature of the attention softmax, the factor directly in front of the
        dot product Σ_b m^q_b m^k_b. The document's own γ is √P times this (220 for 127.017).
    epsilon: weight of the position in a token, in [0, 1]; 0 when K = 0.
    fractions: (L,) share of the N bits in each segment, positive, summing to 1; None: equal.

    Raises ValueError or TypeError naming the argument.

    >>> network = Network.document()
    >>> network.features, network.segments, network.bits, network.context
    (3, 3, 2, 4)
    """

    def _checked_semantic(self) -> np.ndarray:
        semantic = check_array("semantic", self.semantic, shape=(4, None, None), values=(-1.0, 1.0))
        features, segments = semantic.shape[1:]
        check_integer("features (axis 1 of semantic)", features, low=1, high=MAX_FEATURES)
        check_integer("segments (axis 2 of semantic)", segments, low=1)
        return semantic

    # ---- constructors

    @classmethod
    def document(cls) -> Network:
        """The network of [poclopez2024dynamical, Figures 3 to 5]: P = L = 3, K = 2, T = 4.

        ε = 0.02 and γ = 220/√3 in front of the dot product.
        """
        o, v, q, k = (
            ([-1, 1, 1], [-1, 1, -1], [1, 1, 1]),
            ([-1, 1, -1], [-1, -1, 1], [-1, 1, 1]),
            ([1, -1, -1], [-1, -1, -1], [1, -1, 1]),
            ([-1, -1, -1], [-1, -1, 1], [-1, 1, -1]),
        )
        po, pv, pq, pk = (
            ([-1, -1], [1, -1], [1, 1]),
            ([-1, -1], [1, -1], [-1, 1]),
            ([1, -1], [1, 1], [-1, -1]),
            ([-1, -1], [-1, -1], [-1, 1]),
        )
        return cls(
            semantic=np.array([o, v, q, k]),
            position=np.array([po, pv, pq, pk]),
            context=4,
            gamma=220.0 / np.sqrt(3.0),
            epsilon=0.02,
        )

    @classmethod
    def segmented(
        cls,
        seed: Seed,
        *,
        features: int = 3,
        segments: int = 3,
        bits: int = 2,
        context: int | None = None,
        gamma: float = 220.0 / 3.0**0.5,
        epsilon: float = 0.02,
    ) -> Network:
        """Random signs on `segments` equal segments [poclopez2024dynamical, App. C].

        Position signs are random too. `context` defaults to 2^bits. The draw depends on
        `seed` and the sizes only.
        """
        rng = numpy_generator(seed)
        features = check_integer("features", features, low=1, high=MAX_FEATURES)
        segments = check_integer("segments", segments, low=1)
        bits = check_integer("bits", bits, low=0, high=20)
        return cls(
            semantic=rng.choice((-1.0, 1.0), size=(4, features, segments)),
            position=rng.choice((-1.0, 1.0), size=(4, features, bits)),
            context=2**bits if context is None else context,
            gamma=gamma,
            epsilon=epsilon,
        )

    @classmethod
    def random(
        cls,
        seed: Seed,
        size: int,
        *,
        features: int = 3,
        bits: int = 2,
        context: int | None = None,
        gamma: float = 220.0 / 3.0**0.5,
        epsilon: float = 0.02,
    ) -> Network:
        """Independent fair signs for each of `size` bits, equal bits merged into segments."""
        size = check_integer("size", size, low=1)
        full = cls.segmented(
            seed,
            features=features,
            segments=size,
            bits=bits,
            context=context,
            gamma=gamma,
            epsilon=epsilon,
        )
        return full.merged()

    def merged(self) -> Network:
        """The same network with equal segments merged (their fractions add)."""
        columns = self.semantic.reshape(-1, self.segments)
        unique, inverse = np.unique(columns, axis=1, return_inverse=True)
        fractions = np.bincount(inverse.ravel(), weights=self.fractions)
        semantic = unique.reshape(4, self.features, -1)
        return replace(self, semantic=semantic, fractions=fractions)

    # ---- what the dynamics needs

    def overlaps(self, token: np.ndarray) -> np.ndarray:
        """m^α_a = Σ_l f_l W^α_{a,l} x_l of tokens constant on segments.

        token: (..., L), the mean bit of each segment. Returns (..., 4, P): the semantic part
        without the factor 1 − ε.
        """
        token = check_array("token", token, low=-1.0, high=1.0)
        if token.ndim < 1 or token.shape[-1] != self.segments:
            raise ValueError(
                f"token must have a last axis of {self.segments} segments, got shape {token.shape}"
            )
        return np.einsum("ral,...l->...ra", self.semantic * self.fractions, token)

    def mean_overlaps(self, attention: np.ndarray, *, beta: np.ndarray) -> np.ndarray:
        """m^α_a of the token of means tanh(β W^o A), (..., 4, P), of attention (..., P)."""
        return self.overlaps(np.tanh(beta[..., None] * (attention @ self.semantic[OUTPUT])))

    def response(self, attention: np.ndarray, *, beta: np.ndarray) -> np.ndarray:
        """∂m^α_a / ∂A_b of that token, (..., 4, P, P)."""
        field = beta[..., None] * (attention @ self.semantic[OUTPUT])
        slope = beta[..., None] / np.cosh(field) ** 2
        weighted = self.semantic * self.fractions
        return np.einsum("ral,...l,bl->...rab", weighted, slope, self.semantic[OUTPUT])

    def hidden_units(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`output_patterns`, and no degeneracy: a unit is a tanh."""
        return (*self.output_patterns(), np.zeros((0, 0)))

    def output_patterns(self) -> tuple[np.ndarray, np.ndarray]:
        """Group the bits by their output signs: the cheapest exact form of the mean field.

        Returns `patterns` (U, P), the different columns of W^o with w and −w taken as one
        (tanh is odd), and `readout` (4, P, U) = Σ_{bits of pattern u} f ± W^α_a, such that
        Σ_l f_l W^α_{a,l} tanh(β W^o_l·A) = Σ_u readout[α, a, u] tanh(β patterns[u]·A).
        U is at most min(L, 2^{P−1}).
        """
        columns = self.semantic[OUTPUT].T
        flip = np.where(columns[:, :1] < 0.0, -1.0, 1.0)
        patterns, inverse = np.unique(columns * flip, axis=0, return_inverse=True)
        membership = np.zeros((self.segments, len(patterns)))
        membership[np.arange(self.segments), inverse.ravel()] = self.fractions * flip[:, 0]
        return patterns, self.semantic @ membership

    def correlations(self) -> dict[tuple[int, ...], np.ndarray]:
        """C^α_{S,a} = ⟨Π_{b∈S} W^o_b · W^α_a⟩ over the bits, for every odd subset S.

        [poclopez2024dynamical, Eq. (29)]. Keys are the sorted subsets of range(P), of size 1, 3,
        5, …; values have shape (4, P). Size 1 holds the pair correlations, size 3 the averages of
        four factors, and so on; all 2^{P−1} of them are needed for an exact mean field.
        """
        weighted = self.semantic * self.fractions
        output = self.semantic[OUTPUT]
        return {
            subset: weighted @ output[list(subset)].prod(axis=0)
            for size in range(1, self.features + 1, 2)
            for subset in combinations(range(self.features), size)
        }

    def pair_correlations(self, first: str, second: str) -> np.ndarray:
        """⟨W^first_a W^second_b⟩ over the bits, shape (P, P); roles named as in `ROLES`."""
        rows = self.semantic[ROLES.index(check_choice("first", first, ROLES))]
        columns = self.semantic[ROLES.index(check_choice("second", second, ROLES))]
        return (rows * self.fractions) @ columns.T

    def weights(self, size: int) -> np.ndarray:
        """Explicit weights of a network of `size` bits, shape (4, P, size), segment by segment."""
        return np.repeat(self.semantic, self.counts(size), axis=2)

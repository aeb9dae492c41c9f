"""Weights of a self-attention network, and the state of its mean field.

[poclopez2024dynamical]: the tokens of a network are made of many *sites*, each drawn on its own
given the attention vector; all that attention sees of a token are its overlaps with P features in
each role α ∈ {o, v, q, k} (output, value, query, key), averages over the sites. In a `Network`
sites are bits: tokens x ∈ {−1, 1}^N, features W^α_a ∈ R^N, in the document signs. A position is a
code of K bits (`core.states.spin_states`, row p for position p). Stored is what the limit N → ∞
knows of the weights: `semantic`, one column for every kind of site, called a segment, and
`fractions`, the share of each. N given bits are N segments of weight 1/N.
"""

from abc import ABC, abstractmethod
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from spinformer.core.checks import (
    check_array,
    check_broadcast,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.states import spin_states

# Weights, β and γ beyond this would overflow in products; weights all below the other vanish there.
LARGEST = 1e50
_SMALLEST = 1e-50
# An attention vector is an average of values: the largest weights with room for rounding.
LARGEST_ATTENTION = 1e60
# The roles, in the order in which arrays hold them.
OUTPUT, VALUE, QUERY, KEY = range(4)


@record
class AttentionNetwork(ABC):
    """Weights, window, γ and ε; how a site answers to attention is left to the classes below.

    semantic: (4, P, L, ...) features of each segment. position, context, gamma, epsilon and
    fractions as in `network.Network`, for every kind of site.
    """

    semantic: np.ndarray
    position: np.ndarray = None  # type: ignore[assignment]
    context: int
    gamma: float
    epsilon: float = 0.0
    fractions: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Validate, and store read-only float64 arrays."""
        semantic = self._checked_semantic().copy()
        check_array("semantic", semantic, low=-LARGEST, high=LARGEST)
        sizes = np.abs(semantic).reshape(4, -1).max(axis=1)
        if ((sizes > 0.0) & (sizes < _SMALLEST)).any():
            raise ValueError(
                f"semantic must be zero or reach {_SMALLEST} in every role, got {sizes}"
            )
        features, segments = semantic.shape[1:3]
        position = np.zeros((4, features, 0))
        if self.position is not None:
            shape = (4, features, None)
            position = check_array(
                "position", self.position, shape=shape, low=-LARGEST, high=LARGEST
            ).copy()
        bits = check_integer("bits (axis 2 of position)", position.shape[2], low=0, high=20)
        context = check_integer("context", self.context, low=1)
        gamma = check_real("gamma", self.gamma, low=0.0, high=LARGEST)
        epsilon = check_real("epsilon", self.epsilon, low=0.0, high=1.0)
        if not bits and epsilon > 0.0:
            raise ValueError(f"epsilon must be 0 without position bits, got {epsilon}")
        fractions = np.full(segments, 1.0 / segments)
        if self.fractions is not None:
            fractions = check_array("fractions", self.fractions, shape=(segments,)).copy()
            if not (fractions > 0.0).all() or abs(fractions.sum() - 1.0) > 1e-12:
                raise ValueError(f"fractions must be positive and sum to 1, got {fractions}")
        for array in (semantic, position, fractions):
            array.setflags(write=False)
        found = (semantic, position, context, gamma, epsilon, fractions)
        for field, value in zip(fields(self), found, strict=True):
            object.__setattr__(self, field.name, value)

    # ---- what a kind of site has to say

    def _checked_semantic(self) -> np.ndarray:
        return check_array("semantic", self.semantic, shape=(4, "P", "L"))

    @abstractmethod
    def overlaps(self, token: np.ndarray) -> np.ndarray:
        """m^α_a of tokens given by their segments, (..., 4, P), without the factor 1 − ε."""

    @abstractmethod
    def mean_overlaps(self, attention: np.ndarray, *, beta: np.ndarray) -> np.ndarray:
        """m^α_a of the mean token, (..., 4, P), of attention vectors (..., P); β broadcasts."""

    @abstractmethod
    def hidden_units(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`patterns`, `readout` and `degeneracy` as the compiled step takes them."""

    # ---- sizes

    @property
    def features(self) -> int:
        """P, features per role."""
        return self.semantic.shape[1]

    @property
    def segments(self) -> int:
        """L, kinds of site."""
        return self.semantic.shape[2]

    @property
    def bits(self) -> int:
        """K, bits of the position code."""
        return self.position.shape[2]

    @property
    def positions(self) -> int:
        """2^K, the period of the position."""
        return 2**self.bits

    @property
    def reach(self) -> np.ndarray:
        """The largest |m^α_a| that a token can have, (4, P), the mean size of its weights."""
        sizes = np.abs(self.semantic).reshape(4, self.features, self.segments, -1).max(axis=3)
        # Exactly 1 for signs, whatever the fractions.
        return np.asarray(1.0 + (sizes - 1.0) @ self.fractions)

    # ---- what the dynamics needs

    def with_parameters(
        self,
        *,
        gamma: float | None = None,
        epsilon: float | None = None,
        context: int | None = None,
    ) -> Self:
        """The same weights with another γ, ε or context length."""
        given: dict[str, Any] = {"gamma": gamma, "epsilon": epsilon, "context": context}
        return replace(self, **{name: v for name, v in given.items() if v is not None})

    def position_overlaps(self) -> np.ndarray:
        """(1/K) Σ_k W^{α,pos}_{a,k} p_k at every position, shape (2^K, 4, P), without ε."""
        return self._position_overlaps

    def placed(
        self, overlaps: np.ndarray, positions: Any, *, epsilon: float | np.ndarray | None = None
    ) -> np.ndarray:
        """(1 − ε) m^α_a + ε (1/K) Σ_k W^{α,pos}_{a,k} p_k of overlaps (..., 4, P) at `positions`.

        epsilon: None takes the network's own; an array has axes for roles and features.
        """
        share = self.epsilon if epsilon is None else epsilon
        overlaps = check_array("overlaps", overlaps, shape=(..., 4, self.features))
        places = np.asarray(positions)
        if places.dtype.kind not in "iu":
            raise TypeError(f"positions must be integers, got {places.dtype}")
        return self._placed(overlaps, places, share)

    def _placed(
        self, overlaps: np.ndarray, places: np.ndarray, share: float | np.ndarray
    ) -> np.ndarray:
        drive = self._position_overlaps[places % self.positions]
        return np.asarray((1.0 - share) * overlaps + share * drive)

    @cached_property
    def compiled_weights(self) -> tuple[np.ndarray, ...]:
        """`hidden_units` and `position_overlaps` as the compiled step takes them, made once."""
        weights = (*self.hidden_units(), self.position_overlaps())
        return tuple(np.ascontiguousarray(array) for array in weights)

    @cached_property
    def _position_overlaps(self) -> np.ndarray:
        code = spin_states(self.bits)
        return np.einsum("rak,pk->pra", self.position, code) / max(self.bits, 1)

    def pair_correlations(self, first: int, second: int) -> np.ndarray:
        """⟨W^first_a W^second_b⟩ over sites and, evenly, over what they can be, shape (P, P)."""
        values = self.semantic.reshape(4, self.features, self.segments, -1)
        rows = values[check_integer("first", first, low=0, high=3)]
        columns = values[check_integer("second", second, low=0, high=3)]
        weighted = rows * self.fractions[:, None] / values.shape[-1]
        return np.einsum("als,bls->ab", weighted, columns)

    def counts(self, size: int) -> np.ndarray:
        """How many of `size` sites each segment holds, (L,) integers; ValueError if not whole."""
        size = check_integer("size", size, low=1)
        exact = self.fractions * size
        counts = np.rint(exact).astype(np.int64)
        if np.abs(exact - counts).max() > 1e-9 * size or counts.sum() != size:
            raise ValueError(
                f"size must divide into whole segments of fractions {self.fractions}, got {size}"
            )
        return counts


@record
class Network(AttentionNetwork):
    """The network of [poclopez2024dynamical, Eqs. (7), (8) and (15)], with signs or real weights.

    semantic: (4, P, L) weights W^α_a of each segment, roles in the order o, v, q, k.
    position: (4, P, K) weights W^{α,pos}_a of each position bit; None, or K = 0: no position.
    context: T, how many tokens attention sees, the newest (the query) included.
    gamma: inverse temperature of attention, in front of the dot product Σ_b m^q_b m^k_b. The
        document's own γ is √P times this (220 for 127.017).
    epsilon: weight of the position in a token, in [0, 1]; 0 when K = 0.
    fractions: (L,) share of the N bits in each segment, positive, summing to 1; None: equal.

    A token is fed back through C = ⟨W^v W^o⟩, of order N^{−1/2} for independent weights on N bits:
    then nothing but the drive of the positions moves before β is of order N^{1/2} (`dmft.onset`). A
    network that moves at β of order 1 has few kinds of sites (`segmented`), or values correlated
    with outputs.

    >>> network = Network.document()
    >>> network.features, network.segments, network.bits, network.context
    (3, 3, 2, 4)
    """

    # ---- constructors

    @classmethod
    def document(cls) -> Self:
        """The network of [poclopez2024dynamical, Figures 3 to 5]: P = L = 3, K = 2, T = 4."""
        signs = {"-": -1.0, "+": 1.0}
        semantic, position = (
            np.array([[[signs[s] for s in row] for row in role.split()] for role in roles])
            for roles in (
                ("-++ -+- +++", "-+- --+ -++", "+-- --- +-+", "--- --+ -+-"),
                ("-- +- ++", "-- +- -+", "+- ++ --", "-- -- -+"),
            )
        )
        return cls(
            semantic=semantic,
            position=position,
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
    ) -> Self:
        """Random signs on equal segments and positions [poclopez2024dynamical, App. C].

        `context` defaults to 2^bits. The draw depends on `seed` and the sizes only.
        """
        rng = numpy_generator(seed)
        features = check_integer("features", features, low=1)
        segments = check_integer("segments", segments, low=1)
        bits = check_integer("bits", bits, low=0, high=20)
        return cls(
            semantic=rng.choice((-1.0, 1.0), size=(4, features, segments)),
            position=rng.choice((-1.0, 1.0), size=(4, features, bits)),
            context=2**bits if context is None else context,
            gamma=gamma,
            epsilon=epsilon,
        )

    # ---- what the dynamics needs

    def overlaps(self, token: np.ndarray) -> np.ndarray:
        """m^α_a = Σ_l f_l W^α_{a,l} x_l, (..., 4, P), of the segments' mean bits, (..., L)."""
        return self._overlaps(
            check_array("token", token, shape=(..., self.segments), low=-1.0, high=1.0)
        )

    def _overlaps(self, token: np.ndarray) -> np.ndarray:
        return np.einsum("ral,...l->...ra", self.semantic * self.fractions, token)

    def mean_overlaps(self, attention: np.ndarray, *, beta: np.ndarray) -> np.ndarray:
        """m^α_a of the token of means tanh(β W^o A), (..., 4, P), of attention (..., P)."""
        field = np.asarray(beta)[..., None] * (attention @ self.semantic[OUTPUT])
        return self._overlaps(np.tanh(field))

    def hidden_units(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`output_patterns`, and no degeneracy: a unit is a tanh."""
        return (*self.output_patterns(), np.zeros((0, 0)))

    def output_patterns(self) -> tuple[np.ndarray, np.ndarray]:
        """`patterns` (U, P), the different columns of W^o with w and −w as one (tanh is odd), and
        `readout` (4, P, U): Σ_l f_l W^α_{a,l} tanh(β W^o_l·A) = Σ_u readout[α, a, u]
        tanh(β patterns[u]·A). U is at most L, for signs at most 2^{P−1}.
        """
        columns = self.semantic[OUTPUT].T
        flip = np.where(columns[:, :1] < 0.0, -1.0, 1.0)
        patterns, inverse = np.unique(columns * flip, axis=0, return_inverse=True)
        membership = np.zeros((self.segments, len(patterns)))
        membership[np.arange(self.segments), inverse.ravel()] = self.fractions * flip[:, 0]
        return patterns, self.semantic @ membership

    def weights(self, size: int) -> np.ndarray:
        """Explicit weights of a network of `size` bits, shape (4, P, size), segment by segment."""
        return np.repeat(self.semantic, self.counts(size), axis=2)


@record
class Context:
    """State of the mean field, of one system or of a batch (axes `...`).

    attention: (..., T, P), the newest vector first.
    position: position in 0 … 2^K − 1 of the token that attention[..., 0, :] makes.

    The two may be given in this order.

    >>> Context(np.zeros((4, 3)), 2)
    Context(attention=float64[4, 3] in [0, 0], position=2)
    """

    attention: np.ndarray
    position: int

    def __init__(self, attention: np.ndarray, position: int) -> None:
        far = LARGEST_ATTENTION
        vectors = check_array("attention", attention, shape=(..., "T", "P"), low=-far, high=far)
        object.__setattr__(self, "attention", vectors)
        object.__setattr__(self, "position", check_integer("position", position, low=0))

    def select(self, index: Any) -> Self:
        """The contexts at `index` of the batch's axes, for example one of them or a list of them.

        >>> Context(np.zeros((5, 4, 3)), 2).select(0).attention.shape
        (4, 3)
        """
        return type(self)(self.attention[index], self.position)


def fitting(network: AttentionNetwork, context: Context) -> tuple[np.ndarray, int]:
    """Attention and position of a context, once it is sure that they fit the network."""
    check_instance("network", network, AttentionNetwork)  # type: ignore[type-abstract]
    check_instance("context", context, Context)
    window = (..., network.context, network.features)
    check_array("context.attention", context.attention, shape=window)
    check_integer("context.position", context.position, low=0, high=network.positions - 1)
    return context.attention, context.position


def parameters(
    network: AttentionNetwork,
    beta: float | np.ndarray,
    gamma: float | np.ndarray | None,
    epsilon: float | np.ndarray | None,
    *,
    batch: tuple[int, ...] = (),
) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[int, ...]]:
    """β, γ and ε as arrays, and the shape they and the axes `batch` of a context broadcast to.

    None takes the network's own.
    """
    beta = check_array("beta", beta, low=0.0, high=LARGEST)
    gamma = network.gamma if gamma is None else gamma
    gamma = check_array("gamma", gamma, low=0.0, high=LARGEST)
    epsilon = network.epsilon if epsilon is None else epsilon
    epsilon = check_array("epsilon", epsilon, low=0.0, high=1.0)
    if not network.bits and epsilon.any():
        raise ValueError("epsilon must be 0 without position bits")
    shape = check_broadcast(
        attention=batch, beta=beta.shape, gamma=gamma.shape, epsilon=epsilon.shape
    )
    if 0 in shape:
        raise ValueError(f"attention, beta, gamma and epsilon must not be empty, got {shape}")
    return beta, gamma, epsilon, shape

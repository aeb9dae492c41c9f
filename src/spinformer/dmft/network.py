"""Weights of a self-attention network, and the state (context) of its mean-field theory.

In the model of [poclopez2024dynamical] the tokens consist of many *sites*, each drawn independently
given the attention vector. Attention sees only the overlaps of a token with P features in each role
α ∈ {o, v, q, k} (output, value, query, key), which are averages over the sites. In a `Network` the
sites are bits: tokens x ∈ {−1, 1}^N and features W^α_a ∈ R^N, which are signs in the paper. A
position is a code of K bits (`core.states.spin_states`, row p for position p). Only what the limit
N → ∞ depends on is stored: `semantic`, one column for every kind of site, called a segment, and
`fractions`, the fraction of sites in each. N given bits are N segments of weight 1/N.
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
    """Abstract base class of self-attention networks: weights, context length, γ and ε.

    Subclasses define how a site responds to attention. Arrays are stored read-only in float64.

    Parameters
    ----------
    semantic : ndarray, shape (4, P, L, ...)
        Features of each segment, roles in the order o, v, q, k.
    position : ndarray, shape (4, P, K), optional
        Features of each position bit; None means no position.
    context : int
        Context length T.
    gamma : float
        Inverse temperature γ of the attention softmax.
    epsilon : float, default 0
        Weight ε of the position in a token, in [0, 1].
    fractions : ndarray, shape (L,), optional
        Fraction of the sites in each segment; None makes them equal.

    Raises
    ------
    ValueError
        If shapes do not fit, weights are zero or too small or large in size, `fractions` are not
        positive with sum 1, or ε is positive without position bits.
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
        """Compute the overlaps m^α_a of tokens, without the factor 1 − ε.

        Parameters
        ----------
        token : ndarray
            Tokens, given by what each of their segments holds.

        Returns
        -------
        ndarray, shape (..., 4, P)
            Overlaps with all features, roles in the order o, v, q, k.
        """

    @abstractmethod
    def mean_overlaps(self, attention: np.ndarray, *, beta: np.ndarray) -> np.ndarray:
        """Compute the overlaps m^α_a of the mean token that attention vectors produce.

        Parameters
        ----------
        attention : ndarray, shape (..., P)
            Attention vectors A.
        beta : ndarray
            Inverse temperature β of the tokens; it broadcasts against the leading axes.

        Returns
        -------
        ndarray, shape (..., 4, P)
            Overlaps of the mean token, without the factor 1 − ε.
        """

    @abstractmethod
    def hidden_units(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Prepare the average over the sites for the compiled step.

        Returns
        -------
        patterns : ndarray, shape (U, P)
            Distinct output weights.
        readout : ndarray, shape (4, P, U)
            Weights of the units in the overlaps.
        degeneracy : ndarray
            Multiplicities of the units in a softmax; empty if a unit is a tanh.
        """

    # ---- sizes

    @property
    def features(self) -> int:
        """Number P of features per role."""
        return self.semantic.shape[1]

    @property
    def segments(self) -> int:
        """Number L of segments, the kinds of site."""
        return self.semantic.shape[2]

    @property
    def bits(self) -> int:
        """Number K of bits of the position code."""
        return self.position.shape[2]

    @property
    def positions(self) -> int:
        """Number of positions 2^K, the period of the positional code."""
        return 2**self.bits

    @property
    def overlap_bound(self) -> np.ndarray:
        """Upper bound of the absolute overlaps of a token, shape (4, P).

        It is the mean absolute weight of each feature.
        """
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
        """Copy the network with another γ, ε or context length.

        Parameters
        ----------
        gamma : float, optional
            Inverse temperature of the attention softmax; None keeps it.
        epsilon : float, optional
            Weight of the position; None keeps it.
        context : int, optional
            Context length T; None keeps it.

        Returns
        -------
        AttentionNetwork
            A network of the same class with the same weights.
        """
        given: dict[str, Any] = {"gamma": gamma, "epsilon": epsilon, "context": context}
        return replace(self, **{name: v for name, v in given.items() if v is not None})

    def position_overlaps(self) -> np.ndarray:
        """Compute the overlaps of the positional code at every position, without the factor ε.

        Returns
        -------
        ndarray, shape (2^K, 4, P)
            Overlaps (1/K) Σ_k W^{α,pos}_{a,k} p_k.
        """
        return self._position_overlaps

    def with_position_code(
        self, overlaps: np.ndarray, positions: Any, *, epsilon: float | np.ndarray | None = None
    ) -> np.ndarray:
        r"""Add the positional code to the overlaps of tokens.

        Parameters
        ----------
        overlaps : ndarray, shape (..., 4, P)
            Semantic overlaps m^α_a, without the factor 1 − ε.
        positions : int or ndarray of int
            Positions of the tokens, counted modulo 2^K; they broadcast against the leading axes.
        epsilon : float or ndarray, optional
            Weight of the position; an array has axes for roles and features. None takes that of the
            network.

        Returns
        -------
        ndarray, shape (..., 4, P)
            Overlaps of the tokens at their positions.

        Raises
        ------
        TypeError
            If positions are not integers.
        ValueError
            If the last axes of `overlaps` are not (4, P).

        Notes
        -----
        The overlap of a token is the weighted sum of a semantic and a positional part,

        .. math::

            m^\alpha_{a} = (1 - \epsilon)\, m^{\alpha,\mathrm{sem}}_{a}
                + \frac{\epsilon}{K} \sum_{k} W^{\alpha,\mathrm{pos}}_{a,k}\, p_k.

        References
        ----------
        [poclopez2024dynamical, Eq. (15)]
        """
        share = self.epsilon if epsilon is None else epsilon
        overlaps = check_array("overlaps", overlaps, shape=(..., 4, self.features))
        places = np.asarray(positions)
        if places.dtype.kind not in "iu":
            raise TypeError(f"positions must be integers, got {places.dtype}")
        return self._with_position_code(overlaps, places, share)

    def _with_position_code(
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
        """Compute the correlations ⟨W^first_a W^second_b⟩ of the weights of two roles.

        The average is over the sites and, with equal weights, over the values that a site can have.

        Parameters
        ----------
        first : int
            Role of the rows: 0 to 3 for o, v, q, k.
        second : int
            Role of the columns.

        Returns
        -------
        ndarray, shape (P, P)
            Correlations of the features.

        Raises
        ------
        ValueError
            If a role is not between 0 and 3.
        """
        values = self.semantic.reshape(4, self.features, self.segments, -1)
        rows = values[check_integer("first", first, low=0, high=3)]
        columns = values[check_integer("second", second, low=0, high=3)]
        weighted = rows * self.fractions[:, None] / values.shape[-1]
        return np.einsum("als,bls->ab", weighted, columns)

    def counts(self, size: int) -> np.ndarray:
        """Count how many of `size` sites belong to each segment.

        Parameters
        ----------
        size : int
            Number N of sites.

        Returns
        -------
        ndarray of int, shape (L,)
            Sites of each segment, with the sum N.

        Raises
        ------
        ValueError
            If the fractions of `size` are not whole numbers.
        """
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
    r"""Self-attention network with tokens of bits, with signs or real numbers as weights.

    A token acts on later ones through C = ⟨W^v W^o⟩, which is of order N^{−1/2} for independent
    weights on N bits. The positions then drive the only motion before β is of order N^{1/2} (see
    `dmft.linear_stability`). A network that moves at β of order 1 has few kinds of sites
    (`segmented`), or values correlated with outputs.

    Parameters
    ----------
    semantic : ndarray, shape (4, P, L)
        Weights W^α_a of each segment, roles in the order o, v, q, k.
    position : ndarray, shape (4, P, K), optional
        Weights W^{α,pos}_a of each position bit; None, or K = 0, means no position.
    context : int
        Context length T: the number of tokens that attention sees, the newest (the query) included.
    gamma : float
        Inverse temperature of attention, in front of the dot product Σ_b m^q_b m^k_b. The γ of the
        paper is √P times this (220 for 127.017).
    epsilon : float, default 0
        Weight of the position in a token, in [0, 1]; 0 when K = 0.
    fractions : ndarray, shape (L,), optional
        Fraction of the N bits in each segment, positive, with the sum 1; None makes them equal.

    Raises
    ------
    ValueError
        If shapes do not fit or a parameter is out of its range.

    Notes
    -----
    With the overlaps m of the last T tokens τ, attention and the distribution of the next token are

    .. math::

        A_{a} = \sum_\tau m^v_{a,\tau} \operatorname{softmax}_\tau\Big(\gamma \sum_b m^q_{b}\,
            m^k_{b,\tau}\Big), \qquad
        P(x_i = \pm 1) \propto \exp\Big(\pm\beta \sum_a W^o_{ia} A_a\Big).

    The overlaps are averages over the segments and contain the position with the weight ε; their
    equation is at the head of `dmft.mean_field`.

    References
    ----------
    [poclopez2024dynamical, Eqs. (7), (8) and (15)]

    Examples
    --------
    >>> network = Network.poclopez2024()
    >>> network.features, network.segments, network.bits, network.context
    (3, 3, 2, 4)
    """

    # ---- constructors

    @classmethod
    def poclopez2024(cls) -> Self:
        """Construct the example network of the paper: P = L = 3, K = 2, T = 4, ε = 0.02.

        Returns
        -------
        Network
            The network with γ = 220/√3 in front of the dot product.

        References
        ----------
        [poclopez2024dynamical, Figures 3 to 5]
        """
        # A block for each role, o, v, q and k, and a row for each feature.
        semantic = [
            [[-1, +1, +1], [-1, +1, -1], [+1, +1, +1]],
            [[-1, +1, -1], [-1, -1, +1], [-1, +1, +1]],
            [[+1, -1, -1], [-1, -1, -1], [+1, -1, +1]],
            [[-1, -1, -1], [-1, -1, +1], [-1, +1, -1]],
        ]
        position = [
            [[-1, -1], [+1, -1], [+1, +1]],
            [[-1, -1], [+1, -1], [-1, +1]],
            [[+1, -1], [+1, +1], [-1, -1]],
            [[-1, -1], [-1, -1], [-1, +1]],
        ]
        return cls(
            semantic=np.array(semantic, dtype=float),
            position=np.array(position, dtype=float),
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
        """Draw a network with random signs on equal segments and positions.

        The draw depends on the seed and the sizes only.

        Parameters
        ----------
        seed : Seed
            Seed or random generator.
        features : int, default 3
            Number P of features per role.
        segments : int, default 3
            Number L of segments.
        bits : int, default 2
            Number K of bits of the position code, at most 20.
        context : int, optional
            Context length T; None is 2^K.
        gamma : float, default 220 / 3**0.5
            Inverse temperature of attention, in front of the dot product.
        epsilon : float, default 0.02
            Weight of the position in a token.

        Returns
        -------
        Network
            The network.

        Raises
        ------
        ValueError
            If a size or parameter is out of its range.

        References
        ----------
        [poclopez2024dynamical, App. C]
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
        """Compute the overlaps m^α_a = Σ_l f_l W^α_{a,l} x_l of tokens, without the factor 1 − ε.

        Parameters
        ----------
        token : ndarray, shape (..., L)
            Mean bits x_l of the segments, in [−1, 1].

        Returns
        -------
        ndarray, shape (..., 4, P)
            Overlaps with all features, roles in the order o, v, q, k.

        Raises
        ------
        ValueError
            If the last axis is not L or an entry is outside of [−1, 1].
        """
        return self._overlaps(
            check_array("token", token, shape=(..., self.segments), low=-1.0, high=1.0)
        )

    def _overlaps(self, token: np.ndarray) -> np.ndarray:
        return np.einsum("ral,...l->...ra", self.semantic * self.fractions, token)

    def mean_overlaps(self, attention: np.ndarray, *, beta: np.ndarray) -> np.ndarray:
        r"""Compute the overlaps m^α_a of the mean token tanh(β W^o A) of attention vectors.

        Parameters
        ----------
        attention : ndarray, shape (..., P)
            Attention vectors A.
        beta : ndarray
            Inverse temperature β of the tokens; it broadcasts against the leading axes.

        Returns
        -------
        ndarray, shape (..., 4, P)
            Overlaps of the mean token, without the factor 1 − ε.

        Notes
        -----
        The average over the bits is a sum over the segments,

        .. math::

            m^\alpha_a = \sum_l f_l\, W^\alpha_{a,l} \tanh\Big(\beta \sum_b W^o_{b,l} A_b\Big).

        References
        ----------
        [poclopez2024dynamical, Eq. (13)]
        """
        field = np.asarray(beta)[..., None] * (attention @ self.semantic[OUTPUT])
        return self._overlaps(np.tanh(field))

    def hidden_units(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Prepare the average over the bits for the compiled step: units are hyperbolic tangents.

        Returns
        -------
        patterns : ndarray, shape (U, P)
            Distinct output weights, as `output_patterns` gives them.
        readout : ndarray, shape (4, P, U)
            Weights of the units in the overlaps.
        degeneracy : ndarray, shape (0, 0)
            Empty, because a unit is a tanh.
        """
        return (*self.output_patterns(), np.zeros((0, 0)))

    def output_patterns(self) -> tuple[np.ndarray, np.ndarray]:
        r"""Merge segments with the same output weights, up to a sign, into hidden units.

        Since tanh is odd, the weights w and −w share a unit. There are at most L units, and at most
        2^{P−1} for signs.

        Returns
        -------
        patterns : ndarray, shape (U, P)
            Distinct columns of W^o up to their sign.
        readout : ndarray, shape (4, P, U)
            Weights of the units in the overlaps.

        Notes
        -----
        The units give the same average as the segments,

        .. math::

            \sum_l f_l\, W^\alpha_{a,l} \tanh(\beta\, W^o_l \cdot A)
                = \sum_u \mathrm{readout}_{\alpha a u} \tanh(\beta\, \mathrm{patterns}_u \cdot A).
        """
        columns = self.semantic[OUTPUT].T
        flip = np.where(columns[:, :1] < 0.0, -1.0, 1.0)
        patterns, inverse = np.unique(columns * flip, axis=0, return_inverse=True)
        membership = np.zeros((self.segments, len(patterns)))
        membership[np.arange(self.segments), inverse.ravel()] = self.fractions * flip[:, 0]
        return patterns, self.semantic @ membership

    def weights(self, size: int) -> np.ndarray:
        """Construct explicit weights of a network of `size` bits, segment by segment.

        Parameters
        ----------
        size : int
            Number N of bits.

        Returns
        -------
        ndarray, shape (4, P, N)
            Weights W^α_a of every bit.

        Raises
        ------
        ValueError
            If the segments do not hold whole numbers of bits.
        """
        return np.repeat(self.semantic, self.counts(size), axis=2)


@record
class Context:
    """State of the mean field (the window of attention vectors), of one system or of a batch.

    The two arguments may be given in this order.

    Parameters
    ----------
    attention : ndarray, shape (..., T, P)
        The last T attention vectors, the newest first; leading axes are those of a batch.
    position : int
        Position in 0 … 2^K − 1 of the token that `attention[..., 0, :]` produces.

    Raises
    ------
    ValueError
        If `attention` has fewer than two axes or entries that are not finite, or `position` is
        negative.

    Examples
    --------
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
        """Select contexts by an index into the axes of the batch.

        The index may select one of them or, for example, a list of them.

        Parameters
        ----------
        index : int, slice, or array-like
            Index into the leading axes.

        Returns
        -------
        Context
            The selected contexts at the same position.

        Examples
        --------
        >>> Context(np.zeros((5, 4, 3)), 2).select(0).attention.shape
        (4, 3)
        """
        return type(self)(self.attention[index], self.position)


def check_context(network: AttentionNetwork, context: Context) -> tuple[np.ndarray, int]:
    """Check that a context fits a network, and return its parts.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        The context, of one system or a batch.

    Returns
    -------
    attention : ndarray, shape (..., T, P)
        Attention vectors, the newest first.
    position : int
        Position of the token that the newest vector produces.

    Raises
    ------
    TypeError
        If an argument is of another class.
    ValueError
        If the window does not have the shape (T, P) of the network, or the position exceeds its
        period.
    """
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
    """Broadcast β, γ, ε and the batch of a context to one shape.

    Parameters
    ----------
    network : AttentionNetwork
        The network, whose own γ and ε are the defaults.
    beta : float or ndarray
        Inverse temperature β of the tokens.
    gamma : float, ndarray or None
        Inverse temperature γ of attention; None takes that of the network.
    epsilon : float, ndarray or None
        Weight ε of the position; None takes that of the network.
    batch : tuple of int, default ()
        Batch axes of a context.

    Returns
    -------
    beta : ndarray
        Inverse temperature β as an array.
    gamma : ndarray
        Inverse temperature γ as an array.
    epsilon : ndarray
        Weight ε as an array.
    shape : tuple of int
        The shape to which all of them broadcast.

    Raises
    ------
    ValueError
        If shapes do not broadcast or one of them is empty, a value is out of its range, or ε is
        positive without position bits.
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

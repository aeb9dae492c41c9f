"""What every self-attention network of the package has: weights by role, a position, γ and ε.

The tokens of a network are made of many *sites* (bits, or letters of an alphabet), each drawn on
its own given the attention vector. All that attention sees of a token are its overlaps with P
features in each role, averages over the sites. `AttentionNetwork` holds what does not depend on
what a site can be; `network.Network` has bits, `letters.LetterNetwork` letters.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Self

import numpy as np

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.records import record
from spinformer.core.states import spin_states


@record
class AttentionNetwork(ABC):
    """Weights, window, γ and ε; how a site answers to attention is left to the classes below.

    semantic: (4, P, L, ...) features of each segment. position, context, gamma, epsilon and
    fractions as in `network.Network`, for every kind of site.

    >>> from spinformer.dmft.network import Network
    >>> isinstance(Network.document(), AttentionNetwork)
    True
    """

    semantic: np.ndarray
    position: np.ndarray
    context: int
    gamma: float
    epsilon: float
    fractions: np.ndarray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Validate, and store read-only float64 arrays."""
        semantic = self._checked_semantic().copy()
        features, segments = semantic.shape[1:3]
        position = check_array(
            "position", self.position, shape=(4, features, None), values=(-1.0, 1.0)
        ).copy()
        bits = check_integer("bits (axis 2 of position)", position.shape[2], low=0, high=20)
        high = 2**bits if bits else None
        try:
            context = check_integer("context", self.context, low=1, high=high)
        except ValueError:
            if not bits or self.context <= 2**bits:
                raise
            raise ValueError(
                f"context must be at most the 2**{bits} = {2**bits} positions that {bits} "
                f"position bits tell apart, got {self.context}"
            ) from None
        gamma = check_real("gamma", self.gamma, low=0.0)
        epsilon = check_real("epsilon", self.epsilon, low=0.0, high=1.0)
        if not bits and epsilon > 0.0:
            raise ValueError(f"epsilon must be 0 without position bits, got {epsilon}")
        if self.fractions is None:
            fractions = np.full(segments, 1.0 / segments)
        else:
            fractions = check_array("fractions", self.fractions, shape=(segments,), low=0.0).copy()
            if not (fractions > 0.0).all() or abs(fractions.sum() - 1.0) > 1e-12:
                raise ValueError(
                    f"fractions must be positive and sum to 1, got {fractions} "
                    f"with sum {fractions.sum()}"
                )
        for name, value in (
            ("semantic", semantic),
            ("position", position),
            ("fractions", fractions),
        ):
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        object.__setattr__(self, "context", context)
        object.__setattr__(self, "gamma", gamma)
        object.__setattr__(self, "epsilon", epsilon)

    # ---- what a kind of site has to say

    @abstractmethod
    def _checked_semantic(self) -> np.ndarray:
        """`semantic` as a float64 array, once its shape and entries are right."""

    @abstractmethod
    def overlaps(self, token: np.ndarray) -> np.ndarray:
        """m^α_a of tokens given by their segments, (..., 4, P), without the factor 1 − ε."""

    @abstractmethod
    def mean_overlaps(self, attention: np.ndarray, *, beta: np.ndarray) -> np.ndarray:
        """m^α_a of the mean token, (..., 4, P), of attention vectors (..., P); β broadcasts."""

    @abstractmethod
    def response(self, attention: np.ndarray, *, beta: np.ndarray) -> np.ndarray:
        """∂ mean_overlaps / ∂A_b of one attention vector each: (..., 4, P, P)."""

    @abstractmethod
    def pair_correlations(self, first: str, second: str) -> np.ndarray:
        """⟨W^first_a W^second_b⟩ over sites and what they can be, shape (P, P)."""

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

    # ---- what the dynamics needs

    def with_parameters(
        self,
        *,
        gamma: float | None = None,
        epsilon: float | None = None,
        context: int | None = None,
    ) -> Self:
        """The same weights with another γ, ε or context length."""
        return replace(
            self,
            gamma=self.gamma if gamma is None else gamma,
            epsilon=self.epsilon if epsilon is None else epsilon,
            context=self.context if context is None else context,
        )

    def position_overlaps(self) -> np.ndarray:
        """(1/K) Σ_k W^{α,pos}_{a,k} p_k at every position, shape (2^K, 4, P), without ε."""
        if not self.bits:
            return np.zeros((1, 4, self.features))
        code = spin_states(self.bits)
        return np.einsum("rak,pk->pra", self.position, code) / self.bits

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

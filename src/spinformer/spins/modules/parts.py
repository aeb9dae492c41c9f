"""What a spin module computed, taken apart."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from spinformer.core.records import record
from spinformer.core.solve import Solution
from spinformer.spins.modules.heads import Scheme, SolvedHeads, correlation_of, decompose, reached
from spinformer.spins.modules.validity import Validity, validity_of


@record
class ModuleParts:
    """What the magnetisation is made of; (batch, N, dim), in units of the output.

    `residual` + `mixing` + `onsager` = ⟨σ⟩, and with `response` the magnetisation. `gain`
    (batch, heads, N) is the normalisation: the factor between the local field and ⟨σ_i⟩/√D.
    `couplings` J, `pair` B = J + Jᵀ without diagonal and `correlation` C are (batch, heads, N, N),
    `fields` h and, in `solution`, ⟨u⟩ (batch, heads, N, D), `beta` (heads, 1, 1). `solution`
    says how far each system, (batch, heads), is from solving its equations: the residual is that
    of the mean-field equations, or max |C_ii − 1| at the saddle; K steps are converged where it
    is within the tolerance, else their status is STEP_LIMIT.

    >>> import torch
    >>> from spinformer.spins.modules.spin_transformer import SpinTransformerModule
    >>> module = SpinTransformerModule(8, heads=2)
    >>> output, parts = module(torch.ones(1, 3, 8), return_parts=True)
    >>> torch.allclose(parts.magnetization, output), bool(parts.validity().converged.all())
    (True, True)
    """

    residual: Tensor
    mixing: Tensor
    onsager: Tensor
    response: Tensor
    gain: Tensor
    couplings: Tensor
    pair: Tensor
    correlation: Tensor
    fields: Tensor
    beta: Tensor
    solution: Solution[Tensor]

    @property
    def spins(self) -> Tensor:
        """⟨σ⟩: the first three parts."""
        return self.residual + self.mixing + self.onsager

    @property
    def magnetization(self) -> Tensor:
        """The sum of the four parts."""
        return self.spins + self.response

    @property
    def converged(self) -> Tensor:
        """(batch, heads) booleans: whether ⟨u⟩ solves its equations."""
        converged: Tensor = self.solution.converged
        return converged

    def validity(self) -> Validity:
        """The meter of `spins.modules.validity` for these systems."""
        return validity_of(
            self.solution.value,
            pair=self.pair,
            fields=self.fields,
            beta=self.beta,
            correlation=self.correlation,
            converged=self.converged,
        )


@record
class Systems:
    """What a forward pass solves, the heads of a batch: h, queries and keys (batch, heads, N, D), J
    and B (batch, heads, N, N), β and g broadcasting as (batch, heads, 1, 1)."""

    fields: Tensor
    queries: Tensor
    keys: Tensor
    couplings: Tensor
    pair: Tensor
    beta: Tensor
    strength: Tensor


def parts_of(
    systems: Systems, solved: SolvedHeads, *, response: Tensor, scheme: Scheme
) -> ModuleParts:
    """`ModuleParts` of a pass whose response is at hand.

    >>> import torch
    >>> from spinformer.spins.modules.heads import solve_heads
    >>> scheme = Scheme(
    ...     solver="saddle", steps=None, order=2, damping=1.0, tolerance=None, max_steps=9
    ... )
    >>> h, zero, one = torch.ones(1, 1, 1, 4), torch.zeros(1, 1, 1, 1), torch.ones(1, 1, 1)
    >>> solved = solve_heads(h, pair=zero, beta=one, scheme=scheme)
    >>> names = {"fields": h, "queries": h, "keys": h, "couplings": zero, "pair": zero}
    >>> systems = Systems(**names, beta=one, strength=one)
    >>> parts_of(systems, solved, response=zero, scheme=scheme).spins.shape
    torch.Size([1, 1, 4])
    """
    given: Any = {"fields": systems.fields, "pair": systems.pair, "beta": systems.beta}
    root = systems.fields.shape[-1] ** 0.5
    residual, mixing, onsager, gain = decompose(solved, **given, order=scheme.order)
    return ModuleParts(
        residual=merge(residual) * root,
        mixing=merge(mixing) * root,
        onsager=merge(onsager) * root,
        response=response,
        gain=gain.squeeze(-1),
        couplings=systems.couplings,
        correlation=correlation_of(
            solved, pair=systems.pair, beta=systems.beta, order=scheme.order
        ),
        solution=reached(solved, **given, scheme=scheme),
        **given,
    )


def split(channels: Tensor, *, heads: int) -> Tensor:
    """(batch, N, dim) as (batch, heads, N, dim/heads).

    >>> import torch
    >>> split(torch.zeros(1, 3, 8), heads=2).shape
    torch.Size([1, 2, 3, 4])
    """
    return channels.unflatten(-1, (heads, -1)).transpose(-3, -2)


def merge(heads: Tensor) -> Tensor:
    """The inverse of `split`.

    >>> import torch
    >>> merge(torch.zeros(1, 2, 3, 4)).shape
    torch.Size([1, 3, 8])
    """
    return heads.transpose(-3, -2).flatten(-2)


def detached(value: Any) -> Any:
    """A record without history, with everything in it.

    >>> import torch
    >>> detached(torch.ones(1, requires_grad=True)).requires_grad
    False
    """
    if isinstance(value, Tensor):
        return value.detach()
    names = getattr(value, "__dataclass_fields__", None)
    if names is None:
        return value
    return type(value)(**{name: detached(getattr(value, name)) for name in names})

"""A transformer whose forward pass descends one energy of all tokens [hoover2023energy].

Tokens x_A ∈ R^D, A = 1 … N, are seen through a layer normalisation g_A = γ (x_A − x̄_A)/σ_A + δ,
σ_A² = mean_i (x_Ai − x̄_A)² + ε, with one number γ > 0 and a vector δ. It is the gradient of a
convex function, its Lagrangian L(x) = γ D σ + δ·x [hoover2023energy, Sec. 3]. The energy

    E(g) = −β⁻¹ Σ_h Σ_C lse_B(β k_hB · q_hC) − ½ Σ_A Σ_μ max(0, ξ_μ · g_A)²

has queries q_hC = Q_h g_C and keys k_hB = K_h g_B, so that every token stands in it in both
roles, and a memory of patterns ξ_μ. A step is x ← x − α ∂E/∂g.

Shapes: tokens and g (..., N, D); query and key maps (H, Y, D), patterns (M, D). A mask is boolean,
broadcastable to (..., H, N, N), True where query C (rows) may look at key B (columns). A query that
may look at nothing has no attention energy: a token that neither looks nor is looked at is absent
from it. Everything is differentiable and works under `torch.func.vmap`; shapes and types are
checked, values are not scanned, because training takes thousands of these steps.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from spinformer.core.checks import check_flag, check_integer, check_real
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.core.records import record
from spinformer.hopfield.inputs import check_beta, check_like, check_mask

EPSILON = 1e-5


def spread(tokens: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    """σ = √(mean_i (x_i − x̄)² + ε), shape (...), of tokens (..., D)."""
    _check_tokens(tokens)
    return (tokens.var(-1, correction=0) + epsilon).sqrt()


def lagrangian(
    tokens: Tensor,
    *,
    gain: Tensor | float = 1.0,
    shift: Tensor | float = 0.0,
    epsilon: float = EPSILON,
) -> Tensor:
    """L(x) = γ D σ + δ·x, shape (...): its gradient is the layer normalisation, its Hessian ≽ 0.

    `gain` γ ≥ 0 is one number: with one for each component the normalisation would be no gradient.
    `shift` δ (D,) [hoover2023energy, Sec. 3].
    """
    sigma = spread(tokens, epsilon=epsilon)
    gain, shift = _check_map(tokens, gain, shift)
    return gain * tokens.shape[-1] * sigma + (shift * tokens).sum(-1)


def normalize(
    tokens: Tensor,
    *,
    gain: Tensor | float = 1.0,
    shift: Tensor | float = 0.0,
    epsilon: float = EPSILON,
) -> Tensor:
    """g = γ (x − x̄)/σ + δ, the shape of the tokens (..., D)."""
    _check_tokens(tokens)
    gain, shift = _check_map(tokens, gain, shift)
    return gain * functional.layer_norm(tokens, tokens.shape[-1:], eps=epsilon) + shift


def metric(tokens: Tensor, *, gain: float = 1.0, epsilon: float = EPSILON) -> Tensor:
    """M = ∂g/∂x = (γ/σ) (1 − 1 1ᵀ/D − y yᵀ/(D σ²)), y = x − x̄, shape (..., D, D).

    The Hessian of the Lagrangian. Its eigenvalues are γ/σ, but 0 along 1 and γ ε/σ³ along y.
    """
    sigma = spread(tokens, epsilon=epsilon)[..., None, None]
    size = tokens.shape[-1]
    centred = (tokens - tokens.mean(-1, keepdim=True)).unsqueeze(-1)
    identity = torch.eye(size, dtype=tokens.dtype, device=tokens.device)
    return gain / sigma * (identity - 1.0 / size - centred @ centred.mT / (size * sigma**2))


def attention_energy(
    normalized: Tensor,
    *,
    query_map: Tensor,
    key_map: Tensor,
    beta: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """−β⁻¹ Σ_h Σ_C lse_B(β k_hB · q_hC), shape (...), of g (..., N, D); β = 1/√Y unless given.

    [hoover2023energy, Sec. 3], there without B = C: leave these pairs out by the mask.
    """
    queries, keys, beta = _project(normalized, query_map, key_map, beta)
    scores = _scores(queries, keys, beta, mask)
    free = torch.logsumexp(scores, dim=-1)
    if mask is not None:
        free = torch.where(mask.any(-1).expand(free.shape), free, 0.0)
    return -free.sum((-1, -2)) / beta


def attention_gradient(
    normalized: Tensor,
    *,
    query_map: Tensor,
    key_map: Tensor,
    beta: float | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """∂E/∂g of the attention energy in two terms, each of the shape (..., N, D) of g.

    As a query, token C gets −Σ_h Q_hᵀ Σ_B p_hCB k_hB: attention whose values are the keys and whose
    output matrix is the query map. As a key, token B gets −Σ_h K_hᵀ Σ_C p_hCB q_hC: it is
    pulled to the queries that look at it, which no transformer has.
    """
    queries, keys, beta = _project(normalized, query_map, key_map, beta)
    scores = _scores(queries, keys, beta, mask)
    weights = torch.softmax(scores, dim=-1)
    if mask is not None:
        weights = torch.where(mask, weights, 0.0)
    as_query = (weights @ keys).transpose(-2, -3).flatten(-2) @ query_map.flatten(0, 1)
    as_key = (weights.mT @ queries).transpose(-2, -3).flatten(-2) @ key_map.flatten(0, 1)
    return -as_query, -as_key


def memory_energy(normalized: Tensor, *, patterns: Tensor) -> Tensor:
    """−½ Σ_A Σ_μ max(0, ξ_μ · g_A)², shape (...), of g (..., N, D) [hoover2023energy, Sec. 3]."""
    _check_memory(normalized, patterns)
    return -0.5 * (normalized @ patterns.mT).relu().square().sum((-1, -2))


def memory_gradient(normalized: Tensor, *, patterns: Tensor) -> Tensor:
    """−Σ_μ max(0, ξ_μ · g_A) ξ_μ: a feed-forward layer whose two matrices are transposes."""
    _check_memory(normalized, patterns)
    return -(normalized @ patterns.mT).relu() @ patterns


@record
class Descent:
    """Forward passes of an energy transformer, T steps of tokens (..., N, D).

    states: (T + 1, ..., N, D), before the first and after each step. energies: (T + 1, ...).
    bounds: (T, ...), what the theorem allows each step to change the energy by, at most
    [`EnergyTransformer.change_bound`].
    """

    states: Tensor
    energies: Tensor
    bounds: Tensor


class EnergyTransformer(nn.Module):
    """T tied steps x ← x − α ∂E/∂g on tokens (..., N, D): the module whose energy is known.

    width: D; heads: H; head_width: Y (D/H unless given); patterns: M; steps: T; step_size: α;
    beta: inverse temperature (1/√Y unless given); key_side: without it the step leaves out
    what a token feels as a key, and is then no gradient of anything. Weights start Gaussian with
    variance 1/D, the memory with 1/M, drawn from `seed`. Raises ValueError or TypeError
    naming the argument.
    """

    def __init__(
        self,
        width: int,
        *,
        heads: int = 1,
        head_width: int | None = None,
        patterns: int = 64,
        steps: int = 4,
        step_size: float = 0.1,
        beta: float | None = None,
        key_side: bool = True,
        seed: TorchSeed = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.steps = check_integer("steps", steps, low=1)
        self.step_size = check_real("step_size", step_size, low=0.0, open_low=True)
        if head_width is None:
            if width % heads:
                raise ValueError(f"heads must divide width {width}, got {heads}")
            head_width = width // heads
        self.beta = 1.0 / math.sqrt(head_width) if beta is None else check_beta(beta)
        self.key_side = check_flag("key_side", key_side)
        generator = torch_generator(seed)

        def draw(*shape: int, variance: float) -> nn.Parameter:
            normal = torch.randn(shape, generator=generator, dtype=dtype)
            return nn.Parameter(math.sqrt(variance) * normal)

        self.query_map = draw(heads, head_width, width, variance=1 / width)
        self.key_map = draw(heads, head_width, width, variance=1 / width)
        self.patterns = draw(patterns, width, variance=1 / patterns)
        self.log_gain = nn.Parameter(torch.zeros((), dtype=dtype))
        self.shift = nn.Parameter(torch.zeros(width, dtype=dtype))

    def normalize(self, tokens: Tensor) -> Tensor:
        """g, the shape of the tokens (..., N, D): the energy depends on it, a read-out sees it."""
        return normalize(tokens, gain=self.log_gain.exp(), shift=self.shift)

    def energy(self, tokens: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """E(g(x)), shape (...), of tokens (..., N, D)."""
        seen = self.normalize(tokens)
        return attention_energy(
            seen, query_map=self.query_map, key_map=self.key_map, beta=self.beta, mask=mask
        ) + memory_energy(seen, patterns=self.patterns)

    def gradient(self, tokens: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """∂E/∂g at g(x), or with `key_side` False its part, the shape (..., N, D) of the tokens."""
        seen = self.normalize(tokens)
        as_query, as_key = attention_gradient(
            seen, query_map=self.query_map, key_map=self.key_map, beta=self.beta, mask=mask
        )
        slope = as_query + memory_gradient(seen, patterns=self.patterns)
        return slope + as_key if self.key_side else slope

    def forward(self, tokens: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """The tokens (..., N, D) after all steps."""
        for _ in range(self.steps):
            tokens = tokens - self.step_size * self.gradient(tokens, mask=mask)
        return tokens

    @torch.no_grad()
    def descend(
        self, tokens: Tensor, *, steps: int | None = None, mask: Tensor | None = None
    ) -> Descent:
        """The forward pass step by step, with energies and bounds; `steps` as trained if None."""
        states, bounds = [tokens], []
        for _ in range(self.steps if steps is None else check_integer("steps", steps, low=1)):
            states.append(states[-1] - self.step_size * self.gradient(states[-1], mask=mask))
            bounds.append(self.change_bound(states[-2], end=states[-1]))
        energies = torch.stack([self.energy(state, mask=mask) for state in states])
        return Descent(states=torch.stack(states), energies=energies, bounds=torch.stack(bounds))

    @torch.no_grad()
    def change_bound(self, tokens: Tensor, *, end: Tensor) -> Tensor:
        """Upper bound of E(end) − E(tokens) for one full step between them, shape (...).

        −(1/(α m) − ℓ/2) ‖Δg‖² with m = γ/σ, σ the smallest spread of a token on the way, and
        ℓ = 2 √N Σ_h ‖Q_hᵀ K_h‖₂; negative where α < 2/(ℓ m). Holds with `key_side` True.
        """
        moved = (self.normalize(end) - self.normalize(tokens)).square().sum((-1, -2))
        steep = self.log_gain.exp() / _least_spread(tokens, end).amin(-1)
        return -(1 / (self.step_size * steep) - self._curvature(tokens) / 2) * moved

    @torch.no_grad()
    def safe_step(self, tokens: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """A step size α(x), shape (...), below which one step cannot raise the energy.

        Known before the step: min_A σ_A / (γ ℓ/2 + max_A ‖∂E/∂g_A‖/√D), because a step of α
        lowers the spread of token A by at most α ‖∂E/∂g_A‖/√D. Holds with `key_side` True.
        """
        force = self.gradient(tokens, mask=mask).norm(dim=-1).amax(-1) / tokens.shape[-1] ** 0.5
        pull = self.log_gain.exp() * self._curvature(tokens) / 2
        return spread(tokens).amin(-1) / (pull + force)

    def _curvature(self, tokens: Tensor) -> Tensor:
        """ℓ: no direction of g in which the energy curves upwards by more."""
        couplings = self.query_map.mT @ self.key_map
        return 2 * tokens.shape[-2] ** 0.5 * torch.linalg.matrix_norm(couplings, ord=2).sum()


def _least_spread(start: Tensor, end: Tensor) -> Tensor:
    """The smallest spread of each token on the straight way, (..., N): a parabola's minimum."""
    begin = start - start.mean(-1, keepdim=True)
    change = end - end.mean(-1, keepdim=True) - begin
    square = change.square().sum(-1)
    share = (-(begin * change).sum(-1) / square.clamp_min(1e-30)).clamp(0.0, 1.0)
    return spread(begin + share.unsqueeze(-1) * change)


def _project(
    normalized: Tensor, query_map: Tensor, key_map: Tensor, beta: float | None
) -> tuple[Tensor, Tensor, float]:
    """Queries and keys (..., H, N, Y), and β."""
    _check_tokens(normalized, name="normalized", least=2)
    for name, value in (("query_map", query_map), ("key_map", key_map)):
        _check_floating(name, value)
        check_like(name, value, model=normalized, role="tokens")
        if value.ndim != 3 or value.shape[-1] != normalized.shape[-1] or 0 in value.shape:
            raise ValueError(
                f"{name} must have shape (heads, head_width, {normalized.shape[-1]}), "
                f"got {tuple(value.shape)}"
            )
    if query_map.shape != key_map.shape:
        raise ValueError(
            f"key_map must have the shape of query_map, {tuple(query_map.shape)}, "
            f"got {tuple(key_map.shape)}"
        )
    heads = query_map.shape[:2]
    queries, keys = (
        (normalized @ value.flatten(0, 1).mT).unflatten(-1, heads).transpose(-2, -3)
        for value in (query_map, key_map)
    )
    return queries, keys, 1.0 / math.sqrt(heads[1]) if beta is None else check_beta(beta)


def _scores(queries: Tensor, keys: Tensor, beta: float, mask: Tensor | None) -> Tensor:
    scores = beta * queries @ keys.mT
    if mask is None:
        return scores
    check_mask("mask", mask, shape=tuple(scores.shape))
    # A query that sees nothing gets equal scores, which are finite; its result is dropped.
    return scores.masked_fill(~mask & mask.any(-1, keepdim=True), -math.inf)


def _check_floating(name: str, value: Tensor) -> None:
    if not isinstance(value, Tensor) or not value.is_floating_point():
        raise TypeError(f"{name} must be a floating-point torch tensor, got {type(value).__name__}")


def _check_tokens(tokens: Tensor, *, name: str = "tokens", least: int = 1) -> None:
    _check_floating(name, tokens)
    if tokens.ndim < least or 0 in tokens.shape[-least:]:
        shape = "(..., N, D)" if least == 2 else "(..., D)"
        raise ValueError(f"{name} must have shape {shape}, got {tuple(tokens.shape)}")


def _check_map(
    tokens: Tensor, gain: Tensor | float, shift: Tensor | float
) -> tuple[Tensor | float, Tensor | float]:
    """γ, one number, and δ, a number or one for each component; values of tensors are not read."""
    told: list[Tensor | float] = []
    for name, value, shapes in (("gain", gain, ((),)), ("shift", shift, ((), tokens.shape[-1:]))):
        if isinstance(value, Tensor):
            _check_floating(name, value)
            if tuple(value.shape) not in shapes:
                allowed = " or ".join(str(tuple(shape)) for shape in shapes)
                raise ValueError(f"{name} must have shape {allowed}, got {tuple(value.shape)}")
            told.append(value)
        else:
            told.append(check_real(name, value, low=0.0 if name == "gain" else None))
    return told[0], told[1]


def _check_memory(normalized: Tensor, patterns: Tensor) -> None:
    _check_tokens(normalized, name="normalized", least=2)
    _check_floating("patterns", patterns)
    if patterns.ndim != 2 or patterns.shape[-1] != normalized.shape[-1] or not len(patterns):
        raise ValueError(
            f"patterns must have shape (patterns, {normalized.shape[-1]}), "
            f"got {tuple(patterns.shape)}"
        )

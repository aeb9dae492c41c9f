"""Taking the magnetisation of vector spins with softmax couplings apart, and measuring the parts.

Document 000, section 8. Units of `couplings`: u = σ/√D, scaled fields h = H/√D, and

    m = −(1/D) dF/dh = ⟨u⟩ + response,    ⟨u⟩ = ½ V⁻¹ h,    V = diag(t) − J,

with the large-D saddle point of `vector` at the softmax couplings J(h), scores γ√D hAhᵀ (γ = 1 is
the document's H W_Q W_Kᵀ Hᵀ/√D). With τ = t − J_ii the mixing is the series
⟨u⟩ = ½τ⁻¹h + ½τ⁻¹Jτ⁻¹h + …, whose first term is proportional to the token's own field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from spinformer.core.checks import check_choice, check_integer, check_real, check_tensor
from spinformer.spins.modules.couplings import autograd_response, softmax_couplings
from spinformer.spins.vectors.saddle import vector_spins


@dataclass(frozen=True)
class Anatomy:
    """The parts of m, each (..., N, D), summing to m; and what they were made with.

    `residual` ½τ⁻¹h, `first_step` ½τ⁻¹Jτ⁻¹h (one attention step), `higher_orders` the rest of
    ½V⁻¹h, `response` Σ C ∂J/∂h. `gain` (..., N) is 1/(2τ_i); `onsager` (..., N) the part of τ_i
    that a free spin of the same magnetisation would not have, τ_i − 1/(2β(1−⟨u_i⟩²)).
    `couplings` J as the softmax gave them, `correlation` C. `free_energy` (...) is F.
    """

    residual: torch.Tensor
    first_step: torch.Tensor
    higher_orders: torch.Tensor
    response: torch.Tensor
    gain: torch.Tensor
    onsager: torch.Tensor
    couplings: torch.Tensor
    correlation: torch.Tensor
    free_energy: torch.Tensor

    @property
    def spins(self) -> torch.Tensor:
        """⟨u⟩: the first three parts."""
        return self.residual + self.first_step + self.higher_orders

    @property
    def magnetization(self) -> torch.Tensor:
        """m: all four parts."""
        return self.spins + self.response

    def parts(self) -> dict[str, torch.Tensor]:
        """The four parts by name."""
        names = ("residual", "first_step", "higher_orders", "response")
        return {name: getattr(self, name) for name in names}

    def shares(self) -> dict[str, torch.Tensor]:
        """Σ part·m / Σ m·m of every system, (...): signed, summing to one."""
        total = self.magnetization
        size = total.square().sum(dim=(-2, -1))
        return {
            name: (part * total).sum(dim=(-2, -1)) / size for name, part in self.parts().items()
        }

    def sizes(self) -> dict[str, torch.Tensor]:
        """Root mean square norm of a token's part, (...)."""
        return {
            name: part.square().sum(dim=-1).mean(dim=-1).sqrt()
            for name, part in self.parts().items()
        }


def draw_tokens(
    batch: int,
    *,
    sites: int,
    dim: int,
    seed: int,
    prototypes: torch.Tensor | None = None,
    spread: float = 0.5,
) -> torch.Tensor:
    """Scaled fields h (batch, N, D) of norm one, in random directions, float64.

    With `prototypes` (clusters, D) each direction is one of them, at random, plus `spread` times
    a random direction: tokens that have something to say to each other.
    """
    for name, value in {"batch": batch, "sites": sites, "dim": dim}.items():
        check_integer(name, value, low=1)
    spread = check_real("spread", spread, low=0.0)
    generator = torch.Generator().manual_seed(check_integer("seed", seed, low=0))
    fields = torch.randn(batch, sites, dim, generator=generator, dtype=torch.float64)
    fields = nn.functional.normalize(fields, dim=-1)
    if prototypes is not None:
        prototypes = check_tensor("prototypes", prototypes, shape=(None, dim))
        which = torch.randint(len(prototypes), (batch, sites), generator=generator)
        fields = nn.functional.normalize(prototypes[which] + spread * fields, dim=-1)
    return fields


def draw_bilinear(dim: int, *, seed: int, kind: str = "random") -> torch.Tensor:
    """A = W_Q W_Kᵀ (D, D), float64: "random" entries N(0, 1/D), "tied" W_Q = W_K of such entries,
    "identity", or "none" (zero: couplings that do not see the field)."""
    dim = check_integer("dim", dim, low=1)
    check_choice("kind", kind, ("random", "tied", "identity", "none"))
    generator = torch.Generator().manual_seed(check_integer("seed", seed, low=0))
    if kind == "identity":
        return torch.eye(dim, dtype=torch.float64)
    matrix = torch.randn(dim, dim, generator=generator, dtype=torch.float64) / dim**0.5
    if kind == "tied":
        return matrix @ matrix.T
    return matrix if kind == "random" else 0 * matrix


def dissect(
    fields: torch.Tensor,
    *,
    bilinear: torch.Tensor,
    beta: float,
    gamma: float = 1.0,
    strength: float = 0.5,
    mask_diagonal: bool = True,
    couplings: torch.Tensor | None = None,
) -> Anatomy:
    """Solve the spins at the couplings of these fields and take m apart.

    `fields` h (..., N, D); `bilinear` A (D, D); `strength` g; `couplings` replaces the softmax by
    fixed couplings (..., N, N), without response. Differentiable. RuntimeError if the saddle
    point was not found.
    """
    fields = check_tensor("fields", fields)
    beta = check_real("beta", beta, low=0.0, open_low=True)
    root = fields.shape[-1] ** 0.5
    scale = check_real("gamma", gamma, low=0.0) * root

    def couplings_of(h: torch.Tensor) -> torch.Tensor:
        if couplings is not None:
            return couplings.expand(*h.shape[:-1], h.shape[-2])
        return softmax_couplings(
            h, bilinear=bilinear, gamma=scale, strength=strength, mask_diagonal=mask_diagonal
        )

    coupled = couplings_of(fields)
    solved = vector_spins(coupled, fields=fields * root, beta=beta)
    if not bool(solved.saddle.converged.all()):
        raise RuntimeError(f"no saddle point at beta = {beta}, strength = {strength}")
    symmetric = (coupled + coupled.mT) / 2
    diagonal = symmetric.diagonal(dim1=-2, dim2=-1)
    tau = solved.saddle.t - diagonal
    others = symmetric - torch.diag_embed(diagonal)
    spins = solved.magnetization / root
    residual = fields / (2 * tau.unsqueeze(-1))
    first = (others @ residual) / tau.unsqueeze(-1)
    response = autograd_response(
        fields, couplings_of, correlation=solved.correlations, create_graph=fields.requires_grad
    )
    free = 1 / (2 * beta * (1 - spins.square().sum(dim=-1)))
    return Anatomy(
        residual=residual,
        first_step=first,
        higher_orders=spins - residual - first,
        response=response,
        gain=1 / (2 * tau),
        onsager=tau - free,
        couplings=coupled,
        correlation=solved.correlations,
        free_energy=solved.free_energy,
    )


def outside_span(part: torch.Tensor, *, fields: torch.Tensor) -> torch.Tensor:
    """Share of ‖part‖² outside the span of all the system's fields, (...), in [0, 1].

    Zero for anything that only adds tokens up with numbers, one number per pair of tokens; asks
    for N < D, else ValueError.
    """
    sites, dim = fields.shape[-2:]
    if sites >= dim:
        raise ValueError(f"fields must have fewer sites than channels, got {sites} and {dim}")
    basis = torch.linalg.svd(fields, full_matrices=False).Vh
    inside = (part @ basis.mT) @ basis
    return (part - inside).square().sum(dim=(-2, -1)) / part.square().sum(dim=(-2, -1))


def best_pair_weights(part: torch.Tensor, *, fields: torch.Tensor) -> torch.Tensor:
    """The N × N matrix M with part = M h in least squares: the mixing alike on all channels."""
    return torch.linalg.lstsq(fields.mT, part.mT).solution.mT


def random_rotation(dim: int, *, seed: int) -> torch.Tensor:
    """A rotation or reflection of the channels, uniform (Haar) over the orthogonal group."""
    generator = torch.Generator().manual_seed(check_integer("seed", seed, low=0))
    matrix = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    q, r = torch.linalg.qr(matrix)
    return q * r.diagonal().sign()


def locality(
    fields: torch.Tensor, *, bilinear: torch.Tensor, frozen: bool = False, **options: float
) -> torch.Tensor:
    """‖∂r_i/∂h_j‖² for all pairs, (N, N): which fields the response of token i listens to.

    One system, `fields` (N, D); `options` as in `dissect`. The derivative is total, through the
    couplings and the correlations; with `frozen` G and C are held and only the fields that G
    averages move.
    """
    check_tensor("fields", fields, ndim=2)

    def response(h: torch.Tensor) -> torch.Tensor:
        return dissect(h, bilinear=bilinear, **options).response

    if frozen:
        held = dissect(fields, bilinear=bilinear, **options)
        weighted = held.couplings * held.correlation
        total = held.couplings.sum(dim=-1, keepdim=True)
        weights = weighted - held.couplings * weighted.sum(dim=-1, keepdim=True) / total
        # r = γ√D (G h Aᵀ + Gᵀ h A): the block (i, j) is G_ij A + G_ji Aᵀ.
        scale = options.get("gamma", 1.0) * fields.shape[-1] ** 0.5
        blocks = weights[:, :, None, None] * bilinear + weights.T[:, :, None, None] * bilinear.T
        return (scale * blocks).square().sum(dim=(-2, -1))
    jacobian = torch.autograd.functional.jacobian(response, fields)
    return jacobian.square().sum(dim=(1, 3))


def own_token_share(
    bilinear: torch.Tensor,
    *,
    sites: int,
    owners: int,
    environments: int,
    seed: int,
    prototypes: torch.Tensor | None = None,
    spread: float = 0.5,
    **options: float,
) -> float:
    """Share of the variance of the response of a token that its own field decides.

    Var(E[r_i | h_i]) / Var(r_i), from `owners` tokens, each put into the same number of
    independent draws of the other N − 1 tokens, with the unbiased estimate of the variance within
    (one-way analysis of variance). The R² that no function of the own field can exceed.
    """
    dim = bilinear.shape[-1]
    fields = draw_tokens(
        owners * environments, sites=sites, dim=dim, seed=seed, prototypes=prototypes, spread=spread
    )
    fields = fields.reshape(owners, environments, sites, dim).clone()
    fields[:, :, 0] = fields[:, :1, 0]
    response = dissect(fields, bilinear=bilinear, **options).response[:, :, 0]
    return share_between_groups(response)


def share_between_groups(values: torch.Tensor) -> float:
    """Var(E[y | group]) / Var(y) of `values` (groups, members, channels), summed over channels.

    Unbiased in both variances (one-way analysis of variance), so it may fall below zero by
    chance; needs at least two groups of two members.
    """
    values = check_tensor("values", values, ndim=3)
    if min(values.shape[:2]) < 2:
        raise ValueError(f"values must hold 2 groups of 2, got shape {tuple(values.shape)}")
    within = values.var(dim=1).mean(dim=0).sum()
    between = values.mean(dim=1).var(dim=0).sum() - within / values.shape[1]
    return float(between / (between + within))


@dataclass(frozen=True)
class PerTokenFit:
    """R² of a trained per-token network, pooled over channels.

    `train` and `test` on the two parts of its data, `elsewhere` on data of another kind (NaN if
    none was given).
    """

    width: int
    train: float
    test: float
    elsewhere: float


def fit_per_token(
    inputs: torch.Tensor,
    *,
    targets: torch.Tensor,
    width: int,
    steps: int,
    seed: int,
    elsewhere: tuple[torch.Tensor, torch.Tensor] | None = None,
    batch: int = 256,
    rate: float = 3e-3,
    held_out: float = 0.25,
) -> PerTokenFit:
    """Train x ↦ W₂ gelu(W₁x + b₁) + b₂ on one token at a time, as a transformer's feed-forward.

    `inputs` (samples, features), `targets` (samples, channels); the last `held_out` share of the
    samples is the test set, so give whole systems in order. `elsewhere` is a further pair to
    test on. Inputs are standardised per feature, targets by one number, all from the training
    set. `width` 0 is linear regression. Adam (Kingma and Ba 2015) with a cosine schedule, double
    precision.
    """
    inputs = check_tensor("inputs", inputs, ndim=2).detach().double()
    targets = check_tensor("targets", targets, shape=(inputs.shape[0], None)).detach().double()
    width = check_integer("width", width, low=0)
    steps = check_integer("steps", steps, low=1)
    held_out = check_real("held_out", held_out, low=0.01, high=0.9)
    cut = int(inputs.shape[0] * (1 - held_out))
    shift, scale = inputs[:cut].mean(0), inputs[:cut].std(0).clamp_min(1e-12)
    centre, size = targets[:cut].mean(0), targets[:cut].std().clamp_min(1e-12)

    def prepared(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x.detach().double() - shift) / scale, (y.detach().double() - centre) / size

    x, y = prepared(inputs, targets)
    network: Callable[[torch.Tensor], torch.Tensor]
    if width:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(check_integer("seed", seed, low=0))
            network = _train(x[:cut], y[:cut], width, steps, batch, rate)
    else:
        solution = torch.linalg.lstsq(x[:cut], y[:cut]).solution

        def network(x: torch.Tensor) -> torch.Tensor:
            return x @ solution

    def score(x: torch.Tensor, y: torch.Tensor) -> float:
        with torch.no_grad():
            wrong = (network(x) - y).square().sum()
        return 1 - float(wrong / (y - y.mean(0)).square().sum())

    return PerTokenFit(
        width=width,
        train=score(x[:cut], y[:cut]),
        test=score(x[cut:], y[cut:]),
        elsewhere=float("nan") if elsewhere is None else score(*prepared(*elsewhere)),
    )


def _train(
    x: torch.Tensor, y: torch.Tensor, width: int, steps: int, batch: int, rate: float
) -> nn.Module:
    layers = nn.Linear(x.shape[1], width), nn.GELU(), nn.Linear(width, y.shape[1])
    network = nn.Sequential(*layers).double()
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        pick = torch.randint(len(x), (batch,))
        optimizer.zero_grad()
        (network(x[pick]) - y[pick]).square().mean().backward()
        optimizer.step()
        schedule.step()
    return network

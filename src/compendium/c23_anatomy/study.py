"""The magnetization of vector spins with softmax couplings taken apart, and measured.

[bal2021transformers, Sec. 8] in the units of `spins.large_d`, u = σ/√D and scaled fields h = H/√D,
with scores γ√D h A hᵀ: γ = 1 is the paper's H W_Q W_Kᵀ Hᵀ/√D. `options` are those of `dissect`.

Written down before the table `learned` was made: around four prototypes longer training on twice
the data raises R² from about 0.72 to 0.79 at γ = 1 and from 0.40 to 0.51 at γ = 3, in every seed;
for random directions by less than 0.02; on other prototypes it makes R² worse.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bookmaker.tables import Rows, stored
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.spins.exact_vectors import two_spins
from spinformer.spins.module import response_attention
from spinformer.spins.solvers import solve_saddle_point


@dataclass(frozen=True)
class Anatomy:
    """The parts of m = −(1/D) dF/dh, each (..., N, D), and what they were made with.

    `residual` ½τ⁻¹h, `first_step` ½τ⁻¹Jτ⁻¹h, J without its diagonal, `higher_orders` the rest of
    ⟨u⟩ = ½(diag(t) − J)⁻¹h, τ = t − J_ii; `response` Σ C ∂J/∂h. `couplings` J as the softmax gave
    them, `correlation` C, `free_energy` (...).
    """

    residual: Tensor
    first_step: Tensor
    higher_orders: Tensor
    response: Tensor
    couplings: Tensor
    correlation: Tensor
    free_energy: Tensor

    @property
    def spins(self) -> Tensor:
        """⟨u⟩: the first three parts."""
        return self.residual + self.first_step + self.higher_orders

    @property
    def magnetization(self) -> Tensor:
        """m: all four parts."""
        return self.spins + self.response

    def parts(self) -> dict[str, Tensor]:
        """The four parts by name."""
        names = ("residual", "first_step", "higher_orders", "response")
        return {name: getattr(self, name) for name in names}

    def shares(self) -> dict[str, Tensor]:
        """Σ part·m / Σ m·m of every system, (...): signed, summing to one."""
        total = self.magnetization
        size = total.square().sum((-2, -1))
        return {name: (part * total).sum((-2, -1)) / size for name, part in self.parts().items()}

    def sizes(self) -> dict[str, Tensor]:
        """Root mean square norm of a token's part, (...)."""
        return {name: part.square().sum(-1).mean(-1).sqrt() for name, part in self.parts().items()}


def softmax_couplings(
    fields: Tensor, *, bilinear: Tensor, scale: float, strength: float, mask_diagonal: bool = True
) -> Tensor:
    """J = g softmax(a h A hᵀ), rows summing to g; (..., N, N), in general not symmetric."""
    scores = scale * (fields @ bilinear) @ fields.mT
    if mask_diagonal:
        scores = scores.masked_fill(torch.eye(scores.shape[-1], dtype=torch.bool), -torch.inf)
    return strength * scores.softmax(-1)


def softmax_response(
    fields: Tensor,
    *,
    bilinear: Tensor,
    couplings: Tensor,
    correlation: Tensor,
    scale: float,
    strength: float | Tensor,
) -> Tensor:
    """Σ C_mn ∂J_mn/∂h in closed form, a (G h Aᵀ + Gᵀ h A): a site as a query, and as a key."""
    weights = response_attention(couplings, correlation=correlation, coupling_strength=strength)
    return scale * ((weights @ fields) @ bilinear.mT + (weights.mT @ fields) @ bilinear)


def dissect(
    fields: Tensor,
    *,
    bilinear: Tensor,
    beta: float,
    gamma: float = 1.0,
    strength: float = 0.5,
    mask_diagonal: bool = True,
    couplings: Tensor | None = None,
) -> Anatomy:
    """Take m apart at these `fields` h (..., N, D): at the couplings that they make, or at fixed
    `couplings` (..., N, N), without response."""
    root = fields.shape[-1] ** 0.5
    fixed = couplings is not None
    if couplings is None:
        couplings = softmax_couplings(
            fields,
            bilinear=bilinear,
            scale=gamma * root,
            strength=strength,
            mask_diagonal=mask_diagonal,
        )
    couplings = couplings.expand(*fields.shape[:-1], fields.shape[-2])
    solved = solve_saddle_point(couplings, fields=fields * root, beta=beta)
    if fixed:
        response = torch.zeros_like(fields)
    else:
        response = softmax_response(
            fields,
            bilinear=bilinear,
            couplings=couplings,
            correlation=solved.correlations,
            scale=gamma * root,
            strength=strength,
        )
    symmetric = (couplings + couplings.mT) / 2
    diagonal = symmetric.diagonal(dim1=-2, dim2=-1)
    tau = (solved.saddle.value - diagonal).unsqueeze(-1)
    spins = solved.magnetization / root
    residual = fields / (2 * tau)
    first = ((symmetric - torch.diag_embed(diagonal)) @ residual) / tau
    return Anatomy(
        residual=residual,
        first_step=first,
        higher_orders=spins - residual - first,
        response=response,
        couplings=couplings,
        correlation=solved.correlations,
        free_energy=solved.free_energy,
    )


def autograd_response(
    fields: Tensor, couplings_of: Callable[[Tensor], Tensor], *, correlation: Tensor
) -> Tensor:
    """Σ_{m,n} C_mn ∂J_mn/∂h_i for any couplings J = `couplings_of`(h), C held fixed; no history."""
    probe = fields.detach().clone().requires_grad_()
    return torch.autograd.grad(couplings_of(probe), probe, correlation.detach())[0]


def draw_tokens(
    batch: int, *, sites: int, dim: int, seed: TorchSeed, prototypes: Tensor | None = None
) -> Tensor:
    """Scaled fields h (batch, N, D) of norm one, in random directions, float64.

    With `prototypes` (clusters, D) each is one of them, plus one half of a random direction.
    """
    generator = torch_generator(seed)
    fields = torch.randn(batch, sites, dim, generator=generator, dtype=torch.float64)
    fields = nn.functional.normalize(fields, dim=-1)
    if prototypes is not None:
        which = torch.randint(len(prototypes), (batch, sites), generator=generator)
        fields = nn.functional.normalize(prototypes[which] + 0.5 * fields, dim=-1)
    return fields


def draw_bilinear(dim: int, *, seed: TorchSeed) -> Tensor:
    """A = W_Q W_Kᵀ (D, D) with entries N(0, 1/D), float64."""
    generator = torch_generator(seed)
    return torch.randn(dim, dim, generator=generator, dtype=torch.float64) / dim**0.5


def outside_span(part: Tensor, *, fields: Tensor) -> Tensor:
    """Share of ‖part‖² outside the span of all the system's fields, (...); for N < D."""
    basis = torch.linalg.svd(fields, full_matrices=False).Vh
    outside = (part - (part @ basis.mT) @ basis).square().sum((-2, -1))
    whole = part.square().sum((-2, -1))
    return outside / whole.clamp_min(torch.finfo(whole.dtype).tiny)


def locality(
    fields: Tensor,
    *,
    bilinear: Tensor,
    gamma: float,
    beta: float,
    strength: float = 0.5,
    mask_diagonal: bool = True,
    frozen: bool = False,
) -> Tensor:
    """‖∂r_i/∂h_j‖² for all pairs, (N, N): which fields the response of token i listens to.

    With `frozen` couplings and correlations are held and only the fields that G averages move.
    """

    def anatomy_at(h: Tensor) -> Anatomy:
        return dissect(
            h,
            bilinear=bilinear,
            beta=beta,
            gamma=gamma,
            strength=strength,
            mask_diagonal=mask_diagonal,
        )

    held = anatomy_at(fields)

    def response(h: Tensor) -> Tensor:
        if not frozen:
            return anatomy_at(h).response
        return softmax_response(
            h,
            bilinear=bilinear,
            couplings=held.couplings,
            correlation=held.correlation,
            scale=gamma * fields.shape[-1] ** 0.5,
            strength=held.couplings.sum(-1, True),
        )

    jacobian: Tensor = torch.autograd.functional.jacobian(response, fields)
    return jacobian.square().sum(dim=(1, 3))


def own_field_term(
    fields: Tensor,
    *,
    bilinear: Tensor,
    gamma: float,
    beta: float,
    strength: float = 0.5,
    mask_diagonal: bool = True,
) -> tuple[Tensor, Tensor]:
    """The response (..., N, D), and its terms a G_ii (A + Aᵀ)h_i that contain the own field alone.

    With a masked diagonal G_ii = 0, and these terms are zero by construction.
    """
    held = dissect(
        fields,
        bilinear=bilinear,
        beta=beta,
        gamma=gamma,
        strength=strength,
        mask_diagonal=mask_diagonal,
    )
    row_sums = held.couplings.sum(-1, keepdim=True)
    weights = response_attention(
        held.couplings, correlation=held.correlation, coupling_strength=row_sums
    )
    own = weights.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    scale = gamma * fields.shape[-1] ** 0.5
    return held.response, scale * own * (fields @ (bilinear + bilinear.mT))


def slope_at_zero(function: Callable[[float], Any], *, step: float) -> Any:
    """df/dx at x = 0 from f(±step) and f(±2 step): the error is of the order of step⁴."""
    far_left = function(-2.0 * step)
    left = function(-step)
    right = function(step)
    far_right = function(2.0 * step)
    return (far_left - 8 * left + 8 * right - far_right) / (12 * step)


def derivative_errors(
    fields: Tensor,
    *,
    bilinear: Tensor,
    push: Tensor,
    beta: float,
    gamma: float,
    strength: float,
    mask_diagonal: bool = True,
) -> dict[str, float]:
    """Largest deviations of the parts of m from derivatives that know nothing of them.

    `autograd`: m from −(1/D) dF/dh through couplings and saddle point together. `formula`: the
    response, a closed form, from automatic derivatives. `difference`: m along `push` (..., N, D)
    from finite differences of F with the saddle point solved again.
    """
    root = fields.shape[-1] ** 0.5

    def anatomy_at(h: Tensor) -> Anatomy:
        return dissect(
            h,
            bilinear=bilinear,
            beta=beta,
            gamma=gamma,
            strength=strength,
            mask_diagonal=mask_diagonal,
        )

    def couplings_of(h: Tensor) -> Tensor:
        return softmax_couplings(
            h,
            bilinear=bilinear,
            scale=gamma * root,
            strength=strength,
            mask_diagonal=mask_diagonal,
        )

    anatomy = anatomy_at(fields)
    probe = fields.clone().requires_grad_()
    solved = solve_saddle_point(couplings_of(probe), fields=probe * root, beta=beta)
    (slope,) = torch.autograd.grad(-solved.free_energy.sum() / root**2, probe)
    automatic = autograd_response(fields, couplings_of, correlation=anatomy.correlation)
    along = slope_at_zero(lambda x: -anatomy_at(fields + x * push).free_energy, step=1e-3) / root**2
    errors = {
        "autograd": anatomy.magnetization - slope,
        "formula": anatomy.response - automatic,
        "difference": along - (anatomy.magnetization * push).sum((-2, -1)),
    }
    return {name: float(error.abs().max()) for name, error in errors.items()}


def exact_pair(
    dim: int, *, beta: float, gamma: float, strength: float
) -> tuple[Anatomy, Tensor, Tensor]:
    """Two spins, the diagonal kept: the large-D parts, exact ⟨u⟩ and exact response, D ≥ 2."""
    root = dim**0.5
    h = torch.zeros(2, dim, dtype=torch.float64)
    h[0, 0] = 1.0
    h[1, 0] = 0.6
    h[1, 1] = 0.8
    a = torch.zeros(dim, dim, dtype=torch.float64)
    # The same scores in every D: the factor √D of the couplings is taken out again.
    a[:2, :2] = torch.tensor([[1.0, -0.5], [0.3, 0.7]]) * 3 / root
    large = dissect(h, bilinear=a, beta=beta, gamma=gamma, strength=strength, mask_diagonal=False)
    exact = two_spins(large.couplings.numpy(), fields=(h * root).numpy(), beta=beta)
    response = softmax_response(
        h,
        bilinear=a,
        couplings=large.couplings,
        correlation=torch.tensor(exact.correlation),
        scale=gamma * root,
        strength=strength,
    )
    return large, torch.tensor(exact.magnetization) / root, response


def own_token_share(
    bilinear: Tensor,
    *,
    sites: int,
    owners: int,
    environments: int,
    seed: TorchSeed,
    beta: float,
    gamma: float = 1.0,
    strength: float = 0.5,
    mask_diagonal: bool = True,
    prototypes: Tensor | None = None,
) -> float:
    """Share Var(E[r_i | h_i]) / Var(r_i) of the response that the own field of a token decides.

    From `owners` tokens, each put into as many `environments`, draws of the others.
    """
    dim = bilinear.shape[-1]
    count = owners * environments
    fields = draw_tokens(count, sites=sites, dim=dim, seed=seed, prototypes=prototypes)
    fields = fields.reshape(owners, environments, sites, dim).clone()
    fields[:, :, 0] = fields[:, :1, 0]
    anatomy = dissect(
        fields,
        bilinear=bilinear,
        beta=beta,
        gamma=gamma,
        strength=strength,
        mask_diagonal=mask_diagonal,
    )
    return share_between_groups(anatomy.response[:, :, 0])


def share_between_groups(values: Tensor) -> float:
    """Var(E[y | group]) / Var(y) of `values` (groups, members, channels), summed over channels;
    unbiased in both, so it may fall below zero by chance."""
    within = values.var(dim=1).mean(dim=0).sum()
    between = values.mean(dim=1).var(dim=0).sum() - within / values.shape[1]
    return float(between / (between + within))


def fit_per_token(
    inputs: Tensor,
    *,
    targets: Tensor,
    width: int,
    steps: int,
    seed: int,
    elsewhere: tuple[Tensor, Tensor] | None = None,
) -> dict[str, float]:
    """R² of x ↦ W₂ gelu(W₁x + b₁) + b₂, trained on one token at a time, by Adam with a cosine.

    Pooled over channels, on the "train" and the "test" part, the last quarter of the samples, and
    "elsewhere" on data of another kind, NaN if none was given. Inputs are standardised per feature,
    targets by one number, all from the training set.
    """
    cut = int(len(inputs) * 0.75)
    shift = inputs[:cut].mean(0)
    scale = inputs[:cut].std(0).clamp_min(1e-12)
    centre = targets[:cut].mean(0)
    size = targets[:cut].std().clamp_min(1e-12)
    x = (inputs - shift) / scale
    y = (targets - centre) / size
    # torch draws initial weights from its global state and nowhere else: it is lent ours.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = nn.Linear(x.shape[1], width), nn.GELU(), nn.Linear(width, y.shape[1])
        network = nn.Sequential(*layers).double()
        optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        for _ in range(steps):
            pick = torch.randint(cut, (256,))
            optimizer.zero_grad()
            (network(x[pick]) - y[pick]).square().mean().backward()
            optimizer.step()
            schedule.step()

    @torch.no_grad()
    def score(x: Tensor, y: Tensor) -> float:
        wrong = network(x) - y
        return 1 - float(wrong.square().sum()) / float((y - y.mean(0)).square().sum())

    far = math.nan
    if elsewhere is not None:
        far = score((elsewhere[0] - shift) / scale, (elsewhere[1] - centre) / size)
    return {"train": score(x[:cut], y[:cut]), "test": score(x[cut:], y[cut:]), "elsewhere": far}


SITES = 12
DIM = 16
WIDTH = 128
# (systems, steps) of the networks.
SHORT = (1500, 400)
LONG = (3000, 2500)
FITS = {"clusters": (SHORT, (1500, 2500), LONG), "random": (SHORT, LONG)}
CASES = (("clusters", 1.0), ("clusters", 3.0), ("random", 1.0))
WITHIN = {"decided": 1e-4, "train": 0.03, "test": 0.03, "elsewhere": math.inf}


def learned_rows(
    gamma: float,
    surroundings: str,
    seed: int,
    *,
    lessons: Sequence[tuple[int, int]],
    mask_diagonal: bool = True,
    beside: bool = True,
) -> Rows:
    """A row for each of the `lessons` (systems, steps): `decided`, what the own field decides of
    the variance, and the R² of a network.

    "elsewhere": around four other prototypes. Fewer systems are the first of more. Without what is
    measured `beside` the network, "decided" and "elsewhere" are NaN.
    """
    first = 100 * seed
    most = max(systems for systems, _ in lessons)
    bilinear = draw_bilinear(DIM, seed=first + 1)

    def data(systems: int, number: int, prototypes: Tensor | None) -> tuple[Tensor, Tensor]:
        """h_i and ⟨u_i⟩ side by side, and the response r_i, a row a token."""
        fields = draw_tokens(
            systems, sites=SITES, dim=DIM, seed=first + number, prototypes=prototypes
        )
        parts = dissect(
            fields, bilinear=bilinear, beta=1.0, gamma=gamma, mask_diagonal=mask_diagonal
        )
        return torch.cat([fields, parts.spins], -1).flatten(0, 1), parts.response.flatten(0, 1)

    centres = None
    away = None
    if surroundings == "clusters":
        centres = draw_tokens(1, sites=4, dim=DIM, seed=first + 2)[0]
        others = draw_tokens(1, sites=4, dim=DIM, seed=first + 3)[0]
        away = data(most // 4, 6, others) if beside else None
    decided = math.nan
    if beside:
        decided = own_token_share(
            bilinear,
            sites=SITES,
            prototypes=centres,
            owners=400,
            environments=12,
            seed=first + 4,
            beta=1.0,
            gamma=gamma,
            mask_diagonal=mask_diagonal,
        )
    inputs, targets = data(most, 5, centres)
    rows = []
    for systems, steps in lessons:
        part = slice(0, systems * SITES)
        fit = fit_per_token(
            inputs[part],
            targets=targets[part],
            width=WIDTH,
            steps=steps,
            seed=seed,
            elsewhere=away,
        )
        rows.append({"systems": systems, "steps": steps, "decided": decided} | fit)
    return rows


@stored(
    "learned",
    [
        {"gamma": gamma, "surroundings": surroundings, "seed": seed}
        for seed in range(10)
        for surroundings, gamma in CASES
    ],
    seconds=10.0,
    within=WITHIN,
)
def learned_table(gamma: float, surroundings: str, seed: int) -> Rows:
    """What networks learn of the response of couplings without a diagonal."""
    return learned_rows(gamma, surroundings, seed, lessons=FITS[surroundings])


@stored(
    "learned_kept",
    [
        {"gamma": gamma, "surroundings": surroundings, "seed": seed}
        for seed in range(10)
        for surroundings, gamma in CASES
    ],
    seconds=10.0,
    within=WITHIN,
)
def learned_kept(gamma: float, surroundings: str, seed: int) -> Rows:
    """The same with the diagonal kept, as in Bal's sum over all pairs."""
    lessons = FITS[surroundings]
    return learned_rows(gamma, surroundings, seed, lessons=lessons, mask_diagonal=False)

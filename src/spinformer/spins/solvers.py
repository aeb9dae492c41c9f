"""Solvers for vector spins: saddle point and mean-field fixed point, with implicit differentiation.

They solve the equations in `large_d`. Arguments are torch tensors with any leading batch axes:
couplings (..., N, N), fields (..., N, D), and beta, a positive number or a tensor (...). Results
are differentiable to any order: whatever iteration finds the unknowns, their derivatives are those
of the implicit function theorem.
"""

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor

from spinformer.core.anderson import anderson
from spinformer.core.checks import (
    check_broadcast,
    check_choice,
    check_flag,
    check_integer,
    check_real,
    check_tensor,
)
from spinformer.core.implicit import implicit_root
from spinformer.core.operators import is_forward_mode, iteration_operator
from spinformer.core.records import record
from spinformer.core.solve import Solution, Status
from spinformer.spins.large_d import (
    action_gradient,
    effective_action,
    field_correlation,
    field_source,
    inverse_logdet,
    langevin_response,
    mean_field,
    onsager_gain,
    pair_couplings,
    saddle_log_partition,
)

# Newton's tries with the steps that suit poles, see `_search`.
_BENT_STEPS = 8
# What rounding may leave of |C_ii − 1| where a search is called converged.
_LOOSE = 1e-3


@record
class VectorSpins:
    """Thermodynamics of a batch of vector-spin systems with ‖σ_i‖² = D, by the saddle point.

    See `large_d` for the equations and units.

    Attributes
    ----------
    saddle : Solution of Tensor
        The Lagrange multipliers t* (..., N), differentiable, and how the solver ended.
    free_energy : Tensor, shape (...)
        Free energy F = −ln Z/β, extensive in N and D.
    magnetization : Tensor, shape (..., N, D)
        Mean spins ⟨σ⟩ = −∂F/∂H at fixed couplings.
    correlations : Tensor, shape (..., N, N)
        Second moments C = ⟨σ_i·σ_j⟩/D of the leading order, magnetizations included, with ones on
        the diagonal; −∂F/∂J_ij = D C_ij for ordered pairs.
    """

    saddle: Solution[Tensor]
    free_energy: Tensor
    magnetization: Tensor
    correlations: Tensor


def solve_saddle_point(
    couplings: Tensor,
    *,
    fields: Tensor,
    beta: Any,
    corrected: bool = False,
    tolerance: float | None = None,
    max_steps: int = 200,
    throw: bool = True,
) -> VectorSpins:
    r"""Solve the large-D saddle point of vector spins for free energy and magnetization.

    The multipliers t* are found by a damped Newton method with the exact Hessian, for each system
    of a batch on its own. The solution always exists and is unique. Only the symmetric part of the
    couplings has an effect.

    Parameters
    ----------
    couplings : Tensor, shape (..., N, N)
        Couplings J of ordered pairs, in single or double precision.
    fields : Tensor, shape (..., N, D)
        External fields H of spins of length √D.
    beta : float or Tensor, shape (...)
        Inverse temperature, positive.
    corrected : bool, default False
        Whether to add the next order in 1/D to the free energy and, by automatic differentiation,
        to the magnetization. The error of each then falls from O(1/D) to O(1/D²).
    tolerance : float, optional
        Largest residual max abs(C_ii − 1) of a converged system; by default 1e-12 in double and
        1e-5 in single precision.
    max_steps : int, default 200
        Largest number of factorisations of V.
    throw : bool, default True
        Whether a system that did not converge raises an error.

    Returns
    -------
    VectorSpins
        Multipliers, free energy, magnetization ⟨σ⟩ and correlations. The status of a system is
        CONVERGED also where rounding allows no smaller residual and it is at most 1e-3; STALLED
        where rounding leaves more, as for β times couplings of some 1e4 in single precision; and
        DIVERGED where numbers overflow, which makes them NaN.

    Raises
    ------
    NotConverged
        If a saddle point was not found and `throw` is True.
    TypeError
        If a tensor is neither in single nor in double precision, or dtypes differ.
    ValueError
        If shapes do not fit or β is not positive.

    Notes
    -----
    At the saddle point the spins have length one in units of √D,

    .. math::

        \frac{(V^{-1})_{ii}}{2\beta} + \tfrac14 (V^{-1} h h^\top V^{-1})_{ii} = 1,
        \qquad \langle \sigma \rangle = \tfrac12 V^{-1} H,
        \qquad V = \operatorname{diag}(t^*) - J.

    References
    ----------
    [bal2021transformers, Eqs. (partfun) and (sigma)]

    Examples
    --------
    >>> found = solve_saddle_point(torch.zeros(2, 2), fields=torch.ones(2, 3), beta=1.0)
    >>> found.correlations.diagonal().round(decimals=3)
    tensor([1., 1.])
    """
    couplings, fields, beta = _check_system(couplings, fields, beta)
    limits = _limits(tolerance, max_steps, couplings)
    dim = fields.shape[-1]
    corrected = check_flag("corrected", corrected)
    given = (couplings, fields, beta)
    recorded = not corrected or (torch.is_grad_enabled() and any(x.requires_grad for x in given))
    with torch.set_grad_enabled(torch.is_grad_enabled() or corrected):
        if corrected and not fields.requires_grad:
            fields = fields.detach().requires_grad_()
        symmetric = (couplings + couplings.mT) / 2
        source = field_source(fields / math.sqrt(dim))
        saddle = saddle_of(symmetric, source, beta, *limits)
        if check_flag("throw", throw):
            saddle.require("the saddle point t*")
        inverse, logdet = inverse_logdet(torch.diag_embed(saddle.value) - symmetric)
        passed = field_correlation(inverse, source)
        log_z = dim * saddle_log_partition(saddle.value, inverse, logdet, source, beta)
        mean = 0.5 * inverse @ fields
        if corrected:
            scaled = (
                action_gradient(inverse, passed, beta)[1] / (2 * beta.square())[..., None, None]
            )
            log_z = log_z - 0.5 * inverse_logdet(scaled)[1]
            (mean,) = torch.autograd.grad((log_z / beta).sum(), fields, create_graph=recorded)
        correlations = inverse / (2 * beta)[..., None, None] + passed / 4

    def result(values: Tensor) -> Tensor:
        return values if recorded else values.detach()

    return VectorSpins(
        saddle=dataclasses.replace(saddle, value=result(saddle.value)),
        free_energy=result(-log_z / beta),
        magnetization=result(mean),
        correlations=result(correlations),
    )


def _check_system(couplings: Tensor, fields: Tensor, beta: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Validated (J, fields, β), broadcast to one batch shape."""
    couplings = check_tensor("couplings", couplings, square=True)
    if couplings.dtype not in (torch.float32, torch.float64):
        raise TypeError(f"couplings must be torch.float32 or torch.float64, got {couplings.dtype}")
    shape = (..., couplings.shape[-1], "D")
    fields = check_tensor("fields", fields, like=("couplings", couplings), shape=shape)
    # Everything below divides by the square of β, which must not vanish.
    lowest = torch.finfo(couplings.dtype).tiny ** 0.5
    if isinstance(beta, Tensor):
        beta = check_tensor("beta", beta, low=lowest).to(couplings)
    else:
        beta = couplings.new_tensor(check_real("beta", beta, low=lowest))
    batch = check_broadcast(
        couplings=couplings.shape[:-2], fields=fields.shape[:-2], beta=beta.shape
    )
    couplings = couplings.expand(*batch, *couplings.shape[-2:])
    return couplings, fields.expand(*batch, *fields.shape[-2:]), beta.expand(batch)


def _limits(tolerance: float | None, max_steps: int, like: Tensor) -> tuple[float, int]:
    tolerance = default_tolerance(like) if tolerance is None else tolerance
    check_integer("max_steps", max_steps, low=1)
    return check_real("tolerance", tolerance, low=0.0), max_steps


def default_tolerance(like: Tensor) -> float:
    """Choose the default tolerance for the precision of a tensor.

    Parameters
    ----------
    like : Tensor
        A tensor in single or double precision.

    Returns
    -------
    float
        The tolerance: 1e-12 in double and 1e-5 in single precision.
    """
    return 1e-12 if like.dtype == torch.float64 else 1e-5


def saddle_of(
    couplings: Tensor, source: Tensor, beta: Tensor, tolerance: float, max_steps: int
) -> Solution[Tensor]:
    """Find the saddle point t* of symmetric couplings, without checking arguments.

    Parameters
    ----------
    couplings : Tensor, shape (..., N, N)
        Symmetric couplings J.
    source : Tensor, shape (..., N, D) or (..., N, N)
        Fields h or their Gram matrix, as `large_d.field_source` gives them.
    beta : Tensor, shape (...)
        Inverse temperature β; all arguments have the same batch shape.
    tolerance : float
        Largest residual max abs(C_ii − 1) of a converged system.
    max_steps : int
        Largest number of factorisations of V.

    Returns
    -------
    Solution of Tensor
        Lagrange multipliers t* (..., N), differentiable by the implicit function theorem.
    """
    given = (couplings, source, beta)
    t, residual, steps, status = _search(*(x.detach() for x in given), tolerance, max_steps)
    t = implicit_root(_stationarity, t, *given, jacobian=True)
    return Solution(value=t, residual=residual, steps=steps, status=status)


def _stationarity(
    t: Tensor, couplings: Tensor, source: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    """∂φ/∂t (..., N) and φ'' (..., N, N) at any t."""
    inverse, _ = inverse_logdet(torch.diag_embed(t) - couplings)
    return action_gradient(inverse, field_correlation(inverse, source), beta)


def _starts(couplings: Tensor, source: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
    """A start where V is surely positive definite, and a guess that is better if it is."""
    beta = beta[:, None]

    def alone(squares: Tensor) -> Tensor:  # t of a free spin in a field of that square
        return (0.5 + (0.25 + beta.square() * squares).sqrt()) / (2 * beta)

    gram = source.shape[-1] == source.shape[-2]
    squares = source.diagonal(dim1=-2, dim2=-1) if gram else source.square().sum(-1)
    # An upper bound of the largest |eigenvalue|: (tr J⁸)^(1/8), or the largest row sum. Scaled
    # first, so that the eighth power neither overflows nor underflows in single precision.
    rows = couplings.abs().sum(-1).amax(-1)
    scaled = couplings / rows.clamp_min(torch.finfo(couplings.dtype).tiny)[..., None, None]
    fourth = torch.linalg.matrix_power(scaled, 4)
    bound = rows * (fourth.square().sum((-1, -2)).pow(0.125) * (1 + 1e-5)).clamp_max(1.0)
    free = alone(squares)
    bound = bound[:, None]
    # One sweep of the equations for weak random couplings, (V⁻¹)_ii = 1/(t_i - sum J_ij^2
    # (V⁻¹)_jj), with the fields that neighbours pass on: exact to second order in J.
    square = couplings.square()
    passed = square @ (squares / free.square())[..., None]
    alone_in_all = alone(squares + passed[..., 0])
    guess = alone_in_all + (square @ alone_in_all.reciprocal()[..., None])[..., 0]
    guess = torch.minimum(guess, bound + free)
    # Close to the spectrum: Newton's step below is good there, and costly far above it.
    return torch.maximum(bound + 0.1 * free, guess), guess


@iteration_operator("saddle_point", axes=(2, 2, 0))
def _search(
    couplings: Tensor, source: Tensor, beta: Tensor, tolerance: float, max_steps: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(t*, residual, steps, status) by damped Newton; samples leave the batch as they finish.

    A step must keep V positive definite and lower φ (Armijo's rule, up to rounding); otherwise it
    is halved: beyond the minimum φ rises to its barrier within a small fraction of the step, and a
    rule on slopes alone can alternate between the two sides for ever. It is also halved if it
    brings a mean square length above three, or half as high again as the highest before: close to
    the barrier Newton only creeps along it.

    Steps are Newton's for C_ii^(−1/2) = 1, nearly straight near the barrier, where C_ii is a pole
    of t; where that does not descend, or has not arrived after eight tries, for C_ii = 1.
    """
    batch = beta.shape
    beta = beta.reshape(-1)
    j = couplings.reshape(-1, *couplings.shape[-2:])
    s = source.reshape(-1, *source.shape[-2:])
    eps = torch.finfo(j.dtype).eps
    tiny = torch.finfo(j.dtype).tiny
    here, guess = _starts(j, s, beta)
    step = guess - here
    scale = torch.ones_like(beta)
    slope = torch.zeros_like(beta)
    lowest = torch.full_like(beta, torch.inf)
    limit = lowest.clone()
    residual = lowest.clone()
    steps = torch.zeros_like(beta, dtype=torch.int64)
    status = torch.full_like(steps, int(Status.STEP_LIMIT))

    active = torch.arange(len(beta), device=beta.device)
    for number in range(max_steps):
        if active.numel() == 0:
            break
        at = active
        own = s
        trial = here[at] + scale[at, None] * step[at]
        factor, info = torch.linalg.cholesky_ex(torch.diag_embed(trial) - j)
        steps[at] += 1
        # The first step is to the guess; where it is rejected, the next is at the start.
        scale[at] *= 0.5 if number else 0.0
        if number == 1 and bool(info.any()):
            # At the start V has a factor unless the numbers themselves have overflowed. A sample
            # that got past its guess has a residual.
            lost = (info != 0) & torch.isinf(residual[at])
            status[at[lost]] = int(Status.DIVERGED)
            active, j, s = _keep(~lost, active, j, s)
        at, trial, factor, own = _keep(info == 0, at, trial, factor, own)

        b = beta[at]
        inverse = torch.cholesky_inverse(factor)
        passed = field_correlation(inverse, own)
        gradient, hessian = action_gradient(inverse, passed, b)
        lengths = 1 - gradient / b[:, None]
        highest = lengths.amax(-1)
        off = (1 - lengths).abs().amax(-1)
        logdet = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        phi = effective_action(trial, inverse, logdet, own, b)
        level = b * trial.sum(-1)
        # `scale` is already that of the next try, half the one of this step.
        target = lowest[at] + 2e-3 * scale[at] * slope[at] + 8 * eps * (level.abs() + phi.abs())
        lower = (phi <= target) & (highest <= limit[at])
        accepted = lower | (residual[at] < 10 * math.sqrt(eps)) if number else highest <= 3
        # Rounding floors the residual near eps times the condition number of V: a sample is
        # also done when it is down there and no longer improves.
        condition = trial.amax(-1) * torch.linalg.matrix_norm(inverse)
        floored = (off <= 4 * eps * condition) & (off >= 0.5 * residual[at])
        done = accepted & ((off <= tolerance) | floored)
        # Rounding may end a search, but lengths that are off by more are no solution.
        arrived = off <= max(tolerance, _LOOSE)
        new = at[accepted]
        here[new] = trial[accepted]
        residual[new] = off[accepted]
        lowest[new] = phi[accepted]
        limit[new] = (1.5 * highest[accepted]).clamp_min(3)
        status[at[done & arrived]] = int(Status.CONVERGED)
        status[at[done & ~arrived]] = int(Status.STALLED)
        active, j, s = _keep(status[active] == int(Status.STEP_LIMIT), active, j, s)
        at, b, gradient, lengths, hessian = _keep(
            accepted & ~done, at, b, gradient, lengths, hessian
        )
        if at.numel() == 0:
            continue

        factor, info = torch.linalg.cholesky_ex(hessian)
        if bool(info.any()):
            # Where rounding leaves the Hessian without a factor, its diagonal still descends.
            rough = torch.diag_embed(hessian.diagonal(dim1=-2, dim2=-1).sqrt())
            factor = torch.where((info == 0)[:, None, None], factor, rough)
        # Far above the minimum C_ii falls like 1/t, and Newton's step is too long by 1/C_ii.
        bent = 2 * b[:, None] * (lengths - lengths**1.5)
        both = torch.cholesky_solve(torch.stack([gradient, bent], -1), factor).neg()
        gains = (gradient * both[..., 0]).neg()
        falls = (gradient[..., None] * both).sum(-2)
        first = (gains.abs() * lengths).sum(-1) / gains.abs().sum(-1).clamp_min(tiny)
        use = (falls[..., 1] < 0.1 * falls[..., 0]) & (number < _BENT_STEPS)
        step[at] = torch.where(use[:, None], both[..., 1], both[..., 0])
        slope[at] = torch.where(use, falls[..., 1], falls[..., 0])
        scale[at] = torch.where(use, 1.0, first.clamp(0.0, 1.0))
    here = here.reshape((*batch, here.shape[-1]))
    return here, residual.reshape(batch), steps.reshape(batch), status.reshape(batch)


def _keep(mask: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
    return tensors if bool(mask.all()) else tuple(tensor[mask] for tensor in tensors)


def _like_solution(like: Tensor, *sites: int) -> tuple[Tensor, ...]:
    """What a compiler is told of the outputs of a search for (..., *sites)."""
    batch = like.shape[:-2]
    whole = like.new_empty(batch, dtype=torch.int64)
    return like.new_empty(*batch, *sites), like.new_empty(batch), whole, torch.empty_like(whole)


@_search.register_fake
def _(couplings: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return _like_solution(couplings, couplings.shape[-1])


def solve_fixed_point(
    couplings: Tensor,
    *,
    fields: Tensor,
    beta: Any,
    order: int = 2,
    tolerance: float | None = None,
    max_steps: int = 500,
    throw: bool = True,
) -> Solution[Tensor]:
    r"""Solve the mean-field (TAP) equations of vector spins by fixed-point iteration.

    Each system of the batch starts from its free spins, and Anderson acceleration speeds up the
    iteration. A fixed point always exists. The iteration need not find it, and it need not be
    stable or give correlations that spins can have.

    Parameters
    ----------
    couplings : Tensor, shape (..., N, N)
        Couplings J of ordered pairs; they are symmetrised, and their diagonal has no effect.
    fields : Tensor, shape (..., N, D)
        External fields h = H/√D.
    beta : float or Tensor, shape (...)
        Inverse temperature, positive.
    order : {1, 2}, default 2
        Order in the couplings: 1 is naive mean field, 2 adds the Onsager term.
    tolerance : float, optional
        Largest residual ‖L(θ(m)) − m‖/√N; by default 1e-12 in double and 1e-5 in single precision.
    max_steps : int, default 500
        Largest number of iterations.
    throw : bool, default True
        Whether a system that did not converge raises an error.

    Returns
    -------
    Solution of Tensor
        Magnetizations m = ⟨u⟩ = ⟨σ⟩/√D (..., N, D), differentiable by the implicit function
        theorem. No spin is longer than one, converged or not.

    Raises
    ------
    NotConverged
        If a fixed point was not found and `throw` is True.
    TypeError
        If a tensor is neither in single nor in double precision, or dtypes differ.
    ValueError
        If shapes do not fit, β is not positive, `order` is neither 1 nor 2, or β times fields and
        couplings is so large that its square overflows.

    Notes
    -----
    The equations are

    .. math::

        m_i = L(\theta_i), \qquad
        \theta_i = h_i + \sum_j B_{ij} m_j - \beta m_i \sum_j B_{ij}^2 (1 - m_j^2), \qquad
        L(\theta) = \frac{2\beta\theta}{1 + \sqrt{1 + 4\beta^2\theta^2}},

    with B = J + Jᵀ without diagonal; order 1 lacks the Onsager term with the squared couplings.

    References
    ----------
    Anderson acceleration: [walker2011anderson].

    The Onsager term: [thouless1977solution].

    Examples
    --------
    >>> couplings, fields = torch.zeros(2, 2), torch.tensor([[2.0], [0.0]])
    >>> solve_fixed_point(couplings, fields=fields, beta=0.75).value
    tensor([[0.7208],
            [0.0000]])
    """
    couplings, fields, beta = _check_system(couplings, fields, beta)
    check_choice("order", order, (1, 2))
    couplings_felt = 2 * couplings.abs().sum((-2, -1), keepdim=True)
    reach = 2 * beta[..., None, None] * (1 + fields.abs() + couplings_felt)
    if not bool(reach.square().sum(-1).isfinite().all()):
        # An aligned spin would look like a free one.
        raise ValueError("beta times fields and couplings must have a square that is in range")
    limits = _limits(tolerance, max_steps, couplings)
    pair = pair_couplings(couplings)
    found = fixed_point_of(pair, fields, beta[..., None, None], order, *limits)
    if check_flag("throw", throw):
        found.require("the fixed point of the mean-field equations")
    return found


def fixed_point_of(
    pair: Tensor, fields: Tensor, beta: Tensor, order: int, tolerance: float, max_steps: int
) -> Solution[Tensor]:
    """Solve the mean-field equations for pair couplings, without checking arguments.

    Parameters
    ----------
    pair : Tensor, shape (..., N, N)
        Pair couplings B = J + Jᵀ with zero diagonal.
    fields : Tensor, shape (..., N, D)
        External fields h = H/√D.
    beta : Tensor, shape (..., 1, 1)
        Inverse temperature β.
    order : {1, 2}
        Order in the couplings, as in `solve_fixed_point`.
    tolerance : float
        Largest residual ‖L(θ(m)) − m‖/√N.
    max_steps : int
        Largest number of iterations.

    Returns
    -------
    Solution of Tensor
        Magnetizations m = ⟨u⟩ (..., N, D), differentiable by the implicit function theorem.
    """
    given = (fields, pair, beta)
    known = (x.detach() for x in given)
    mean, residual, steps, status = _iterate(*known, order, tolerance, max_steps)
    if torch.is_grad_enabled():
        mean = _attached(mean, *given, order)
    return Solution(value=mean, residual=residual, steps=steps, status=status)


@iteration_operator("mean_field_fixed_point", axes=(2, 2, 2))
def _iterate(
    fields: Tensor, pair: Tensor, beta: Tensor, order: int, tolerance: float, max_steps: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    square = pair.square() if order == 2 else None

    def step(mean: Tensor) -> Tensor:
        theta, gain = mean_field(mean, fields, pair, beta, square)
        return gain * theta

    solved = anderson(
        step, langevin_response(fields, beta), tolerance=tolerance, max_steps=max_steps
    )
    mean = solved.value.contiguous().clone()
    residual = solved.residual
    if bool((solved.status != int(Status.CONVERGED)).any()):
        # Acceleration extrapolates, to spins longer than one where it does not arrive. One step of
        # the equations brings them back.
        left = solved.status != int(Status.CONVERGED)
        landed = step(mean)
        mean = torch.where(left[..., None, None], landed, mean)
        change = torch.linalg.matrix_norm(step(mean) - mean) / mean.shape[-2] ** 0.5
        residual = torch.where(left, change, residual)
    return mean, residual, solved.steps, solved.status


@_iterate.register_fake
def _(fields: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return _like_solution(fields, *fields.shape[-2:])


def _attached(mean: Tensor, fields: Tensor, pair: Tensor, beta: Tensor, order: int) -> Tensor:
    """m with its derivatives: m = (diag a − B)⁻¹ h, whose N unknowns a_i are |θ_i|/|m_i| plus what
    the Onsager term takes off."""

    def equations(a: Tensor, pair: Tensor, fields: Tensor, beta: Tensor) -> tuple[Tensor, Tensor]:
        response = torch.linalg.inv_ex(torch.diag_embed(a) - pair).inverse
        mean = response @ fields
        width = (1 - mean.square().sum(-1)).clamp_min(torch.finfo(mean.dtype).eps)
        # L(θ) = m where θ = m/(β(1 − m²)).
        own = 1 / (beta[..., 0] * width)
        # −∂m_i²/∂a_j, with the slope of what a_i equals on the left.
        slope = 2 * response * (mean @ mean.mT)
        missing = a - own
        jacobian = (own / width)[..., None] * slope
        if order == 2:
            reaction = beta * pair.square()
            missing = missing - (reaction @ width[..., None])[..., 0]
            jacobian = jacobian - reaction @ slope
        return missing, jacobian + torch.eye(a.shape[-1], dtype=a.dtype, device=a.device)

    batch = mean.shape[:-2]
    pair = pair.expand(*batch, *pair.shape[-2:])
    beta = beta.expand(*batch, *beta.shape[-2:])
    with torch.no_grad():
        square = pair.square() if order == 2 else None
        _, gain = mean_field(mean, fields, pair, beta, square)
        a = 1 / gain if square is None else 1 / gain + onsager_gain(mean, square, beta)
    a = implicit_root(equations, a[..., 0], pair, fields, beta, jacobian=True)
    matrix = torch.diag_embed(a) - pair
    if is_forward_mode():
        # The library's derivative of a solution is right once only: it takes the factors as given.
        again = torch.linalg.inv_ex(matrix).inverse @ fields
    else:
        again = torch.linalg.solve_ex(matrix, fields).result
    # The value is what the iteration found; the graph adds its derivatives and nothing else, not
    # even where an iteration that did not arrive left a matrix without an inverse.
    return mean.detach() + (again - again.detach()).nan_to_num()

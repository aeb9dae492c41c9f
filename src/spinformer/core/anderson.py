"""Anderson acceleration of fixed-point iterations, for a batch of maps."""

from collections.abc import Callable

import torch
from torch import Tensor

from spinformer.core.checks import check_function, check_integer, check_real, check_tensor
from spinformer.core.solve import Solution, status_of

# Steps that the mixing remembers, and the growth of the residual that makes it forget.
_HISTORY = 6
_ASTRAY = 3.0
_RIDGE = 1e-12


@torch.no_grad()
def anderson(
    step: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    damping: float = 1.0,
    tolerance: float,
    max_steps: int,
) -> Solution[Tensor]:
    r"""Anderson acceleration of fixed-point iterations, for a batch of systems.

    Every leading index of the state is a system of its own. The best point that was seen is
    returned, without a graph. A system that has converged is frozen. A system whose residual grows
    to more than three times its best forgets its history and continues with a plain damped step.

    Parameters
    ----------
    step : callable
        The map whose fixed point is wanted. It takes and returns a tensor of the shape of `start`,
        and must not mix systems.
    start : Tensor, shape (..., n, d)
        Initial states of the systems.
    damping : float, default 1.0
        Damping of the plain iteration that is accelerated, in (0, 1].
    tolerance : float
        Residual at or below which a system counts as converged, not negative.
    max_steps : int
        Largest number of calls of `step`, at least 1.

    Returns
    -------
    Solution
        Fixed points, residuals, and the status of every system. A system whose last step is not
        finite has DIVERGED.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If a shape does not fit, a value is not allowed, or `step` returns another shape or type or
        changes its argument in place.

    Notes
    -----
    The equation and the residual of a system are

    .. math::

        x = f(x), \qquad r = \lVert f(x) - x \rVert / \sqrt{n}.

    References
    ----------
    [walker2011anderson]

    Examples
    --------
    >>> found = anderson(torch.cos, torch.zeros(1, 1), tolerance=1e-6, max_steps=50)
    >>> f"{float(found.value):.4f}", bool(found.converged)
    ('0.7391', True)
    """
    check_function("step", step)
    check_tensor("start", start, finite=False)
    if start.ndim < 2 or 0 in start.shape[-2:]:
        raise ValueError(f"start must have shape (..., n, d), got {tuple(start.shape)}")
    damping = check_real("damping", damping, low=0.0, high=1.0, open_low=True)
    tolerance = check_real("tolerance", tolerance, low=0.0)
    max_steps = check_integer("max_steps", max_steps, low=1)
    shape = start.shape
    sites = start.shape[-2]
    x = start.reshape(-1, shape[-2] * shape[-1])
    tiny = torch.finfo(x.dtype).tiny
    # On accelerators waiting for an answer costs more than a step that was not needed.
    every = 1 if x.device.type == "cpu" else 4
    best = x
    best_norm = torch.full(x.shape[:1], torch.inf, dtype=x.dtype, device=x.device)
    # Rings of the last changes of the residual and of the point after a damped step; their order
    # does not matter. Only the new row of the Gram matrix is computed.
    changes = x.new_empty(len(x), _HISTORY, x.shape[1])
    moves = torch.empty_like(changes)
    gram = torch.zeros(len(x), _HISTORY, _HISTORY, dtype=torch.float64, device=x.device)
    ridge = _RIDGE * torch.eye(_HISTORY, dtype=torch.float64, device=x.device)
    # What a system remembers of them: forgetting is a zero here, not a write to the rings.
    known = torch.ones(len(x), _HISTORY, 1, dtype=torch.float64, device=x.device)
    previous = None
    for iteration in range(1, max_steps + 1):
        before = x.clone() if previous is None else x
        landed = step(x.reshape(shape))
        if previous is None:
            _check_step(landed, start)
            if not bool(((x == before) | before.isnan()).all()):
                raise ValueError("step must leave its argument as it is, and changes it in place")
        residual = landed.reshape(x.shape) - x
        norm = residual.norm(dim=-1) / sites**0.5
        astray = norm > _ASTRAY * best_norm
        better = norm < best_norm
        best_norm = torch.where(better, norm, best_norm)
        active = best_norm > tolerance
        best = torch.where(better.unsqueeze(-1), x, best)
        if iteration == max_steps or (iteration % every == 0 and not bool(active.any())):
            break
        mixed = target = torch.add(x, residual, alpha=damping)
        if previous is not None:
            slot = (iteration - 2) % _HISTORY
            used = min(iteration - 1, _HISTORY)
            torch.sub(residual, previous[0], out=changes[:, slot])
            torch.sub(target, previous[1], out=moves[:, slot])
            known[:, slot] = 1.0
            known *= (~astray)[:, None, None]
            pair = torch.stack([changes[:, slot], residual], dim=-2)
            products = (changes[:, :used] @ pair.mT).double()
            gram[:, slot, :used] = gram[:, :used, slot] = products[..., 0]
            # Unit columns, else the ridge would silence the newest, smallest ones; in double
            # precision, because they become nearly parallel.
            block = gram[:, :used, :used]
            scale = block.diagonal(dim1=-2, dim2=-1).clamp_min(tiny).rsqrt().unsqueeze(-1)
            scale = known[:, :used] * scale
            matrix = block * scale * scale.mT + ridge[:used, :used]
            weights = scale * torch.linalg.solve_ex(matrix, scale * products[..., 1:]).result
            back = weights.to(x).mT
            mixed = torch.baddbmm(target.unsqueeze(-2), back, moves[:, :used], alpha=-1).squeeze(-2)
        previous = (residual, target)
        x = torch.where(active.unsqueeze(-1), mixed, best)
    arrived = best_norm <= tolerance
    batch = shape[:-2]
    return Solution(
        value=best.reshape(shape),
        residual=best_norm.reshape(batch),
        steps=torch.full(batch, iteration, device=x.device),
        status=status_of(arrived, finite=arrived | torch.isfinite(norm)).reshape(batch),
    )


def _check_step(landed: Tensor, start: Tensor) -> None:
    if not isinstance(landed, Tensor) or (landed.shape, landed.dtype) != (start.shape, start.dtype):
        made = f"{landed.dtype} {tuple(landed.shape)}" if isinstance(landed, Tensor) else landed
        raise ValueError(
            f"step must return what start is, {start.dtype} {tuple(start.shape)}, got {made!r:.60}"
        )

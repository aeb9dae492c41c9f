"""Comparison of theories of one system of vector spins, with rigorous bounds of ln Z."""

import math

import numpy as np
import torch
from torch import Tensor

from spinformer.core.checks import check_real, check_tensor
from spinformer.core.records import record
from spinformer.core.solve import Solution
from spinformer.core.special import log_sphere_integral, mean_alignment
from spinformer.spins.large_d import log_partition
from spinformer.spins.solvers import solve_fixed_point, solve_saddle_point

# What rounding may leave of an eigenvalue of a stable point, and of a bound.
_ROUNDING = 1e-9


@record
class VectorFreeEnergies:
    """Theories of one system of vector spins, in n rows; printing it shows a table.

    Attributes
    ----------
    beta : float
        Inverse temperature.
    methods : tuple of str
        Names of the n theories, in the order of the arrays.
    log_partition : ndarray, shape (n,)
        Values of ln Z, extensive in N and D, in nats.
    magnetization : ndarray, shape (n, N, D)
        Mean spins ⟨σ_i⟩ of length at most √D.
    stable : ndarray of bool, shape (n,)
        Whether the point of a theory is a maximum of its ln Z in the magnetizations. The saddle
        point is, always.
    converged : ndarray of bool, shape (n,)
        Whether the equations were solved.
    bounds : tuple of float
        Lower and upper bound of ln Z, exact at every D.
    """

    beta: float
    methods: tuple[str, ...]
    log_partition: np.ndarray
    magnetization: np.ndarray
    stable: np.ndarray
    converged: np.ndarray
    bounds: tuple[float, float]

    @property
    def within_bounds(self) -> np.ndarray:
        """Whether ln Z of each theory is between the bounds, shape (n,).

        Theories for many components may be outside by their error, which is of the order of N.
        """
        room = _ROUNDING * (1 + abs(self.bounds[1]))
        above = self.log_partition >= self.bounds[0] - room
        return above & (self.log_partition <= self.bounds[1] + room)

    def __str__(self) -> str:
        lines = [f"{'theory':18s} {'ln Z':>12s} {'F':>12s}  stable  converged  within bounds"]
        within = self.within_bounds
        for row, name in enumerate(self.methods):
            value = self.log_partition[row]
            stable = "yes" if self.stable[row] else "no"
            converged = "yes" if self.converged[row] else "no"
            inside = "yes" if within[row] else "no"
            lines.append(
                f"{name:18s} {value:12.4f} {-value / self.beta:12.4f}  {stable:6s}  "
                f"{converged:9s}  {inside}"
            )
        low, high = self.bounds
        lines.append(f"ln Z is between {low:.4f} and {high:.4f}")
        return "\n".join(lines)


def vector_free_energies(
    couplings: Tensor, *, fields: Tensor, beta: float, max_steps: int = 500
) -> VectorFreeEnergies:
    r"""Compare the theories of one system of vector spins: ln Z, magnetizations, stability, bounds.

    The theories are the mean-field equations without and with the Onsager term ("naive", "tap"),
    the saddle point, exact for many components, and the saddle point with its next order in 1/D.

    Parameters
    ----------
    couplings : Tensor, shape (N, N)
        Couplings J of ordered pairs; only their symmetric part has an effect.
    fields : Tensor, shape (N, D)
        External fields H of spins of length √D.
    beta : float
        Inverse temperature, positive.
    max_steps : int, default 500
        Largest number of steps of each theory.

    Returns
    -------
    VectorFreeEnergies
        One row for each theory.

    Raises
    ------
    TypeError
        If a tensor is neither in single nor in double precision, or dtypes differ.
    ValueError
        If a shape does not fit, or β is not positive.

    Notes
    -----
    Every pair counts twice, a diagonal adds the constant β D tr J, and each spin is averaged over
    its sphere, so that ln Z = 0 without couplings and fields,

    .. math::

        Z = \Big\langle \exp \beta \Big( \sum_{ij} J_{ij}\, \sigma_i \cdot \sigma_j
            + \sum_i H_i \cdot \sigma_i \Big) \Big\rangle_{|\sigma_i| = \sqrt D} .

    The Ising system of `theories.free_energies` counts a pair once and sums over its states. A free
    spin of the naive and TAP theories responds as one of many components does.

    Both bounds hold for spins of any dimension D. The lower one is the best of products of
    single-spin distributions around the fields of the naive theory (Gibbs–Bogoliubov). With
    :math:`\lambda` the largest eigenvalue of :math:`(J + J^\top)/2` the upper one is

    .. math::

        \ln Z \le \beta N D \lambda + \sum_i \ln G_D(\beta \sqrt{D} |H_i|),

    :math:`G_D` as in `special.log_sphere_integral`.

    Examples
    --------
    >>> couplings = torch.tensor([[0.0, 0.2], [0.2, 0.0]]).double()
    >>> found = vector_free_energies(couplings, fields=torch.ones(2, 3).double(), beta=1.0)
    >>> found.methods
    ('naive', 'tap', 'saddle', 'corrected saddle')
    >>> bool(found.stable.all()), bool(found.converged.all())
    (True, True)
    >>> found.within_bounds.tolist()
    [False, False, False, True]
    """
    couplings = check_tensor("couplings", couplings, square=True, ndim=2).detach()
    shape = (couplings.shape[-1], "D")
    fields = check_tensor("fields", fields, like=("couplings", couplings), shape=shape).detach()
    beta = check_real("beta", beta, low=0.0, open_low=True)
    dim = fields.shape[-1]
    root = math.sqrt(dim)
    values: dict[str, float] = {}
    means: dict[str, Tensor] = {}
    stable: dict[str, bool] = {}
    converged: dict[str, bool] = {}
    for name, order in (("naive", 1), ("tap", 2)):
        solved = solve_fixed_point(
            couplings,
            fields=fields / root,
            beta=beta,
            order=order,
            max_steps=max_steps,
            throw=False,
        )
        values[name] = dim * float(_mean_field_value(solved, couplings, fields / root, beta, order))
        means[name] = root * solved.value
        stable[name] = _is_maximum(solved.value, couplings, fields / root, beta, order)
        converged[name] = bool(solved.converged)
    for name, corrected in (("saddle", False), ("corrected saddle", True)):
        saddle = solve_saddle_point(
            couplings,
            fields=fields,
            beta=beta,
            corrected=corrected,
            max_steps=max_steps,
            throw=False,
        )
        values[name] = -beta * float(saddle.free_energy)
        means[name] = saddle.magnetization
        stable[name] = True
        converged[name] = bool(saddle.saddle.converged)
    bounds = _bounds(couplings.double(), fields.double(), beta, means["naive"].double())
    return VectorFreeEnergies(
        beta=beta,
        methods=tuple(values),
        log_partition=np.array(list(values.values())),
        magnetization=np.stack([mean.double().numpy(force=True) for mean in means.values()]),
        stable=np.array(list(stable.values())),
        converged=np.array(list(converged.values())),
        bounds=bounds,
    )


def _mean_field_value(
    solved: Solution[Tensor], couplings: Tensor, fields: Tensor, beta: float, order: int
) -> Tensor:
    return log_partition(
        solved.value,
        couplings=couplings,
        fields=fields,
        beta=couplings.new_tensor(beta),
        order=order,
    )


def _is_maximum(mean: Tensor, couplings: Tensor, fields: Tensor, beta: float, order: int) -> bool:
    """Whether no second derivative of the mean-field ln Z is positive, by all its eigenvalues."""

    def value(flat: Tensor) -> Tensor:
        return log_partition(
            flat.view_as(mean),
            couplings=couplings.double(),
            fields=fields.double(),
            beta=couplings.new_tensor(beta).double(),
            order=order,
        )

    hessian = torch.autograd.functional.hessian(value, mean.double().flatten())
    if not bool(hessian.isfinite().all()):
        return False
    eigenvalues = torch.linalg.eigvalsh(hessian)
    return bool(eigenvalues[-1] <= _ROUNDING * eigenvalues.abs().max())


def _bounds(couplings: Tensor, fields: Tensor, beta: float, naive: Tensor) -> tuple[float, float]:
    """Lower and upper bound of ln Z."""
    sites, dim = fields.shape
    symmetric = (couplings + couplings.mT) / 2
    root = math.sqrt(dim)
    # Fields of the naive theory; any would give a bound.
    inner = symmetric - torch.diag(symmetric.diagonal())
    trial = fields + 2 * inner @ naive
    size = trial.norm(dim=-1)
    kappa = (beta * root * size).numpy(force=True)
    alignment = torch.from_numpy(mean_alignment(kappa, dim=dim)).to(trial)
    mean = root * alignment[:, None] * trial / size.clamp_min(1e-300)[:, None]
    entropy = float(log_sphere_integral(kappa, dim=dim).sum()) - beta * float((trial * mean).sum())
    energy = -float((inner * (mean @ mean.mT)).sum() + (fields * mean).sum())
    energy -= dim * float(symmetric.trace())
    free = log_sphere_integral((beta * root * fields.norm(dim=-1)).numpy(force=True), dim=dim)
    largest = float(torch.linalg.eigvalsh(symmetric)[-1])
    return entropy - beta * energy, beta * sites * dim * largest + float(free.sum())

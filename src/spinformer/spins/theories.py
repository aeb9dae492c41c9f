"""Comparison of free energies of one Ising system: exact, mean-field theories, Monte Carlo."""

from typing import NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import chebvander

from spinformer.core.checks import check_integer
from spinformer.core.random import Seed
from spinformer.core.records import record
from spinformer.core.states import MAX_LISTED_SPINS
from spinformer.core.statistics import mean_estimate
from spinformer.spins.ising import check_ising, solve_exact
from spinformer.spins.mean_field import (
    METHODS,
    Beliefs,
    MeanFieldSolution,
    belief_propagation,
    log_partition_bound,
    solve_mean_field,
)
from spinformer.spins.monte_carlo import parallel_tempering

# Intervals of the integral over β, sweeps that are dropped, and the least share of accepted swaps
# by which ladders mix.
_INTERVALS = 32
_BURN_IN = 500
_SWAP_ACCEPTANCE = 0.05
# Methods that sum or sample and have no point that could be a saddle.
_SUMS = ("exact", "monte carlo")


@record
class FreeEnergies:
    """Estimates of ln Z of one Ising system by n methods; printing it shows a table.

    Attributes
    ----------
    beta : float
        Inverse temperature.
    methods : tuple of str
        Names of the n methods, in the order of the arrays.
    log_partition : ndarray, shape (n,)
        Values of ln Z, in nats.
    error : ndarray, shape (n,)
        Zero for exact enumeration, a standard error for Monte Carlo, NaN for a mean-field theory.
    stable : ndarray of bool, shape (n,)
        Whether the point of a theory is a maximum of its psi rather than a saddle point; True for
        exact enumeration and Monte Carlo.
    converged : ndarray of bool, shape (n,)
        Whether the equations were solved. For Monte Carlo: whether all neighbours on the
        temperature ladder accepted more than 0.05 of their swaps. False for a value outside of the
        bounds.
    bounds : tuple of float
        Lower and upper bound of ln Z: the naive mean-field value and
        `mean_field.log_partition_bound`.
    magnetization : ndarray, shape (n, N)
        Mean spins ⟨s_i⟩ by each method.
    """

    beta: float
    methods: tuple[str, ...]
    log_partition: np.ndarray
    error: np.ndarray
    stable: np.ndarray
    converged: np.ndarray
    bounds: tuple[float, float]
    magnetization: np.ndarray

    @property
    def off(self) -> np.ndarray:
        """Error of each ln Z, its difference from the reference method, shape (n,).

        The reference is exact enumeration or, for too many spins, Monte Carlo.
        """
        reference = "exact" if "exact" in self.methods else "monte carlo"
        return self.log_partition - self.log_partition[self.methods.index(reference)]

    def __str__(self) -> str:
        heads = (
            f"{'method':12s} {'ln Z':>12s} {'F':>12s} {'off':>9s} {'error':>8s}  stable  converged"
        )
        lines = [heads]
        with np.errstate(divide="ignore", over="ignore"):
            energy = -self.log_partition / np.float64(self.beta)
        beyond = _beyond(self.log_partition, self.error, self.bounds)
        for row, name in enumerate(self.methods):
            known = "" if np.isnan(self.error[row]) else f"{self.error[row]:.4f}"
            stable = "" if name in _SUMS else "yes" if self.stable[row] else "no"
            word = "yes" if self.converged[row] else "no"
            if beyond[row]:
                word = "above the bound" if beyond[row] > 0 else "below the bound"
            lines.append(
                f"{name:12s} {self.log_partition[row]:12.4f} {energy[row]:12.4f} "
                f"{self.off[row]:9.4f} {known:>8s}  {stable:6s}  {word}"
            )
        return "\n".join(lines)


def _beyond(log_z: np.ndarray, error: np.ndarray, bounds: tuple[float, float]) -> np.ndarray:
    """1 where ln Z is above the bounds by more than its error allows, −1 where it is below."""
    allowed = 5.0 * np.nan_to_num(error) + 1e-9 * (1.0 + np.abs(bounds[1]))
    high = log_z > bounds[1] + allowed
    low = log_z < bounds[0] - allowed
    return high.astype(int) - low.astype(int)


def free_energies(
    couplings: np.ndarray,
    fields: np.ndarray,
    beta: float,
    *,
    sweeps: int = 1000,
    replicas: int = 16,
    seed: Seed = 0,
) -> FreeEnergies:
    r"""Compare ln Z of one Ising system by enumeration, mean-field theories and Monte Carlo.

    The methods are exact enumeration (up to 20 spins), the theories of `mean_field` (naive, tap,
    plefka3, adaptive, and the Bethe approximation by belief propagation), and thermodynamic
    integration over parallel tempering. A theory starts from independent spins and along plus and
    minus the leading eigenvector of the couplings, and the best stable point is kept. A theory that
    finds no solution, only a saddle point, or a value outside of the bounds of ln Z is flagged.

    Parameters
    ----------
    couplings : ndarray, shape (N, N)
        Couplings J, symmetric with zero diagonal.
    fields : ndarray, shape (N,)
        External fields h.
    beta : float
        Inverse temperature β ≥ 0.
    sweeps : int, default 1000
        Monte Carlo sweeps kept on each temperature ladder.
    replicas : int, default 16
        Number of independent replicas of the temperature ladder, at least 2.
    seed : Seed, default 0
        Seed or random generator of the Monte Carlo run.

    Returns
    -------
    FreeEnergies
        One value of ln Z for each method, with errors and flags.

    Raises
    ------
    ValueError
        If the system is no Ising model (see `ising.check_ising`), or another argument is out of its
        range.

    Notes
    -----
    Monte Carlo obtains ln Z by thermodynamic integration,

    .. math::

        \ln Z(\beta) = N \ln 2 - \int_0^\beta \langle E \rangle_{\beta'} \, \mathrm{d}\beta',

    with the Clenshaw–Curtis rule. Its error joins the scatter of the replicas with the difference
    from the rule of every other node.

    Examples
    --------
    >>> chain = np.array([[0.0, 0.7, 0.0], [0.7, 0.0, 0.4], [0.0, 0.4, 0.0]])
    >>> found = free_energies(chain, np.array([0.3, 0.0, 0.0]), 1.0, sweeps=200)
    >>> found.methods
    ('exact', 'naive', 'tap', 'plefka3', 'adaptive', 'bethe', 'monte carlo')
    >>> bool(abs(found.off[5]) < 1e-9)  # a tree
    True
    """
    pair, field, beta = check_ising(couplings, fields=fields, beta=beta, single=True)
    rows: dict[str, _Row] = {}
    if len(field) <= MAX_LISTED_SPINS:
        exact = solve_exact(pair, fields=field, beta=beta)
        rows["exact"] = _Row(float(exact.log_partition), exact.magnetization, error=0.0)
    for method in METHODS:
        theory = solve_mean_field(
            pair, fields=field, beta=beta, method=method, all_starts=True, throw=False
        )
        rows[method] = _Row.of(theory)
    beliefs = belief_propagation(
        pair,
        fields=field,
        beta=beta,
        damping=0.5,
        max_steps=5000,
        all_starts=True,
        throw=False,
    )
    rows["bethe"] = _Row.of(beliefs)
    rows["monte carlo"] = _sample_log_partition(
        pair, fields=field, beta=beta, sweeps=sweeps, replicas=replicas, seed=seed
    )
    log_z = np.array([row.log_partition for row in rows.values()])
    error = np.array([row.error for row in rows.values()])
    highest = float(log_partition_bound(pair, fields=field, beta=beta))
    bounds = (rows["naive"].log_partition, highest)
    converged = np.array([row.converged for row in rows.values()])
    return FreeEnergies(
        beta=beta,
        methods=tuple(rows),
        log_partition=log_z,
        error=error,
        stable=np.array([row.stable for row in rows.values()]),
        converged=converged & (_beyond(log_z, error, bounds) == 0),
        bounds=bounds,
        magnetization=np.stack([row.magnetization for row in rows.values()]),
    )


class _Row(NamedTuple):
    """What one method says of a system."""

    log_partition: float
    magnetization: np.ndarray
    error: float = np.nan
    stable: bool = True
    converged: bool = True

    @staticmethod
    def of(theory: MeanFieldSolution | Beliefs) -> "_Row":
        return _Row(
            float(theory.log_partition),
            theory.value,
            stable=bool(theory.stable),
            converged=bool(theory.converged),
        )


def _sample_log_partition(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    sweeps: int,
    replicas: int,
    seed: Seed,
) -> _Row:
    """ln Z by thermodynamic integration, N ln 2 − ∫₀^β ⟨E⟩ dβ', and its error; have ladders mixed?

    ⟨E⟩ comes from `replicas` independent ladders over the nodes of Clenshaw and Curtis's rule. The
    error joins the scatter of the replicas with the difference to the rule of every other node.
    """
    replicas = check_integer("replicas", replicas, low=2)
    free = len(fields) * np.log(2.0)
    if not beta:
        return _Row(free, np.zeros(len(fields)), error=0.0)
    nodes = np.cos(np.pi * np.arange(_INTERVALS + 1) / _INTERVALS)[::-1]
    ladders = parallel_tempering(
        couplings,
        fields=fields,
        betas=0.5 * beta * (1.0 + nodes),
        sweeps=sweeps,
        burn_in=_BURN_IN,
        every=sweeps,
        replicas=replicas,
        seed=seed,
    )
    energy = len(fields) * ladders.energy
    sums = free - 0.5 * beta * energy @ _weights(nodes)
    coarse = free - 0.5 * beta * energy[:, ::2] @ _weights(nodes[::2])
    mean = mean_estimate(sums)
    return _Row(
        float(mean.value),
        ladders.magnetization[:, -1].mean(0),
        error=float(np.hypot(mean.error, np.abs((sums - coarse).mean()))),
        converged=bool(ladders.swap_acceptance.min() > _SWAP_ACCEPTANCE),
    )


def _weights(nodes: np.ndarray) -> np.ndarray:
    """Of the values at Chebyshev's points in the integral from −1 to 1."""
    order = np.arange(len(nodes))
    integrals = np.where(order % 2, 0.0, 2.0 / (1.0 - order**2 + (order == 1)))
    return np.linalg.solve(chebvander(nodes, len(nodes) - 1).T, integrals)

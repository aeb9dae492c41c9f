"""Every free energy of one system of Ising spins (`ising`): exact, approximate, sampled."""

from typing import Any

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
    solve_mean_field,
)
from spinformer.spins.monte_carlo import tempered_chains

# Intervals of the integral over β, sweeps that are dropped, and the least share of exchanges by
# which ladders mix.
_INTERVALS, _BURN, _EXCHANGES = 32, 500, 0.05


@record
class FreeEnergies:
    """ln Z of one system by n methods; printed, a table.

    log_partition, error, converged: (n,) each. error: zero for the exact sum, a standard error for
    Monte Carlo, NaN for a theory. converged: of Monte Carlo, whether all neighbours on the ladder
    of temperatures accepted more than 0.05 of their exchanges.
    """

    beta: float
    methods: tuple[str, ...]
    log_partition: np.ndarray
    error: np.ndarray
    converged: np.ndarray

    @property
    def off(self) -> np.ndarray:
        """ln Z (n,) minus that of the exact sum or, for too many spins, of Monte Carlo."""
        reference = "exact" if "exact" in self.methods else "monte carlo"
        return self.log_partition - self.log_partition[self.methods.index(reference)]

    def __str__(self) -> str:
        lines = [f"{'method':12s} {'ln Z':>12s} {'F':>12s} {'off':>9s} {'error':>8s}  converged"]
        with np.errstate(divide="ignore"):
            energy = -self.log_partition / np.float64(self.beta)
        columns = (self.log_partition, energy, self.off, self.error, self.converged)
        rows = zip(self.methods, *columns, strict=True)
        for name, log_z, free, off, error, converged in rows:
            known = "" if np.isnan(error) else f"{error:.4f}"
            word = "yes" if converged else "no"
            lines.append(f"{name:12s} {log_z:12.4f} {free:12.4f} {off:9.4f} {known:>8s}  {word}")
        return "\n".join(lines)


def free_energies(
    couplings: np.ndarray,
    fields: np.ndarray,
    beta: float,
    *,
    sweeps: int = 1000,
    copies: int = 16,
    seed: Seed = 0,
) -> FreeEnergies:
    """ln Z of one system by every method: exact up to 20 spins, the theories of `mean_field`
    (naive, tap, plefka3, adaptive, and Bethe's by belief propagation), and Monte Carlo.

    couplings: (N, N), symmetric, zero on the diagonal. fields: (N,). sweeps, copies, seed: of the
    ladders of temperatures. A theory that finds no solution is flagged.

    >>> chain = np.array([[0.0, 0.7, 0.0], [0.7, 0.0, 0.4], [0.0, 0.4, 0.0]])
    >>> found = free_energies(chain, np.array([0.3, 0.0, 0.0]), 1.0, sweeps=200)
    >>> found.methods
    ('exact', 'naive', 'tap', 'plefka3', 'adaptive', 'bethe', 'monte carlo')
    >>> bool(abs(found.off[5]) < 1e-9)  # a tree
    True
    """
    pair, field, beta = check_ising(couplings, fields=fields, beta=beta, single=True)
    system: dict[str, Any] = {"fields": field, "beta": beta}

    def told(method: str) -> tuple[float, float, bool]:
        """ln Z, its error, and whether it converged."""
        if method == "exact":
            return float(solve_exact(pair, **system).log_partition), 0.0, True
        if method == "monte carlo":
            run: dict[str, Any] = {"sweeps": sweeps, "copies": copies, "seed": seed}
            return _sampled_log_partition(pair, **system, **run)
        solved: Beliefs | MeanFieldSolution
        if method == "bethe":
            solved = belief_propagation(pair, **system, damping=0.5, max_steps=5000, throw=False)
        else:
            solved = solve_mean_field(pair, **system, method=method, throw=False)
        return float(solved.log_partition), np.nan, bool(solved.converged)

    methods: tuple[str, ...] = (*METHODS, "bethe", "monte carlo")
    if len(field) <= MAX_LISTED_SPINS:
        methods = ("exact", *methods)
    columns = zip(*map(told, methods), strict=True)
    log_z, error, converged = (np.array(column) for column in columns)
    return FreeEnergies(
        beta=beta, methods=methods, log_partition=log_z, error=error, converged=converged
    )


def _sampled_log_partition(
    couplings: np.ndarray, *, fields: np.ndarray, beta: float, sweeps: int, copies: int, seed: Seed
) -> tuple[float, float, bool]:
    """ln Z by thermodynamic integration, N ln 2 − ∫₀^β ⟨E⟩ dβ', its error; have ladders mixed?

    ⟨E⟩ comes from `copies` independent ladders over the nodes of Clenshaw and Curtis's rule. The
    error joins the scatter of the copies with the difference to the rule of every other node.
    """
    copies, free = check_integer("copies", copies, low=2), len(fields) * np.log(2.0)
    if not beta:
        return free, 0.0, True
    nodes = np.cos(np.pi * np.arange(_INTERVALS + 1) / _INTERVALS)[::-1]
    run: Any = {"sweeps": sweeps, "burn": _BURN, "every": sweeps, "copies": copies, "seed": seed}
    ladders = tempered_chains(couplings, fields=fields, betas=0.5 * beta * (1.0 + nodes), **run)
    energy = len(fields) * ladders.energy
    sums = free - 0.5 * beta * energy @ _weights(nodes)
    coarse = free - 0.5 * beta * energy[:, ::2] @ _weights(nodes[::2])
    found = mean_estimate(sums)
    error = np.hypot(found.error, np.abs((sums - coarse).mean()))
    return float(found.value), float(error), bool(ladders.exchanges.min() > _EXCHANGES)


def _weights(nodes: np.ndarray) -> np.ndarray:
    """Of the values at Chebyshev's points in the integral from −1 to 1."""
    order = np.arange(len(nodes))
    integrals = np.where(order % 2, 0.0, 2.0 / (1.0 - order**2 + (order == 1)))
    return np.linalg.solve(chebvander(nodes, len(nodes) - 1).T, integrals)

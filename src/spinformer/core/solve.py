"""Common result of all iterations: the solution, its residual, and why the iteration stopped.

Every solver of the package takes `tolerance` (on the residual that its docstring names) and
`max_steps`, and returns a `Solution`. Solvers of equations raise `NotConverged` unless they are
called with `throw=False`. Dynamics, where it is a result that no fixed point was reached, leave it
to `Solution.require`.
"""

from enum import IntEnum
from typing import Any, Generic, TypeVar

import numpy as np

from spinformer.core.records import record

_V = TypeVar("_V")


class Status(IntEnum):
    """Reason why an iteration stopped."""

    CONVERGED = 0
    STEP_LIMIT = 1  # `max_steps` steps were not enough
    STALLED = 2  # no step improves it any further, above the tolerance
    CYCLE = 3  # it came back to where it had been before
    DIVERGED = 4  # it left the range in which the equation makes sense


class NotConverged(RuntimeError):
    """Failure of a solver to reach its tolerance, where it was asked to raise."""


@record
class Solution(Generic[_V]):
    """Result of an iteration, for one system or for a batch of systems with axes `...`.

    Attributes
    ----------
    value : array_like
        What was solved for.
    residual : array_like, shape (...)
        Violation of the equation, in the solver's own measure.
    steps : array_like of int, shape (...)
        Number of steps.
    status : array_like of int, shape (...)
        Why each system stopped, as values of `Status`.

    Examples
    --------
    >>> found = Solution(value=2.0, residual=0.5, steps=3, status=Status.STEP_LIMIT)
    >>> found.converged, found.count(Status.STEP_LIMIT)
    (False, 1)
    """

    value: _V
    residual: Any
    steps: Any
    status: Any

    @property
    def converged(self) -> Any:
        """Whether the residual of each system is within the tolerance, booleans of shape (...)."""
        return self.status == Status.CONVERGED

    def count(self, status: Status) -> int:
        """Number of systems that stopped for a given reason.

        Parameters
        ----------
        status : Status
            The reason.

        Returns
        -------
        int
            How many systems of the batch have this status.
        """
        found = self.status == status
        return int(found.sum() if np.ndim(self.status) else found)

    def require(self, what: str) -> None:
        """Require that every system has converged.

        Parameters
        ----------
        what : str
            Name of the unknown, for the error.

        Raises
        ------
        NotConverged
            If a system has not converged. The message gives the number of systems and the largest
            residual.
        """
        counts = {s.name.lower().replace("_", " "): self.count(s) for s in Status if s}
        failed = {name: count for name, count in counts.items() if count}
        if failed:
            residual = _as_floats(self.residual)
            steps = _as_floats(self.steps)
            told = ", ".join(f"{name}: {count}" for name, count in failed.items())
            told = f"for {sum(failed.values())} of {residual.size} systems ({told})"
            if residual.size <= 1:
                told = f"({next(iter(failed))} after {int(steps.max())} steps)"
            raise NotConverged(
                f"{what} was not found {told}; the largest residual is "
                f"{residual.max(initial=0.0):.3g}. "
                "Raise max_steps or tolerance, or read the result with throw=False."
            )


def _as_floats(values: Any) -> np.ndarray:
    """An array of what is a number, an array or a tensor."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values, dtype=float)


def status_of(converged: Any, *, finite: Any = None) -> Any:
    """Status of systems from booleans.

    Parameters
    ----------
    converged : bool, ndarray or Tensor of bool, shape (...)
        Whether each system has converged.
    finite : Tensor of bool, shape (...), or None, default None
        For tensors, whether the state of each system is finite.

    Returns
    -------
    int, ndarray or Tensor of int, shape (...)
        CONVERGED where True, otherwise STEP_LIMIT, and DIVERGED where a state is not finite.

    Examples
    --------
    >>> status_of(np.array([True, False]))
    array([0, 1])
    """
    if not hasattr(converged, "detach"):
        return np.where(converged, int(Status.CONVERGED), int(Status.STEP_LIMIT))[()]
    found = (~converged).long() * int(Status.STEP_LIMIT)
    return found if finite is None else found.where(finite, int(Status.DIVERGED))

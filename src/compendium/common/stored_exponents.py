"""Leading Lyapunov exponents of chaos in the published network, as chapter 33 stored them."""

from pathlib import Path

import numpy as np

from bookmaker.tables import read_columns
from spinformer.core.statistics import Estimate

_EXPONENTS = Path(__file__).parents[1] / "c33_phase_transitions" / "exponents.csv"


def exponent_of_chaos(beta: float) -> Estimate:
    """The converged leading exponent at β = 1.266, 1.28 or 1.4, nats a token, with its error."""
    table = read_columns(_EXPONENTS)
    here = table["beta"] == beta
    if not here.any():
        raise ValueError(f"beta must be one of {np.unique(table['beta'])}, got {beta}")
    weight = table["contexts"][here] / table["contexts"][here].sum()
    value = weight @ table["exponent"][here]
    error = np.sqrt(weight**2 @ table["exponent_error"][here] ** 2)
    return Estimate(value=value, error=error, samples=int(table["contexts"][here].sum()))

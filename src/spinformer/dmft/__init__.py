"""Self-attention with tokens of N bits or letters, the limit N → ∞, and what it settles on.

NumPy and compiled kernels throughout, float64; `differentiable` is the torch form. The theory is
that of [poclopez2024dynamical].
"""

from spinformer.dmft.attractors import (
    Attractors,
    Regime,
    Thresholds,
    continue_attractors,
    find_attractors,
)
from spinformer.dmft.basins import basins_of_attraction
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.following import global_continuation
from spinformer.dmft.identity import basins_fractions, fingerprints, identify
from spinformer.dmft.letters import LetterNetwork
from spinformer.dmft.lifetimes import escape_times, replicas
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import document_context, random_contexts, step, trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context

__all__ = [
    "Attractors",
    "Context",
    "Ensemble",
    "LetterNetwork",
    "Network",
    "Regime",
    "Thresholds",
    "basins_fractions",
    "basins_of_attraction",
    "continue_attractors",
    "document_context",
    "escape_times",
    "find_attractors",
    "fingerprints",
    "global_continuation",
    "identify",
    "lyapunov_spectrum",
    "random_contexts",
    "replicas",
    "step",
    "trajectory",
]

"""What every room needs, written once: checks, results, solvers, states, statistics, randomness.

Letters, the same in all rooms: N spins, sites or stored patterns of a set (the axis that is
summed over), D (also d, the width) components of one of them, P features or ±1 patterns, T tokens
of a context or steps of a series, K bits of position, B or `...` batch axes, always in front;
β an inverse temperature, γ the sharpness of a softmax over scores, h a field, J couplings.
A function takes one array by position; whatever else it needs is given by name.
"""

from spinformer.core.implicit import implicit_root
from spinformer.core.lyapunov import lyapunov_exponents
from spinformer.core.random import numpy_generator, torch_generator
from spinformer.core.records import record
from spinformer.core.signals import autocorrelation, spectrum
from spinformer.core.solve import NotConverged, Solution, Status, anderson
from spinformer.core.special import log_sphere_integral, mean_alignment, normal_average
from spinformer.core.states import hebbian_couplings, overlaps, spin_states
from spinformer.core.statistics import Estimate, fit_power, mean_estimate, series_estimate

__all__ = [
    "Estimate",
    "NotConverged",
    "Solution",
    "Status",
    "anderson",
    "autocorrelation",
    "fit_power",
    "hebbian_couplings",
    "implicit_root",
    "log_sphere_integral",
    "lyapunov_exponents",
    "mean_alignment",
    "mean_estimate",
    "normal_average",
    "numpy_generator",
    "overlaps",
    "record",
    "series_estimate",
    "spectrum",
    "spin_states",
    "torch_generator",
]

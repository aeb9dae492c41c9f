"""What every room needs, written once: checks, results, solvers, states, statistics, randomness.

Letters, the same in all rooms: N spins, sites or stored patterns of a set (the axis that is
summed over), D (also d, the width) components of one of them, P features or ±1 patterns, T tokens
of a context or steps of a series, K bits of position, B or `...` batch axes, always in front;
β an inverse temperature, γ the sharpness of a softmax over scores, h a field, J couplings.
A function takes one array by position; whatever else it needs is given by name.

What a user asks for most is exported by the room itself, as in
`from spinformer.core import lyapunov_exponents`.
"""

from typing import TYPE_CHECKING

from spinformer.core.lazy import names_on_demand

if TYPE_CHECKING:
    from spinformer.core.chaos import (
        kaplan_yorke_dimension as kaplan_yorke_dimension,
    )
    from spinformer.core.implicit import (
        implicit_root as implicit_root,
    )
    from spinformer.core.lyapunov import (
        lyapunov_exponents as lyapunov_exponents,
    )
    from spinformer.core.solve import (
        NotConverged as NotConverged,
        Solution as Solution,
        Status as Status,
    )
    from spinformer.core.special import (
        gaussian_expectation as gaussian_expectation,
        log_sphere_integral as log_sphere_integral,
        mean_alignment as mean_alignment,
    )
    from spinformer.core.states import (
        hebbian_couplings as hebbian_couplings,
        spin_states as spin_states,
    )
    from spinformer.core.statistics import (
        Estimate as Estimate,
        fit_power_law as fit_power_law,
        mean_estimate as mean_estimate,
        student_interval as student_interval,
        wilson_interval as wilson_interval,
    )

__getattr__, __dir__, __all__ = names_on_demand(
    __name__,
    __path__,
    exports={
        "chaos": ("kaplan_yorke_dimension",),
        "implicit": ("implicit_root",),
        "lyapunov": ("lyapunov_exponents",),
        "solve": ("NotConverged", "Solution", "Status"),
        "special": ("gaussian_expectation", "log_sphere_integral", "mean_alignment"),
        "states": ("hebbian_couplings", "spin_states"),
        "statistics": (
            "Estimate",
            "fit_power_law",
            "mean_estimate",
            "student_interval",
            "wilson_interval",
        ),
    },
)

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

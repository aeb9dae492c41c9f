from spinformer.dmft.attractor_continuation import continue_attractors as continue_attractors
from spinformer.dmft.attractors import (
    Attractors as Attractors,
    Regime as Regime,
    Thresholds as Thresholds,
    find_attractors as find_attractors,
)
from spinformer.dmft.basin_boundaries import (
    ends_apart as ends_apart,
    uncertainty_exponent as uncertainty_exponent,
)
from spinformer.dmft.basins import (
    CoexistingAttractors as CoexistingAttractors,
    basin_fractions as basin_fractions,
    basins_of_attraction as basins_of_attraction,
    find_coexisting_attractors as find_coexisting_attractors,
)
from spinformer.dmft.bifurcation_curves import (
    bifurcation_values as bifurcation_values,
    continue_bifurcation as continue_bifurcation,
)
from spinformer.dmft.branch_switching import switch_branch as switch_branch
from spinformer.dmft.branches import Branch as Branch, continue_cycle as continue_cycle
from spinformer.dmft.corrections import (
    finite_size_corrections as finite_size_corrections,
    gaussian_closure as gaussian_closure,
)
from spinformer.dmft.cycles import (
    Bifurcation as Bifurcation,
    Cycle as Cycle,
    find_bifurcation as find_bifurcation,
    find_cycle as find_cycle,
)
from spinformer.dmft.diagrams import (
    orbit_diagram as orbit_diagram,
    phase_diagram as phase_diagram,
)
from spinformer.dmft.escape import escape_action as escape_action, path_action as path_action
from spinformer.dmft.finite_size import (
    generate as generate,
    linear_maps as linear_maps,
    mean_path as mean_path,
    window_of_context as window_of_context,
)
from spinformer.dmft.lifetimes import (
    detect_escapes as detect_escapes,
    escape_law as escape_law,
    estimate_lifetime as estimate_lifetime,
)
from spinformer.dmft.linear_stability import onset as onset
from spinformer.dmft.lyapunov import (
    lyapunov_spectrum as lyapunov_spectrum,
    period_map as period_map,
)
from spinformer.dmft.maps import Map as Map
from spinformer.dmft.mean_field import (
    poclopez2024_context as poclopez2024_context,
    random_contexts as random_contexts,
    step as step,
    trajectory as trajectory,
)
from spinformer.dmft.network import Context as Context, Network as Network
from spinformer.dmft.normal_forms import normal_form as normal_form
from spinformer.dmft.regimes import (
    classify_regimes as classify_regimes,
    count_regimes as count_regimes,
    regime_label as regime_label,
)
from spinformer.dmft.settling import (
    perturbed_replicas as perturbed_replicas,
    relaxation_time as relaxation_time,
    settled_contexts as settled_contexts,
)
from spinformer.dmft.stroboscopic import (
    rotation_number as rotation_number,
    stroboscopic_section as stroboscopic_section,
)
from spinformer.dmft.weight_statistics import attention_statistics as attention_statistics

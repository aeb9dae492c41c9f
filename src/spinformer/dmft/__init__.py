"""Dynamical mean-field theory of self-attention with tokens of N bits or letters.

The theory is that of [poclopez2024dynamical]. Everything is in float64, and long runs are compiled:
`kernels` has the loops, and `ensemble` gives them many systems at once.

- `network` has weights and contexts, `mean_field` one step of the limit N → ∞ and trajectories,
  `linear_stability` the onset of order, and `document` the motions of the example network.
- `attractors`, `regimes` and `settling` classify motion and say how long it takes to settle,
  `lyapunov` has exponents and the monodromy matrix, `lifetimes` chaotic transients.
- `cycles` and `bifurcations` find and continue cycles, `basins` has coexisting attractors and their
  basins, `diagrams` orbit and phase diagrams. They take a network, or a map of one's own (`maps`).
- `finite_size` has tokens of N bits, `corrections` their variance and 1/N shift, `escape` their way
  out of an attractor.

What a user asks for most is exported by the room itself, as in
`from spinformer.dmft import orbit_diagram`.
"""

from typing import TYPE_CHECKING

from spinformer.core.lazy import names_on_demand

if TYPE_CHECKING:
    from spinformer.dmft.attractors import (
        Attractors as Attractors,
        Regime as Regime,
        Thresholds as Thresholds,
        find_attractors as find_attractors,
        rotation_number as rotation_number,
        stroboscopic_section as stroboscopic_section,
    )
    from spinformer.dmft.basins import (
        CoexistingAttractors as CoexistingAttractors,
        basin_fractions as basin_fractions,
        basins_of_attraction as basins_of_attraction,
        continue_attractors as continue_attractors,
        find_coexisting_attractors as find_coexisting_attractors,
        uncertainty_exponent as uncertainty_exponent,
    )
    from spinformer.dmft.bifurcations import (
        bifurcation_values as bifurcation_values,
        continue_bifurcation as continue_bifurcation,
        normal_form as normal_form,
        switch_branch as switch_branch,
    )
    from spinformer.dmft.corrections import (
        finite_size_corrections as finite_size_corrections,
        gaussian_closure as gaussian_closure,
    )
    from spinformer.dmft.cycles import (
        Bifurcation as Bifurcation,
        Cycle as Cycle,
        continue_cycle as continue_cycle,
        find_bifurcation as find_bifurcation,
        find_cycle as find_cycle,
    )
    from spinformer.dmft.diagrams import (
        attention_statistics as attention_statistics,
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
        document_context as document_context,
        random_contexts as random_contexts,
        step as step,
        trajectory as trajectory,
    )
    from spinformer.dmft.network import Context as Context, Network as Network
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

__getattr__, __dir__, __all__ = names_on_demand(
    __name__,
    __path__,
    exports={
        "attractors": (
            "Attractors",
            "Regime",
            "Thresholds",
            "find_attractors",
            "rotation_number",
            "stroboscopic_section",
        ),
        "basins": (
            "CoexistingAttractors",
            "basin_fractions",
            "basins_of_attraction",
            "continue_attractors",
            "find_coexisting_attractors",
            "uncertainty_exponent",
        ),
        "bifurcations": (
            "bifurcation_values",
            "continue_bifurcation",
            "normal_form",
            "switch_branch",
        ),
        "corrections": ("finite_size_corrections", "gaussian_closure"),
        "cycles": ("Bifurcation", "Cycle", "continue_cycle", "find_bifurcation", "find_cycle"),
        "diagrams": ("attention_statistics", "orbit_diagram", "phase_diagram"),
        "escape": ("escape_action", "path_action"),
        "finite_size": ("generate", "linear_maps", "mean_path", "window_of_context"),
        "lifetimes": ("detect_escapes", "escape_law", "estimate_lifetime"),
        "linear_stability": ("onset",),
        "lyapunov": ("lyapunov_spectrum", "period_map"),
        "maps": ("Map",),
        "mean_field": ("document_context", "random_contexts", "step", "trajectory"),
        "network": ("Context", "Network"),
        "regimes": ("classify_regimes", "count_regimes", "regime_label"),
        "settling": ("perturbed_replicas", "relaxation_time", "settled_contexts"),
    },
)

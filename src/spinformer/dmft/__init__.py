"""Dynamical mean-field theory of self-attention with tokens of N bits or letters.

The theory is that of [poclopez2024dynamical]. `network` has weights and contexts, `mean_field` one
step of the limit N → ∞ in NumPy and torch, and its trajectories, `finite_size` tokens of N bits,
`linear_stability` the loss of stability of the disordered state, `attractors` the classification of
attractors, `regimes` their labels, `settling` relaxation times, `lyapunov` Lyapunov exponents and
the monodromy matrix, `cycles` cycles with their bifurcations, `lifetimes` the lifetimes of chaotic
transients, and `document` the motions of the example network. Everything is in float64, and long
runs are compiled: `kernels` has the loops, and `ensemble` gives them many systems at once.

What a user asks for most is exported by the room itself, as in
`from spinformer.dmft import find_attractors`.
"""

from typing import TYPE_CHECKING

from spinformer.core.lazy import names_on_demand

if TYPE_CHECKING:
    from spinformer.dmft.attractors import (
        Attractors as Attractors,
        Regime as Regime,
        Thresholds as Thresholds,
        find_attractors as find_attractors,
        stroboscopic_section as stroboscopic_section,
    )
    from spinformer.dmft.bifurcations import (
        bifurcation_values as bifurcation_values,
        continue_bifurcation as continue_bifurcation,
        normal_form as normal_form,
        switch_branch as switch_branch,
    )
    from spinformer.dmft.cycles import (
        Bifurcation as Bifurcation,
        Cycle as Cycle,
        continue_cycle as continue_cycle,
        find_bifurcation as find_bifurcation,
        find_cycle as find_cycle,
    )
    from spinformer.dmft.finite_size import (
        generate as generate,
        linear_maps as linear_maps,
        mean_path as mean_path,
    )
    from spinformer.dmft.lifetimes import (
        detect_escapes as detect_escapes,
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
            "stroboscopic_section",
        ),
        "bifurcations": (
            "bifurcation_values",
            "continue_bifurcation",
            "normal_form",
            "switch_branch",
        ),
        "cycles": (
            "Bifurcation",
            "Cycle",
            "continue_cycle",
            "find_bifurcation",
            "find_cycle",
        ),
        "finite_size": ("generate", "linear_maps", "mean_path"),
        "lifetimes": ("detect_escapes", "estimate_lifetime"),
        "linear_stability": ("onset",),
        "lyapunov": ("lyapunov_spectrum", "period_map"),
        "maps": ("Map",),
        "mean_field": ("document_context", "random_contexts", "step", "trajectory"),
        "network": ("Context", "Network"),
        "regimes": ("classify_regimes", "count_regimes", "regime_label"),
        "settling": ("perturbed_replicas", "relaxation_time", "settled_contexts"),
    },
)

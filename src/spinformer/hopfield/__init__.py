"""Energy-based attention: discrete and continuous associative memories, and their densities.

Each kind of memory is a module of its own, with its `energy` or `log_prob` and its retrieval
dynamics: `discrete` (spins, NumPy), `continuous` (real states, torch; the modern Hopfield network),
`density` (the continuous memory as a probability model, and its maximum-likelihood fit).
`separation` has the functions that separate patterns, softmax, sparsemax and entmax, and
`fixed_points` finds and classifies the fixed points of the update. `attention` and `layer` hold the
corresponding parts of a transformer.

What a user asks for most is exported by the room itself, as in
`from spinformer.hopfield import HopfieldLayer`. The names `energy`, `retrieve` and `update` are
those of the continuous network. Those of spins are found in `discrete`, which needs no torch.
"""

from typing import TYPE_CHECKING

from spinformer.core.lazy import names_on_demand

if TYPE_CHECKING:
    from spinformer.hopfield.attention import retrieval_step as retrieval_step
    from spinformer.hopfield.continuous import (
        ContinuousRetrieval as ContinuousRetrieval,
        attention_weights as attention_weights,
        energy as energy,
        exact_retrieval_beta as exact_retrieval_beta,
        gradient as gradient,
        jacobian as jacobian,
        retrieve as retrieve,
        update as update,
    )
    from spinformer.hopfield.density import (
        EMResult as EMResult,
        fit_em as fit_em,
        log_partition as log_partition,
        log_prob as log_prob,
        sample as sample,
    )
    from spinformer.hopfield.discrete import (
        CLASSICAL as CLASSICAL,
        EXPONENTIAL as EXPONENTIAL,
        DiscreteRetrieval as DiscreteRetrieval,
        Separation as Separation,
        asynchronous_dynamics as asynchronous_dynamics,
        polynomial as polynomial,
    )
    from spinformer.hopfield.fixed_points import (
        FixedPoints as FixedPoints,
        classify as classify,
        effective_entries as effective_entries,
        find_fixed_points as find_fixed_points,
        fixed_point as fixed_point,
        mean_critical_beta as mean_critical_beta,
    )
    from spinformer.hopfield.layer import (
        AttentionModule as AttentionModule,
        HopfieldLayer as HopfieldLayer,
        replace_attention as replace_attention,
    )
    from spinformer.hopfield.separation import (
        entmax as entmax,
        entmax_conjugate as entmax_conjugate,
        separation_margin as separation_margin,
    )

__getattr__, __dir__, __all__ = names_on_demand(
    __name__,
    __path__,
    exports={
        "attention": ("retrieval_step",),
        "continuous": (
            "ContinuousRetrieval",
            "attention_weights",
            "energy",
            "exact_retrieval_beta",
            "gradient",
            "jacobian",
            "retrieve",
            "update",
        ),
        "density": ("EMResult", "fit_em", "log_partition", "log_prob", "sample"),
        "discrete": (
            "CLASSICAL",
            "EXPONENTIAL",
            "DiscreteRetrieval",
            "Separation",
            "asynchronous_dynamics",
            "polynomial",
        ),
        "fixed_points": (
            "FixedPoints",
            "classify",
            "effective_entries",
            "find_fixed_points",
            "fixed_point",
            "mean_critical_beta",
        ),
        "layer": ("AttentionModule", "HopfieldLayer", "replace_attention"),
        "separation": ("entmax", "entmax_conjugate", "separation_margin"),
    },
)

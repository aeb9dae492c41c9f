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

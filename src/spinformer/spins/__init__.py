"""Spin systems: exact answers, approximate free energies, and neural-network layers built on them.

For Ising spins `ising` sums over all states, `mean_field` has the mean-field equations (naive, TAP,
adaptive TAP, belief propagation), `theories` compares all of these, and `replica_symmetry` has the
replica-symmetric Sherrington–Kirkpatrick model. For vector spins `large_d` has free energy and mean
field for many components, `solvers` solves them, `vector_theories` compares them, and
`exact_vectors` integrates two or three spins; couplings that are matrices are in
`block_couplings`. `monte_carlo` samples both kinds, and `kinetic` has
driven spins without an energy.

Layers of neural networks are in `module` (spins in equilibrium) and `driven_module` (driven and
causal). `heads` and `masks` have what they share, `fused` their backward pass, and `validity` how
far a pass can be trusted.

What a user asks for most is exported by the room itself, as in
`from spinformer.spins import solve_mean_field`.
"""

from typing import TYPE_CHECKING

from spinformer.core.lazy import names_on_demand

if TYPE_CHECKING:
    from spinformer.spins.block_couplings import (
        apply_blocks as apply_blocks,
        reaction_matrices as reaction_matrices,
        solve_block_fixed_point as solve_block_fixed_point,
    )
    from spinformer.spins.driven_module import (
        DrivenSpinModule as DrivenSpinModule,
    )
    from spinformer.spins.exact_vectors import (
        three_spins as three_spins,
        two_spins as two_spins,
    )
    from spinformer.spins.ising import (
        gaussian_couplings as gaussian_couplings,
        ising_log_partition as ising_log_partition,
        pair_couplings as pair_couplings,
        sherrington_kirkpatrick as sherrington_kirkpatrick,
        solve_exact as solve_exact,
    )
    from spinformer.spins.kinetic import (
        glauber_trajectory as glauber_trajectory,
        kinetic_stationary as kinetic_stationary,
        log_transitions as log_transitions,
    )
    from spinformer.spins.mean_field import (
        belief_propagation as belief_propagation,
        log_partition_bound as log_partition_bound,
        solve_mean_field as solve_mean_field,
    )
    from spinformer.spins.module import (
        Solver as Solver,
        SpinTransformerModule as SpinTransformerModule,
    )
    from spinformer.spins.monte_carlo import (
        parallel_tempering as parallel_tempering,
        sample_ising as sample_ising,
        sample_vector_spins as sample_vector_spins,
    )
    from spinformer.spins.replica_symmetry import (
        almeida_thouless_beta as almeida_thouless_beta,
        replica_symmetric_state as replica_symmetric_state,
    )
    from spinformer.spins.solvers import (
        solve_fixed_point as solve_fixed_point,
        solve_saddle_point as solve_saddle_point,
    )
    from spinformer.spins.theories import (
        FreeEnergies as FreeEnergies,
        free_energies as free_energies,
    )
    from spinformer.spins.vector_theories import (
        VectorFreeEnergies as VectorFreeEnergies,
        vector_free_energies as vector_free_energies,
    )

__getattr__, __dir__, __all__ = names_on_demand(
    __name__,
    __path__,
    exports={
        "block_couplings": ("apply_blocks", "reaction_matrices", "solve_block_fixed_point"),
        "driven_module": ("DrivenSpinModule",),
        "exact_vectors": ("three_spins", "two_spins"),
        "theories": ("FreeEnergies", "free_energies"),
        "ising": (
            "gaussian_couplings",
            "ising_log_partition",
            "pair_couplings",
            "sherrington_kirkpatrick",
            "solve_exact",
        ),
        "kinetic": ("glauber_trajectory", "kinetic_stationary", "log_transitions"),
        "mean_field": ("belief_propagation", "log_partition_bound", "solve_mean_field"),
        "module": ("Solver", "SpinTransformerModule"),
        "monte_carlo": ("parallel_tempering", "sample_ising", "sample_vector_spins"),
        "replica_symmetry": ("almeida_thouless_beta", "replica_symmetric_state"),
        "solvers": ("solve_fixed_point", "solve_saddle_point"),
        "vector_theories": ("VectorFreeEnergies", "vector_free_energies"),
    },
)

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

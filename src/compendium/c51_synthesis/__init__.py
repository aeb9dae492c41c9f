"""One small system as a memory, as spins in equilibrium and as a driven network.

N readers look at n keys x_i, each at exactly one; ξ = N⁻¹ Σ_a x_{σ_a} is the mean of what they see.

- energy: the memory's E(ξ) = ½ξ·ξ − β⁻¹ lse(βXξ), whose unit step is attention;
- free energy: the readers in equilibrium, −βH = (β/2N) |Σ_a x_{σ_a}|², self terms included;
- dynamics: every reader draws its key anew, p_i = softmax(βXξ), and ξ' = N⁻¹ Σ_a y_{σ_a}, with
  values y_i that may differ from the keys.

Keys and values have shape (n, d), states (..., d), counts of readers (M, n).
"""

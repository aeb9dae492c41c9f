"""Chapter 51: one small system as a memory, as spins in equilibrium and as a driven network.

N readers look at n keys x_i, each at exactly one; ξ = N⁻¹ Σ_a x_{σ_a} is the mean of what they see.

- energy: the memory's E(ξ) = ½ξ·ξ − β⁻¹ lse(βXξ), whose unit step is attention;
- free energy: the readers in equilibrium, −βH = (β/2N) |Σ_a x_{σ_a}|², self terms included;
- dynamics: every reader draws its key anew, p_i = softmax(βXξ), and ξ' = N⁻¹ Σ_a y_{σ_a}, with
  values y_i that may differ from the keys.

Predictions, written before anything was run. (1) Z_N = (Nβ/2π)^{d/2} ∫ exp(−NβE) dξ for every N,
by a Gaussian integral, so the memory's energy is the free energy of a reader in a given field.
(2) With values equal to keys and one valley the mean is ξ* + b/N, b = (β/2) H⁻¹ κ₃:H⁻¹ in
equilibrium (H = 1 − βC, C and κ₃ the second and third cumulant of the keys at ξ*), and
b = (β²/2) H⁻¹ κ₃:D all at once, D = J D Jᵀ + C, J = βC. (3) Between two keys of equal length the
readers change sides after a time that grows as exp(NβΔE) one at a time, but as exp(2NβΔE) all at
once, ΔE the barrier of the memory's energy. (4) For three keys at 120° and values that are the keys
turned by an angle φ there is no energy: in the cold the memory rests if φ < 60° and else goes
around, a third of a turn a step at φ = 120°; the average of all keys loses its stability at β = 2.
(5) Where both keys are shifted to and fro, c_t = c + δ cos ωt, the readers follow with the share
(1 − J)/|e^{iω} − J| of the shift of the rest, J = β(1 − m²): an energy is enough if ω ≪ 1 − J.

Keys and values have shape (n, d), states (..., d), counts of readers (M, n).
"""

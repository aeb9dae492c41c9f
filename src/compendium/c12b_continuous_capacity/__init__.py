"""How much the continuous memory holds, measured: the experiments of chapter 12b.

Predictions, written before the full run. (1) The load α(d) at which the others outweigh a pattern
in one step, extrapolated in 1/d, meets α₁(β) of `random_energy.capacity` within 0.01
for spherical and binary patterns at β = ¼ to 2, and within 0.03 for Gaussian ones, whose norms
scatter and whose frozen phase (β > 1) approaches its limit with ln d/d. (2) The overlap that a
noisy query needs, extrapolated in 1/d at a fixed load, meets m_b(α, β = 1) within 0.03 below
(α = 0.1, 0.2: frozen) and above the freezing (α = 0.3), and is the same in one step and at rest;
at finite d it is that of independent levels, without a memory, within 0.02. (3) At β = 1/√d half
of the patterns lose their state at the ln N of `retrieval_fold`, within 0.05 from d = 49 to 196,
so that ln N + ½ ln d grows with √d with the slope 1 ± 0.05. (4) On the grid of N = 64 … 65,536
and d = 16 … 1,024 a pattern is kept (overlap above 0.9) where ln N is below the fold and lost
(below 0.1) where it is above, by more than three spreads.
"""

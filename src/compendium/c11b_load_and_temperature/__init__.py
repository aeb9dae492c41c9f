"""The classical memory at a load and a temperature, simulated: the experiments of chapter 11b.

Predictions, written before the full run. (1) Inside of the retrieval phase, 0.4 to 0.8 of the
melting temperature T_M(α) of the replica-symmetric theory, the overlap of 4,000 spins agrees with
the theory within three standard errors plus 20/d (finite size), and the energy does to 1 %.
(2) Heated in steps of 0.02 T_M with 100 sweeps each, networks of 4,000 spins melt on average
within 0.05 of T_M, and the scatter from network to network shrinks with d. (3) Two copies that
start at random: d⟨q²⟩ does not grow with d above T_g = 1 + √α, where it is 1/(1 − α/(T − 1)²),
and ⟨q²⟩ does not fall with d below. (4) The melted memory at T between T_M and T_g is a spin
glass: no temperature is both above T_g and below T_M.
"""

"""Corrections to the mean field of a finite network: bias, closure, stationary law, exponents.

Chapter 32b. `BREAKS`: how long the 1/N law of the average text holds in chaos, for sizes up to
10¹². `CLOSURES`: errors of the plain mean field, of its 1/N correction and of the Gaussian closure
against sampled texts, in four regimes. `STATIONARY`: distance of the stationary law at N bits from
the measure of the attractor, beside its null. `EXPONENTS`: growth of the distance of two texts that
share their random numbers.

Conventions of `dmft.tokens`; overlaps are the semantic output overlaps.
"""

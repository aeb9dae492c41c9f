"""How long a network whose window has passed a message remembers it.

Prediction, written before the table of memory times was made but after a look at one other start,
with λ the growth rate of perturbations per token: where motion contracts (λ < 0) the memory time
grows by ln 10 / 2|λ| tokens with every factor of ten in N. In quasi-periodic motion (λ = 0) noise
diffuses along the curve, the Fisher memory falls as 1/k, and the time grows in proportion to N: as
a power of N with an exponent between 0.75 and 1.25 from 10^6 to 10^8 bits. In chaos (λ > 0) the
Fisher memory tends to a constant, since noise and message grow alike, and what ends it is that the
noise leaves the linear range: the time grows by ln 10 / 2λ tokens with every factor of ten.
"""

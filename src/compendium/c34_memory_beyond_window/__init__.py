"""How long a network whose window has passed a message remembers it.

A message of one bit is written into the newest token of a window: its N bits are drawn with means
x + s D^{1/2} e or x − s D^{1/2} e, where D = (1 − x²)/f is N times the variance of a token's own
noise, e a unit vector over the L segments. The same *strength* s is the same message everywhere: at
delay 0 the two tokens are 2 s √N standard deviations apart, whatever the motion.

`MEMORY_TIMES` holds, for five kinds of motion, ten starts and nine sizes, the delay at which less
than a tenth of a bit is left: as linear noise predicts it, and from sampled texts. `SPECTRA` holds
spectra and autocorrelations of the chaotic motion at β = 1.266: chaos amplifies rounding.

Prediction, written before the table was made but after a look at one other start, with λ the
growth rate of perturbations per token: where motion contracts (λ < 0) the memory time grows by
ln 10 / 2|λ| tokens with every factor of ten in N. In quasi-periodic motion (λ = 0) noise diffuses
along the curve, the Fisher memory falls as 1/k, and the time grows in proportion to N: as a power
of N with an exponent between 0.75 and 1.25 from 10^6 to 10^8 bits. In chaos (λ > 0) the Fisher
memory tends to a constant, since noise and message grow alike, and what ends it is that the noise
leaves the linear range: the time grows by ln 10 / 2λ tokens with every factor of ten.
"""

"""Does chaos switch between structures? Almost-invariant parts of chaotic orbits, and dwells.

Poc-López and Aguilera read the chaotic trajectory at β = 1.266 as switching "between different
structures", which they take to be coexisting attractors [poclopez2024dynamical, Section 4.2].
`ORBITS` looks for almost-invariant parts of chaotic orbits of their network along β with the slow
modes of the strobed motion (`core.slow_modes`), with two nulls for each orbit: a surrogate with the
same spectra and cross spectra, and the orbit cut into blocks of 16 flashes that are shuffled.
`DWELLS` holds the law of the dwell times in either part, `GROWTH` the growth of a small deviation
in either part and how near the orbit comes to cycles and to the closed curve.

Written down before the tables were made, after a pilot of eight orbits of 30,000 flashes at 1.266,
1.2655, 1.28 and 1.4 with another seed, which had shown one slow mode at the first two (about 100
and 130 flashes) and none at 1.28 and 1.4, and a first look at dwells, growth and distances on
eight orbits of 500 flashes at 1.266 with a third seed; all other β were not known:

1. At 1.266 one real mode is slow: its time is more than three times that of either null and of the
   next mode, and of any at 1.28 and 1.4.
2. Every orbit visits both parts, each for more than a tenth of the time: one attractor.
3. Dwells that outlast 32 flashes are exponential: what is left of them has the coefficient of
   variation 1 within 0.1, in both parts.
4. The calm part is the remnant of the cycle of 28 steps that is born in a fold at 1.26696: the
   dwells there grow as β approaches the fold from below, and the orbit follows the fold's cycle to
   0.02 for a whole round more often than the shuffled one does by a factor of 3.
5. A deviation grows in both parts, at least twice as fast in the wild one.
6. The orbit does not reach the coexisting attractor, the closed curve, at all: it stays farther
   than 0.005 from it.

`ENDS` was made afterwards: an orbit at 1.3 turned out to end its chaos on a cycle of 32 steps
within the run. Such a change for good is slow as well; rows of orbits that end are left out.

Times are in tokens (steps); a flash is a clock period of four of them.
"""

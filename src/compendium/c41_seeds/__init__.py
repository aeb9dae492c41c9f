"""Would another seed have said the same? Chapters 21 and 21a at 24 seeds, and a number again.

The stored tables are those of `python -m bookmaker sweep`, without times, versions and
what is the same in every row; `COMMANDS` make them. Seeds are ten apart, since the chapters use the
five after their own as well.

Predictions, written before the first sweep: all three verdicts hold at all 24 seeds, and the pulls
of ln Z, deviations in units of the printed errors, have a mean square between 0.52 and 1.64, where
95 of a hundred honest error bars lie (χ² with 24 degrees of freedom, divided by 24). That sweep had
16 seeds, and B4 missed its bound at one.

Before the second, of 24 seeds, of chapters 21 and 21a: B2 and B7 meet their criteria at all seeds.
Criterion and draws of B7 are what they were, so that only the eight seeds from 160 on are news. B4
meets at all seeds a bound that is derived from the correlations of the spins; the bound of 1.5 is
missed again at one to four of 24.

Conventions of `spinformer.spins`: couplings count every pair once, β an inverse temperature.
"""

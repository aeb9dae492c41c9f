"""The regimes of the two orbit diagrams of [poclopez2024dynamical] at full size.

`SHARES`: for the whole of each diagram and for the ranges of β that chapter 33 names, how many of
the 4,001 values of β lie there and which share of them has which regime: 100,000 steps dropped,
20,000 kept, 10,000 averaged for the exponents, from the document's context. The chapter draws a
quarter of the values with the same code.

`python -m bookmaker table 33_phase_transitions shares` makes the table.
"""

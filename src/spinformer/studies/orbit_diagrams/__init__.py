"""The regimes of the two orbit diagrams of [poclopez2024dynamical] at full size.

`SHARES`: for the whole of each diagram and for the ranges of β that chapter 33 names, how many of
the 4,001 values of β lie there and which share of them has which regime: 100,000 steps dropped,
20,000 kept, 10,000 averaged for the exponents, from the document's context. The chapter draws a
quarter of the values with the same code.

`python -m spinformer.studies.orbit_diagrams shares` makes the table.
"""

from spinformer.studies.orbit_diagrams.study import COUNT, DIAGRAMS, RANGES, SHARES, share_row

__all__ = ["COUNT", "DIAGRAMS", "RANGES", "SHARES", "share_row"]

"""Phase diagrams of the document's network: which regime at which β, γ and ε, and of how many.

Written down before the tables were made, after a look at a coarse grid of regimes alone:
1. The cycle of four steps loses its stability at a β that changes by less than 0.01 between γ = 0
   and 250, because γ drops out of the closed form for ε → 0.
2. Ten times the transient changes less than 5 % of the labels of a plane, most of these from chaos
   to a cycle.
3. Less than 10 % of the cells have more than one regime among eight random contexts.
4. The borders of chaos are fractal: the share of cells whose neighbor at a distance has another
   label grows with the distance to a power clearly below 1.

Written down before the table of longer windows, after a look at two draws:
5. The onset lies within 0.02 of the closed form for ε → 0 divided by 1 − ε, at every T.
6. The turn of the clock is the unit of time: in chaos the exponent per token falls as 1/T.
"""

"""Phase diagrams of the document's network: which regime at which β, γ and ε, and of how many.

Written down before the tables were made, after a look at a coarse grid of regimes alone (and at two
draws of the longer windows, whose predictions stand in the chapter):
1. The cycle of four steps loses its stability at a β that changes by less than 0.01 between γ = 0
   and 250, because γ drops out of the closed form for ε → 0.
2. Ten times the transient changes less than 5 % of the labels of a plane, most of these from chaos
   to a cycle.
3. Less than 10 % of the cells have more than one regime among eight random contexts.
4. The borders of chaos are fractal: the exponent of uncertainty is clearly below 1.
"""

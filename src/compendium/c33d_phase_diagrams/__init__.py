"""Phase diagrams of the published network: which regime at which β, γ and ε, and of how many.

Written down before the tables, after a look at a coarse grid of regimes alone and at two draws of
the longer windows: the onset's β changes by less than 0.01 between γ = 0 and 250; ten times the
transient changes less than 5 % of the labels of a plane, most of these from chaos to a cycle; the
borders of chaos are fractal, their exponent of uncertainty clearly below 1.
"""

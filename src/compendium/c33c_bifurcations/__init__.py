"""How the document's network changes its kind of motion, in four tables.

`CYCLES`: where the cycles of 16, 28, 44 and 56 steps are born, double and die along β. `TONGUES`:
the windows of β in which the closed curve is locked to a rational rotation number p/q. `STAIRCASE`:
rotation number and two leading Lyapunov exponents along the closed curve until it is lost.
`CURVES`: bifurcations followed in (β, γ) and (β, ε). Exponents in nats per step, turns per clock
period of four steps.
"""

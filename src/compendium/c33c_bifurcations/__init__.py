"""How the document's network changes its kind of motion: four tables and their live counterparts.

`CYCLES`: where the cycles of 16, 28, 44 and 56 steps are born, double and die along β. `TONGUES`:
the windows of β in which the closed curve is locked to a rational rotation number p/q. `STAIRCASE`:
rotation number and two leading Lyapunov exponents along the closed curve until it is lost.
`CURVES`: bifurcations followed in (β, γ) and (β, ε).

Written down before the tables were made, but after runs at single values of β that had shown the
positive exponent at the end of the closed curve and some of the windows (not their folds; the first
guess, a fold of closed curves, from the steepening rotation number, had failed by the second
exponent):

* All windows p/q with q up to 20 have two folds as their ends, are ordered in β as p/q is, and a
  window is narrower than both of which it is the mediant.
* The closed curve breaks by loss of smoothness: along the mediants (3 + 2k)/(11 + 7k) towards 2/7
  the locked cycle has complex leading multipliers somewhere in its window, and beyond the last
  window the leading exponent is positive. The rival mechanisms would show as a second exponent
  that vanishes there (a fold or a doubling of closed curves), or as a distance to the saddle of 28
  steps that does (a homoclinic end).
* As ε → 0 or γ → 0 the Neimark-Sacker curve of the cycle of four steps ends on the closed form
  of `dmft.onset`.

Conventions of `spinformer.dmft`: exponents in nats per step, turns per clock period of four steps.
"""

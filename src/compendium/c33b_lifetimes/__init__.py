"""How long the chaos of the document's network lasts: three tables and their live counterparts.

`LIFETIMES`: 64 copies of the document's context, moved apart by 1e-10, at inverse temperatures
where chaos was suspected to end; escape times with censoring. `CRISIS`: the way back, from the
weakly chaotic attractor near 1.276 into the strong chaos around it, against the distance from the
crisis. `COLUMNS`: every column of the two orbit diagrams that is chaotic after the 100,000 steps
of [poclopez2024dynamical], looked at again two million steps later.

Conventions of `spinformer.dmft`: β an inverse temperature, rates in nats per step.
"""

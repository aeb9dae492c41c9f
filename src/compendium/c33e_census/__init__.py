"""Which regimes do other networks show? A thousand networks, no two of one gauge.

All statements about chaos are over a horizon of 40,000 steps; the unit is the network. Written down
with the predictions of the chapter: the closed-form onset is an upper bound, up to one even step of
β, which 6 networks of 500 break; and the document's network, chosen for diversity, is above the
90th percentile in the share of chaos and in the entropy of its labels over β, and between the 10th
and the 90th in its onset, which holds. Chaos grows more common with P and ε as predicted, not with
T, and that L does not matter beyond the scale √(L/P) fails narrowly.
"""

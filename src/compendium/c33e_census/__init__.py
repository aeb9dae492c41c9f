"""Which regimes do other networks show? A thousand networks, no two of one gauge.

All statements about chaos are over a horizon of 40,000 steps; the unit is the network.
Predictions, written down before the tables were made, after a pilot of twelve networks:

1. At the document's size the lower end of the interval for the share of networks with all three
   regimes (periodic, quasi-periodic, chaotic) lies above 0.05 (that is claim C16).
2. The closed-form onset is an upper bound, up to one even step of β, and met to one even step by
   more than half of the networks whose predicted onset lies in the range.
3. Chaos needs rotation: on networks that had no part in setting its threshold the area under the
   curve of C = β_top/β_c if the eigenvalue that becomes unstable first is complex, 0 if it is real,
   exceeds 0.7, and A = β_top/β_c alone and B = complex or not do worse.
4. The document's network is above the 90th percentile in the share of chaos and in the entropy of
   its labels over β (it was chosen for diversity), and between the 10th and the 90th in its onset.
5. Chaos becomes more common with P, with T and with ε up to 0.1; it does not depend on L beyond
   what the scale √(L/P) of the eigenvalues takes care of.

What came of them: 1 and 4 hold. 2 holds but for the bound, which 6 networks of 500 break.
Of 3, B alone does as well as C, and only while ε is small: at 0.1 and 0.3 the area is below 0.7.
Of 5, P and ε hold, T fails, and L fails narrowly.
"""

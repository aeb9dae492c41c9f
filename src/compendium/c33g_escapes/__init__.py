"""Escapes between coexisting cycles of the document's network by the noise of finite N (33b).

`ACTIONS`: least action of leaving each of the four cycles of 24 steps at β = 3, by minimization
from escapes that a small network showed. `ESCAPES`: mean times to leave these cycles, and the cycle
of 28 steps at β = 1.27, against the number of bits, from texts with censoring.

Conventions of `spinformer.dmft`; times in tokens, actions per bit.
"""

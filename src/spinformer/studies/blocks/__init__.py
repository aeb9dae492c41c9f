"""Do a residual connection and a feed-forward block make the motion more complex?

Poc-López and Aguilera leave both out and expect that "additional nonlinearities and feedback loops
will increase the complexity of the observed dynamics" [poclopez2024dynamical, Section 5]. `CENSUS`
puts random networks of the document's size through 24 even values of β up to 3, two random windows
at each, bare and with blocks (`dmft.blocks`) of several strengths: 120 networks of the census's
first family and 60 of its second, no two of one gauge, with the same windows and the same hidden
signs in every condition. The unit is the network and comparisons are in pairs. `LONGER` waits ten
times as long for every tenth network of the first family.

Complexity is measured by, each a mean over β and windows of one network:

* `chaos`: share of systems whose leading exponent exceeds 0.005 by three errors, after 3,000 steps
  and the 400 in which tangent vectors align, over 1,600 steps;
* `dimension`: the Kaplan-Yorke dimension, exponents within 0.004 of zero counted as zero, so that a
  cycle has 0, a closed curve 1;
* `variety`: the entropy, in nats, of the labels periodic, quasi-periodic and chaotic.

Written down before the tables were made, after a pilot of 24 networks of another family (chaos
0.036 bare, 0 with a residual connection of strength 1, 0.047 with a feed-forward block of strength
1, 0.044 with its linear twin):

1. The residual connection at strength 1 lowers the share of chaos: interval of the paired
   difference below zero. It slows the motion: the first mode that becomes unstable turns less per
   token in nearly all networks, and fewer have one that turns.
2. The feed-forward block at strength 1 changes neither chaos nor dimension beyond their intervals.
3. What it does change, a linear block of the same slope changes, too: the paired difference
   between the two has an interval that covers zero, in chaos and in dimension.
4. So the expectation fails at natural strength, 1, for both blocks. A weaker residual connection,
   1/2, raises quasi-periodic motion and with it the dimension.
5. Of the systems that are chaotic, more than three quarters still are after ten times the wait.
"""

from spinformer.studies.blocks.study import (
    CENSUS,
    CONDITIONS,
    LONGER,
    block_rows,
    compare,
    first_mode,
    longer_rows,
    make_blocks,
)

__all__ = [
    "CENSUS",
    "CONDITIONS",
    "LONGER",
    "block_rows",
    "compare",
    "first_mode",
    "longer_rows",
    "make_blocks",
]

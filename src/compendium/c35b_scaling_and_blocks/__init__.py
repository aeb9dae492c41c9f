"""Do a residual connection and a feed-forward block make the motion more complex?

Poc-López and Aguilera leave both out and expect that "additional nonlinearities and feedback loops
will increase the complexity of the observed dynamics" [poclopez2024dynamical, Section 5]. `CENSUS`
puts random networks of the document's size through 24 even values of β up to 3, two random windows
at each, bare and with blocks (`blocks`) of several strengths: 120 networks of the census's
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

What happens to the document's attention when its features grow in number with its bits?

Poc-López and Aguilera keep P finite, divide scores by √P "for a large number of features", speak
of unit-variance inputs, and hope to reach "models near saturation" [poclopez2024dynamical,
Sections 2 and 5]. `SCORES`: deviation of the softmax's arguments, and how many tokens of the window
it attends to, in networks of N bits with αN random features, under three rules: γ held fixed, unit
variance at P = 3 + αN, and unit variance at P = 3. `PATHS`: one text of N bits against the theory
at its load and against the theory without load (`loaded`). `REST`: token correlations and
crosstalk at rest. `ONSETS`: the overlap with the document's few features at loads on both sides of
the largest that the theory allows.

Written down before the tables were made, after single runs at N ≤ 3,000 of paths and correlations
(which had agreed with the theory) and after the theory's own numbers:

1. γ fixed: the deviation of the scores falls as N^{-1/2}, the softmax turns flat. Unit variance
   with P growing: the deviation is 1 at every N. Unit variance with P = 3 and the tokens of a
   magnetized network: the scores grow as N, the softmax saturates: it attends to one token.
2. Paths: the deviation from the theory at the right load falls as N^{-1/2}; from the theory
   without load it does not fall.
3. At rest C(1), C(2) and the crosstalk's variance agree with the theory within three errors.
4. The oscillation of the few features ends at a load: below it the overlap does not depend on N,
   above it it falls as N^{-1/2}, at the β where the theory's gain is largest.
"""

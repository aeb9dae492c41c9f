"""What it costs a transformer to have an energy: digits, from a plain network to an energy one.

Written before the full-size trainings, after short ones on validation images of the first split
(one to three seeds, 15 to 20 epochs, pixels not centred) in which, for classes, plain tied networks
came to 0.85 to 0.92, networks with the memory to 0.60 to 0.85:

1. Tying over depth and tying values to keys cost nothing in the classes: the paired interval
   over ten seeds lies within ±1 % on both splits. Tying the matrices of the feed-forward layer
   does cost: "query side" loses more than 1 % against "tied values". The key side changes little.
2. In the completion of hidden patches the energy transformer is no worse than the tied plain one:
   the interval of the difference in unexplained variance does not reach above +0.02.
3. The step sizes that tuning chooses lie far above the safe one (by more than a factor of 10),
   and still the energy of the trained energy transformer rises in less than 1 % of the steps, up
   to four times the trained number. Without the key side it rises more often.
4. Run for four times as long, the energy transformer loses less accuracy than the tied plain one,
   because its tokens grow and its normalised tokens move less and less.
5. Steps of the plain networks are not aligned with their own attention energy before training
   (|z| < 2 against turned values, means over seeds), and become so in training (z > 2).

All of these are judged at 12 epochs, for which they were written, and at 36. Written before the
trainings of 36 epochs, after a look at two arms and one seed of a long training:

6. Much of the loss in the classes is slow learning: "energy" less "tied" is closer to zero after
   36 epochs than after 12 (paired interval of the change above zero on both splits), and yet below
   zero on both splits.
"""

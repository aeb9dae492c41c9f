"""Tokens that are not made of bits: three tables and their live counterparts (chapter 35).

What was expected, written down before the tables were made (a preview of 60 networks of other seeds
with short runs had shown chaos in 0.32, 0.38, 0.23 and 0.18 of them for 2, 3, 4 and 8 letters):

1. Sites: the deviation falls with the exponent −0.50 ± 0.02 for 2, 3, 4 and 8 letters, from
   N = 30,000 on, and is what the linear theory says within 3 %.
2. Words: the exponent is 0.00 ± 0.05, with 64 words as with 256.
3. Chaos survives: the lower end of the interval of the share of networks with chaos is above 0.05
   for every q. The share falls from 2 to 8 letters.
4. A list of V random words has the means of its N sites if ln V > N ΔS, with a gap that shrinks
   with N; below that the gap tends to that of the frozen temperature (`study.freezing_beta`).

β and γ count in units of features of variance 1 (`letters`): the network has both divided by
the variance of its features.
"""

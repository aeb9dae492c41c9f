"""Tokens that are not made of bits: three tables and their live counterparts (chapter 35).

Written down before the tables, after a preview of 60 networks of other seeds (chaos in 0.32, 0.38,
0.23 and 0.18 of them for 2, 3, 4 and 8 letters): exponents are −0.50 ± 0.02 for sites, from
N = 30,000 on and within 3 % of the linear theory, and 0.00 ± 0.05 for words; the interval of the
share of networks with chaos lies above 0.05 for every q, and the share falls from 2 to 8 letters.
"""

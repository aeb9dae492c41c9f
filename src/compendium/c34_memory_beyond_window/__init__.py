"""How long a network whose window has passed a message remembers it.

The chapter's predictions were written before the table of memory times was made but after a look at
one other start; in numbers: in quasi-periodic motion the time is a power of N with an exponent
between 0.75 and 1.25 from 10^6 to 10^8 bits.
"""

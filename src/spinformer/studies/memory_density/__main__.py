"""`python -m spinformer.studies.memory_density NAME` makes a table of this study anew."""

from spinformer.studies.memory_density.learned import DIGITS, HELD_OUT
from spinformer.studies.tables import command_line

command_line([HELD_OUT, DIGITS])

"""`python -m spinformer.studies.large_systems TABLE` makes a stored table anew, or goes on."""

from spinformer.studies.large_systems import ERRORS, ORDER, OVERLAPS
from spinformer.studies.tables import command_line

command_line([ERRORS, ORDER, OVERLAPS])

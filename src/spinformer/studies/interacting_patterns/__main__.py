"""`python -m spinformer.studies.interacting_patterns NAME` makes a table anew."""

from spinformer.studies.interacting_patterns.results import COMPLETION, HOPS, RECALL, SEARCH
from spinformer.studies.tables import command_line

command_line([RECALL, COMPLETION, HOPS, SEARCH])

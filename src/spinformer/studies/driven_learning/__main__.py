"""python -m spinformer.studies.driven_learning TABLE: make a stored table anew."""

from spinformer.studies.driven_learning.results import COUNTS, RECALL, TEXT, TUNING
from spinformer.studies.tables import command_line

command_line([TUNING, RECALL, TEXT, COUNTS])

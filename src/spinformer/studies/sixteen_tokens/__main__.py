"""Make a stored table: python -m spinformer.studies.sixteen_tokens results. The tuning comes first."""

from spinformer.studies.sixteen_tokens.tables import COUNTS, LONGER, RESULTS, TUNING
from spinformer.studies.tables import command_line

command_line([TUNING, RESULTS, LONGER, COUNTS])

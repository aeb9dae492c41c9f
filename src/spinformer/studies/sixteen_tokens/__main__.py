"""Make a stored table: python -m spinformer.studies.sixteen_tokens copies. Tuning comes first."""

from spinformer.studies.sixteen_tokens.tables import COUNTS, RESULTS, SHORTER, TUNING
from spinformer.studies.tables import command_line

command_line([*TUNING.values(), *RESULTS.values(), SHORTER, COUNTS])

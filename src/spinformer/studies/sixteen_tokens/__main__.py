"""Make a stored table: python -m spinformer.studies.sixteen_tokens copies. Tuning comes first."""

from spinformer.studies.sixteen_tokens.tables import COUNTS, RESULTS, SHORTER, TUNING
from spinformer.studies.tables import command_line

own = [table for name, table in TUNING.items() if name != "patches"]
command_line([*own, *RESULTS.values(), SHORTER, COUNTS])

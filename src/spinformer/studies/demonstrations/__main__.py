"""Make the stored tables: `python -m spinformer.studies.demonstrations boundary`."""

from spinformer.studies.demonstrations.measurements import BOUNDARY, LABELINGS, SMALL
from spinformer.studies.tables import command_line

command_line([BOUNDARY, LABELINGS, SMALL])

"""`python -m spinformer.studies.continuous_capacity NAME` makes a stored table anew."""

from spinformer.studies.continuous_capacity import BASINS, FOLD, KEPT_TABLE, ONE_STEP
from spinformer.studies.tables import command_line

command_line([ONE_STEP, BASINS, FOLD, KEPT_TABLE])

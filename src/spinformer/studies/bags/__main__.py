"""Make the stored table: python -m spinformer.studies.bags curve."""

from spinformer.studies.bags.tables import CURVE
from spinformer.studies.tables import command_line

command_line([CURVE])

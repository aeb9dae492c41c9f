"""Make a stored table: python -m spinformer.studies.training digits. The tuning comes first."""

from spinformer.studies.tables import command_line
from spinformer.studies.training.tables import DEPTH, DIGITS, RECALL, REFERENCES, TUNING

command_line([TUNING, DIGITS, RECALL, DEPTH, REFERENCES])

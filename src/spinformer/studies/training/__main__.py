"""Make a stored table: python -m spinformer.studies.training digits. The tuning comes first."""

from spinformer.studies.tables import command_line
from spinformer.studies.training.stuck import FREED, STUCK
from spinformer.studies.training.tables import DEPTH, DIGITS, LONGER, RECALL, REFERENCES, TUNING
from spinformer.studies.training.teacher import SCALE, TEACHER

command_line(
    [TUNING, DIGITS, RECALL, LONGER, DEPTH, REFERENCES, TEACHER, SCALE, STUCK, FREED],
)

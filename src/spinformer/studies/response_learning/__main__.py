"""Make a stored table of this study anew: python -m spinformer.studies.response_learning NAME."""

from spinformer.studies.response_learning.learned import LEARNED
from spinformer.studies.tables import command_line

command_line([LEARNED])

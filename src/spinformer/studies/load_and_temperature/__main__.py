"""`python -m spinformer.studies.load_and_temperature NAME` makes a stored table anew."""

from spinformer.studies.load_and_temperature import COPIES, MELTING, RETRIEVAL
from spinformer.studies.tables import command_line

command_line([RETRIEVAL, MELTING, COPIES])

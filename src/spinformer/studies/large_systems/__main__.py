"""`python -m spinformer.studies.large_systems TABLE` makes a stored table anew, or goes on."""

from spinformer.studies.large_systems import ORDER
from spinformer.studies.tables import command_line

command_line([ORDER])

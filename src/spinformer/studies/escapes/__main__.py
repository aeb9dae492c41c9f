"""`python -m spinformer.studies.escapes NAME`: make one of the stored tables."""

from spinformer.studies.escapes import ACTIONS, ESCAPES
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([ACTIONS, ESCAPES])

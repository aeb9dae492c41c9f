"""`python -m spinformer.studies.lifetimes NAME`: make one of the stored tables."""

from spinformer.studies.lifetimes import COLUMNS, CRISIS, LIFETIMES
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([LIFETIMES, CRISIS, COLUMNS])

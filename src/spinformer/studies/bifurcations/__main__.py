"""`python -m spinformer.studies.bifurcations NAME`: make one of the stored tables."""

from spinformer.studies.bifurcations import CURVES, CYCLES, STAIRCASE, TONGUES
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([CYCLES, TONGUES, STAIRCASE, CURVES])

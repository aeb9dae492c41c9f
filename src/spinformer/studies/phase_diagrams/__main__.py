"""`python -m spinformer.studies.phase_diagrams NAME`: make one of the stored tables."""

from spinformer.studies.phase_diagrams import CONTROL, EPSILON, GAMMA, LONGER
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([GAMMA, EPSILON, CONTROL, LONGER])

"""`python -m spinformer.studies.orbit_diagrams NAME`: make the stored table."""

from spinformer.studies.orbit_diagrams import SHARES
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([SHARES])

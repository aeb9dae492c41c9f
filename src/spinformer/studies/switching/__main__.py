"""Make the tables of chapter 33f anew."""

from spinformer.studies.switching import DWELLS, ENDS, GROWTH, ORBITS
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([ORBITS, ENDS, DWELLS, GROWTH])

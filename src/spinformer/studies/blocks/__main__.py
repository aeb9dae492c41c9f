"""Make the tables of the blocks anew."""

from spinformer.studies.blocks import CENSUS, LONGER
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([CENSUS, LONGER])

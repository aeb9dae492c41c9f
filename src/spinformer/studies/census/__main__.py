"""`python -m spinformer.studies.census NAME`: make one of the stored tables."""

from spinformer.studies.census.tables import DOCUMENT_SIZE, LONGER, OTHER_SIZES
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([DOCUMENT_SIZE, OTHER_SIZES, LONGER])

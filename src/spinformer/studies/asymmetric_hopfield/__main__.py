"""`python -m spinformer.studies.asymmetric_hopfield NAME`: make one of the stored tables."""

from spinformer.studies.asymmetric_hopfield import EXPONENTS
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([EXPONENTS])

"""`python -m spinformer.studies.fluctuations NAME`: make one of the stored tables."""

from spinformer.studies.fluctuations import BREAKS, CLOSURES, EXPONENTS, LAWS
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([BREAKS, CLOSURES, LAWS, EXPONENTS])

"""`python -m spinformer.studies.other_tokens NAME`: make one of the stored tables."""

from spinformer.studies.other_tokens import DEVIATIONS, REGIMES, WORDS
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([DEVIATIONS, REGIMES, WORDS])

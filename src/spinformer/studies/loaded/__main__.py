"""Make the tables of networks with many features anew."""

from spinformer.studies.loaded import LIMITS, ONSETS, PATHS, REST, SCORES
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([SCORES, PATHS, REST, ONSETS, LIMITS])

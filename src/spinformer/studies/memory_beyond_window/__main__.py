"""`python -m spinformer.studies.memory_beyond_window NAME`: make one of the stored tables."""

from spinformer.studies.memory_beyond_window import MEMORY_TIMES, SPECTRA
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([MEMORY_TIMES, SPECTRA])

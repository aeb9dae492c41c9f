"""`python -m spinformer.studies.memory_beyond_window NAME`: make the stored table."""

from spinformer.studies.memory_beyond_window import MEMORY_TIMES
from spinformer.studies.tables import command_line

if __name__ == "__main__":
    command_line([MEMORY_TIMES])

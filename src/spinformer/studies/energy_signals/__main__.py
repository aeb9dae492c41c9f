"""The stored tables, made anew: `python -m spinformer.studies.energy_signals NAME`."""

from spinformer.studies.energy_signals.gradients import COSINE_TABLE
from spinformer.studies.energy_signals.pretrained import MODEL_TABLE
from spinformer.studies.energy_signals.scores import (
    AGAIN_TABLE,
    LONGER_TABLE,
    MIXTURE_TABLE,
    RATE_TABLE,
    SCORE_TABLE,
)
from spinformer.studies.tables import command_line

command_line(
    [
        RATE_TABLE,
        SCORE_TABLE,
        AGAIN_TABLE,
        LONGER_TABLE,
        MIXTURE_TABLE,
        COSINE_TABLE,
        MODEL_TABLE,
    ]
)

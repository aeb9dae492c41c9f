"""Make the stored tables: `python -m spinformer.studies.learning_in_the_limit learning`."""

from spinformer.studies.learning_in_the_limit.horizons import GROWTH, RATES, SHARES_LEFT
from spinformer.studies.learning_in_the_limit.quality import QUALITY
from spinformer.studies.learning_in_the_limit.training import COST, LEARNING, TUNING
from spinformer.studies.tables import command_line

command_line([QUALITY, TUNING, LEARNING, COST, GROWTH, RATES, SHARES_LEFT])

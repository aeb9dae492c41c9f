"""python -m spinformer.studies.energy_transformer TABLE: make a stored table anew."""

from spinformer.studies.energy_transformer.results import REFERENCES, RESULTS, TUNING
from spinformer.studies.tables import command_line

command_line([*TUNING.values(), *RESULTS.values(), REFERENCES])

"""Make a stored table of this study anew: python -m spinformer.studies.real_layer NAME."""

from spinformer.studies.real_layer.prediction import LAYERS
from spinformer.studies.tables import command_line

command_line([LAYERS])

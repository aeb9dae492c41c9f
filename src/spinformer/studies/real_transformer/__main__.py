"""Make a stored table of this study anew: python -m spinformer.studies.real_transformer NAME."""

from spinformer.studies.real_transformer.ends import ENDS
from spinformer.studies.real_transformer.gain import GAIN
from spinformer.studies.real_transformer.sizes import SIZES
from spinformer.studies.real_transformer.steps import STAGES, STEPS, TURNED
from spinformer.studies.real_transformer.toy import TOY
from spinformer.studies.real_transformer.untrained import UNTRAINED
from spinformer.studies.tables import command_line

command_line([ENDS, GAIN, SIZES, STAGES, STEPS, TOY, TURNED, UNTRAINED])

"""Can the energies of a transformer's layers replace labels? Networks trained in every way at once.

`network` is a small transformer in many copies, `energies` what its heads assign to queries,
`signals` the losses made of that, `training` and `readouts` what they teach and how it is judged.
`scores`, `gradients` and `pretrained` hold the stored tables, `summary` what these say.
"""

from spinformer.studies.energy_signals.energies import head_energy, leave_one_out_loss
from spinformer.studies.energy_signals.gradients import COSINE_TABLE, layer_cosines
from spinformer.studies.energy_signals.network import Shape, initial_weights
from spinformer.studies.energy_signals.pretrained import MODEL_TABLE, model_cosines
from spinformer.studies.energy_signals.readouts import effective_rank
from spinformer.studies.energy_signals.scores import (
    RATE_TABLE,
    SCORE_TABLE,
    SHAPE,
    chosen,
    condition,
    live_accuracies,
    uniform_attention,
)
from spinformer.studies.energy_signals.signals import ALONE
from spinformer.studies.energy_signals.summary import (
    above,
    accuracies,
    interval,
    margin,
)
from spinformer.studies.energy_signals.training import split_digits, train_copies

__all__ = [
    "ALONE",
    "COSINE_TABLE",
    "MODEL_TABLE",
    "RATE_TABLE",
    "SCORE_TABLE",
    "SHAPE",
    "Shape",
    "above",
    "accuracies",
    "chosen",
    "condition",
    "effective_rank",
    "head_energy",
    "initial_weights",
    "interval",
    "layer_cosines",
    "leave_one_out_loss",
    "live_accuracies",
    "margin",
    "model_cosines",
    "split_digits",
    "train_copies",
    "uniform_attention",
]

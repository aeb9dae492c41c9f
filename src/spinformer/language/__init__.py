"""A real, small language model, read from disk and run in a few lines of torch.

Everything that lives on tokens is a torch tensor, in the precision of the model's weights (float64
unless asked otherwise); there is no gradient unless a state asks for one. Letters: B sequences of
N tokens, H heads of width d, model width D, L layers. Layers and heads are counted from 0
everywhere; the states "after m layers" are the embeddings for m = 0. The inverse temperature
β = 1/√d stands in front of the dot products, as in [vaswani2017attention, Eq. (1)].
"""

from spinformer.core.lazy import modules_on_demand

__getattr__, __dir__ = modules_on_demand(__name__, __path__)

"""A real, small language model, read from disk and run in a few lines of torch.

Everything that lives on tokens is a torch tensor, in the precision of the model's weights (float64
unless asked otherwise); there is no gradient unless a state asks for one. Letters: B sequences of
N tokens, H heads of width d, model width D, L layers. Layers and heads are counted from 0
everywhere; the states "after m layers" are the embeddings for m = 0. The inverse temperature
β = 1/√d stands in front of the dot products, as in [vaswani2017attention, Eq. (1)].

- `checkpoints` loads causal language models by the library transformers, and `soft_map` makes a
  dynamical system of one, with a module `soft_map_...` for each task.
- `minilm` loads the pretrained encoder, `encoder` runs it. `decoder` runs a generator of the layout
  of Llama block by block. `untrained` has models of random weights, and `text` has texts.
- `heads` says what attention heads of any torch model do to their energies.

What a user asks for most is exported by the room itself, as in
`from spinformer.language import SoftTokenMap`.
"""

from spinformer.core.lazy import names_on_demand

__getattr__, __dir__, __all__ = names_on_demand(__name__, __path__)

"""Real, small language models by the library transformers: what they compute, and as maps.

Everything that lives on tokens is a torch tensor, in the precision of the model's weights; there is
no gradient unless a state asks for one. Letters: B sequences of N tokens, H heads of width d, model
width D, L layers. Layers and heads are counted from 0 everywhere. The inverse temperature β = 1/√d
stands in front of the dot products, as in [vaswani2017attention, Eq. (1)].

- `checkpoints` loads causal language models, and `minilm` the pretrained encoder. `untrained` has
  models of random weights, and `text` has texts. `library` imports transformers.
- `traces` reads what each layer of a model computes: queries, keys, values, attention, the states
  between. `heads` says what attention heads of any torch model do to their energies.
- `soft_map` makes a dynamical system of a causal model, with a module `soft_map_...` for each task.

What a user asks for most is exported by the room itself, as in
`from spinformer.language import SoftTokenMap`.
"""

from spinformer.core.lazy import names_on_demand

__getattr__, __dir__, __all__ = names_on_demand(__name__, __path__)

"""The parts of a spin system in a layer of a trained language model.

Every head is a system of spins: its values, scaled to a mean square length of one in a window, are
the fields, its attention weights times g the couplings, β = 1. `study`: the parts of such systems,
with the response of the couplings to the layer's tokens, and how much of the layer's attention and
of its feed-forward network they predict on a text that was not used, beside nulls; table `layers`.
Conventions of `spinformer.language`: layers and heads from 0.
"""

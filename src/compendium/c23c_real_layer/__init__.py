"""The parts of a spin system in a layer of a trained language model.

Every head is a system of spins: its values, scaled to a mean square length of one in a window, are
the fields, its attention weights times g the couplings, β = 1. Conventions of
`spinformer.language`: layers and heads from 0.
"""

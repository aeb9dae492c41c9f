"""What chapters 14 and 14b measure in a trained language model and in a toy of it.

Conventions of `spinformer.language`: layers and heads from 0, β = 1/√d in front of every dot
product. What lives on tokens is a torch tensor (B, H, N, ...); tables with one number a layer or
head, or a training step, are NumPy arrays, layers first. Files: `energies` and `alignment` (does a
step go down?), `untrained` and `toy` (what training does to it); `heads` and `sizes` (how many keys
a head looks at), `loops`, `iteration` and `gain` (where a repeated head would end up).
"""

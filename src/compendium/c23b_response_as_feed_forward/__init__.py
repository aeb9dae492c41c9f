"""What a per-token feed-forward network can learn of the response of a spin system's couplings.

`per_token`: the share that a token decides, the pupil and its data. `learned`: the table of what
was learned against the amount of data and of training, over ten seeds. Tokens and the unit
convention are those of `compendium.c23_anatomy.study`.
"""

"""Can the energies of a transformer's layers replace labels? Networks trained in every way at once.

`network` is a small transformer in many copies, `energies` what its heads assign to queries,
`signals` the losses made of that, `training` and `readouts` what they teach and how it is judged.
`scores`, `gradients` and `pretrained` hold the stored tables, `summary` what these say.
"""

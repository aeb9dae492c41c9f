"""Can the energies of a transformer's layers replace labels? Networks trained in every way at once.

`network` is a small transformer in many copies, `signals` the energies that its heads assign to
queries and the losses made of them, `training` and `readouts` what they teach and how it is judged.
`scores` holds the stored tables and what these say.
"""

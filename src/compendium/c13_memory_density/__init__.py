"""What exact learning gains over contrastive divergence: the measurements of chapter 13.

`mixtures` has the densities and data that learning is held against, `learned` the comparison on
held-out data, whose tables over ten seeds lie here: `held_out.csv` and `digits.csv`.
"""

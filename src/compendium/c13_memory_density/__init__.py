"""What exact learning gains over contrastive divergence: the measurements of chapter 13.

Tables over ten seeds lie here: `held_out.csv` and `digits.csv`.
"""

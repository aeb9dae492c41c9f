"""What exact learning gains over contrastive divergence: the measurements of chapter 13.

`mixtures` has the densities and data that learning is held against, `learned` the comparison on
held-out data, whose tables over ten seeds lie here: `held_out.csv` and `digits.csv`.
"""

from spinformer.studies.memory_density.learned import (
    DIGITS,
    HELD_OUT,
    digit_pictures,
    learn_digits,
)
from spinformer.studies.memory_density.mixtures import (
    Clusters,
    attention_chain,
    free_mixture,
    two_clusters,
)

__all__ = [
    "DIGITS",
    "HELD_OUT",
    "Clusters",
    "attention_chain",
    "digit_pictures",
    "free_mixture",
    "learn_digits",
    "two_clusters",
]

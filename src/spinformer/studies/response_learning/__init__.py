"""What a per-token feed-forward network can learn of the response of a spin system's couplings.

`per_token`: the share that a token decides, the pupil and its data. `learned`: the table of what
was learned against the amount of data and of training, over ten seeds. Tokens and the unit
convention are those of `studies.anatomy`.
"""

from spinformer.studies.response_learning.learned import LEARNED, learned_rows
from spinformer.studies.response_learning.per_token import (
    fit_per_token,
    own_token_share,
    per_token_data,
    share_between_groups,
)

__all__ = [
    "LEARNED",
    "fit_per_token",
    "learned_rows",
    "own_token_share",
    "per_token_data",
    "share_between_groups",
]

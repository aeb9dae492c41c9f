"""What happens to the document's attention when its features grow in number with its bits?

Poc-López and Aguilera keep P finite, divide scores by √P "for a large number of features", speak
of unit-variance inputs, and hope to reach "models near saturation" [poclopez2024dynamical,
Sections 2 and 5]. `SCORES`: deviation of the softmax's arguments, and how many tokens of the window
it attends to, in networks of N bits with αN random features, under three rules: γ held fixed, unit
variance at P = 3 + αN, and unit variance at P = 3. `PATHS`: one text of N bits against the theory
at its load and against the theory without load (`dmft.loaded`). `REST`: token correlations and
crosstalk at rest. `ONSETS`: the overlap with the document's few features at loads on both sides of
the largest that the theory allows.

Written down before the tables were made, after single runs at N ≤ 3,000 of paths and correlations
(which had agreed with the theory) and after the theory's own numbers:

1. γ fixed: the deviation of the scores falls as N^{-1/2}, the softmax turns flat. Unit variance
   with P growing: the deviation is 1 at every N. Unit variance with P = 3 and the tokens of a
   magnetized network: the scores grow as N, the softmax saturates: it attends to one token.
2. Paths: the deviation from the theory at the right load falls as N^{-1/2}; from the theory
   without load it does not fall.
3. At rest C(1), C(2) and the crosstalk's variance agree with the theory within three errors.
4. The oscillation of the few features ends at a load: below it the overlap does not depend on N,
   above it it falls as N^{-1/2}, at the β where the theory's gain is largest.
"""

from spinformer.studies.loaded.study import (
    LIMITS,
    ONSETS,
    PATHS,
    REST,
    SCORES,
    largest_load,
    limit_rows,
    loaded_onset,
    onset_rows,
    path_rows,
    power,
    rest_rows,
    score_rows,
)

__all__ = [
    "LIMITS",
    "ONSETS",
    "PATHS",
    "REST",
    "SCORES",
    "largest_load",
    "limit_rows",
    "loaded_onset",
    "onset_rows",
    "path_rows",
    "power",
    "rest_rows",
    "score_rows",
]

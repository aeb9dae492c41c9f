"""Chapter 31: attention beside the bipartite Hopfield network, random networks in four measures.

Features are rows (P, N) as in `core.states`.
"""

from __future__ import annotations

import numpy as np
import torch

from spinformer.core.checks import check_array, check_real


def torch_attention(
    tokens: np.ndarray, *, left: np.ndarray, right: np.ndarray, gamma: float
) -> np.ndarray:
    """Weights (T,) of torch's attention over `tokens` (T, N), the newest of them the query.

    Queries and keys are the overlaps with the features `left` and `right` (P, N), the scale of
    the scores is γ, and the values are one-hot, so that what comes out are the weights
    [poclopez2024dynamical, Eq. (5)]. Raises ValueError or TypeError for bad input.

    >>> torch_attention(np.eye(2), left=np.eye(2), right=np.eye(2), gamma=0.0)
    array([0.5, 0.5])
    """
    tokens = check_array("tokens", tokens, ndim=2)
    size = tokens.shape[1]
    left = check_array("left", left, shape=(None, size))
    right = check_array("right", right, shape=left.shape)
    gamma = check_real("gamma", gamma)
    q = torch.from_numpy(tokens[-1:] @ left.T / size)
    k = torch.from_numpy(tokens @ right.T / size)
    v = torch.eye(len(tokens), dtype=torch.float64)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=gamma)[0].numpy()

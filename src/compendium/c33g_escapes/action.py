"""The least action of an escape: how improbable the easiest way out of an attractor is.

The action V of a path sums f_l K(x_l, m_l) over segments and tokens: f_l the share of the bits, K
the relative entropy of two coins [freidlin2012random, here a chain with a window]. The way *down*
into another attractor costs nothing: the end may be fixed there, whatever the basins. Tokens are
handled as fields y, x = tanh y, and the action minimized as a sum of squares, K = ½r². Conventions
of `finite_size`: paths run from old to new.
"""

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor

from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network


def path_action(network: Network, fields: np.ndarray, *, beta: float, position: int) -> np.ndarray:
    """Action per bit of every token after the first window of fields (T + steps, L), (steps,)."""
    parts = _residuals(network, torch.tensor(fields), beta=beta, position=position).numpy()
    return np.asarray(0.5 * (parts**2).sum(axis=1))


def least_action(
    network: Network, fields: np.ndarray, *, beta: float, position: int, max_steps: int = 300
) -> np.ndarray:
    """Path (T + steps, L) of one of many local minima; its first and last T tokens stay."""
    inner, fixed = slice(network.context, -network.context), torch.tensor(fields)

    def residuals(free: Tensor) -> Tensor:
        moved = free.reshape(-1, fixed.shape[1])
        path = torch.cat([fixed[: inner.start], moved, fixed[inner.stop :]])
        return _residuals(network, path, beta=beta, position=position).ravel()

    jacobian = torch.func.jacrev(residuals)
    found = least_squares(
        lambda free: residuals(torch.tensor(free)).numpy(),
        fields[inner].ravel(),
        jac=lambda free: jacobian(torch.tensor(free)).numpy(),
        ftol=1e-10,
        xtol=1e-12,
        gtol=1e-14,
        max_nfev=max_steps,
    )
    path = fields.copy()
    path[inner] = found.x.reshape(-1, fields.shape[1])
    return path


def _residuals(network: Network, path: Tensor, *, beta: float, position: int) -> Tensor:
    """r (steps, L) of the tokens of a path (T + steps, L) of fields after its first window."""
    context = network.context
    linear = torch.tensor((1.0 - network.epsilon) * network.semantic * network.fractions)
    place = torch.tensor(network.epsilon * network.position_overlaps())
    codes = (position + torch.arange(1 - context, len(path) - context + 1)) % network.positions
    m = torch.einsum("ral,tl->tra", linear, torch.tanh(path)) + place[codes]
    # Windows (steps, T, role, feature) before each of the new tokens.
    m = m[torch.arange(len(path) - context)[:, None] + torch.arange(context)]
    score = torch.einsum("ntb,nb->nt", m[:, :, KEY], m[:, -1, QUERY])
    weight = torch.softmax(network.gamma * score, dim=-1)
    attention = torch.einsum("nt,nta->na", weight, m[:, :, VALUE])
    wanted = beta * (attention @ torch.tensor(network.semantic[OUTPUT]))
    return _root(path[context:], wanted) * torch.tensor(np.sqrt(network.fractions))


def _root(y: Tensor, h: Tensor) -> Tensor:
    """r with ½r² = K(tanh y, tanh h), of the sign of y − h."""
    gap = y - h
    near = gap.abs() < 1e-3  # the next term of the series is of relative size 1e-9 there
    apart = torch.where(near, torch.ones_like(gap), gap)
    far, t = h + apart, torch.tanh(h)
    # ln 2 cosh y is logaddexp(y, −y).
    entropy = apart * torch.tanh(far) - torch.logaddexp(far, -far) + torch.logaddexp(h, -h)
    # 2K/gap² = φ'' + ⅔ gap φ''' + ¼ gap² φ'''' with φ = ln cosh at h.
    curved = 1.0 - 4.0 / 3.0 * gap * t + 0.25 * gap**2 * (6.0 * t**2 - 2.0)
    # Saturated tokens have a ratio of exponentially small numbers; the floor keeps its root real.
    ratio = torch.where(near, (1.0 - t**2) * curved, 2.0 * entropy / apart**2)
    return gap * torch.sqrt(torch.clamp(ratio, min=1e-30))

"""The least action of an escape: how improbable the easiest way out of an attractor is.

In a network of N bits the next token is drawn with means m = f(window). That its segments come
out as x instead has, to leading order in N, the probability exp(−N Σ_l f_l K(x_l, m_l)), with f_l
the share of the bits in segment l and

    K(x, m) = ½(1 + x) ln((1 + x)/(1 + m)) + ½(1 − x) ln((1 − x)/(1 − m))

the relative entropy of two coins (Cramér). The probability of a whole path is exp(−N V[x]), V the
sum over its tokens: the action of [freidlin2012random], here of a chain with a window. An escape
happens along the path of least action from the attractor into another basin, and the mean time to
it grows as exp(N V). The way *down* into the other attractor costs nothing, so that the end may be
fixed there and no boundary of basins need be known.

Tokens are handled as fields y, x = tanh y, in which K = (y − h) tanh y − ln cosh y + ln cosh h with
m = tanh h is finite everywhere. K is written as ½r² with a smooth r, and the action minimized as
a sum of squares. Conventions of `tokens`: paths run from old to new.
"""

from __future__ import annotations

import numpy as np
import torch
from scipy.optimize import least_squares
from torch import Tensor
from torch.nn.functional import softplus

from spinformer.core.solve import Solution, Status
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network


def path_action(network: Network, fields: np.ndarray, *, beta: float, position: int) -> np.ndarray:
    """Action of every token after the first window, (steps,), per bit of N.

    fields: (T + steps, L), artanh of the tokens. `position`: of the first window's newest token.
    """
    path = torch.tensor(fields)
    parts = _residuals(
        network, _windows(network, path), path[network.context :], beta=beta, position=position
    )
    return np.asarray(0.5 * (parts**2).sum(dim=1).numpy())


def least_action(
    network: Network, fields: np.ndarray, *, beta: float, position: int, max_steps: int = 300
) -> Solution[np.ndarray]:
    """Path of locally least action between a first and a last window, from a first guess.

    fields: (T + steps, L), the guess; its first and last T tokens stay. Levenberg–Marquardt
    steps in a trust region, until the action changes by less than 1e-10 of itself. The value is
    the path of fields; there may be many local minima: try several guesses.
    """
    context, segments = network.context, network.segments

    def at(free: np.ndarray) -> np.ndarray:
        path = fields.copy()
        path[context:-context] = free.reshape(-1, segments)
        return path

    def residuals(free: np.ndarray, *, derivative: bool = False) -> np.ndarray:
        path = torch.tensor(at(free))
        windows = _windows(network, path).clone().requires_grad_(derivative)
        newest = path[context:].clone().requires_grad_(derivative)
        parts = _residuals(network, windows, newest, beta=beta, position=position)
        if not derivative:
            return np.asarray(parts.numpy()).ravel()
        # Each r depends on its own window and token alone: one backward pass serves all tokens.
        rows = np.arange(len(parts))
        result = np.zeros((len(parts), segments, len(path), segments))
        for segment in range(segments):
            total = parts[:, segment].sum()
            into, own = torch.autograd.grad(total, (windows, newest), retain_graph=True)
            for age in range(context):
                result[rows, segment, rows + age] = into[:, age].numpy()
            result[rows, segment, rows + context] = own.numpy()
        return result[:, :, context:-context].reshape(len(parts) * segments, -1)

    found = least_squares(
        residuals,
        fields[context:-context].ravel(),
        jac=lambda free: residuals(free, derivative=True),
        ftol=1e-10,
        xtol=1e-12,
        gtol=1e-14,
        max_nfev=max_steps,
    )
    return Solution(
        value=at(found.x),
        residual=float(np.abs(found.grad).max()),
        steps=int(found.nfev),
        status=Status.CONVERGED if found.status > 0 else Status.STEP_LIMIT,
    )


def _windows(network: Network, path: Tensor) -> Tensor:
    """Windows (steps, T, L) of a path (T + steps, L) before each of its new tokens."""
    return path.unfold(0, network.context, 1)[:-1].transpose(1, 2)


def _residuals(
    network: Network, windows: Tensor, newest: Tensor, *, beta: float, position: int
) -> Tensor:
    """r of tokens (n, L) after windows (n, T, L) of fields, `position` that of the first."""
    linear = torch.tensor((1.0 - network.epsilon) * network.semantic * network.fractions)
    place = torch.tensor(network.epsilon * network.position_overlaps())
    times = position + torch.arange(len(windows))[:, None]
    codes = (times + torch.arange(1 - network.context, 1)) % network.positions
    m = torch.einsum("ral,ntl->ntra", linear, torch.tanh(windows)) + place[codes]
    score = torch.einsum("ntb,nb->nt", m[:, :, KEY], m[:, -1, QUERY])
    weight = torch.softmax(network.gamma * score, dim=-1)
    attention = torch.einsum("nt,nta->na", weight, m[:, :, VALUE])
    wanted = beta * (attention @ torch.tensor(network.semantic[OUTPUT]))
    return _root(newest, wanted) * torch.tensor(np.sqrt(network.fractions))


def _root(y: Tensor, h: Tensor) -> Tensor:
    """r with ½r² = K(tanh y, tanh h), of the sign of y − h."""
    gap = y - h
    near = gap.abs() < 1e-3  # the next term of the series is of relative size 1e-9 there
    apart = torch.where(near, torch.ones_like(gap), gap)
    far = h + apart
    entropy = apart * torch.tanh(far) - _log_cosh(far) + _log_cosh(h)
    t = torch.tanh(h)
    # 2K/gap² = φ'' + ⅔ gap φ''' + ¼ gap² φ'''' with φ = ln cosh at h.
    curved = 1.0 - 4.0 / 3.0 * gap * t + 0.25 * gap**2 * (6.0 * t**2 - 2.0)
    # Saturated tokens have a ratio of exponentially small numbers; the floor keeps its root real.
    ratio = torch.where(near, (1.0 - t**2) * curved, 2.0 * entropy / apart**2)
    return gap * torch.sqrt(torch.clamp(ratio, min=1e-30))


def _log_cosh(y: Tensor) -> Tensor:
    return y.abs() + softplus(-2.0 * y.abs()) - np.log(2.0)

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

from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.core.solve import Solution, Status
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network

# Below this difference of fields the series of K is used: its next term is of relative size 1e-9.
_CLOSE = 1e-3


def path_action(network: Network, fields: np.ndarray, *, beta: float, position: int) -> np.ndarray:
    """Action of every token after the first window, (steps,), per bit of N.

    fields: (T + steps, L), artanh of the tokens. `position` is that of the first window's newest
    token. Raises ValueError for another shape or no step.

    >>> machine = Network.document()
    >>> coin = np.zeros((5, 3))  # at β = 0 coins are fair: tokens of mean 0 cost nothing ...
    >>> coin[-1] = 50.0  # ... and one of N equal bits ln 2 per bit
    >>> float(path_action(machine, coin, beta=0.0, position=3)[0].round(6))
    0.693147
    """
    fields, beta, position = _checked(network, fields, beta, position)
    with torch.no_grad():
        parts = _residuals(network, torch.tensor(fields), beta, position)
    return np.asarray(0.5 * (parts**2).sum(dim=1).numpy())


def least_action(
    network: Network,
    fields: np.ndarray,
    *,
    beta: float,
    position: int,
    tolerance: float = 1e-10,
    max_steps: int = 300,
) -> Solution[np.ndarray]:
    """Path of locally least action between a first and a last window, from a first guess.

    fields: (T + steps, L), the guess; its first and last T tokens stay. Levenberg–Marquardt
    steps in a trust region, until the action changes by less than `tolerance` of itself. The
    value is the path of fields; `path_action(...).sum()` is what it costs. There may be many
    local minima: try several guesses. Raises ValueError for fewer than T + 1 free steps.

    >>> machine = Network.document()
    >>> guess = np.full((12, 3), 0.1)
    >>> guess[:4] = guess[-4:] = 0.0
    >>> found = least_action(machine, guess, beta=0.0, position=3)  # fair coins: stay at zero
    >>> bool(path_action(machine, found.value, beta=0.0, position=3).sum() < 1e-12)
    True
    """
    fields, beta, position = _checked(network, fields, beta, position)
    tolerance = check_real("tolerance", tolerance, low=0.0, open_low=True)
    max_steps = check_integer("max_steps", max_steps, low=1)
    context, segments = network.context, network.segments
    check_integer("length of fields", len(fields), low=2 * context + 1)
    first, last = torch.tensor(fields[:context]), torch.tensor(fields[-context:])

    def whole(free: Tensor) -> Tensor:
        return torch.cat([first, free.reshape(-1, segments), last])

    def residuals(free: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            path = whole(torch.tensor(free))
            return np.asarray(_residuals(network, path, beta, position).numpy()).ravel()

    def jacobian(free: np.ndarray) -> np.ndarray:
        return _jacobian(network, whole(torch.tensor(free)), beta, position)

    found = least_squares(
        residuals,
        fields[context:-context].ravel(),
        jac=jacobian,
        ftol=tolerance,
        xtol=1e-12,
        gtol=1e-14,
        max_nfev=max_steps,
    )
    path = whole(torch.tensor(found.x)).numpy()
    return Solution(
        value=path,
        residual=float(np.abs(found.grad).max()),
        steps=int(found.nfev),
        status=Status.CONVERGED if found.status > 0 else Status.STEP_LIMIT,
    )


def _checked(
    network: Network, fields: np.ndarray, beta: float, position: int
) -> tuple[np.ndarray, float, int]:
    check_instance("network", network, Network)
    beta = check_real("beta", beta, low=0.0)
    fields = check_array("fields", fields, shape=(None, network.segments))
    check_integer("steps of fields", len(fields) - network.context, low=1)
    return fields, beta, check_integer("position", position)


def _residuals(network: Network, fields: Tensor, beta: float, position: int) -> Tensor:
    """r of every token and segment after the first window, (steps, L)."""
    windows = fields.unfold(0, network.context, 1)[:-1].transpose(1, 2)
    return _of_windows(network, windows, fields[network.context :], beta, position)


def _of_windows(
    network: Network, windows: Tensor, newest: Tensor, beta: float, position: int
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
    near = gap.abs() < _CLOSE
    apart = torch.where(near, torch.ones_like(gap), gap)
    far = h + apart
    entropy = apart * torch.tanh(far) - _log_cosh(far) + _log_cosh(h)
    t = torch.tanh(h)
    slope = 1.0 - t**2
    # 2K/gap² = φ'' + ⅔ gap φ''' + ¼ gap² φ'''' with φ = ln cosh at h.
    series = slope * (1.0 - 4.0 / 3.0 * gap * t + 0.25 * gap**2 * (6.0 * t**2 - 2.0))
    # Saturated tokens have a ratio of exponentially small numbers; the floor keeps its root real.
    ratio = torch.where(near, series, 2.0 * entropy / apart**2)
    return gap * torch.sqrt(torch.clamp(ratio, min=1e-30))


def _log_cosh(y: Tensor) -> Tensor:
    return y.abs() + softplus(-2.0 * y.abs()) - np.log(2.0)


def _jacobian(network: Network, fields: Tensor, beta: float, position: int) -> np.ndarray:
    """∂r/∂(free tokens), (steps · L, free · L): each r depends on its window and token alone."""
    context, segments = network.context, network.segments
    windows = fields.unfold(0, context, 1)[:-1].transpose(1, 2).clone().requires_grad_()
    newest = fields[context:].clone().requires_grad_()
    parts = _of_windows(network, windows, newest, beta, position)
    steps = len(parts)
    result = np.zeros((steps, segments, len(fields), segments))
    rows = np.arange(steps)
    for segment in range(segments):
        # Tokens do not share inputs here, so that one backward pass serves all of them.
        into, own = torch.autograd.grad(
            parts[:, segment].sum(), (windows, newest), retain_graph=True
        )
        for age in range(context):
            result[rows, segment, rows + age] = into[:, age].numpy()
        result[rows, segment, rows + context] = own.numpy()
    return result[:, :, context:-context].reshape(steps * segments, -1)

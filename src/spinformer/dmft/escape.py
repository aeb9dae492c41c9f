"""Escape of a network of N bits from an attractor of its mean field: the least action.

Noise of finite N carries a text out of an attractor after a time of order e^{NV}. The exponent V is
the least action of all paths that leave [freidlin2012random, here a chain with a window]. The
action of a path sums f_l K(x_l, m_l) over segments and tokens: f_l the fraction of the bits, K the
relative entropy of two coins with the means x_l, the token of the path, and m_l, which the network
would draw. The way *down* into another attractor costs nothing, so that the end may be fixed there,
whatever the basins.

Tokens are given as fields y, x = tanh y, and the action is minimized as a sum of squares, K = ½r².
Paths run from old to new.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from spinformer.core.checks import check_array, check_instance, check_integer, check_real
from spinformer.core.records import record
from spinformer.dmft.network import KEY, LARGEST, OUTPUT, QUERY, VALUE, Network

if TYPE_CHECKING:
    from torch import Tensor

# Fields beyond this are saturated tokens.
_SATURATED = 1e3


@record
class EscapePath:
    """Path of least action between two fixed ends, one of many local minima.

    Attributes
    ----------
    fields : ndarray, shape (T + steps, L)
        Fields y of the tokens, x = tanh y.
    action : float
        Action of the path per bit, the V of an escape time of order e^{NV}.
    """

    fields: np.ndarray
    action: float


def escape_action(
    network: Network, fields: np.ndarray, *, beta: float, position: int, max_steps: int = 300
) -> EscapePath:
    r"""Compute the least action of an escape path, from a guess with fixed ends.

    Parameters
    ----------
    network : Network
        The network.
    fields : ndarray, shape (T + steps, L)
        The guess: fields y of the tokens, x = tanh y, the oldest first. Its first and last T tokens
        stay, on the attractor that is left and on one that is reached. Good guesses are escapes
        that were sampled at small N.
    beta : float
        Inverse temperature β of the tokens.
    position : int
        Position of the newest token of the first window.
    max_steps : int, default 300
        Largest number of evaluations.

    Returns
    -------
    EscapePath
        The path and its action, a local minimum; try several guesses.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If the path is too short, or an argument is out of its range.

    Notes
    -----
    With the mean m_l that the network gives the next token, the action per bit is

    .. math::

        V = \sum_t \sum_l f_l\, K(x_{l,t}, m_{l,t}), \quad
        K(x, m) = \tfrac{1+x}{2} \ln \tfrac{1+x}{1+m} + \tfrac{1-x}{2} \ln \tfrac{1-x}{1-m}.

    References
    ----------
    [freidlin2012random]

    Examples
    --------
    >>> machine = Network(semantic=np.ones((4, 1, 1)), context=1, gamma=0.0)
    >>> m = 0.9575040240772687  # of m = tanh(2m)
    >>> ramp = np.arctanh(np.linspace(m, 0.0, 8))[:, None]
    >>> found = escape_action(machine, ramp, beta=2.0, position=0)
    >>> bool(0.0 < found.action < path_action(machine, ramp, beta=2.0, position=0).sum())
    True
    """
    from scipy.optimize import least_squares

    check_instance("network", network, Network)
    context = network.context
    path = _checked(network, fields, least=2 * context + 1)
    beta = check_real("beta", beta, low=0.0, high=LARGEST)
    position = check_integer("position", position)
    max_steps = check_integer("max_steps", max_steps, low=1)
    import torch

    inner = slice(context, -context)
    fixed = torch.tensor(path)

    def residuals(free: Tensor) -> Tensor:
        moved = free.reshape(-1, fixed.shape[1])
        whole = torch.cat([fixed[: inner.start], moved, fixed[inner.stop :]])
        return _residuals(network, whole, beta=beta, position=position).ravel()

    jacobian = torch.func.jacrev(residuals)
    found = least_squares(
        lambda free: residuals(torch.tensor(free)).numpy(),
        path[inner].ravel(),
        jac=lambda free: jacobian(torch.tensor(free)).numpy(),
        ftol=1e-10,
        xtol=1e-12,
        gtol=1e-14,
        max_nfev=max_steps,
    )
    best = path.copy()
    best[inner] = found.x.reshape(-1, path.shape[1])
    action = float(path_action(network, best, beta=beta, position=position).sum())
    return EscapePath(fields=best, action=action)


def path_action(network: Network, fields: np.ndarray, *, beta: float, position: int) -> np.ndarray:
    """Compute the action per bit of every token of a path after its first window.

    Parameters
    ----------
    network : Network
        The network.
    fields : ndarray, shape (T + steps, L)
        Fields y of the tokens, x = tanh y, the oldest first.
    beta : float
        Inverse temperature β of the tokens.
    position : int
        Position of the newest token of the first window.

    Returns
    -------
    ndarray, shape (steps,)
        Actions, zero on a path of the mean field.

    Raises
    ------
    TypeError
        If `network` is not a `Network`.
    ValueError
        If the path is too short, or an argument is out of its range.

    References
    ----------
    [freidlin2012random]

    Examples
    --------
    >>> machine = Network(semantic=np.ones((4, 1, 1)), context=1, gamma=0.0)
    >>> path_action(machine, np.zeros((3, 1)), beta=2.0, position=0)
    array([0., 0.])
    """
    check_instance("network", network, Network)
    path = _checked(network, fields, least=network.context + 1)
    beta = check_real("beta", beta, low=0.0, high=LARGEST)
    position = check_integer("position", position)
    import torch

    parts = _residuals(network, torch.tensor(path), beta=beta, position=position).numpy()
    return np.asarray(0.5 * (parts**2).sum(axis=1))


def _checked(network: Network, fields: np.ndarray, *, least: int) -> np.ndarray:
    path = check_array(
        "fields", fields, shape=(None, network.segments), low=-_SATURATED, high=_SATURATED
    )
    check_integer("tokens of fields", len(path), low=least)
    return path


def _residuals(network: Network, path: Tensor, *, beta: float, position: int) -> Tensor:
    """r (steps, L) of the tokens of a path (T + steps, L) of fields after its first window."""
    import torch

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
    import torch

    gap = y - h
    near = gap.abs() < 1e-3  # the next term of the series is of relative size 1e-9 there
    apart = torch.where(near, torch.ones_like(gap), gap)
    far = h + apart
    t = torch.tanh(h)
    # ln 2 cosh y is logaddexp(y, −y).
    entropy = apart * torch.tanh(far) - torch.logaddexp(far, -far) + torch.logaddexp(h, -h)
    # 2K/gap² = φ'' + ⅔ gap φ''' + ¼ gap² φ'''' with φ = ln cosh at h.
    curved = 1.0 - 4.0 / 3.0 * gap * t + 0.25 * gap**2 * (6.0 * t**2 - 2.0)
    # Saturated tokens have a ratio of exponentially small numbers; the floor keeps its root real.
    ratio = torch.where(near, (1.0 - t**2) * curved, 2.0 * entropy / apart**2)
    return gap * torch.sqrt(torch.clamp(ratio, min=1e-30))

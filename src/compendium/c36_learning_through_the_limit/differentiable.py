"""The mean field in torch: one step and trajectories, differentiable in everything but time.

Conventions of `mean_field`; gradients reach the weights, the context, β, γ and ε. Also what the
compiled tangent maps are tested against.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spinformer.core.checks import check_integer, check_real, check_tensor
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Context, Network, fitting


def torch_step(
    semantic: Tensor,
    *,
    position_overlaps: Tensor,
    attention: Tensor,
    position: int,
    beta: Tensor | float,
    gamma: Tensor | float,
    epsilon: Tensor | float,
    fractions: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step, differentiable in weights, context, β, γ and ε.

    semantic (4, P, L), any real entries; position_overlaps (2^K, 4, P) as
    `Network.position_overlaps` gives them; attention (..., T, P), newest first; beta, gamma and
    epsilon scalars; fractions (L,), None: equal. Returns the next attention window (..., T, P)
    and semantic m^o (..., P), which carries its factor 1 − ε. Raises TypeError or ValueError for
    shapes that do not fit, entries that are not finite and parameters out of range.

    >>> network = Network.document()
    >>> following, overlap = torch_step(
    ...     torch.tensor(network.semantic),
    ...     position_overlaps=torch.tensor(network.position_overlaps()),
    ...     attention=torch.zeros(4, 3, dtype=torch.float64),
    ...     position=0, beta=1.2, gamma=127.0, epsilon=0.02,
    ... )
    >>> following.shape, overlap.shape
    (torch.Size([4, 3]), torch.Size([3]))
    """
    semantic = check_tensor("semantic", semantic, shape=(4, None, None))
    features, segments = semantic.shape[1:]
    places = check_tensor("position_overlaps", position_overlaps, shape=(None, 4, features))
    attention = check_tensor("attention", attention)
    if attention.ndim < 2 or attention.shape[-1] != features or not attention.numel():
        raise ValueError(
            f"attention must have shape (..., T, {features}), got {tuple(attention.shape)}"
        )
    position = check_integer("position", position, low=0, high=len(places) - 1)
    if fractions is None:
        fractions = torch.full_like(semantic[0, 0], 1.0 / segments)
    fractions = check_tensor("fractions", fractions, shape=(segments,), low=0.0)
    scalars = _scalars(beta, gamma, epsilon)
    return _step(semantic * fractions, semantic[OUTPUT], places, attention, position, *scalars)


def torch_trajectory(
    network: Network,
    context: Context,
    beta: Tensor | float,
    *,
    steps: int,
    gamma: Tensor | float | None = None,
    epsilon: Tensor | float | None = None,
    semantic: Tensor | None = None,
) -> Tensor:
    """Semantic m^o of `steps` tokens, (..., steps, P), differentiable; float64.

    `semantic` replaces the network's weights by a float64 tensor (4, P, L) that may require a
    gradient; beta, gamma and epsilon are scalars. Raises TypeError or ValueError for a context
    that does not fit the network and for parameters out of range.
    """
    window, position = fitting(network, context)
    steps = check_integer("steps", steps, low=1)
    weights = torch.tensor(network.semantic)
    if semantic is not None:
        weights = check_tensor("semantic", semantic, shape=weights.shape)
        if weights.dtype != torch.float64:
            raise TypeError(f"semantic must be a float64 tensor, got {weights.dtype}")
    places = torch.tensor(network.position_overlaps())
    attention, linear = torch.tensor(window), weights * torch.tensor(network.fractions)
    gamma = network.gamma if gamma is None else gamma
    scalars = _scalars(beta, gamma, network.epsilon if epsilon is None else epsilon)
    if not network.bits and float(scalars[2]) > 0.0:
        raise ValueError(f"epsilon must be 0 without position bits, got {float(scalars[2])}")
    overlaps = []
    for place in range(position, position + steps):
        attention, overlap = _step(linear, weights[OUTPUT], places, attention, place, *scalars)
        overlaps.append(overlap)
    return torch.stack(overlaps, dim=-2)


def _step(
    linear: Tensor, output: Tensor, places: Tensor, attention: Tensor, position: int,
    beta: Tensor | float, gamma: Tensor | float, epsilon: Tensor | float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    hidden = torch.tanh(beta * (attention @ output))
    average = (1.0 - epsilon) * torch.einsum("ral,...tl->...tra", linear, hidden)
    positions = [(position - age) % len(places) for age in range(attention.shape[-2])]
    window = average + epsilon * places[positions]
    score = torch.einsum("...a,...ta->...t", window[..., 0, QUERY, :], window[..., KEY, :])
    weight = torch.softmax(gamma * score, dim=-1)
    newest = torch.einsum("...t,...ta->...a", weight, window[..., VALUE, :])
    following = torch.cat([newest[..., None, :], attention[..., :-1, :]], dim=-2)
    return following, average[..., 0, OUTPUT, :]


def _scalars(*values: Tensor | float) -> list[Tensor | float]:
    """Checked β, γ and ε."""
    checked: list[Tensor | float] = []
    for name, value, high in zip(
        ("beta", "gamma", "epsilon"), values, (None, None, 1.0), strict=True
    ):
        if isinstance(value, Tensor):
            checked.append(check_tensor(name, value, shape=(), low=0.0, high=high))
        else:
            checked.append(check_real(name, value, low=0.0, high=high))
    return checked

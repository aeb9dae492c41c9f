"""Checks at the door of the continuous memories: patterns, states, results that overflow."""

import math
from typing import Any

import torch

from spinformer.core.checks import check_broadcast, check_real, check_tensor
from spinformer.core.operators import is_traced


def check_patterns(patterns: Any) -> torch.Tensor:
    """Check the stored patterns of a continuous memory.

    Parameters
    ----------
    patterns : Tensor, shape (N, d)
        Stored patterns, one a row, with N and d at least 1.

    Returns
    -------
    Tensor, shape (N, d)
        The same tensor.

    Raises
    ------
    TypeError
        If they are not a floating-point tensor.
    ValueError
        If they are not a nonempty matrix or not finite.
    """
    return check_tensor("patterns", patterns, shape=("N", "d"))


def check_states(
    name: str, states: Any, *, patterns: torch.Tensor, finite: bool = True
) -> torch.Tensor:
    """Check states against the stored patterns of a continuous memory.

    Parameters
    ----------
    name : str
        Name of the argument, for the error.
    states : Tensor, shape (..., S, d), or (d,) for patterns without batch axes
        States, one a row.
    patterns : Tensor, shape (..., N, d)
        Patterns that the states must fit in width, dtype, device and batch axes.
    finite : bool, default True
        Whether their entries are looked at now, as in `check_tensor`.

    Returns
    -------
    Tensor, shape (..., d)
        The same tensor.

    Raises
    ------
    TypeError
        If the states are not a floating-point tensor, or differ from the patterns in dtype or
        device.
    ValueError
        If their width or batch axes do not fit the patterns, or they are not finite.
    """
    fitting = (..., patterns.shape[-1])
    states = check_tensor(name, states, like=("patterns", patterns), finite=finite, shape=fitting)
    if states.ndim == 1 and patterns.ndim > 2:
        # The weights of one state for B memories are a matrix, which would multiply each memory.
        raise ValueError(
            f"{name} must have an axis of states, (..., S, d), where patterns have batch axes, "
            f"{tuple(patterns.shape)}, got {tuple(states.shape)}"
        )
    if states.ndim > 2 and patterns.ndim > 2:
        check_broadcast(**{name: states.shape[:-2], "patterns": patterns.shape[:-2]})
    return states


def check_result(what: str, result: torch.Tensor, **unseen: torch.Tensor) -> torch.Tensor:
    """Check that a result has not overflowed its dtype.

    A compiler and the transforms of `torch.func` see no values. They receive a result that is not
    finite unchanged.

    Parameters
    ----------
    what : str
        Name of the result, for the error.
    result : Tensor, any shape
        A result of finite input.
    **unseen : Tensor
        Arguments whose entries have not been checked, because the result is finite only if they
        are. If it is not, or is empty, they are checked now, and the error names the one at
        fault.

    Returns
    -------
    Tensor, shape of the result
        The same tensor.

    Raises
    ------
    ValueError
        If an entry is not finite.
    """
    if is_traced():
        return result
    data = result.detach() if result.requires_grad else result
    # The sum is far faster than a check of each entry, and not finite unless all of them are.
    if math.isfinite(data.sum()) and (not unseen or data.numel()):
        return result
    for name, argument in unseen.items():
        check_tensor(name, argument)
    if bool(torch.isfinite(data).all()):
        return result
    raise ValueError(
        f"overflow in the {what}: beta, patterns or states are too large for {result.dtype}, "
        "or beta is too small"
    )


def check_beta(beta: Any) -> float:
    """Check an inverse temperature.

    Parameters
    ----------
    beta : float
        Inverse temperature, positive.

    Returns
    -------
    float
        The same number.

    Raises
    ------
    TypeError
        If it is not a real number.
    ValueError
        If it is not positive and finite.
    """
    return check_real("beta", beta, low=0.0, open_low=True)


def check_alpha(alpha: Any) -> float:
    """Check the index of the Tsallis entropy that separates patterns.

    Parameters
    ----------
    alpha : float
        Index α, 1 (softmax) or from 1.01 to 2 (sparsemax).

    Returns
    -------
    float
        The same number.

    Raises
    ------
    TypeError
        If it is not a real number.
    ValueError
        If it is out of range. Between 1 and 1.01 rounding would be amplified more than a
        hundredfold.
    """
    if type(alpha) is float and alpha == 1.0:
        return alpha
    alpha = check_real("alpha", alpha, low=1.0, high=2.0)
    if 1.0 < alpha < 1.01:
        raise ValueError(f"alpha must be 1 or in [1.01, 2.0], got {alpha}")
    return alpha

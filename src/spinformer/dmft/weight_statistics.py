"""Statistics of the attention weights along orbits of the mean field."""

from typing import Unpack

import numpy as np

from spinformer.core.checks import check_integer
from spinformer.core.records import record
from spinformer.dmft.ensemble import Parameters
from spinformer.dmft.mean_field import softmax_weights, token_overlaps, trajectory
from spinformer.dmft.network import AttentionNetwork, Context


@record
class AttentionStatistics:
    """Statistics of the attention weights along orbits, after their transient.

    Attributes
    ----------
    mean : ndarray, shape (..., T)
        Mean weight of a token by its age, the newest (the query) first.
    deviation : ndarray, shape (..., T)
        Standard deviation of the weights over the steps.
    entropy : ndarray, shape (...)
        Mean entropy of the weights in nats, at most ln T.
    effective : ndarray, shape (...)
        Mean effective number of tokens, the exponential of the entropy of each step.
    largest : ndarray, shape (...)
        Mean largest weight.
    """

    mean: np.ndarray
    deviation: np.ndarray
    entropy: np.ndarray
    effective: np.ndarray
    largest: np.ndarray


def attention_statistics(
    network: AttentionNetwork,
    context: Context,
    *,
    steps: int = 1000,
    transient: int = 1000,
    **parameters: Unpack[Parameters],
) -> AttentionStatistics:
    r"""Compute statistics of the attention weights along orbits of the mean field.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        Initial states, of one system or of a batch.
    steps : int, default 1000
        Number of steps that are averaged.
    transient : int, default 1000
        Number of steps that are dropped first.
    **parameters : Unpack[Parameters]
        The inverse temperatures `beta` and `gamma`, `epsilon` and `threads`, as in `Ensemble`.

    Returns
    -------
    AttentionStatistics
        Mean weights by age, their deviation, entropy and effective number of tokens.

    Raises
    ------
    ValueError
        If the context does not fit the network, or an argument is out of its range.

    Notes
    -----
    With the weights π_τ of the tokens in the window, the entropy and the effective number are

    .. math::

        S = -\sum_\tau \pi_\tau \ln \pi_\tau, \qquad n = e^{S} .

    References
    ----------
    [poclopez2024dynamical, Eqs. (14) and (16)]

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> network, start = Network.poclopez2024(), Context(np.zeros((4, 3)), 0)
    >>> found = attention_statistics(network, start, beta=1.0, gamma=0.0, steps=8)
    >>> found.mean, f"{found.effective:.3f}"
    (array([0.25, 0.25, 0.25, 0.25]), '4.000')
    """
    steps = check_integer("steps", steps, low=1)
    transient = check_integer("transient", transient, low=0)
    _, state = trajectory(network, context, steps=0, transient=transient, **parameters)
    beta = parameters["beta"]
    gamma = parameters.get("gamma")
    gamma = network.gamma if gamma is None else gamma
    total = np.zeros((*state.attention.shape[:-2], network.context))
    squares = np.zeros_like(total)
    entropy = np.zeros(total.shape[:-1])
    effective = np.zeros_like(entropy)
    largest = np.zeros_like(entropy)
    for _ in range(steps):
        window = token_overlaps(network, state, beta, epsilon=parameters.get("epsilon"))
        weights = softmax_weights(window, gamma=gamma)
        total += weights
        squares += weights**2
        # The weights of the softmax are positive; those that underflow add nothing.
        own = -(weights * np.log(np.maximum(weights, np.finfo(float).tiny))).sum(axis=-1)
        entropy += own
        effective += np.exp(own)
        largest += weights.max(axis=-1)
        _, state = trajectory(network, state, steps=0, transient=1, **parameters)
    mean = total / steps
    deviation = np.sqrt(np.maximum(squares / steps - mean**2, 0.0))
    return AttentionStatistics(
        mean=mean,
        deviation=deviation,
        entropy=entropy / steps,
        effective=effective / steps,
        largest=largest / steps,
    )

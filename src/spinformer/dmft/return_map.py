"""The mean field after a whole number of steps, with its exact derivatives.

`returned` pushes a batch of contexts and, with each, a frame of all T·P tangent vectors through
`steps` compiled steps: where the steps are the period of a cycle, the frame that comes back is the
monodromy matrix, whose eigenvalues are the Floquet multipliers. Vectors of the tangent space run
over age (newest first), then feature, as in `lyapunov.tangent_map`.
"""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import check_integer
from spinformer.dmft import kernels
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.kernels.lanes import LANES
from spinformer.dmft.kernels.stepping import Block, Clock
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context


def returned(
    network: Network,
    context: Context,
    *,
    beta: float | np.ndarray,
    steps: int,
    gamma: float | np.ndarray | None = None,
    epsilon: float | np.ndarray | None = None,
    threads: int | None = None,
) -> tuple[Context, np.ndarray]:
    """The context after `steps` steps, and its derivative (..., T·P, T·P) by the context before.

    beta, gamma, epsilon and the context broadcast as in `mean_field.trajectory`. Compiled; the
    product of `lyapunov.tangent_map` along `mean_field.step` is the plain reference.

    >>> end, matrix = returned(Network.document(), Context(np.zeros((4, 3)), 0), beta=1.2, steps=4)
    >>> end.position, matrix.shape
    (0, (12, 12))
    """
    steps = check_integer("steps", steps, low=1)
    ensemble = Ensemble(network, context, beta=beta, gamma=gamma, epsilon=epsilon, threads=threads)
    window, features = ensemble.window, ensemble.features
    dimension = window * features

    def task(block: Block, clock: Clock) -> tuple[Clock, tuple[np.ndarray, ...]]:
        frame = np.zeros((dimension, dimension, LANES))
        start = _ring(clock.cursor, window, features)
        frame[np.arange(dimension), start] = 1.0
        clock = kernels.push(steps, frame, block, clock)
        # frame[j, i] is the component i of the vector that began as axis j.
        return clock, (np.swapaxes(frame[:, _ring(clock.cursor, window, features)], 0, 1),)

    (matrix,) = ensemble.run(task)
    return ensemble.state(), matrix


def _ring(cursor: int, window: int, features: int) -> np.ndarray:
    """Where the components, by age and feature, lie in the ring of the kernels."""
    slots = (cursor - np.arange(window)) % window
    return np.asarray((slots[:, None] * features + np.arange(features)).ravel())

"""The closed curve on which the document's network moves quasi-periodically, and states on it."""

from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from compendium.common.phase_transitions import protocol_start
from spinformer.dmft.mean_field import trajectory
from spinformer.dmft.network import Context, Network

# Beside the closed curve lie other attractors, so it is followed from β to β in short steps.
_STRETCHES = ((1.2440, 1.2640, 2e-4), (1.2640, 1.2675, 5e-5), (1.2675, 1.267578, 2e-6))
_WALK = np.concatenate([np.arange(*stretch) for stretch in _STRETCHES])


@cache
def _anchors() -> Context:
    network, found = Network.document(), []
    start = protocol_start(network, steps=20_000)
    _, context = trajectory(network, start, beta=_WALK[0], steps=0, transient=100_000)
    for beta in _WALK:
        _, context = trajectory(network, context, beta=beta, steps=0, transient=6000, threads=1)
        found.append(context.attention)
    return Context(np.array(found), context.position)


def closed_curve(beta: ArrayLike, *, transient: int = 40_000) -> Context:
    """States on the closed curve at the inverse temperatures (n,), 1.2436 to 1.267578.

    `transient` steps at β from the nearest point, at or below it, of a walk upwards from 1.244.
    """
    betas = np.asarray(beta)
    start = _anchors().select(np.maximum(np.searchsorted(_WALK, betas + 1e-12) - 1, 0))
    return trajectory(Network.document(), start, beta=betas, steps=0, transient=transient)[1]

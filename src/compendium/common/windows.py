"""Five motions of the document's network, and windows on their attractors to begin from."""

import numpy as np

from compendium.common.phase_transitions import protocol_start
from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.finite_size import mean_path, window_of_context
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Context, Network

# Inverse temperature; tokens after which transients are over; tokens between two starts.
MOTIONS: dict[str, tuple[float, int, int]] = {
    "driven": (0.5, 2000, 1),
    "periodic": (1.27, 20_000, 3),
    "quasi-periodic": (1.255, 3000, 137),
    "chaos at 1.266": (1.266, 60, 0),
    "chaos at 1.28": (1.28, 60, 0),
}


def settled_start(
    network: Network, beta: float, context: Context, *, settle: int, look: int = 120
) -> tuple[np.ndarray, int]:
    """A well-defined point of an attractor to start paths from: window (T, L), its position.

    Contexts are followed for `settle` tokens and for `look` more. Of the largest m^o_1 that is
    reached most often (the most common attractor) the start is the window whose newest token has
    it, the same on every machine.
    """
    overlaps, _ = trajectory(network, context, beta=beta, steps=look, transient=settle)
    # Points that agree to seven digits are one point.
    heights = np.round(overlaps.reshape(-1, look, network.features)[..., 0], 7)
    peaks, times = np.unique(heights.max(axis=1), return_counts=True)
    best = peaks[::-1][np.argmax(times[::-1])]
    run, token = np.argwhere(heights == best)[0]
    attention = context.attention.reshape(-1, network.context, network.features)[run]
    single, ahead = Context(attention=attention, position=context.position), settle + int(token)
    if ahead > 0:
        # A run of n tokens ends in the context whose newest token is token n, not yet recorded.
        _, single = trajectory(network, single, beta=beta, steps=1, transient=ahead - 1)
    return window_of_context(network, single, beta=beta), single.position


def message_start(network: Network, motion: str, *, number: int) -> tuple[np.ndarray, int]:
    """A window (T, L) on the attractor of a motion and its position, `number` of many.

    The same on every machine: starts lie along one orbit where motion is regular; in chaos each has
    its own random context, followed for 60 tokens. Windows are rounded to eight digits.
    """
    beta, settle, between = MOTIONS[motion]
    if motion in ("driven", "quasi-periodic"):
        origin = protocol_start(network, steps=2000)
    else:
        seed, count = (0, 32) if between else (number, 1)
        origin = random_contexts(network, seed, count=count)
    look = 120 if between else 1
    window, position = settled_start(network, beta, origin, settle=settle, look=look)
    ahead = number * between
    path = mean_path(network, beta, window=window, steps=ahead, position=position)
    return np.round(path[ahead:], 8), (position + ahead) % network.positions


def replicas(context: Context, *, count: int, size: float = 1e-10, seed: Seed = 0) -> Context:
    """`count` copies of one context (T, P), each moved by normal noise of deviation `size`."""
    noise = numpy_generator(seed).standard_normal((count, *context.attention.shape))
    return Context(context.attention + size * noise, context.position)

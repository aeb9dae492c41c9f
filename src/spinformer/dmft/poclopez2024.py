"""Motions of the network of [poclopez2024dynamical], and states on its attractors.

The functions give the same states on every machine: starts are rounded or drawn, and the compiled
steps do not depend on the processor.
"""

from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from spinformer.core.checks import check_array, check_choice, check_integer
from spinformer.core.random import Seed
from spinformer.core.records import record
from spinformer.dmft.finite_size import mean_path, window_of_context
from spinformer.dmft.mean_field import poclopez2024_context, random_contexts, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.settling import settled_contexts, settled_window

# Ranges of β of the paper's two orbit diagrams, and the number of values of β in each.
DIAGRAMS = {"wide": (0.0, 3.0), "zoom": (1.24, 1.28)}
DIAGRAM_VALUES = 4001


@record
class Motion:
    """Motion of the example network.

    Attributes
    ----------
    beta : float
        Inverse temperature β of the tokens.
    relaxation : float
        Relaxation time, in tokens in which random contexts come e times nearer to the attractor, as
        measured by `python -m bookmaker table 33_phase_transitions relaxation`; of the driven cycle
        it is 1/|λ₁|.
    transient : int
        Number of tokens after which transients are over, eight relaxation times or more.
    spacing : int
        Number of tokens between two starts on one orbit, 0 where each has an orbit of its own.
    """

    beta: float
    relaxation: float
    transient: int
    spacing: int


MOTIONS = {
    "driven": Motion(beta=0.5, relaxation=3.1, transient=2000, spacing=1),
    "periodic": Motion(beta=1.27, relaxation=1900.0, transient=20_000, spacing=3),
    "quasi-periodic": Motion(beta=1.255, relaxation=290.0, transient=3000, spacing=137),
    "chaos at 1.266": Motion(beta=1.266, relaxation=520.0, transient=4160, spacing=0),
    "chaos at 1.28": Motion(beta=1.28, relaxation=27.0, transient=216, spacing=0),
}
# Tokens over which the largest overlap of an attractor is looked for.
_LOOK = 120
# Decimals to which windows are rounded.
_DECIMALS = 8
# Beside the closed curve lie other attractors, so it is followed from β to β in short steps.
_STRETCHES = ((1.2440, 1.2640, 2e-4), (1.2640, 1.2675, 5e-5), (1.2675, 1.267578, 2e-6))
_WALK = np.concatenate([np.arange(*stretch) for stretch in _STRETCHES])
_WALK_STEPS = 6000


def chaotic_contexts(network: Network, motion: str, *, seed: Seed, count: int) -> Context:
    """Draw contexts on the attractor of a chaotic motion.

    Parameters
    ----------
    network : Network
        The example network, or one like it.
    motion : str
        Name of the motion, a key of `MOTIONS`.
    seed : Seed
        Seed or random generator of the random contexts.
    count : int
        Number of contexts.

    Returns
    -------
    Context
        Contexts on the attractor, attention of shape (count, T, P), the same on every machine.

    Raises
    ------
    ValueError
        If `motion` is none of `MOTIONS`, or `count` is below 1.

    Examples
    --------
    >>> chaotic_contexts(Network.poclopez2024(), "chaos at 1.28", seed=0, count=2).attention.shape
    (2, 4, 3)
    """
    check_choice("motion", motion, tuple(MOTIONS))
    chosen = MOTIONS[motion]
    starts = random_contexts(network, seed, count=count)
    return settled_contexts(
        network,
        starts,
        beta=chosen.beta,
        relaxation=chosen.relaxation,
        multiple=chosen.transient / chosen.relaxation,
    )


def attractor_window(network: Network, motion: str, *, number: int) -> tuple[np.ndarray, int]:
    """Return one of many windows on the attractor of a motion.

    Where the motion is regular, the windows lie along one orbit. In chaos each has its own random
    context. Windows are rounded to eight decimals and the same on every machine.

    Parameters
    ----------
    network : Network
        The example network, or one like it.
    motion : str
        Name of the motion, a key of `MOTIONS`.
    number : int
        Number of the window, from 0.

    Returns
    -------
    window : ndarray, shape (T, L)
        Segment means of the tokens, the oldest first.
    position : int
        Position of the newest token.

    Raises
    ------
    ValueError
        If `motion` is none of `MOTIONS`, or `number` is negative.

    Examples
    --------
    >>> window, position = attractor_window(Network.poclopez2024(), "driven", number=0)
    >>> window.shape
    (4, 3)
    """
    check_choice("motion", motion, tuple(MOTIONS))
    number = check_integer("number", number, low=0)
    chosen = MOTIONS[motion]
    if not chosen.spacing:
        context = chaotic_contexts(network, motion, seed=number, count=1).select(0)
        window = window_of_context(network, context, beta=chosen.beta)
        return np.round(window, _DECIMALS), context.position
    if motion == "periodic":
        origin = random_contexts(network, 0, count=32)
    else:
        origin = poclopez2024_context(network, steps=2000, decimals=_DECIMALS)
    window, position = settled_window(
        network, chosen.beta, context=origin, transient=chosen.transient, steps=_LOOK
    )
    ahead = number * chosen.spacing
    path = mean_path(network, chosen.beta, window=window, steps=ahead, position=position)
    return np.round(path[ahead:], _DECIMALS), (position + ahead) % network.positions


@cache
def _anchors() -> Context:
    """Contexts on the closed curve at every β of the walk."""
    network = Network.poclopez2024()
    start = poclopez2024_context(network, steps=20_000, decimals=_DECIMALS)
    _, context = trajectory(network, start, beta=_WALK[0], steps=0, transient=100_000)
    visited = []
    for beta in _WALK:
        _, context = trajectory(
            network, context, beta=beta, steps=0, transient=_WALK_STEPS, threads=1
        )
        visited.append(context.attention)
    return Context(np.array(visited), context.position)


def closed_curve(beta: ArrayLike, *, transient: int = 40_000) -> Context:
    """Return states on the closed curve of the quasi-periodic motion of the example network.

    They are reached from the nearest point, at or below β, of a walk upwards from β = 1.244.

    Parameters
    ----------
    beta : array_like, shape (n,)
        Inverse temperatures, 1.2436 to 1.267578.
    transient : int, default 40000
        Number of steps at β from the point of the walk.

    Returns
    -------
    Context
        Contexts, attention of shape (n, T, P).

    Raises
    ------
    ValueError
        If `beta` has another number of axes than one.

    Examples
    --------
    >>> closed_curve([1.2441], transient=100).attention.shape
    (1, 4, 3)
    """
    betas = check_array("beta", beta, shape=("n",))
    nearest = np.maximum(np.searchsorted(_WALK, betas + 1e-12) - 1, 0)
    start = _anchors().select(nearest)
    return trajectory(Network.poclopez2024(), start, beta=betas, steps=0, transient=transient)[1]

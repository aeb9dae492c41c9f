"""Five motions of the document's network, and windows on their attractors to begin from."""

from pathlib import Path

import numpy as np

from bookmaker.tables import read_columns
from compendium.common.phase_transitions import protocol_start
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate
from spinformer.dmft.finite_size import mean_path, window_of_context
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.settling import settled_contexts

# Tokens in which random contexts come e times nearer to the attractor, as measured by
# `python -m bookmaker table 33_phase_transitions relaxation`; of the driven cycle 1/|λ₁|.
RELAXATION = {
    "driven": 3.1,
    "periodic": 1900.0,
    "quasi-periodic": 290.0,
    "chaos at 1.266": 520.0,
    "chaos at 1.28": 27.0,
}
# Inverse temperature; tokens after which transients are over, eight relaxation times or more;
# tokens between two starts on one orbit, 0 where each has an orbit of its own.
MOTIONS: dict[str, tuple[float, int, int]] = {
    "driven": (0.5, 2000, 1),
    "periodic": (1.27, 20_000, 3),
    "quasi-periodic": (1.255, 3000, 137),
    "chaos at 1.266": (1.266, 4160, 0),
    "chaos at 1.28": (1.28, 216, 0),
}
_EXPONENTS = Path(__file__).parents[1] / "c33_phase_transitions" / "exponents.csv"


def exponent_of_chaos(beta: float) -> Estimate:
    """The converged leading exponent at β = 1.266, 1.28 or 1.4, nats a token, with its error."""
    table = read_columns(_EXPONENTS)
    here = table["beta"] == beta
    if not here.any():
        raise ValueError(f"beta must be one of {np.unique(table['beta'])}, got {beta}")
    weight = table["contexts"][here] / table["contexts"][here].sum()
    value = weight @ table["exponent"][here]
    error = np.sqrt(weight**2 @ table["exponent_error"][here] ** 2)
    return Estimate(value=value, error=error, samples=int(table["contexts"][here].sum()))


def chaotic_contexts(network: Network, motion: str, *, seed: Seed, count: int) -> Context:
    """Contexts (count,) on the attractor of a chaotic motion, the same on every machine."""
    starts = random_contexts(network, seed, count=count)
    beta, settle, _ = MOTIONS[motion]
    return settled_contexts(
        network,
        starts,
        beta=beta,
        relaxation=RELAXATION[motion],
        multiple=settle / RELAXATION[motion],
    )


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
    its own random context. Windows are rounded to eight digits.
    """
    beta, settle, between = MOTIONS[motion]
    if not between:
        context = chaotic_contexts(network, motion, seed=number, count=1).select(0)
        return np.round(window_of_context(network, context, beta=beta), 8), context.position
    if motion == "periodic":
        origin = random_contexts(network, 0, count=32)
    else:
        origin = protocol_start(network, steps=2000)
    window, position = settled_start(network, beta, origin, settle=settle, look=120)
    ahead = number * between
    path = mean_path(network, beta, window=window, steps=ahead, position=position)
    return np.round(path[ahead:], 8), (position + ahead) % network.positions


def replicas(context: Context, *, count: int, size: float = 1e-10, seed: Seed = 0) -> Context:
    """`count` copies of one context (T, P), each moved by normal noise of deviation `size`."""
    noise = numpy_generator(seed).standard_normal((count, *context.attention.shape))
    return Context(context.attention + size * noise, context.position)

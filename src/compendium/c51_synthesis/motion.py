"""Attention to three keys with values turned by an angle, fed back into itself."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import softmax

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.records import record


@record
class Motion:
    """Where attention fed back into itself goes: speed |ξ' − ξ| and turns a step, late means."""

    speed: np.ndarray
    turns: np.ndarray


def turned(keys: np.ndarray, *, degrees: float) -> np.ndarray:
    """Keys (n, 2) turned about the origin, anticlockwise.

    >>> turned(np.array([[1.0, 0.0]]), degrees=90.0).round(3) + 0.0
    array([[0., 1.]])
    """
    angle = math.radians(check_real("degrees", degrees))
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    return check_array("keys", keys, ndim=2) @ turn


def three_keys() -> np.ndarray:
    """Three unit keys in the plane, 120 degrees apart.

    >>> three_keys().sum(0).round(12) + 0.0
    array([0., 0.])
    """
    angle = 2 * np.pi / 3 * np.arange(3)
    return np.stack([np.cos(angle), np.sin(angle)], 1)


def late_motion(
    betas: np.ndarray, *, degrees: np.ndarray, steps: int = 400, kept: int = 200
) -> Motion:
    """Attention to the three keys with values turned by `degrees`, iterated from near a key.

    betas and degrees broadcast; speed and turns are means over the last `kept` of `steps`.

    >>> found = late_motion(np.array(6.0), degrees=np.array([0.0, 120.0]))
    >>> print(found.turns.round(3) + 0.0, found.speed.round(1))
    [0.    0.333] [0.  1.7]
    """
    betas, degrees = np.broadcast_arrays(betas, degrees)
    steps = check_integer("steps", steps, low=2)
    kept = check_integer("kept", kept, low=1, high=steps - 1)
    keys = three_keys() @ np.array([1.0, 1.0j])
    turn = np.exp(1j * np.radians(degrees))
    state = np.full(betas.shape, keys[0] * np.exp(0.1j)) * turn
    speed, turns = np.zeros(betas.shape), np.zeros(betas.shape)
    for step in range(steps):
        scores = betas[..., None] * (state[..., None] * keys.conj()).real
        following = turn * (softmax(scores, axis=-1) @ keys)
        if step >= steps - kept:
            speed += np.abs(following - state) / kept
            turns += np.angle(following * state.conj()) / (2 * np.pi * kept)
        state = following
    return Motion(speed=speed, turns=turns)


def rest_edge(beta: float) -> float:
    """Largest angle in degrees by which values may be turned and attention still rests near a key.

    A rest r e^{iθ} needs g = Σ_i p_i x_i of length r, and then the angle is θ − arg g: for every θ
    the length is found by iteration, and the edge is the largest angle of all θ below 60 degrees.

    >>> f"{rest_edge(8.0):.2f}"
    '44.15'
    """
    beta = check_real("beta", beta, low=0.0)
    keys = three_keys() @ np.array([1.0, 1.0j])
    direction = np.exp(1j * np.radians(np.linspace(0.0, 60.0, 601)))
    length = np.ones(len(direction))
    for _ in range(300):
        scores = beta * (length[:, None] * direction[:, None] * keys.conj()).real
        seen = softmax(scores, axis=-1) @ keys
        length = np.abs(seen)
    return float(np.degrees(np.angle(direction * seen.conj())).max())

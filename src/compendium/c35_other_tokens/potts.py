"""The simplest network of letters in closed form: one feature, and values that are the outputs.

With one Potts feature, named letter ξ in every site, all tokens of a window are equal at rest, so
that attention returns the overlap itself, whatever γ and T. With x the logit of the named letter
over the others and β in units of features of variance 1 (`letters`),

    A = (e^x − 1) / (e^x + q − 1),    x = β q A ,

the mean-field Potts model (Wu 1982). The disordered state A = 0 gives way at β = 1. For q = 2 the
state grows continuously from there; for q > 2 it exists below β = 1 already, and the network jumps.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from spinformer.core.checks import check_array, check_integer
from spinformer.dmft.letters import LetterNetwork


def one_feature(letters: int, *, context: int = 1) -> LetterNetwork:
    """The network with P = L = 1 and the same letter for outputs, values, queries and keys.

    Its γ is q − 1, 1 in units of features of variance 1; there is no position.

    >>> one_feature(3).semantic[0, 0, 0]
    array([ 1. , -0.5, -0.5])
    """
    letters = check_integer("letters", letters, low=2)
    return LetterNetwork.potts(
        np.zeros((4, 1, 1)),
        letters=letters,
        position=np.zeros((4, 1, 0)),
        context=context,
        gamma=letters - 1.0,
        epsilon=0.0,
    )


def ordered_branch(logit: np.ndarray, *, letters: int) -> tuple[np.ndarray, np.ndarray]:
    """β and A of the states at rest with logit x > 0.

    >>> beta, overlap = ordered_branch(np.array([np.log(4.0)]), letters=3)
    >>> f"{beta[0]:.4f} {overlap[0]:.4f}"  # β = ln 4 / (3 · 1/2)
    '0.9242 0.5000'
    """
    logit = check_array("logit", logit, low=0.0, open_low=True)
    letters = check_integer("letters", letters, low=2)
    overlap = -np.expm1(-logit) / (1.0 + (letters - 1) * np.exp(-logit))
    return logit / (letters * overlap), overlap


def limit_of_order(letters: int) -> tuple[float, float]:
    """The lowest β with an ordered state, and its A: (1, 0) for two letters.

    >>> "{:.4f} {:.4f}".format(*limit_of_order(3))
    '0.9152 0.3772'
    """
    letters = check_integer("letters", letters, low=2)
    if letters == 2:
        return 1.0, 0.0
    found = minimize_scalar(
        lambda x: float(ordered_branch(np.array(x), letters=letters)[0]),
        bounds=(1e-3, 40.0),
        method="bounded",
        options={"xatol": 1e-10},
    )
    beta, overlap = ordered_branch(np.array(found.x), letters=letters)
    return float(beta), float(overlap)

"""Onset of a large random network: eigenvalues of ⟨W^v W^o⟩ when P and L grow together.

C = W^v W^{o⊤}/L has independent fair signs in both factors. For P, L → ∞ at a fixed ratio
c = P/L ≤ 1 it is R-diagonal: its eigenvalues have uniform phases, and the share of moduli below r
is F(r) with F⁻¹(t)² = 1/S(t − 1) (Haagerup and Larsen 2000), S the S-transform of C C^⊤. That of
W W^⊤/L is 1/(1 + c y), of W^⊤ W/L it is 1/(c + y); freeness multiplies; and from L × L to
P × P gives S(y) = 1/(c (1 + y)(1 + c y)), so that

    r² = c t (1 − c + c t) .

At t = 1 the rim r = √c = √(P/L). For c → 0 the disk is filled evenly, t = r²/c, the circular law;
for c = 1 the moduli themselves are even, t = r.

The closed-form onset (`dmft.onset`) reads β|μ| = ρ(arg μ), ρ ≥ 1 with equality for μ > 0 only.
If the P eigenvalues were independent draws from this law, β_c √c > x would have the probability
e^{−n(x)}, n(x) = P ∫ dφ/2π [1 − F(√c ρ(φ)/x)], and the median would be where n = ln 2. It tends to
1, as P^{−2/3}. Left out are repulsion and the some √P real eigenvalues of a real matrix.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from spinformer.core.checks import check_array, check_integer, check_real
from spinformer.core.random import Seed, numpy_generator


def radial_share(radius: np.ndarray, *, ratio: float) -> np.ndarray:
    """F(r), the share of eigenvalues of modulus below r at P/L = `ratio` in (0, 1].

    >>> radial_share(np.array([0.5, 1.0, 2.0]), ratio=1.0)
    array([0.5, 1. , 1. ])
    """
    radius = check_array("radius", radius, low=0.0)
    c = check_real("ratio", ratio, low=1e-9, high=1.0)
    root = np.sqrt((1.0 - c) ** 2 + 4.0 * radius**2)
    return np.minimum((root - (1.0 - c)) / (2.0 * c), 1.0)


def turning_gain(angle: np.ndarray, *, context: int) -> np.ndarray:
    """ρ, the gain β|μ| at which an eigenvalue of phase `angle` in [0, π] reaches the unit circle.

    >>> turning_gain(np.array([0.0, np.pi]), context=4)
    array([1., 4.])
    """
    turn = check_array("angle", angle, low=0.0, high=np.pi) / (context + 1)
    return np.asarray(np.sinc(turn / np.pi) / np.sinc(context * turn / np.pi))


def sample_eigenvalues(*, features: int, segments: int, count: int, seed: Seed) -> np.ndarray:
    """Eigenvalues of ⟨W^v W^o⟩ of `count` networks with fair signs, (count, P), complex.

    >>> sample_eigenvalues(features=2, segments=4, count=3, seed=0).shape
    (3, 2)
    """
    rng = numpy_generator(seed)
    signs = rng.choice((-1.0, 1.0), size=(2, count, features, segments))
    return np.linalg.eigvals(signs[0] @ np.swapaxes(signs[1], 1, 2) / segments).astype(complex)


def scaled_onsets(
    *, features: int, segments: int, context: int, count: int, seed: Seed
) -> np.ndarray:
    """β_c √(P/L) of `count` random networks at ε = 0, (count,), from the closed form.

    >>> scaled_onsets(features=8, segments=8, context=4, count=3, seed=0).shape
    (3,)
    """
    mu = sample_eigenvalues(features=features, segments=segments, count=count, seed=seed)
    gain = turning_gain(np.abs(np.angle(mu)), context=context)
    with np.errstate(divide="ignore"):
        return np.asarray((gain / np.abs(mu)).min(axis=1) * np.sqrt(features / segments))


def median_onset(*, features: int, ratio: float, context: int, points: int = 2000) -> float:
    """Median of β_c √(P/L) if the eigenvalues were independent draws from the limiting law.

    >>> large, larger = (median_onset(features=p, ratio=1.0, context=4) for p in (100, 10_000))
    >>> 1.0 < larger < large < 1.2
    True
    """
    features = check_integer("features", features, low=1)
    angle = np.pi * (np.arange(points) + 0.5) / points
    gain = turning_gain(angle, context=context)

    def excess(x: float) -> float:
        outside = 1.0 - radial_share(np.sqrt(ratio) * gain / x, ratio=ratio)
        return float(features * outside.mean() - np.log(2.0))

    return float(brentq(excess, 1.0, 1e4))

"""What an orbit leaves behind without being stored: histograms, averages, the period."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from spinformer.dmft.kernels.arithmetic import fma
from spinformer.dmft.kernels.compiling import kernel
from spinformer.dmft.kernels.lanes import LANES
from spinformer.dmft.kernels.stepping import output, step


class Tally(NamedTuple):
    """What `survey` counts, and where it writes.

    histogram, section: (W, bins) visits of m^o_observed in [−1, 1], the second only where
        |m^o_plane| < tolerance.
    sums: (2, P, W). Step n adds window[n'] m^o to sums[half], where half and n' say where in two
        stretches of window.size steps it falls.
    """

    histogram: np.ndarray
    section: np.ndarray
    sums: np.ndarray
    window: np.ndarray
    observed: int
    plane: int
    tolerance: float


@kernel
def survey(steps, tally, block, clock):
    """Histograms and weighted Birkhoff sums over `steps` steps, in constant memory."""
    histogram, section, sums, window = tally.histogram, tally.section, tally.sums, tally.window
    observed, plane, tolerance = tally.observed, tally.plane, tally.tolerance
    features, bins = block.attention.shape[1], histogram.shape[1]
    overlap = np.empty((features, LANES))
    for n in range(steps):
        clock = step(block, clock)
        half = 0 if n < window.size else 1
        w = window[n - half * window.size] if n < 2 * window.size else 0.0
        for a in range(features):
            output(block, a, overlap[a])
            for j in range(LANES):
                sums[half, a, j] = fma(w, overlap[a, j], sums[half, a, j])
        for j in range(LANES):
            i = int((overlap[observed, j] + 1.0) * (0.5 * bins))
            i = i if i < bins else bins - 1
            histogram[j, i] += 1
            if abs(overlap[plane, j]) < tolerance:
                section[j, i] += 1
    return clock


@kernel
def smallest_period(orbit, largest, distance):
    """Smallest p ≤ `largest` with |orbit[n + p] − orbit[n]| ≤ distance for all n, or 0.

    orbit: (steps, P). The comparison covers all the steps there are.
    """
    steps, features = orbit.shape
    for p in range(1, largest + 1):
        same = True
        for n in range(steps - p - 1, -1, -1):
            for a in range(features):
                if abs(orbit[n + p, a] - orbit[n, a]) > distance:
                    same = False
            if not same:
                break
        if same:
            return p
    return 0

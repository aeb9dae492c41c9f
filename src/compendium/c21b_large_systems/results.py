"""What the stored tables say, and unrolled networks beside state evolution (chapter 21b)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compendium.c21b_large_systems.errors import BETAS, ERRORS, THEORIES
from compendium.c21b_large_systems.overlaps import OVERLAPS
from spinformer.core.checks import check_integer, check_real
from spinformer.core.records import record
from spinformer.core.statistics import Estimate, fit_power, mean_estimate
from spinformer.spins.ising.couplings import sherrington_kirkpatrick
from spinformer.spins.ising.message_passing import state_evolution, unrolled_tap
from spinformer.spins.ising.replica_symmetric import glass_state

# Successive layers whose spins differ by less, on average, have stopped changing.
_STILL = 1e-6


@record
class Fall:
    """Squared errors of one theory for one kind of couplings: (sizes,), and their exponent."""

    sizes: np.ndarray
    value: np.ndarray
    error: np.ndarray
    slope: Estimate


def fall_of_errors() -> dict[tuple[str, str], Fall]:
    """Means over systems of the stored squared errors, by (kind, theory), with their exponents.

    The exponent is a weighted fit over all sizes; sizes whose mean is not above its error, which
    a logarithm cannot show, are left out of the fit. Where the means scatter about the line by more
    than their errors, from few systems, say, the error of the exponent is larger by as much.

    >>> fall_of_errors()["gaussian", "naive"].slope.value > -0.3
    True
    """
    table = ERRORS.read()
    found = {}
    for kind in BETAS:
        sizes = np.unique(table["size"][table["kind"] == kind])
        for theory in THEORIES:
            means = [
                mean_estimate(table[theory][(table["kind"] == kind) & (table["size"] == n)])
                for n in sizes
            ]
            value, error = np.array([(m.value, m.error) for m in means]).T
            keep = value > error
            fit = fit_power(sizes[keep], values=value[keep], errors=error[keep])
            slope = Estimate(
                value=fit.slope.value,
                error=float(fit.slope.error) * max(1.0, fit.chi2**0.5),
                samples=fit.slope.samples,
            )
            found[kind, theory] = Fall(sizes=sizes, value=value, error=error, slope=slope)
    return found


def glass_susceptibilities() -> dict[float, dict[int, Estimate]]:
    """Mean over systems of the stored susceptibilities of the glass, by β and size.

    >>> sorted(glass_susceptibilities()) == [0.8, 1.0, 2.0, 3.0]
    True
    """
    table = OVERLAPS.read()
    return {
        float(beta): {
            int(n): mean_estimate(
                table["susceptibility"][(table["beta"] == beta) & (table["size"] == n)]
            )
            for n in np.unique(table["size"])
        }
        for beta in np.unique(table["beta"])
    }


def growth(values: Mapping[int, Estimate]) -> Estimate:
    """The exponent with which positive values grow with the size, a weighted fit.

    >>> one = {n: Estimate(value=2.0 * n, error=0.1, samples=9) for n in (8, 16, 32)}
    >>> f"{growth(one).value:.2f}"
    '1.00'
    """
    return fit_power(
        list(values),
        values=[float(v.value) for v in values.values()],
        errors=[float(v.error) for v in values.values()],
    ).slope


@record
class LayerDistances:
    """Root mean square distance of successive layers, (layers,), measured and foretold.

    factor: how much it shrinks a layer, fitted over the layers that are neither near the start
    nor near rounding; theory: the root of the stability number.
    """

    measured: np.ndarray
    foretold: np.ndarray
    factor: float
    theory: float


def layer_distances(
    size: int, *, beta: float, field_std: float, layers: int, systems: int, seed: int
) -> LayerDistances:
    """Unrolled TAP with the memory one layer back, over Gaussian systems, and state evolution.

    Raises ValueError or TypeError for bad input.

    >>> found = layer_distances(200, beta=0.6, field_std=0.5, layers=12, systems=2, seed=0)
    >>> abs(found.factor - found.theory) < 0.1
    True
    """
    layers = check_integer("layers", layers, low=8)
    paths = _paths(size, beta, field_std, layers, systems, seed, "before")
    measured = np.sqrt(np.mean([(np.diff(p, axis=0) ** 2).mean(1) for p in paths], axis=0))
    square, pair = state_evolution(layers, beta=beta, field_std=field_std)
    foretold = np.sqrt(np.maximum(square[1:] + square[:-1] - 2 * pair[1:], 0.0))
    first, last = layers // 4, layers - 1
    factor = (measured[last] / measured[first]) ** (1 / (last - first))
    theory = float(np.sqrt(glass_state(beta, field_std=field_std).stability))
    return LayerDistances(measured=measured, foretold=foretold, factor=float(factor), theory=theory)


def convergence(
    size: int, *, beta: float, field_std: float, systems: int, memory: str, seed: int
) -> float:
    """Share of Gaussian systems whose layers stop changing within 300, to 1e-6.

    >>> convergence(100, beta=0.2, field_std=0.5, systems=2, memory="before", seed=0)
    1.0
    """
    paths = _paths(size, beta, field_std, 300, systems, seed, memory)
    moved = [np.sqrt(np.mean((path[-1] - path[-2]) ** 2)) for path in paths]
    return float(np.mean(np.array(moved) < _STILL))


def _paths(
    size: int, beta: float, field_std: float, layers: int, systems: int, seed: int, memory: str
) -> list[np.ndarray]:
    check_real("field_std", field_std, low=0.0)
    couplings, fields = sherrington_kirkpatrick(size, seed=seed, count=systems, field_std=field_std)
    return [
        unrolled_tap(j, fields=h, beta=beta, layers=layers, memory=memory)
        for j, h in zip(couplings, fields, strict=True)
    ]

"""What a cycle costs: Newton's method with pushed tangents, against a plain root finder.

    python benchmarks/cycles.py

Rows: the driven cycle of 4 steps and the locked ones of 16 and 44, each from a start 1e-3 off, by
`cycle` and by `scipy.optimize.fsolve` on the plain step, whose derivatives are
differences. Medians of processor time; both must end on the same cycle.
"""

import time
from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.optimize import fsolve

from spinformer.dmft.cycles import find_cycle
from spinformer.dmft.mean_field import step
from spinformer.dmft.network import Context, Network
from spinformer.dmft.poclopez2024 import closed_curve


def median(action: Callable[[], np.ndarray], repeats: int) -> tuple[float, np.ndarray]:
    """Milliseconds of processor time, and what the action returns."""
    times = []
    result = action()
    for _ in range(repeats):
        begin = time.process_time()
        result = action()
        times.append(1e3 * (time.process_time() - begin))
    return float(np.median(times)), result


def newton(start: Context, beta: float, period: int, network: Network) -> np.ndarray:
    """The cycle by the package."""
    return find_cycle(network, start, beta=beta, period=period).value.attention.ravel()


def plainly(start: Context, beta: float, period: int, network: Network) -> np.ndarray:
    """The cycle by a library's root finder on the plain step."""

    def gap(x: np.ndarray) -> np.ndarray:
        context = Context(x.reshape(start.attention.shape), start.position)
        for _ in range(period):
            context, _ = step(network, context, beta)
        return context.attention.ravel() - x

    return np.asarray(fsolve(gap, start.attention.ravel(), xtol=1e-12))


def main() -> None:
    """Print one row a cycle."""
    network = Network.poclopez2024()
    zero = Context(np.zeros((4, 3)), 0)
    cases = [("driven", 1.26, 4, find_cycle(network, zero, beta=1.26, period=4).value)]
    for beta, period in ((1.25, 16), (1.2646, 44)):
        cases.append(("locked", beta, period, closed_curve([beta]).select(0)))
    print("cycle            Newton, ms    fsolve, ms    apart")
    for name, beta, period, state in cases:
        start = Context(
            state.attention + 1e-3 * np.sin(np.arange(12)).reshape(4, 3), state.position
        )
        ours, one = median(partial(newton, start, beta, period, network), 15)
        plain, other = median(partial(plainly, start, beta, period, network), 3)
        print(
            f"{name} {period:3d} at {beta:<6g} {ours:8.1f} {plain:13.1f}    "
            f"{np.abs(one - other).max():.1e}"
        )


if __name__ == "__main__":
    main()

"""Tables of settings of C11 and C12.

The tables `confirm_…` were drawn after the regions of their rows had been written, from
other starts.
"""

import numpy as np
from scipy.signal import periodogram

from bookmaker.tables import Rows, stored
from compendium.c34_memory_beyond_window.messages import measured_information, message_direction
from compendium.c34_memory_beyond_window.study import (
    LONGEST,
    STRENGTH,
    autocorrelation,
    forgotten_at,
    ladder,
    memory_times_table,
)
from compendium.common.rows import mean_rows, median_rows, numbered, parameter_product
from spinformer.dmft.finite_size import window_of_context
from spinformer.dmft.mean_field import poclopez2024_context, random_contexts, trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.poclopez2024 import MOTIONS
from spinformer.dmft.settling import perturbed_replicas

# Tokens that a window holds.
_WINDOW = 4


def _visible(motion: str, measured: np.ndarray) -> Rows:
    """The line for memory times (starts,), −1 where longer than was looked at."""
    longest = float(LONGEST.get(motion, 1024))
    times = np.where(measured < 0, longest, measured)
    return median_rows(np.log(np.maximum(times, 0.5) / _WINDOW))


@stored(
    "settings_C12",
    [
        {"data": f"{motion} {size}", "motion": motion, "beta": chosen.beta, "size": size}
        for motion, chosen in MOTIONS.items()
        for size in np.unique(memory_times_table.read()["size"]).tolist()
    ],
    seconds=0.1,
)
def settings_c12(data: str, motion: str, beta: float, size: int) -> Rows:
    """ln of the tokens for which a message is visible over those of a window; ten starts."""
    table = memory_times_table.read()
    here = (table["motion"] == motion) & (table["size"] == size)
    return _visible(motion, table["measured"][here])


# Inverse temperatures of other motions than those of `MOTIONS`, which end the region of C12, and
# tokens that a message is followed for.
_FRESH = {
    "driven": (0.5, 0.8, 1.1),
    "quasi-periodic": (1.246, 1.2595),
    "periodic": (1.27,),
    "chaos": (1.32, 1.4),
}
_FOLLOWED = 64


@stored(
    "confirm_C12",
    numbered(
        [
            {"motion": motion, "beta": beta, "size": size}
            for motion, betas in _FRESH.items()
            for beta in betas
            for size in (300_000, 3_000_000, 300_000_000)
        ],
        first=300,
    ),
    small={"data": 300, "motion": "driven", "beta": 0.5, "size": 300_000, "starts": 2},
    seconds=1.0,
    within={"value": 0.2, "low": 0.2, "high": 0.2},
)
def confirm_c12(data: int, motion: str, beta: float, size: int, *, starts: int = 10) -> Rows:
    """The same of messages that are followed for 64 tokens, from random contexts of their own."""
    network = Network.poclopez2024()
    delays = ladder(_FOLLOWED)
    times = []
    for seed in range(10 * data, 10 * data + starts):
        start = random_contexts(network, seed, count=1)
        _, settled = trajectory(network, start, beta=beta, steps=0, transient=20_000)
        context = settled.select(0)
        information = measured_information(
            network,
            np.round(window_of_context(network, context, beta=beta), 8),
            message_direction(network, seed),
            size=size,
            beta=beta,
            position=context.position,
            strength=STRENGTH,
            delays=delays,
            runs=400,
            seed=seed,
        )
        times.append(min(forgotten_at(delays, information=information), _FOLLOWED))
    return median_rows(np.log(np.maximum(times, 0.5) / _WINDOW))


# Inverse temperatures, three of quasi-periodic motion and three of chaos each, and one of the cycle
# that follows the clock.
_BETAS = (1.25, 1.255, 1.26, 1.266, 1.28, 1.4)
_OTHER_BETAS = (1.246, 1.2535, 1.2595, 1.2668, 1.32, 1.45)
_DRIVEN_BETA = 1.2
_ORBITS = 32
_SAMPLES = 20_000
_LAGS = (160, 320)
_PUBLISHED = "published"
_LAWS = (_PUBLISHED, "uniform", "normal")


def slow_motion(data: int, beta: float, law: str) -> Rows:
    """Two lines for 32 orbits of 20,000 tokens.

    Share of the variance below the frequency 1/T, minus one half; and largest autocorrelation at
    lags 160 to 320, minus 0.1.
    """
    network = Network.poclopez2024()
    if law == _PUBLISHED:
        start = poclopez2024_context(network, steps=100_000, decimals=8)
        starts = perturbed_replicas(start, count=_ORBITS, seed=data)
    else:
        starts = random_contexts(network, data, count=_ORBITS, law=law)
    overlaps, _ = trajectory(network, starts, beta=beta, steps=_SAMPLES, transient=60_000)
    signal = overlaps[..., 0]
    frequency, power = periodogram(signal)
    below = power[:, frequency < 1.0 / network.context].sum(axis=1) / power.sum(axis=1)
    first, last = _LAGS
    lasting = np.abs(autocorrelation(signal, lags=last)[:, first:]).max(axis=1)
    return [
        {"measure": "low frequencies"} | mean_rows(below - 0.5)[0],
        {"measure": "long correlations"} | mean_rows(lasting - 0.1)[0],
    ]


settings_c11 = stored(
    "settings_C11",
    numbered(parameter_product(beta=(*_BETAS, _DRIVEN_BETA), law=_LAWS), first=0),
    seconds=1.0,
    within={"value": 0.05, "low": 0.05, "high": 0.05},
)(slow_motion)


@stored(
    "confirm_C11",
    numbered(parameter_product(beta=_OTHER_BETAS, law=_LAWS), first=2000),
    seconds=1.0,
    within={"value": 0.05, "low": 0.05, "high": 0.05},
)
def confirm_c11(data: int, beta: float, law: str) -> Rows:
    """The same at other temperatures, without the correlations of chaos."""
    rows = slow_motion(data, beta, law)
    return rows if beta < 1.265 else rows[:1]

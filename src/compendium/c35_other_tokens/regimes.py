"""What random networks of letters settle on, and where their disordered state gives way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from spinformer.core.checks import check_integer
from spinformer.dmft.attractors import Attractors, Regime, find_attractors
from spinformer.dmft.letters import LetterNetwork
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.onset import onset
from spinformer.dmft.state import Context

_BETAS = np.linspace(0.5, 4.0, 48)
_BLOCK = 25
FAMILIES = {"first": range(1000, 1100, _BLOCK), "second": range(2000, 2100, _BLOCK)}
# A perturbation that is small against everything, and grows or shrinks for so many steps.
_TINY, _STEPS = 1e-9, 4000


def regime_rows(letters: int, *, first: int, networks: int = _BLOCK, steps: int = 10_000) -> Rows:
    """One row for each of `networks` random networks, of seeds `first`, `first` + 1, …

    periodic, quasi, chaotic: at how many of 48 values of β in [0.5, 4], one random context each,
    an orbit is so after `steps` steps. lasting: at how many of the chaotic ones it still is after
    twice as many more. onset: β where the disordered state gives way without a position; turns: how
    fast what takes over turns, in turns per token.

    >>> row, = regime_rows(3, first=0, networks=1, steps=2_000)
    >>> row["seed"], row["periodic"] > 30
    (0, True)
    """
    letters = check_integer("letters", letters, low=2)
    machines = [
        LetterNetwork.segmented(first + number, letters=letters) for number in range(networks)
    ]
    beta = _BETAS * (letters - 1)
    start = random_contexts(machines[0], first, count=len(_BETAS))
    found = _settle(machines, start, beta, steps)
    rows = []
    for number, machine in enumerate(machines):
        regime = found.regime[number]
        chaotic = regime == Regime.CHAOTIC
        lasting = 0
        if chaotic.any():
            later = _settle(
                machine, found.context.select((number, chaotic)), beta[chaotic], 2 * steps
            )
            lasting = int((later.regime == Regime.CHAOTIC).sum())
        theory = onset(machine)
        rows.append(
            {
                "seed": first + number,
                "periodic": int((regime == Regime.PERIODIC).sum()),
                "quasi": int((regime == Regime.QUASI_PERIODIC).sum()),
                "chaotic": int(chaotic.sum()),
                "lasting": lasting,
                "onset": theory.critical_beta / (letters - 1),
                "turns": theory.critical_rotation,
            }
        )
    return rows


def _settle(
    network: LetterNetwork | Sequence[LetterNetwork], start: Context, beta: np.ndarray, steps: int
) -> Attractors:
    return find_attractors(
        network,
        start,
        beta=beta,
        transient=steps,
        kept=6_000,
        exponents=1,
        exponent_steps=10_000,
        bins=1,
        threads=1,
    )


def measured_onset(network: LetterNetwork) -> float:
    """β at which a tiny deviation from the disordered state neither grows nor shrinks, ε = 0.

    The deviation is run through the compiled step, no tangent map: its growth over 4,000 steps
    after 4,000 is found at two β, 0.05 % to either side of the prediction of `dmft.onset`, and put
    to zero by a straight line. Where several oscillations reach the threshold together (μ < 0) the
    growth has a kink there, and where eigenvalues coincide a power of time beside the exponential:
    the result is then off by up to a thousandth.
    ValueError where the disordered state never gives way.

    >>> network = LetterNetwork.segmented(0, letters=3)
    >>> bool(abs(measured_onset(network) / onset(network).critical_beta - 1.0) < 1e-3)
    True
    """
    still = network.with_parameters(epsilon=0.0)
    critical = onset(still).critical_beta
    if not np.isfinite(critical):
        raise ValueError("network must have a disordered state that gives way, got β = ∞")
    beta = critical * np.array([0.9995, 1.0005])
    start = random_contexts(still, 0, count=2)
    one = Context(np.repeat(_TINY * start.attention[:1], 2, axis=0), 0)
    path, _ = trajectory(still, one, beta=beta, steps=2 * _STEPS, threads=1)
    # The growth of an oscillation is read off its largest value in a long window.
    size = np.abs(path).max(axis=2)
    half = _STEPS // 2
    early = np.log(size[:, half : 2 * half]).max(axis=1)
    late = np.log(size[:, -half:]).max(axis=1)
    rate = late - early
    return float(beta[0] - rate[0] * (beta[1] - beta[0]) / (rate[1] - rate[0]))


REGIMES = Table(
    path=Path(__file__).parent / "regimes.csv",
    units=[
        {"letters": letters, "first": first}
        for letters in (2, 3, 4, 8)
        for family in FAMILIES.values()
        for first in family
    ],
    rows=regime_rows,
)

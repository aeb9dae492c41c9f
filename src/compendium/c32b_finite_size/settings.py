"""Tables of settings of C5, C18c and C18e, from starts that no other table has.

The tables `confirm_…` were drawn after the regions of their rows had been written down.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c32b_finite_size.long_run import (
    coupled_growth,
    mean_field_exponent,
    stationary_distances,
)
from compendium.common.finite_size import deviation, spread_windows, whole_bits
from compendium.common.rows import mean_rows, near_rows, numbered, parameter_product
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.dmft.corrections import finite_size_corrections
from spinformer.dmft.network import Network
from spinformer.dmft.poclopez2024 import attractor_window

# The motions of C5 by their names among the five from which starts are drawn.
_MOTIONS = {
    "driven": "driven",
    "quasi-periodic": "quasi-periodic",
    "periodic": "periodic",
    "chaotic": "chaos at 1.28",
}
_BETAS = {"driven": 0.5, "quasi-periodic": 1.255, "periodic": 1.27, "chaotic": 1.28}
# Texts behind a line of C5, tokens after its start, and what a ratio of errors may be off.
_TEXTS = 2000
_AHEAD = 8
_ALLOWED = {"single": 0.1, "average": 0.25}
# Bits at which exponents are compared, pairs of texts, and what exponents may differ by.
_MANY = 10**8
_PAIRS = 24
_NATS = 0.03


def _units(betas: Mapping[str, Sequence[float]], *, first: int, **levels: Sequence[float]) -> Rows:
    """Units at the β of each motion, at every level of what else is chosen."""
    units: Rows = []
    for regime, values in betas.items():
        units += parameter_product(regime=(regime,), beta=values, **levels)
    return numbered(units, first=first)


def _in_turn(betas: Mapping[str, Sequence[float]], first: int, **levels: Sequence[float]) -> Rows:
    """Units at the β of each motion, one at each, where the levels of a choice take turns."""
    units = _units(betas, first=first)
    for name, choices in levels.items():
        units = [unit | {name: choices[k % len(choices)]} for k, unit in enumerate(units)]
    return units


def law_ratios(data: int, regime: str, beta: float, *, decade: float) -> Rows:
    """What the errors of a text and of the average may be off theory, minus what they are off.

    Eight tokens after a start on an attractor, number `data` of its motion, or at other β where a
    random context of this seed is after 30,000 tokens.
    """
    network = Network.poclopez2024()
    if beta == _BETAS[regime]:
        window, position = attractor_window(network, _MOTIONS[regime], number=data)
    else:
        windows, position = spread_windows(beta, count=1, settle=30_000, seed=data)
        window = windows[0]
    limit = finite_size_corrections(network, beta, window=window, steps=_AHEAD, position=position)
    size = whole_bits(10.0**decade)
    rms, bias, _ = deviation(limit, size, texts=_TEXTS, seed=data)
    length = np.linalg.norm(limit.shift[-1])
    along = limit.shift[-1] / length
    single = Estimate(
        value=rms.value[-1] * np.sqrt(size) / limit.sigma[-1],
        error=rms.error[-1] * np.sqrt(size) / limit.sigma[-1],
    )
    average = Estimate(
        value=bias.value[-1] @ along * size / length,
        error=np.sqrt(bias.error[-1] ** 2 @ along**2) * size / length,
    )
    rows = []
    for measure, ratio in (("single", single), ("average", average)):
        wide = 2.0 * ratio.error
        ends = (ratio.value, ratio.value - wide, ratio.value + wide)
        line = near_rows(ends, aim=1.0, within=_ALLOWED[measure], runs=_TEXTS)[0]
        rows.append({"measure": measure} | line)
    return rows


settings_c5 = stored(
    "settings_C5",
    _units({regime: [beta] for regime, beta in _BETAS.items()}, first=1, decade=range(3, 10)),
    checked=4,
    seconds=0.3,
    rtol=0.05,
    within={"value": 0.02, "low": 0.02, "high": 0.02},
)(law_ratios)

# Other β of the motions, and the sizes from which the row holds on them.
_OTHER = {
    "driven": (0.4, 0.9, 1.15),
    "quasi-periodic": (1.247, 1.256, 1.261),
    "periodic": (1.2725, 2.7, 3.2),
    "chaotic": (1.288, 1.36, 1.55, 1.62),
}
_REGULAR = ("driven", "quasi-periodic")
confirm_c5 = stored(
    "confirm_C5",
    numbered(
        [
            {"regime": regime, "beta": beta, "decade": decade}
            for regime, betas in _OTHER.items()
            for beta in betas
            for decade in ((5.0, 5.5, 6.5) if regime in _REGULAR else (8.0, 8.5, 9.0))
        ],
        first=2000,
    ),
    seconds=0.3,
    rtol=0.05,
    within={"value": 0.02, "low": 0.02, "high": 0.02},
)(law_ratios)


# Runs behind a line of C18c: of four, two in three fresh lines were undecided and none against.
_RUNS = 12


def laws_apart(data: int, regime: str, beta: float, *, decade: float) -> Rows:
    """ln of twice the distance of two samples of the attractor over that from it; twelve runs."""
    logs = []
    for seed in range(_RUNS * data, _RUNS * (data + 1)):
        line = stationary_distances(beta, exponent=decade, seed=seed)[0]
        logs.append(np.log(2.0 * line["floor"] / line["distance"]))
    return mean_rows(np.array(logs))


_LONG_RUN = {"quasi-periodic": (1.255,), "chaotic": (1.28, 1.4)}
settings_c18c = stored(
    "settings_C18c",
    _units(_LONG_RUN, first=100, decade=(5.0, 6.0, 7.0, 8.0)),
    seconds=20.0,
    within={"value": 0.3, "low": 1.0, "high": 1.0},
)(laws_apart)

# One line at each of other β of these motions, at sizes in turn. Chaotic is where the largest
# exponents of all of sixteen random contexts are at least 0.03 after 30,000 tokens.
_OTHER_LONG_RUN = {
    "quasi-periodic": (1.2555, 1.2585, 1.2605, 1.2615),
    "chaotic": (1.284, 1.292, 1.32, 1.42, 1.47, 1.52, 1.58, 1.75, 1.87, 1.96, 2.09, 2.23, 2.32),
}
confirm_c18c = stored(
    "confirm_C18c",
    _in_turn(_OTHER_LONG_RUN, first=6000, decade=(7.0, 7.5, 8.5)),
    seconds=20.0,
    within={"value": 0.3, "low": 1.0, "high": 1.0},
)(laws_apart)


def pairs_apart(data: int, regime: str, beta: float, *, wait: int) -> Rows:
    """What exponents may differ from the mean field's minus what they do, with two errors.

    Of 24 pairs of texts of a hundred million bits, which begin after `wait` tokens.
    """
    windows, position = spread_windows(beta, count=_PAIRS, settle=wait, seed=data)
    rates = coupled_growth(
        Network.poclopez2024(),
        whole_bits(_MANY),
        beta=beta,
        windows=windows,
        position=position,
        steps=400,
        transient=200,
        seed=data,
    )
    growth = mean_estimate(rates)
    wide = 2.0 * growth.error
    ends = (growth.value, growth.value - wide, growth.value + wide)
    return near_rows(ends, aim=mean_field_exponent(beta), within=_NATS, runs=_PAIRS)


_COUPLED = {"quasi-periodic": (1.255,), "periodic": (1.27,), "chaotic": (1.28, 1.4)}
settings_c18e = stored(
    "settings_C18e",
    _units(_COUPLED, first=100, wait=(30_000, 40_000, 50_000)),
    checked=6,
    seconds=0.8,
    within={"value": 0.03, "low": 0.03, "high": 0.03},
)(pairs_apart)

_OTHER_COUPLED = {
    "driven": (0.3, 0.9, 1.1, 1.22),
    "quasi-periodic": (1.247, 1.258, 1.262),
    "chaotic": (1.2655, 1.278, 1.29, 1.32, 1.36, 1.43, 1.52, 1.56, 1.62, 1.74, 1.85, 2.06, 2.18),
}
confirm_c18e = stored(
    "confirm_C18e",
    _in_turn(_OTHER_COUPLED, first=1000, wait=(25_000, 30_000, 45_000, 60_000)),
    seconds=0.8,
    within={"value": 0.03, "low": 0.03, "high": 0.03},
)(pairs_apart)

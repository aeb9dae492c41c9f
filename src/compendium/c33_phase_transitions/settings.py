"""Tables of settings of C9 and C10, each line from contexts of its own, by three laws of starts.

The tables `confirm_…` were drawn after the regions of their rows had been written down.
"""

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c33_phase_transitions.study import LABELS, NAMED_RANGES, SIX
from compendium.common.rows import numbered, parameter_product, share_rows
from spinformer.dmft.attractors import find_attractors
from spinformer.dmft.mean_field import START_LAWS, random_contexts
from spinformer.dmft.network import Network

# Share of the values of β in a range that must show its motion.
LEAST_SHARE = 0.95
_VALUES = 256
_CONTEXTS = 128
_RANGES = [{"beta_from": low, "beta_to": high} for low, high in NAMED_RANGES]


def named_motion(data: int, beta_from: float, beta_to: float, law: str, wait: int) -> Rows:
    """Share of 256 values of β whose motion is the one named for the range, minus 0.95.

    All values begin at one random context; `wait` steps are dropped.
    """
    network = Network.poclopez2024()
    start = random_contexts(network, data, count=1, law=law).select(0)
    tried = np.linspace(beta_from, beta_to, _VALUES)
    reached = find_attractors(network, start, beta=tried, transient=wait, bins=1, exponents=1)
    named = int((reached.regime == NAMED_RANGES[beta_from, beta_to]).sum())
    return share_rows(named, trials=_VALUES, bound=LEAST_SHARE)


def most_contexts(data: int, beta: float, law: str, wait: int) -> Rows:
    """Share of 128 random contexts with the motion that the document shows, minus one half."""
    network = Network.poclopez2024()
    starts = random_contexts(network, data, count=_CONTEXTS, law=law)
    reached = find_attractors(network, starts, beta=beta, transient=wait, bins=1, exponents=1)
    shown = int((reached.regime == LABELS[beta]).sum())
    return share_rows(shown, trials=_CONTEXTS, bound=0.5)


_CLOSE = {"value": 0.05, "low": 0.05, "high": 0.05}

settings_c9 = stored(
    "settings_C9",
    numbered(
        [
            one | choice
            for one in _RANGES
            for choice in parameter_product(law=START_LAWS, wait=(10_000, 30_000, 100_000))
        ],
        first=0,
    ),
    seconds=0.3,
    within=_CLOSE,
)(named_motion)

confirm_c9 = stored(
    "confirm_C9",
    numbered(
        [
            one | choice
            for one in _RANGES
            for choice in parameter_product(law=START_LAWS, wait=(40_000, 80_000))
        ],
        first=1000,
    ),
    seconds=0.4,
    within=_CLOSE,
)(named_motion)

settings_c10 = stored(
    "settings_C10",
    numbered(parameter_product(beta=SIX, law=START_LAWS, wait=(10_000, 30_000, 100_000)), first=0),
    seconds=0.2,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)(most_contexts)

confirm_c10 = stored(
    "confirm_C10",
    numbered(
        [
            unit
            for unit in parameter_product(beta=SIX, law=START_LAWS, wait=(20_000, 60_000))
            if unit["beta"] != 1.26451 and (unit["beta"] != 1.266 or unit["law"] != "narrow")
        ],
        first=2000,
    ),
    seconds=0.3,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)(most_contexts)

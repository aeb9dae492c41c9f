"""The measurements behind the tables of `compendium.c35b_scaling_and_blocks`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.stats import entropy

from bookmaker.tables import Rows, Table
from compendium.c35b_scaling_and_blocks.blocks import (
    BlockEnsemble,
    Blocks,
    random_hidden,
    rest_multipliers,
)
from compendium.common.networks import draw_networks
from spinformer.core.chaos import kaplan_yorke_dimension
from spinformer.core.checks import check_choice, check_integer
from spinformer.core.statistics import Estimate, mean_estimate, mean_interval
from spinformer.dmft.network import Network

_FOLDER = Path(__file__).parent
TOP = 3.0
BETAS, WINDOWS = 24, 2
_WAIT, _EXPONENT = 3000, 1600
# Above it by three errors is chaos; within the other is zero.
_CHAOTIC, _NEUTRAL, _SIGMAS = 0.005, 0.004, 3.0
_CHUNK = 12
# Strength of the residual connection, of the feed-forward block, whether that is linear.
CONDITIONS: dict[str, tuple[float, float, bool]] = {
    "bare": (0.0, 0.0, False),
    "residual 1/2": (0.5, 0.0, False),
    "residual 1": (1.0, 0.0, False),
    "feed 1": (0.0, 1.0, False),
    "feed 3": (0.0, 3.0, False),
    "linear 1": (0.0, 1.0, True),
    "both 1/2, 1": (0.5, 1.0, False),
}


def make_blocks(network: Network, seed: int, *, condition: str) -> Blocks:
    """A network with the blocks of a condition; `seed` draws the hidden signs.

    >>> make_blocks(Network.document(), 0, condition="residual 1").residual
    1.0
    """
    check_choice("condition", condition, tuple(CONDITIONS))
    residual, feed, linear = CONDITIONS[condition]
    hidden = random_hidden(np.random.default_rng((seed, 7)), features=network.features)
    return Blocks(network=network, residual=residual, feed=feed, hidden=hidden, linear=linear)


def _exponents(
    networks: dict[int, Network], *, condition: str, wait: int, steps: int, betas: int
) -> Estimate:
    """Exponents (networks, betas · WINDOWS, 4) of a batch of networks, by their seeds."""
    grid = TOP * np.arange(1, betas + 1) / betas
    each = betas * WINDOWS
    systems, windows = [], []
    for seed, network in networks.items():
        systems += [make_blocks(network, seed, condition=condition)] * each
        shape = (each, network.context, network.segments)
        windows.append(np.random.default_rng((seed, 8)).uniform(-1.0, 1.0, shape))
    ensemble = BlockEnsemble(
        systems,
        np.concatenate(windows),
        beta=np.tile(np.repeat(grid, WINDOWS), len(networks)),
    )
    ensemble.advance(wait)
    found = ensemble.exponents(steps)
    shape = (len(networks), each, -1)
    return Estimate(value=found.value.reshape(shape), error=found.error.reshape(shape))


def _labels(found: Estimate) -> tuple[np.ndarray, np.ndarray]:
    """0 periodic, 1 quasi-periodic, 2 chaotic; and the dimension; each (networks, systems)."""
    leading, error = found.value[..., 0], found.error[..., 0]
    code = np.where(np.abs(leading) <= _NEUTRAL, 1, 0)
    code[leading - _SIGMAS * error > _CHAOTIC] = 2
    value = np.where(np.abs(found.value) <= _NEUTRAL, 0.0, found.value)
    return code, kaplan_yorke_dimension(-np.sort(-value, axis=-1))


def block_rows(
    condition: str,
    *,
    family: int,
    chunk: int,
    size: int = _CHUNK,
    betas: int = BETAS,
    wait: int = _WAIT,
    steps: int = _EXPONENT,
) -> Rows:
    """One row a network: chaos, dimension, variety, and where chaos was strongest.

    >>> rows = block_rows("bare", family=5, chunk=0, size=2, betas=2, wait=10, steps=40)
    >>> [row["network"] for row in rows]
    [0, 1]
    """
    chunk = check_integer("chunk", chunk, low=0)
    drawn = draw_networks(
        family=family,
        features=3,
        segments=3,
        context=4,
        epsilon=0.02,
        count=size * (chunk + 1),
    )
    networks = dict(list(drawn.items())[size * chunk :])
    found = _exponents(networks, condition=condition, wait=wait, steps=steps, betas=betas)
    code, dimension = _labels(found)
    return [
        {
            "network": size * chunk + n,
            "chaos": float((code[n] == 2).mean()),
            "quasi": float((code[n] == 1).mean()),
            "dimension": float(dimension[n].mean()),
            "variety": float(entropy(np.bincount(code[n], minlength=3))),
            "exponent": float(np.maximum(found.value[n, :, 0], 0.0).mean()),
            "capped": float((dimension[n] >= found.value.shape[-1]).mean()),
        }
        for n in range(len(networks))
    ]


def longer_rows(condition: str, *, size: int = _CHUNK, wait: int = _WAIT) -> Rows:
    """How many chaotic systems of every tenth network are chaotic after ten times the wait.

    >>> longer_rows("bare", size=1, wait=10)[0]["networks"]
    1
    """
    drawn = draw_networks(
        family=0, features=3, segments=3, context=4, epsilon=0.02, count=10 * size
    )
    networks = dict(list(drawn.items())[::10])
    found = [
        _exponents(networks, condition=condition, wait=steps, steps=_EXPONENT, betas=BETAS)
        for steps in (wait, 10 * wait)
    ]
    early, late = (_labels(one)[0] == 2 for one in found)
    return [
        {
            "networks": len(networks),
            "early": int(early.sum()),
            "still": int((early & late).sum()),
            "late": int(late.sum()),
        }
    ]


def first_mode(blocks: Blocks, *, top: float = 20.0) -> tuple[float, float]:
    """β at which rest, without positions, first turns unstable, and the turns a token there.

    The slowest if several do at once, as for a negative eigenvalue of ⟨W^v W^oᵀ⟩. (inf, 0) where
    it is stable up to `top`.

    >>> beta, turns = first_mode(Blocks(network=Network.document()))
    >>> f"{beta:.3f} {turns:.3f}"
    '1.221 0.059'
    """

    def excess(beta: float) -> float:
        return float(np.abs(rest_multipliers(blocks, beta=beta)[0])) - 1.0

    grid = np.geomspace(0.02, top, 200)
    over = [n for n, beta in enumerate(grid) if excess(float(beta)) > 1e-9]
    if not over:
        return np.inf, 0.0
    beta = float(brentq(excess, float(grid[over[0] - 1]), float(grid[over[0]])))
    found = rest_multipliers(blocks, beta=beta)
    together = np.abs(found) > np.abs(found[0]) - 1e-7
    return beta, float(np.abs(np.angle(found[together])).min() / (2.0 * np.pi))


def compare(
    table: dict[str, np.ndarray], *, condition: str, measure: str, family: int, to: str = "bare"
) -> tuple[float, float, float]:
    """Mean paired difference of a measure over the networks of a family, and its 95 % interval.

    >>> table = {"condition": np.repeat(["bare", "feed 1"], 2), "family": np.zeros(4),
    ...          "network": np.array([0, 1, 1, 0]), "chaos": np.array([0.0, 0.1, 0.3, 0.1])}
    >>> found = compare(table, condition="feed 1", measure="chaos", family=0)
    >>> [round(value, 2) for value in found]
    [0.15, -0.49, 0.79]
    """
    rows = [(table["condition"] == name) & (table["family"] == family) for name in (condition, to)]
    one, two = (table[measure][row][np.argsort(table["network"][row])] for row in rows)
    low, high = mean_interval(one - two)
    return float(mean_estimate(one - two).value), low, high


# Networks of each family of the census: the sample, and another.
FAMILIES = {0: 120, 1: 60}
CENSUS = Table(
    path=_FOLDER / "census.csv",
    units=[
        {"condition": condition, "family": family, "chunk": chunk}
        for condition in CONDITIONS
        for family, networks in FAMILIES.items()
        for chunk in range(networks // _CHUNK)
    ],
    rows=block_rows,
)
LONGER = Table(
    path=_FOLDER / "longer.csv",
    units=[{"condition": name} for name in ("bare", "residual 1/2", "feed 1", "both 1/2, 1")],
    rows=longer_rows,
)

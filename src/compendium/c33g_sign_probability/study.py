"""Networks of segmented weights whose signs are drawn with another probability than one half."""

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.rows import numbered, parameter_product
from spinformer.core.regimes import Regime
from spinformer.dmft.attractors import find_attractors
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network

FEATURES = 3
SEGMENTS = 3
NETWORKS = 100  # of each probability, behind a line of the table
BETAS = np.linspace(0.1, 3.0, 30)


def draw_network(seed: int, *, probability: float, epsilon: float = 0.02, bits: int = 2) -> Network:
    """Draw a network whose weights are +1 with a probability, otherwise −1."""
    rng = np.random.default_rng(seed)
    signs = np.where(rng.random((4, FEATURES, SEGMENTS + bits)) < probability, 1.0, -1.0)
    return Network(
        semantic=signs[..., :SEGMENTS],
        position=signs[..., SEGMENTS:],
        context=2**bits,
        gamma=220.0 / 3.0**0.5,
        epsilon=epsilon,
    )


def found_regimes(network: Network, *, seed: int) -> np.ndarray:
    """Regimes of one random context at thirty inverse temperatures up to three."""
    context = random_contexts(network, seed, count=1).select(0)
    return find_attractors(
        network,
        context,
        beta=BETAS,
        transient=4000,
        kept=4000,
        exponents=2,
        exponent_steps=2000,
    ).regime


def beyond_cycles(
    first: int, *, probability: float, networks: int, epsilon: float = 0.02, bits: int = 2
) -> np.ndarray:
    """Of networks (n,) whether any, and whether chaotic, motion is no cycle, (n, 2)."""
    found = []
    for seed in range(first, first + networks):
        network = draw_network(seed, probability=probability, epsilon=epsilon, bits=bits)
        regimes = found_regimes(network, seed=seed)
        found.append([(regimes != Regime.PERIODIC).any(), (regimes == Regime.CHAOTIC).any()])
    return np.array(found)


def distinct_features(probability: float) -> float:
    """Probability that the signs of two features of a role are neither equal nor opposite."""
    equal = probability**2 + (1 - probability) ** 2
    return 1 - equal**SEGMENTS - (1 - equal) ** SEGMENTS


def fraction_rows(data: int, probability: float, epsilon: float, bits: int) -> Rows:
    """Fraction of networks with more than cycles, minus half of that of fair signs."""
    biased, fair = (
        beyond_cycles(
            1000 * data + shift, probability=p, networks=NETWORKS, epsilon=epsilon, bits=bits
        )[:, 0].mean()
        for shift, p in ((0, probability), (NETWORKS, 0.5))
    )
    value = biased - fair / 2
    error = np.sqrt((biased * (1 - biased) + fair * (1 - fair) / 4) / NETWORKS)
    return [
        {
            "value": value,
            "low": value - 1.96 * error,
            "high": value + 1.96 * error,
            "runs": 2 * NETWORKS,
        }
    ]


# A border case may change its label with rounding.
_LOOSE = {"value": 0.03, "low": 0.03, "high": 0.03}
settings_c31 = stored(
    "settings_C31",
    numbered(
        parameter_product(probability=(0.6, 0.7, 0.8, 0.9), epsilon=(0.02, 0.1), bits=(2, 3)),
        first=500,
    ),
    seconds=9,
    within=_LOOSE,
)(fraction_rows)
# Both ends of the region, without a position code, with a strong one, and with other windows.
confirm_c31 = stored(
    "confirm_C31",
    numbered(
        [
            *parameter_product(probability=(0.3, 0.4, 0.65, 0.7), epsilon=(0.0, 0.3), bits=(2,)),
            *parameter_product(probability=(0.3, 0.7), epsilon=(0.05,), bits=(1, 3, 4)),
        ],
        first=700,
    ),
    seconds=9,
    within=_LOOSE,
)(fraction_rows)


@stored(
    "fractions",
    parameter_product(probability=(0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0)),
    seconds=5,
    within={"beyond": 3, "chaotic": 3},
)
def fractions_table(probability: float) -> Rows:
    """How many of the networks have more than cycles, and chaos."""
    beyond, chaotic = beyond_cycles(900_000, probability=probability, networks=NETWORKS).sum(0)
    return [{"beyond": beyond, "chaotic": chaotic, "networks": NETWORKS}]

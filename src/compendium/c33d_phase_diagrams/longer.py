"""The document's network with a longer window: the same features, more bits of position."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spinformer.core.checks import check_array, check_integer
from spinformer.core.random import Seed, numpy_generator
from spinformer.dmft.attractors import (
    SHORT_STRETCHES,
    Attractors,
    Regime,
    Thresholds,
    find_attractors,
)
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network
from spinformer.dmft.onset import onset


def longer_network(bits: int, *, seed: Seed = 0) -> Network:
    """The document's features in a window of 2^bits tokens.

    Its two position bits stay the fastest ones of the clock; the signs of the slower bits are
    random, drawn with `seed`. γ and ε are the document's, and with 2 bits so is the network.

    >>> longer_network(5).context, longer_network(2) == Network.document()
    (32, True)
    """
    document = Network.document()
    bits = check_integer("bits", bits, low=2, high=10)
    rng = numpy_generator(seed)
    # The code has its most significant bit first; what is drawn for 3 bits stays with more.
    slower = rng.choice((-1.0, 1.0), size=(8, 4, document.features))[: bits - 2]
    return Network(
        semantic=document.semantic,
        position=np.concatenate([np.moveaxis(slower[::-1], 0, -1), document.position], axis=-1),
        context=2**bits,
        gamma=document.gamma,
        epsilon=document.epsilon,
    )


def scaled_thresholds(bits: int) -> Thresholds:
    """`SHORT_STRETCHES` for a clock of 2^bits positions: the same number of turns, not of tokens.

    >>> scaled_thresholds(2) == SHORT_STRETCHES, scaled_thresholds(5).longest
    (True, 4096)
    """
    slower = 2 ** check_integer("bits", bits, low=2, high=10) // 4
    return replace(
        SHORT_STRETCHES,
        longest=SHORT_STRETCHES.longest * slower,
        neutral=SHORT_STRETCHES.neutral / slower,
    )


def longer_diagram(
    bits: int, *, betas: np.ndarray, seed: Seed = 0, turns: int = 5000, bins: int = 400
) -> Attractors:
    """Orbit diagram of `longer_network(bits)` over `betas` (n,), from one random context.

    `turns` turns of the clock are dropped, a fifth as many kept, and as many averaged for the
    leading exponent, which is in nats per token.

    >>> found = longer_diagram(3, betas=np.array([0.5]), turns=100)
    >>> found.period
    array([8])
    """
    turns = check_integer("turns", turns, low=50)
    network = longer_network(bits, seed=seed)
    steps = turns * network.positions
    return find_attractors(
        network,
        random_contexts(network, seed, count=1).select(0),
        beta=check_array("betas", betas, ndim=1, low=0.0),
        transient=steps,
        kept=steps // 5,
        exponent_steps=steps // 5,
        exponents=1,
        bins=bins,
        thresholds=scaled_thresholds(bits),
    )


def first_unrest(bits: int, *, low: float, high: float, seed: Seed = 0, count: int = 64) -> float:
    """Smallest of `count` even steps of β from `low` to `high` where the driven cycle is gone.

    The cycle of 2^bits tokens, followed from `low`, is gone where the orbit has not returned to
    1e-5 after one turn of the clock, 20,000 turns after a start beside it.

    >>> first_unrest(2, low=1.2, high=1.3, count=3)
    1.25
    """
    network = longer_network(bits, seed=seed)
    betas = np.linspace(low, high, check_integer("count", count, low=2))
    ensemble = Ensemble(network, random_contexts(network, seed, count=1).select(0), beta=betas)
    ensemble.advance(20_000 * network.positions)
    orbit = ensemble.record(2 * network.positions)
    gap = np.abs(orbit[:, network.positions :] - orbit[:, : network.positions]).max(axis=(1, 2))
    gone = np.flatnonzero(gap > 1e-5)
    return float(betas[gone[0]]) if len(gone) else float("inf")


def longer_rows(bits: int, *, seed: int) -> list[dict[str, float]]:
    """Onset, regimes and exponents of one network, as the one row of its unit.

    Regimes are shares of 64 values of β between 1.4 and 2.4; `rate` the median leading exponent of
    the chaotic ones among them, nats per token; `onset` from 64 values around the closed form.

    >>> longer_network(3).context
    8
    """
    network = longer_network(bits, seed=seed)
    predicted = onset(network, epsilon=network.epsilon).critical_beta
    found = longer_diagram(bits, betas=np.linspace(1.4, 2.4, 64), seed=seed, bins=1)
    chaotic = found.regime == Regime.CHAOTIC
    rates = found.exponents.value[:, 0]
    return [
        {
            "predicted": predicted,
            "onset": first_unrest(bits, low=predicted - 0.063, high=predicted + 0.063, seed=seed),
            **{
                regime.label.replace(" ", "-"): float((found.regime == regime).mean())
                for regime in Regime
            },
            "rate": float(np.median(rates[chaotic])) if chaotic.any() else 0.0,
        }
    ]

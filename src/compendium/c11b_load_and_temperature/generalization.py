"""Examples or their class: what memories with several separation functions F retrieve.

Of each of K classes a memory stores M examples of d signs. An example agrees with the prototype ζ
of its class except for a fraction (1 − r)/2 of random spins, so that x·ζ ≈ r d and x·x' ≈ r² d. A
spin on which a stored example differs from ζ is held by the example itself with F'(d) and drawn
to ζ by the others with (M − 1) r F'(r² d). Hence the example is stable up to

    M* = 1 + F'(d) / (r F'(r² d))

examples: 1 + r^(1 − 2a) for F = x^a, and 1 + exp[b √d (1 − r²)]/r for F = exp(b x/√d), which for
b = 1 are the scores of attention [bal2020energy]. A new example is drawn to ζ if many stored ones
share the weight F'(x·ξ), whose logarithm has the standard deviation

    (a − 1) √(1 − r⁴)/(r² √d)   or   b √(1 − r⁴).

Criterion of A7b, written before its table: a memory memorizes what matches a stored pattern and
generalizes otherwise if it does both with the same patterns. A stored example ends nearer to itself
than to ζ, and a new example of the class nearer to ζ than to itself. With overlaps from r to 1
mapped to 0 to 1, the smaller of the two means exceeds ½, with its whole 95 % interval over
memories. Expected: this holds for M < M*/2 where the standard deviation is at most about one, so
for powers above two and at the temperature of attention, but not for F = exp(x).
"""

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.rows import mean_rows, numbered, parameter_product
from spinformer.core.random import Seed, numpy_generator
from spinformer.hopfield.discrete import (
    CLASSICAL,
    EXPONENTIAL,
    Separation,
    polynomial,
    retrieve,
)

ENERGIES = ("power 2", "power 3", "power 4", "attention", "attention at 2β", "exponential")


def separation_of(energy: str, *, dim: int) -> Separation:
    """F of one of `ENERGIES` for overlaps of `dim` signs."""
    if energy == "exponential":
        return EXPONENTIAL
    if energy.startswith("attention"):
        beta = (2.0 if energy.endswith("2β") else 1.0) / dim**0.5
        return Separation(name=energy, function=lambda x: np.exp(beta * x))
    degree = int(energy.split()[1])
    return CLASSICAL if degree == 2 else polynomial(degree)


def example_limit(energy: str, *, dim: int, quality: float) -> float:
    """M*, the number of examples above which a stored example is lost to its class."""
    if energy.startswith("power"):
        return 1.0 + quality ** (1 - 2 * int(energy.split()[1]))
    beta = 1.0 if energy == "exponential" else (1.0 + energy.endswith("2β")) / dim**0.5
    return 1.0 + float(np.exp(beta * dim * (1.0 - quality**2))) / quality


def kept_and_generalized(
    energy: str, *, dim: int, quality: float, examples: int, classes: int, seed: Seed
) -> tuple[float, float]:
    """How far a stored example stays with itself, and how far a new one goes to its prototype.

    One is the example or the prototype, zero the other of the two, means over the classes.
    """
    rng = numpy_generator(seed)
    prototypes = rng.choice([-1.0, 1.0], size=(classes, 1, dim))
    right = rng.random((classes, examples + 1, dim)) < 0.5 * (1.0 + quality)
    drawn = np.where(right, prototypes, -prototypes)
    found = retrieve(
        drawn[:, 1:].reshape(-1, dim),
        queries=drawn[:, :2].reshape(-1, dim),
        separation=separation_of(energy, dim=dim),
        seed=rng,
    ).states.reshape(classes, 2, dim)
    new = (found[:, 0] * prototypes[:, 0]).mean()
    old = (found[:, 1] * drawn[:, 1]).mean()
    return (old - quality) / (1.0 - quality), (new - quality) / (1.0 - quality)


@stored(
    "settings_A7b",
    numbered(
        parameter_product(energy=ENERGIES, dim=(150, 300), quality=(0.5, 0.6), examples=(8, 16, 32))
    ),
    seconds=1.0,
    rtol=1e-3,
)
def settings_a7b(data: int, energy: str, dim: int, quality: float, examples: int) -> Rows:
    """The smaller of both means minus ½ over twelve memories of four classes.

    `filling` is M/M*; `kept` and `generalized` are the means of the two.
    """
    found = np.array(
        [
            kept_and_generalized(
                energy,
                dim=dim,
                quality=quality,
                examples=examples,
                classes=4,
                seed=100 * data + memory,
            )
            for memory in range(12)
        ]
    )
    kept, generalized = found.mean(0)
    filling = examples / example_limit(energy, dim=dim, quality=quality)
    (line,) = mean_rows(found.T[int(generalized < kept)] - 0.5)
    return [{"filling": filling} | line | {"kept": kept, "generalized": generalized}]

"""Tables of settings of C1a, C1c, C1d and C1e, each line from networks of its own.

The tables `confirm_…` were drawn after the regions of their rows had been written down: other
temperatures, sizes and networks.
"""

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.c31_asymmetric_hopfield.pairs import iterate_pair
from compendium.c31_asymmetric_hopfield.study import (
    analog_exponents,
    asymmetric_gain,
    mean_order,
    spin_memory,
)
from compendium.common.rows import estimate_rows, mean_rows, numbered, parameter_product
from spinformer.core.random import numpy_generator
from spinformer.core.states import overlaps
from spinformer.core.statistics import Estimate

# Networks behind a line.
_DRAWS = 10
_NOISY = {"value": 0.1, "low": 0.1, "high": 0.1}


def held_overlap(data: int, beta: float, size: int, features: int) -> Rows:
    """Overlap with the first feature over updates 30 to 60, from 0.5, minus 0.1; ten draws."""
    measured = []
    for rng in numpy_generator(data).spawn(_DRAWS):
        kept = rng.choice([-1.0, 1.0], (features, size))
        start = np.where(rng.random(size) < 0.75, 1.0, -1.0) * kept[0]
        path = iterate_pair(start, left=kept, right=kept, beta=beta, steps=60, seed=rng)
        measured.append(overlaps(path[30:], patterns=kept)[:, 0].mean() - 0.1)
    return mean_rows(np.array(measured))


settings_c1a = stored(
    "settings_C1a",
    numbered(
        parameter_product(beta=(0.5, 0.8, 1.2, 1.5, 3.0), size=(1000, 10_000), features=(1, 3, 10)),
        first=0,
    ),
    seconds=0.1,
    within={"value": 0.05, "low": 0.05, "high": 0.05},
)(held_overlap)

confirm_c1a = stored(
    "confirm_C1a",
    numbered(
        parameter_product(beta=(1.25, 1.4, 1.75, 2.5), size=(2000, 5000), features=(2, 5)),
        first=1000,
    ),
    seconds=0.1,
    within={"value": 0.05, "low": 0.05, "high": 0.05},
)(held_overlap)


def frozen_memory(data: int, beta: float, size: int, lag: int) -> Rows:
    """C(lag) of symmetric couplings, minus 0.05; ten networks."""
    memory = spin_memory(
        size,
        symmetry=1.0,
        beta=beta,
        lags=np.array([lag]),
        steps=1000,
        replicas=_DRAWS,
        seed=data,
    )
    one = Estimate(value=memory.value[0], error=memory.error[0], samples=_DRAWS)
    return estimate_rows(one, bound=0.05)


settings_c1c = stored(
    "settings_C1c",
    numbered(
        parameter_product(beta=(0.5, 0.8, 1.25, 1.5, 2.0, 3.0), size=(200, 800), lag=(50, 250))
        # Spins that are updated together may alternate: an odd lag looks at their other state.
        + parameter_product(beta=(1.5, 3.0), size=(200, 800), lag=(75,)),
        first=0,
    ),
    seconds=0.2,
    within=_NOISY,
)(frozen_memory)

confirm_c1c = stored(
    "confirm_C1c",
    numbered(
        parameter_product(beta=(1.3, 1.75, 2.5, 4.0), size=(300, 600), lag=(80, 340)), first=2000
    ),
    seconds=0.2,
    within=_NOISY,
)(frozen_memory)


def ordered_mean(data: int, ratio: float, beta: float, size: int) -> Rows:
    """|m| of independent couplings, their mean over the critical one, minus 0.1; ten networks."""
    order = mean_order(
        size, mean=ratio / asymmetric_gain(beta), beta=beta, replicas=_DRAWS, seed=data
    )
    return estimate_rows(order, bound=0.1)


settings_c1d = stored(
    "settings_C1d",
    numbered(
        parameter_product(
            ratio=(0.0, 0.5, 0.8, 1.2, 1.5, 2.0), beta=(1.0, 2.0, 4.0), size=(250, 1000)
        ),
        first=0,
    ),
    seconds=0.1,
    within=_NOISY,
)(ordered_mean)

confirm_c1d = stored(
    "confirm_C1d",
    numbered(
        parameter_product(ratio=(1.25, 1.4, 1.75, 2.5), beta=(1.5, 3.0), size=(400, 700)),
        first=1000,
    ),
    seconds=0.1,
    within=_NOISY,
)(ordered_mean)


def growth_exponent(data: int, symmetry: float, beta: float, size: int) -> Rows:
    """Leading exponent of real-valued spins, nats a step; twenty networks."""
    return estimate_rows(
        analog_exponents(size, symmetry=symmetry, beta=beta, count=20, seed=data, steps=600)
    )


# symmetry: correlation of J_ij with J_ji, 0 for independent couplings.
settings_c1e = stored(
    "settings_C1e",
    numbered(
        parameter_product(
            symmetry=(0.0, 0.5), beta=(0.6, 1.0, 1.25, 1.5, 2.0, 3.0), size=(250, 500)
        )
        # More symmetric couplings, chaotic in large networks only.
        + parameter_product(symmetry=(0.7,), beta=(1.5, 2.0), size=(150, 500)),
        first=0,
    ),
    checked=12,
    seconds=0.3,
    within={"value": 0.02, "low": 0.02, "high": 0.02},
)(growth_exponent)

confirm_c1e = stored(
    "confirm_C1e",
    numbered(
        parameter_product(symmetry=(0.0, 0.25, 0.5), beta=(1.35, 1.6, 2.5, 4.0), size=(300, 600)),
        first=2000,
    ),
    seconds=0.3,
    within={"value": 0.02, "low": 0.02, "high": 0.02},
)(growth_exponent)

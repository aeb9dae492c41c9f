"""How far ahead a gradient through the limit reaches, by the kind of motion.

The document's own network. `growth_rows`: the norm of the gradient of one token's overlap in all
weights, through h steps of the limit. `share_rows`: how much of the limit's derivative in β the
network of N bits has. Its mean overlaps have the derivative ⟨(m − ⟨m⟩) Σ_t ∂_β log P(x_t | past)⟩,
with ∂_β log P = Σ_l n (x_l − tanh h_l) h_l/β: no step size, and no gradient through a path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from bookmaker.tables import Rows, Table
from compendium.c36_learning_through_the_limit.differentiable import torch_trajectory
from compendium.common.phase_transitions import protocol_start
from compendium.common.windows import MOTIONS, message_start
from spinformer.core.checks import check_choice, check_integer, check_real
from spinformer.dmft.finite_size import linear_maps, noise_covariance
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Network
from spinformer.dmft.state import Context
from spinformer.dmft.tokens import generate, mean_path, semantic_overlaps

GROWTH_STARTS = {"periodic": 10, "quasi-periodic": 10, "chaos at 1.266": 20, "chaos at 1.28": 40}
SHARE_STARTS = range(24)
HORIZONS = (1, 2, 4, 8, 16, 32, 64, 128)
LONG = (256,)  # one more where nothing grows exponentially
SHARE_SIZES = (999, 9999, 99_999, 999_999)
LONGEST = 80
_STEP = 1e-7


def growth_start(network: Network, motion: str, *, number: int) -> Context:
    """A context on the attractor, `number` of many: along one orbit, or random ones in chaos.

    >>> growth_start(Network.document(), "driven", number=3).attention.shape
    (4, 3)
    """
    number = check_integer("number", number, low=0)
    beta, settle, between = MOTIONS[check_choice("motion", motion, MOTIONS)]
    if between:
        origin = protocol_start(network, steps=2000)
    else:
        origin = random_contexts(network, number, count=1).select(0)
    _, found = trajectory(network, origin, beta=beta, steps=0, transient=settle + number * between)
    return Context(np.round(found.attention, 8), found.position)


def gradient_norms(
    network: Network, context: Context, *, beta: float, horizons: tuple[int, ...]
) -> np.ndarray:
    """Norm of ∂m^o_1/∂W, the first overlap of token t + h in all weights, for every horizon h.

    >>> start = Context(np.full((4, 3), 0.2), 3)
    >>> gradient_norms(Network.document(), start, beta=0.5, horizons=(1, 4)).shape
    (2,)
    """
    weights = torch.tensor(network.semantic).requires_grad_()
    path = torch_trajectory(network, context, beta, steps=max(horizons), semantic=weights)
    found = [
        torch.autograd.grad(path[horizon - 1, 0], weights, retain_graph=True)[0]
        for horizon in horizons
    ]
    return torch.stack(found).flatten(1).norm(dim=1).numpy()


def growth_rows(motion: str, *, start: int, longest: int = 256) -> Rows:
    """Norm of the gradient at every horizon up to `longest`, from one start.

    >>> [row["horizon"] for row in growth_rows("driven", start=0, longest=4)]
    [1, 2, 4]
    """
    network = Network.document()
    every = HORIZONS if motion.startswith("chaos") else HORIZONS + LONG
    horizons = tuple(horizon for horizon in every if horizon <= longest)
    context = growth_start(network, motion, number=start)
    norms = gradient_norms(network, context, beta=MOTIONS[motion][0], horizons=horizons)
    return [{"horizon": h, "norm": float(n)} for h, n in zip(horizons, norms, strict=True)]


def rate_rows(motion: str, *, steps: int = 100_000) -> Rows:
    """Leading Lyapunov exponent of a motion, nats per token, with its error.

    >>> rate_rows("driven", steps=500)[0]["rate"] < 0.0
    True
    """
    network = Network.document()
    found = lyapunov_spectrum(
        network, growth_start(network, motion, number=100), beta=MOTIONS[motion][0],
        steps=steps, transient=1000, count=1,
    ).exponents  # fmt: skip
    return [{"rate": float(found.value[0]), "error": float(found.error[0])}]


def limit_derivative(
    network: Network, beta: float, *, window: np.ndarray, position: int, steps: int
) -> np.ndarray:
    """∂m^o/∂β of `steps` tokens after a fixed window in the limit, (steps, P), by differences.

    >>> still = Network.document().with_parameters(epsilon=0.0)
    >>> slopes = limit_derivative(still, 1.0, window=np.zeros((4, 3)), position=3, steps=2)
    >>> bool(np.abs(slopes).max() < 1e-9)  # rest is rest at every β
    True
    """
    paths = [
        mean_path(network, beta + side, window=window, steps=steps, position=position)
        for side in (_STEP, -_STEP)
    ]
    difference = (paths[0] - paths[1])[network.context :] / (2.0 * _STEP)
    return semantic_overlaps(network, difference)


def sampled_derivative(
    network: Network,
    size: int,
    *,
    beta: float,
    window: np.ndarray,
    position: int,
    steps: int,
    runs: int,
    seed: int,
) -> np.ndarray:
    """∂⟨m^o⟩/∂β of `steps` tokens after a fixed window at N = `size`, (steps, P), by the score.

    >>> machine, start = Network.document(), np.zeros((4, 3))
    >>> sampled_derivative(
    ...     machine, 99, beta=1.0, window=start, position=3, steps=2, runs=9, seed=0
    ... ).shape
    (2, 3)
    """
    found = generate(
        network, size, beta=beta, window=window, steps=steps, runs=runs, seed=seed,
        position=position, draw_window=False,
    )  # fmt: skip
    context = network.context
    means, tokens = found.means[:, context:], found.tokens[:, context:]
    field = np.arctanh(np.clip(means, -1.0 + 1e-15, 1.0 - 1e-15)) / beta
    # A token moves its own overlaps, too: the score up to and including it.
    score = np.cumsum(((tokens - means) * field) @ network.counts(size), axis=1)
    overlaps = semantic_overlaps(network, tokens)
    centered = overlaps - overlaps.mean(0)
    return np.einsum("rt,rta->ta", score, centered) / (runs - 1)


def share_rows(motion: str, *, size: int, start: int, runs: int = 6000) -> Rows:
    """Projection of the derivative at N on that of the limit, over the latter's square.

    >>> len(share_rows("driven", size=999, start=0, runs=5))
    20
    """
    network = Network.document()
    beta = MOTIONS[motion][0]
    window, position = message_start(network, motion, number=start)
    limit = limit_derivative(network, beta, window=window, position=position, steps=LONGEST)
    sampled = sampled_derivative(
        network, size, beta=beta, window=window, position=position, steps=LONGEST, runs=runs,
        seed=start,
    )  # fmt: skip
    share = (limit * sampled).sum(1) / (limit**2).sum(1)
    return [{"horizon": h, "share": float(share[h - 1])} for h in range(4, LONGEST + 1, 4)]


def growth_slopes(
    table: Mapping[str, np.ndarray], motion: str, *, first: int, last: int
) -> np.ndarray:
    """Mean logarithmic growth of the gradient per token between two horizons, start by start.

    >>> table = {"motion": np.array(["m"] * 2), "horizon": np.array([1, 3])}
    >>> growth_slopes(table | {"norm": np.exp([0.0, 4.0])}, "m", first=1, last=3)
    array([2.])
    """
    own = table["motion"] == motion
    ends = [np.log(table["norm"][own & (table["horizon"] == h)]) for h in (first, last)]
    return (ends[1] - ends[0]) / (last - first)


def lost_at(table: Mapping[str, np.ndarray], motion: str, size: int) -> float:
    """Horizon at which the median share over the starts first falls below one half, interpolated.

    Infinite where it never does.

    >>> table = {"motion": np.array(["m"] * 2), "size": np.full(2, 9)}
    >>> table |= {"horizon": np.array([2, 4]), "share": np.array([1.0, 0.0])}
    >>> lost_at(table, "m", 9)
    3.0
    """
    own = (table["motion"] == motion) & (table["size"] == size)
    steps = np.unique(table["horizon"][own])
    middle = np.array([np.median(table["share"][own & (table["horizon"] == h)]) for h in steps])
    below = np.flatnonzero(middle < 0.5)
    if not len(below):
        return float("inf")
    place = int(below[0])
    if place == 0:
        return float(steps[0])
    part = (middle[place - 1] - 0.5) / (middle[place - 1] - middle[place])
    return float(steps[place - 1] + part * (steps[place] - steps[place - 1]))


def noise_reaches(
    level: float, *, sizes: Sequence[int], motion: str = "chaos at 1.28", starts: int = 24
) -> np.ndarray:
    """Tokens until the linear noise of N bits exceeds `level`, medians over the starts, (sizes,).

    Root of the summed variances of the segments; infinite where it stays below for 80 tokens.

    >>> noise_reaches(1.0, sizes=[999], motion="driven", starts=1)
    array([inf])
    """
    level = check_real("level", level, low=0.0)
    network, beta = Network.document(), MOTIONS[motion][0]
    noise = []
    for number in range(check_integer("starts", starts, low=1)):
        window, position = message_start(network, motion, number=number)
        path = mean_path(network, beta, window=window, steps=LONGEST, position=position)
        maps = linear_maps(network, beta, path=path, position=position - network.context + 1)
        covariance = noise_covariance(network, path, maps=maps, draw_window=False)
        noise.append(np.trace(covariance[network.context :], axis1=1, axis2=2) ** 0.5)
    over = np.array(noise) / np.sqrt(np.array(sizes))[:, None, None] > level
    first = np.where(over.any(-1), over.argmax(-1) + 1.0, np.inf)
    return np.median(first, axis=1)


_FOLDER = Path(__file__).parent
GROWTH = Table(
    path=_FOLDER / "growth.csv",
    units=[
        {"motion": motion, "start": start}
        for motion, count in GROWTH_STARTS.items()
        for start in range(count)
    ],
    rows=growth_rows,
)
RATES = Table(
    path=_FOLDER / "rates.csv",
    units=[{"motion": motion} for motion in GROWTH_STARTS],
    rows=rate_rows,
)
SHARES_LEFT = Table(
    path=_FOLDER / "shares.csv",
    units=[
        {"motion": motion, "size": size, "start": start}
        for motion, sizes in (("periodic", SHARE_SIZES[-1:]), ("chaos at 1.28", SHARE_SIZES))
        for size in sizes
        for start in SHARE_STARTS
    ],
    rows=share_rows,
)

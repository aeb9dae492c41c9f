"""How far ahead a gradient through the limit reaches, in the document's own network."""

from typing import Any

import numpy as np
import torch

from bookmaker.tables import Rows, stored
from compendium.common.phase_transitions import protocol_start
from compendium.common.rows import Columns, array_of, grid, median_interval, near_rows, rows_of
from compendium.common.windows import MOTIONS, message_start
from spinformer.core.statistics import mean_interval
from spinformer.dmft.finite_size import generate, mean_path, semantic_overlaps
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts, torch_step, trajectory
from spinformer.dmft.network import Context, Network

GROWTH_STARTS = {"periodic": 10, "quasi-periodic": 10, "chaos at 1.266": 20, "chaos at 1.28": 40}
CHAOTIC = ("chaos at 1.266", "chaos at 1.28")


def growth_start(network: Network, motion: str, *, number: int) -> Context:
    """A context on the attractor, `number` of many: along one orbit, or random ones in chaos."""
    beta, settle, between = MOTIONS[motion]
    if between:
        origin = protocol_start(network, steps=2000)
    else:
        origin = random_contexts(network, number, count=1).select(0)
    _, found = trajectory(network, origin, beta=beta, steps=0, transient=settle + number * between)
    return Context(np.round(found.attention, 8), found.position)


def gradient_norms(
    network: Network, context: Context, *, beta: float, horizons: tuple[int, ...]
) -> np.ndarray:
    """Norm of ∂m^o_1/∂W, the first overlap of token t + h in all weights, for every horizon h."""
    weights = torch.tensor(network.semantic, requires_grad=True)
    fixed: dict[str, Any] = {"beta": beta, "gamma": network.gamma, "epsilon": network.epsilon}
    fixed["position_overlaps"] = torch.tensor(network.position_overlaps())
    fixed["fractions"] = torch.tensor(network.fractions)
    attention, path = torch.tensor(context.attention), []
    for position in range(context.position, context.position + max(horizons)):
        attention, overlap = torch_step(weights, attention=attention, position=position, **fixed)
        path.append(overlap[0])
    found = [torch.autograd.grad(path[h - 1], weights, retain_graph=True)[0] for h in horizons]
    return torch.stack(found).flatten(1).norm(dim=1).numpy()


@stored(
    "growth",
    [{"motion": m, "start": n} for m, count in GROWTH_STARTS.items() for n in range(count)],
    seconds=0.3,
    rtol=1e-2,
)
def GROWTH(motion: str, *, start: int) -> Rows:
    """Norm of the gradient at every horizon, from one start."""
    network = Network.document()
    horizons = tuple(2**k for k in range(8 if motion in CHAOTIC else 9))
    context = growth_start(network, motion, number=start)
    norms = gradient_norms(network, context, beta=MOTIONS[motion][0], horizons=horizons)
    return rows_of(horizon=horizons, norm=norms)


@stored("rates", grid(motion=GROWTH_STARTS), seconds=0.2, within={"rate": 1e-4, "error": 1e-4})
def RATES(motion: str) -> Rows:
    """Leading Lyapunov exponent of a motion, nats per token, with its error."""
    network = Network.document()
    start, beta = growth_start(network, motion, number=100), MOTIONS[motion][0]
    found = lyapunov_spectrum(network, start, beta=beta, steps=100_000, transient=1000, count=1)
    return rows_of(rate=found.exponents.value, error=found.exponents.error)


def sampled_derivative(
    network: Network, size: int, *, beta: float, runs: int, seed: int, **setting: Any
) -> np.ndarray:
    """∂⟨m^o⟩/∂β of the tokens after a fixed window at N = `size`, (steps, P), by the score.

    ⟨(m − ⟨m⟩) Σ_t ∂_β log P(x_t | past)⟩ with ∂_β log P = Σ_l n (x_l − tanh h_l) h_l/β.
    """
    how: dict[str, Any] = {"beta": beta, "runs": runs, "seed": seed, "draw_window": False}
    found, context = generate(network, size, **how, **setting), network.context
    means, tokens = found.means[:, context:], found.tokens[:, context:]
    field = np.arctanh(np.clip(means, -1.0 + 1e-15, 1.0 - 1e-15)) / beta
    # A token moves its own overlaps, too: the score up to and including it.
    score = np.cumsum(((tokens - means) * field) @ network.counts(size), axis=1)
    overlaps = semantic_overlaps(network, tokens)
    return np.einsum("rt,rta->ta", score, overlaps - overlaps.mean(0)) / (runs - 1)


@stored(
    "shares",
    grid(motion=("periodic",), size=(999_999,), start=range(24))
    + grid(motion=("chaos at 1.28",), size=(999, 9999, 99_999, 999_999), start=range(24)),
    seconds=0.3,
    rtol=1e-2,
)
def SHARES_LEFT(motion: str, *, size: int, start: int) -> Rows:
    """Projection of the derivative at N on that of the limit, over the latter's square."""
    network, beta = Network.document(), MOTIONS[motion][0]
    window, position = message_start(network, motion, number=start)
    setting: dict[str, Any] = {"window": window, "position": position, "steps": 80}
    high, low = (mean_path(network, beta + side, **setting) for side in (1e-7, -1e-7))
    limit = semantic_overlaps(network, (high - low)[network.context :] / 2e-7)
    sampled = sampled_derivative(network, size, beta=beta, runs=6000, seed=start, **setting)
    share = (limit * sampled).sum(1) / (limit**2).sum(1)
    return rows_of(horizon=range(4, 81, 4), share=share[3::4])


def growth_slopes(table: Columns, motion: str, *, first: int, last: int) -> np.ndarray:
    """Mean logarithmic growth of the gradient per token between two horizons, start by start."""
    low, high = (array_of(table, "norm", "start", motion=motion, horizon=h) for h in (first, last))
    return np.log(high / low) / (last - first)


@stored(
    "settings_C19c",
    grid(motion=CHAOTIC, first=(8, 16, 32), last=(64, 128), middle=("mean", "median")),
    seconds=0.1,
)
def GROWTHS(motion: str, *, first: int, last: int, middle: str) -> Rows:
    """Half less the distance from 1 of the gradient's growth over the exponent of the motion."""
    found = growth_slopes(GROWTH.read(), motion, first=first, last=last)
    found = found / array_of(RATES.read(), "rate", "motion", motion=motion)
    mean = (found.mean(), *mean_interval(found))
    interval = mean if middle == "mean" else median_interval(found)
    return near_rows(interval, aim=1.0, within=0.5, runs=len(found))

"""How far ahead a gradient through the limit reaches, in the published network itself."""

from functools import partial

import numpy as np
import torch

from bookmaker.tables import Rows, stored
from compendium.common.rows import Columns, array_of, parameter_product, rows_of
from compendium.common.stored_exponents import exponent_of_chaos
from spinformer.dmft.finite_size import generate, mean_path, semantic_overlaps
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import poclopez2024_context, torch_step, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.poclopez2024 import MOTIONS, attractor_window, chaotic_contexts

# Chunks of starts of the table of gradients, and starts in each. In chaos the growth over a hundred
# tokens differs from start to start by as much as it is.
_CHUNKS = {"periodic": 1, "quasi-periodic": 1, "chaos at 1.266": 20, "chaos at 1.28": 4}
_REGULAR_STARTS = 10
_CHAOTIC_STARTS = 100
CHAOTIC = ("chaos at 1.266", "chaos at 1.28")
_REGULAR = ("periodic", "quasi-periodic")


def growth_starts(network: Network, motion: str, *, chunk: int) -> Context:
    """Contexts (starts, T, P) on the attractor: along one orbit, or random ones in chaos."""
    if motion in CHAOTIC:
        return chaotic_contexts(network, motion, seed=chunk, count=_CHAOTIC_STARTS)
    beta = MOTIONS[motion].beta
    settle = MOTIONS[motion].transient
    origin = poclopez2024_context(network, steps=2000, decimals=8)
    _, context = trajectory(network, origin, beta=beta, steps=0, transient=settle)
    states = []
    # Starts of one position, spread along the orbit.
    for _ in range(_REGULAR_STARTS):
        states.append(context.attention)
        ahead = network.positions * MOTIONS[motion].spacing
        _, context = trajectory(network, context, beta=beta, steps=0, transient=ahead)
    return Context(np.round(states, 8), context.position)


def gradient_norms(
    network: Network, context: Context, *, beta: float, horizons: tuple[int, ...]
) -> np.ndarray:
    """Norm of ∂m^o_1/∂W, the first overlap of token t + h in all weights, (..., horizons h)."""
    step = partial(
        torch_step,
        beta=beta,
        gamma=network.gamma,
        epsilon=network.epsilon,
        position_overlaps=torch.tensor(network.position_overlaps()),
        fractions=torch.tensor(network.fractions),
    )
    weights = torch.tensor(network.semantic)
    *batch, context_length, features = context.attention.shape
    starts = torch.tensor(context.attention).reshape(-1, context_length, features)

    def overlaps_ahead(weights: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
        path = []
        for position in range(context.position, context.position + max(horizons)):
            attention, overlap = step(weights, attention=attention, position=position)
            path.append(overlap[0])
        return torch.stack([path[horizon - 1] for horizon in horizons])

    gradient = torch.func.vmap(torch.func.jacrev(overlaps_ahead), in_dims=(None, 0))
    norms = gradient(weights, starts).flatten(2).norm(dim=2).numpy()
    return norms.reshape(*batch, len(horizons))


@stored(
    "growth",
    [{"motion": m, "chunk": n} for m, count in _CHUNKS.items() for n in range(count)],
    seconds=2.0,
    rtol=1e-2,
)
def growth_table(motion: str, *, chunk: int) -> Rows:
    """Norm of the gradient at every horizon, from the starts of a chunk."""
    network = Network.poclopez2024()
    horizons = tuple(2**k for k in range(8 if motion in CHAOTIC else 9))
    context = growth_starts(network, motion, chunk=chunk)
    norms = gradient_norms(network, context, beta=MOTIONS[motion].beta, horizons=horizons)
    rows = []
    for number, result in enumerate(norms, chunk * len(norms)):
        rows += rows_of(start=number, horizon=horizons, norm=result)
    return rows


@stored(
    "rates", parameter_product(motion=_REGULAR), seconds=0.2, within={"rate": 1e-4, "error": 1e-4}
)
def rates_table(motion: str) -> Rows:
    """Leading Lyapunov exponent of a regular motion, nats per token, with its error."""
    network = Network.poclopez2024()
    beta = MOTIONS[motion].beta
    start = growth_starts(network, motion, chunk=0).select(0)
    result = lyapunov_spectrum(network, start, beta=beta, steps=100_000, transient=1000, count=1)
    return rows_of(rate=result.exponents.value, error=result.exponents.error)


def exponents() -> dict[str, float]:
    """Leading exponents of all motions, nats per token; of chaos the converged ones."""
    table = rates_table.read()
    result = dict(zip(table["motion"].tolist(), table["rate"].tolist(), strict=True))
    return result | {name: float(exponent_of_chaos(MOTIONS[name].beta).value) for name in CHAOTIC}


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
    """∂⟨m^o⟩/∂β of the tokens after a fixed window at N = `size`, (steps, P), by the score.

    ⟨(m − ⟨m⟩) Σ_t ∂_β log P(x_t | past)⟩ with ∂_β log P = Σ_l n (x_l − tanh h_l) h_l/β.
    """
    texts = generate(
        network,
        size,
        beta=beta,
        window=window,
        steps=steps,
        runs=runs,
        seed=seed,
        position=position,
        draw_window=False,
    )
    context = network.context
    means = texts.means[:, context:]
    tokens = texts.tokens[:, context:]
    field = np.arctanh(np.clip(means, -1.0 + 1e-15, 1.0 - 1e-15)) / beta
    # A token moves its own overlaps, too: the score up to and including it.
    score = np.cumsum(((tokens - means) * field) @ network.counts(size), axis=1)
    overlaps = semantic_overlaps(network, tokens)
    return np.einsum("rt,rta->ta", score, overlaps - overlaps.mean(0)) / (runs - 1)


# The largest horizon of the table of shares.
_LONGEST = 80


@stored(
    "shares",
    parameter_product(motion=("periodic",), size=(999_999,), start=range(24))
    + parameter_product(
        motion=("chaos at 1.28",), size=(999, 9999, 99_999, 999_999), start=range(24)
    ),
    seconds=0.3,
    rtol=1e-2,
)
def shares_left_table(motion: str, *, size: int, start: int) -> Rows:
    """Projection of the derivative at N on that of the limit, over the latter's square."""
    beta = MOTIONS[motion].beta
    window, position = attractor_window(Network.poclopez2024(), motion, number=start)
    share = shares_left(
        size, beta=beta, window=window, position=position, steps=_LONGEST, seed=start
    )
    return rows_of(horizon=range(4, _LONGEST + 1, 4), share=share[3::4])


def shares_left(
    size: int, *, beta: float, window: np.ndarray, position: int, steps: int, seed: int
) -> np.ndarray:
    """The share at every one of the `steps` tokens after a window, (steps,)."""
    network = Network.poclopez2024()
    high = mean_path(network, beta + 1e-7, window=window, steps=steps, position=position)
    low = mean_path(network, beta - 1e-7, window=window, steps=steps, position=position)
    limit = semantic_overlaps(network, (high - low)[network.context :] / 2e-7)
    sampled = sampled_derivative(
        network,
        size,
        beta=beta,
        window=window,
        position=position,
        steps=steps,
        runs=6000,
        seed=seed,
    )
    return np.asarray((limit * sampled).sum(1) / (limit**2).sum(1))


def growth_slopes(table: Columns, motion: str, *, first: int, last: int) -> np.ndarray:
    """Mean logarithmic growth of the gradient per token between two horizons, start by start."""
    low = array_of(table, "norm", "start", motion=motion, horizon=first)
    high = array_of(table, "norm", "start", motion=motion, horizon=last)
    return np.log(high / low) / (last - first)

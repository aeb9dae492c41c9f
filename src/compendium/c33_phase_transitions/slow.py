"""How long the published network takes to settle, and the exponents of its chaos, converged."""

from bookmaker.tables import Rows, stored
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.statistics import mean_estimate
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts
from spinformer.dmft.network import Network
from spinformer.dmft.poclopez2024 import MOTIONS
from spinformer.dmft.settling import relaxation_time, settled_contexts

# Some fifteen relaxation times of each motion; the driven cycle is reached within a turn of the
# clock.
_STEPS = {
    "periodic": 36_000,
    "quasi-periodic": 4800,
    "chaos at 1.266": 7200,
    "chaos at 1.28": 480,
}
# Contexts, stretches and steps of each behind an exponent; growth below which a stretch is not
# chaotic: on the closed curve that coexists with chaos at 1.266 it is zero.
_CONTEXTS = 512
_STRETCHES = 40
_LENGTH = 20_000
_CALM = 0.02


@stored(
    "relaxation",
    parameter_product(motion=_STEPS, seed=(1, 2)),
    checked=6,
    seconds=2.0,
)
def relaxation_times_table(motion: str, seed: int) -> Rows:
    """Tokens in which 8,192 random contexts come e times nearer to the attractor, with error."""
    network = Network.poclopez2024()
    beta = MOTIONS[motion].beta
    starts = random_contexts(network, seed, count=8192)
    result = relaxation_time(network, starts, beta=beta, steps=_STEPS[motion], threads=1)
    return rows_of(time=result)


@stored(
    "exponents",
    parameter_product(beta=(1.266, 1.28, 1.4), seed=(1, 2)),
    small={"beta": 1.28, "seed": 1, "contexts": 16, "length": 500},
    seconds=1.0,
    within={"exponent": 1e-3, "exponent_error": 1e-4},
)
def exponents_table(
    beta: float, seed: int, *, contexts: int = _CONTEXTS, length: int = _LENGTH
) -> Rows:
    """Leading exponent of chaos, nats a token: mean over the contexts that stay in it, its error.

    Each of 512 contexts is followed for 800,000 tokens. One that is not chaotic at the end is left
    out: it has left for another attractor or began on one.
    """
    network = Network.poclopez2024()
    slowest = max(one.relaxation for name, one in MOTIONS.items() if "chaos" in name)
    starts = random_contexts(network, seed, count=contexts)
    starts = settled_contexts(network, starts, beta=beta, relaxation=slowest, threads=1)
    growth = lyapunov_spectrum(
        network,
        starts,
        beta=beta,
        steps=_STRETCHES * length,
        batches=_STRETCHES,
        count=1,
        threads=1,
    ).growth[..., 0]
    chaotic = growth[:, -3:].mean(axis=1) > _CALM
    result = mean_estimate(growth[chaotic].mean(axis=1))
    return rows_of(contexts=int(chaotic.sum()), exponent=result)

"""How long chaos lasts: escape times of copies of one start, and their lifetime τ in steps.

An orbit forgets its start, so times are exponential, P(t > s) = exp(−s/τ) (Tél and Lai 2008).
"""

from functools import cache
from typing import Any

import numpy as np

from bookmaker.tables import Rows, stored
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.random import Seed
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.dmft.attractors import Regime, find_attractors
from spinformer.dmft.lifetimes import Lifetime, detect_escapes, estimate_lifetime
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import poclopez2024_context, trajectory
from spinformer.dmft.network import Context, Network
from spinformer.dmft.poclopez2024 import DIAGRAM_VALUES, DIAGRAMS
from spinformer.dmft.regimes import classify_regimes, count_regimes, regime_label
from spinformer.dmft.settling import perturbed_replicas

_COPIES = 64

# Inverse temperatures near the torus, where chaos is long, and beside weak chaos.
LONG = (1.2654, 1.2655, 1.26575, 1.266, 1.26625, 1.2665, 1.26675, 1.2669)
_NEAR_TORUS = (1.2645, 1.265, 1.2653, *LONG, 1.267)
_NEAR_WEAK = [round(1.2735 + 0.00025 * step, 5) for step in range(13)]
_CRISIS = 1.276173  # where the weakly chaotic attractor ends, found by halving to 2e-6
_CHUNK = 100


@record
class Escapes:
    """Escape times (B,) in steps, the horizon for copies that never escaped; the states at the end.

    returned: whether chaos came back later. growth: (n, B) mean growth rate of a tangent vector in
    each stretch of `stretch` steps.
    """

    times: np.ndarray
    escaped: np.ndarray
    returned: np.ndarray
    growth: np.ndarray
    stretch: int
    context: Context

    def lifetime(self) -> Lifetime:
        """From escaped and censored times."""
        return estimate_lifetime(self.times, ended=self.escaped)


def escape_times(
    beta: float,
    *,
    rate: float,
    horizon: int,
    copies: int = _COPIES,
    seed: Seed = 0,
    stretch: int = 5000,
    transient: int = 5000,
) -> Escapes:
    """Follow copies of the published context for `horizon` steps: which leave their chaos?

    `transient` steps, in which the copies part, are dropped. rate: growth above which one is
    chaotic. A time is known to one `stretch`.
    """
    network = Network.poclopez2024()
    start = perturbed_replicas(
        poclopez2024_context(network, steps=100_000, decimals=8), count=copies, seed=seed
    )
    _, start = trajectory(network, start, beta=beta, steps=0, transient=transient)
    batches = horizon // stretch
    result = lyapunov_spectrum(
        network, start, beta=beta, steps=batches * stretch, batches=batches, count=1
    )
    growth = result.growth[..., 0].T
    escapes = detect_escapes(growth, threshold=rate)
    return Escapes(
        times=escapes.first * stretch,
        escaped=escapes.escaped,
        returned=escapes.returned,
        growth=growth,
        stretch=stretch,
        context=result.context,
    )


# rate: growth that separates chaos from what lies beside it, a torus or cycles with growth up to 0
# at the first β, weak chaos with growth up to 0.03 at the others.
@stored(
    "lifetimes",
    [
        {"beta": beta, "rate": 0.01, "horizon": 10_000_000 if beta in LONG else 1_000_000}
        for beta in _NEAR_TORUS
    ]
    + parameter_product(beta=_NEAR_WEAK, rate=(0.05,), horizon=(2_000_000,)),
    small={"beta": 1.2735, "rate": 0.05, "horizon": 60_000},
    seconds=1.5,
    # Chaos amplifies rounding, as below.
    within={"chaotic": 12, "escaped": 6, "lifetime": 5e3, "low": 5e3, "high": 5e3, "ends": np.inf}
    | {"growth": 0.02, "returned": 3},
)
def lifetimes_table(beta: float, *, rate: float, horizon: int) -> Rows:
    """Escapes of copies of the published context at one β, and what they end on."""
    result = escape_times(beta, rate=rate, horizon=horizon)
    ends = ""
    if result.escaped.any():
        left = result.context.select(result.escaped)
        after = classify_regimes(
            Network.poclopez2024(), left, beta=beta, transient=0, kept=10_000, exponent_steps=10_000
        )
        kinds = sorted(count_regimes(after).items(), key=lambda item: -item[1])
        ends = "; ".join(f"{count} {regime_label(*kind)}" for kind, count in kinds)
    early = result.growth[0][result.growth[0] >= rate]
    life = result.lifetime()
    return rows_of(
        copies=_COPIES,
        chaotic=(result.times > 0).sum(),
        growth=np.median(early) if len(early) else 0.0,
        escaped=result.escaped.sum(),
        returned=result.returned.sum(),
        lifetime=life.value,
        low=life.low,
        high=life.high,
        ends=ends,
    )


@stored(
    "seeds",
    # Where strong chaos lives long enough to be seen and is over in time.
    parameter_product(beta=_NEAR_WEAK[2:11], rate=(0.05,), horizon=(1_000_000,), seed=range(1, 6)),
    seconds=1.5,
    # Chaos amplifies rounding: another processor draws other copies.
    within={"escaped": 6.0, "total": 6e6, "lifetime": 9e4, "low": 9e4, "high": 2e5},
)
def seeds_table(beta: float, *, rate: float, horizon: int, seed: int) -> Rows:
    """Escapes of copies that other noise parts, with the time at risk of all of them together."""
    result = escape_times(beta, rate=rate, horizon=horizon, seed=seed)
    ended = result.escaped.sum()
    total = float(result.times.sum())
    life = result.lifetime()
    return rows_of(escaped=ended, total=total, lifetime=life.value, low=life.low, high=life.high)


def lifetime_law(table: dict[str, np.ndarray], *, draws: dict[str, np.ndarray]) -> dict[str, Any]:
    """Laws fitted to the lifetimes near the weakly chaotic attractor, each with its χ².

    One lifetime for all, `common`, and `middle` exp(`slope` (β − 1.275)).
    """
    betas = np.unique(draws["beta"])
    own = (table["beta"] == betas[:, None]).astype(float)
    more = (draws["beta"] == betas[:, None]).astype(float)
    ended = own @ table["escaped"] + more @ draws["escaped"]
    known = np.where(table["escaped"] > 0, table["lifetime"], 0.0)
    life = (own @ (known * table["escaped"]) + more @ draws["total"]) / ended
    weight = ended / life**2
    common = weight @ life / weight.sum()
    away = betas - 1.275
    logs = np.log(life)
    sharp = np.sqrt(ended)
    line, spread = np.polyfit(away, logs, 1, w=sharp, cov="unscaled")
    return {
        "beta": betas,
        "common": common,
        "chi2": weight @ (life - common) ** 2,
        "middle": np.exp(line[1]),
        "slope": Estimate(value=line[0], error=np.sqrt(spread[0, 0])),
        "slope_chi2": ended @ (logs - np.polyval(line, away)) ** 2,
    }


@cache
def _weak_chaos() -> Context:
    """States on the weakly chaotic attractor at β = 1.276, reached from β = 1.2755."""
    # Half a million steps end the strong chaos of most copies at 1.2755; the rest are left out.
    result = escape_times(1.2755, rate=0.05, horizon=500_000, copies=4 * _COPIES, transient=0)
    states = result.context.select(np.flatnonzero(result.escaped)[:_COPIES])
    for beta in (1.2758, 1.276):
        moved = lyapunov_spectrum(Network.poclopez2024(), states, beta=beta, steps=20_000, count=1)
        states = moved.context
    return states


@stored(
    "crisis",
    parameter_product(distance=(5e-6, 1e-5, 2e-5, 4e-5, 8e-5, 1.6e-4)),
    seconds=3.0,
    within={"escaped": 6.0, "lifetime": 3e3, "low": 3e3, "high": 4e3},
)
def crisis_table(distance: float) -> Rows:
    """Time on the weakly chaotic set at β = 1.276173 + distance, before strong chaos sets in."""
    beta = _CRISIS + distance
    stretch = 100
    result = lyapunov_spectrum(
        Network.poclopez2024(),
        _weak_chaos(),
        beta=beta,
        steps=4000 * stretch,
        batches=4000,
        count=1,
    )
    # Weak chaos grows at 0.02, strong at 0.14; now the escape is upwards.
    escapes = detect_escapes(-result.growth[..., 0].T, threshold=-0.06)
    life = estimate_lifetime(escapes.first * float(stretch), ended=escapes.escaped)
    return rows_of(
        copies=len(escapes.first),
        escaped=life.ended,
        lifetime=life.value,
        low=life.low,
        high=life.high,
    )


_CHUNKS = -(-DIAGRAM_VALUES // _CHUNK)


# The last chunk of the zoom is one column.
@stored(
    "columns",
    parameter_product(diagram=DIAGRAMS, chunk=range(_CHUNKS)),
    checked=2 * _CHUNKS - 1,
    seconds=1.5,
    within={"before": 0.03, "after": 0.03},
)
def columns_table(diagram: str, chunk: int) -> Rows:
    """Columns of one chunk of a diagram that are chaotic after 1e5 steps, and 2e6 steps later."""
    network = Network.poclopez2024()
    start = poclopez2024_context(network, steps=100_000, decimals=8)
    betas = np.linspace(*DIAGRAMS[diagram], DIAGRAM_VALUES)[chunk * _CHUNK : (chunk + 1) * _CHUNK]
    early = find_attractors(network, start, beta=betas, bins=1, exponents=1)
    chaotic = np.flatnonzero(early.regime == Regime.CHAOTIC)
    if not len(chaotic):
        return rows_of(chaotic=0, beta=betas[0], before=0.0, after=0.0, ends="none")
    state = early.context.select(chaotic)
    wait = 2_000_000
    late = find_attractors(network, state, beta=betas[chaotic], transient=wait, bins=1, exponents=1)
    return rows_of(
        chaotic=len(chaotic),
        beta=betas[chaotic],
        before=early.exponents.value[chaotic, 0],
        after=late.exponents.value[:, 0],
        ends=[Regime(code).label for code in late.regime],
    )

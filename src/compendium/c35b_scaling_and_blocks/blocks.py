"""Mean field of self-attention with a residual connection and a feed-forward block.

The model of [poclopez2024dynamical, Eqs. (7), (8), (15)] has neither. Here the logit of bit i is

    h_i + r x_{i,t},   h_i = Σ_a W^o_{ia} B_a,   B_a = A_a + s (1/M) Σ_j V_{ja} z_j,

A the attention vector, r the strength of the residual connection (every bit sees its own last
value), s that of a feed-forward block of M hidden spins z_j = ±1 with random signs U, V,
P(z_j) ∝ exp(β z_j Σ_b U_{jb} A_b). As M, N → ∞ the hidden overlaps have no scatter:

    B_a = A_a + s ⟨V_a tanh(β Σ_b U_b A_b)⟩ .

Given the fields, a bit is a Markov chain with two states, ⟨x'⟩ = (t₊ + t₋)/2 + x (t₊ − t₋)/2 with
t± = tanh β(h ± r), so that the mean u_l of the bits of segment l obeys exactly

    u'_l = ½(t₊ + t₋) + ½(t₊ − t₋) u_l .

The state is the mean tokens u of the window, T·L numbers; with r = s = 0 this is the mean field of
`dmft.mean_field`, whose u_l is tanh(β W^o_l·A). Positions act on overlaps, not on the residual
connection. Exponents are in nats per step, from tangent vectors of u. β also is the inverse
temperature of the hidden spins; "linear" blocks take its argument for tanh, a gain without bend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import entropy

from bookmaker.tables import Rows, Table, stored
from compendium.common.networks import draw_networks
from compendium.common.rows import grid, mean_rows, rows_of
from spinformer.core.chaos import kaplan_yorke_dimension
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network

_FOLDER = Path(__file__).parent
# Steps between two orthonormalizations, and until the frame has aligned.
_EVERY = 4
_ALIGN = 400
# The census: values of β up to the top, windows at each, steps dropped and averaged.
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
# Networks of each family of the census: the sample, and another.
FAMILIES = {0: 120, 1: 60}


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """A network with a residual connection and a feed-forward block.

    residual: r ≥ 0. feed: s ≥ 0. hidden: (2, P, H) signs U, V of H equally many kinds of hidden
    spins; None where there is no feed-forward block. linear: hidden spins without saturation.
    """

    network: Network
    residual: float = 0.0
    feed: float = 0.0
    hidden: np.ndarray | None = None
    linear: bool = False

    @property
    def signs(self) -> np.ndarray:
        """`hidden`, or one idle kind of hidden spins."""
        return np.ones((2, self.network.features, 1)) if self.hidden is None else self.hidden


def random_hidden(seed: Seed, *, features: int, kinds: int = 3) -> np.ndarray:
    """Random signs (2, P, H) of a feed-forward block, into the hidden spins and out of them."""
    return numpy_generator(seed).choice((-1.0, 1.0), size=(2, features, kinds))


def block_step(blocks: Blocks, window: np.ndarray, *, position: int, beta: float) -> np.ndarray:
    """One step in plain NumPy: mean tokens (T, L), the newest at `position` → the next window."""
    network = blocks.network
    places = (position - np.arange(network.context)) % network.positions
    share, drive = network.epsilon, network.position_overlaps()[places]
    overlap = (1.0 - share) * network.overlaps(window) + share * drive
    weight = softmax(network.gamma * overlap[:, KEY] @ overlap[0, QUERY])
    attention = weight @ overlap[:, VALUE]
    inward, outward = blocks.signs
    argument = beta * attention @ inward
    bent = argument if blocks.linear else np.tanh(argument)
    stream = attention + blocks.feed * bent @ outward.T / inward.shape[1]
    field = stream @ network.semantic[OUTPUT]
    plus, minus = (np.tanh(beta * (field + sign * blocks.residual)) for sign in (1.0, -1.0))
    newest = 0.5 * (plus + minus) + 0.5 * (plus - minus) * window[0]
    return np.concatenate([newest[None], window[:-1]])


def rest_multipliers(blocks: Blocks, *, beta: float) -> np.ndarray:
    """Multipliers z of one step at rest, u = 0, without positions: (T·L,) complex, largest first.

    There attention is the mean of the window, so that δu' = tanh(βr) δu + β sech²(βr) W^oᵀ
    (1 + sβ⟨V Uᵀ⟩) (1/T) Σ_τ ⟨W^v δu_τ⟩. The resting state is unstable where |z_0| > 1.
    """
    network = blocks.network
    inward, outward = blocks.signs
    stream = np.eye(network.features)
    stream = stream + blocks.feed * beta * outward @ inward.T / inward.shape[1]
    stay = np.tanh(beta * blocks.residual)
    value = network.semantic[VALUE] * network.fractions
    made = beta * (1.0 - stay**2) * network.semantic[OUTPUT].T @ stream @ value
    segments, context = network.segments, network.context
    step = np.eye(context * segments, k=-segments)
    step[:segments] = np.tile(made / context, context)
    step[:segments, :segments] += stay * np.eye(segments)
    found = np.linalg.eigvals(step)
    return np.asarray(found[np.lexsort((-found.imag, -np.abs(found)))])


class BlockEnsemble:
    """Many systems of equal sizes at once, each with its own network, blocks and β.

    systems: B of them, all linear or none. window: (B, T, L) mean tokens, newest first, the
    newest at `position`.
    """

    def __init__(
        self, systems: Sequence[Blocks], window: np.ndarray, *, beta: np.ndarray, position: int = 0
    ) -> None:
        self.beta, self.position = beta, position
        self.phases = systems[0].network.positions

        def lanes(values: list[np.ndarray | float]) -> np.ndarray:
            return np.ascontiguousarray(np.moveaxis(np.array(values, dtype=float), 0, -1))

        nets = [one.network for one in systems]
        share = lanes([net.epsilon for net in nets])
        self._output = lanes([net.semantic[OUTPUT] for net in nets])
        self._readout = lanes([(1.0 - net.epsilon) * net.semantic * net.fractions for net in nets])
        self._drive = share * lanes([net.position_overlaps() for net in nets])
        self._gamma = lanes([net.gamma for net in nets])
        self._residual = lanes([one.residual for one in systems])
        self._inward, self._outward = lanes([one.signs for one in systems])
        self._feed = lanes([one.feed / one.signs.shape[2] for one in systems])
        self._linear, self._fed = systems[0].linear, any(one.feed > 0.0 for one in systems)
        self._token = np.ascontiguousarray(np.moveaxis(window, 0, -1))
        ages = enumerate(self._token)
        self._seen = np.array([self._overlaps(token, position - age) for age, token in ages])

    def _overlaps(self, token: np.ndarray, position: int) -> np.ndarray:
        return (self._readout * token).sum(axis=2) + self._drive[position % self.phases]

    def _roles(self, change: np.ndarray) -> np.ndarray:
        """Changes (k, 3·P, B) of value, query and key that changes (k, L, B) of a token make."""
        roles = (VALUE, QUERY, KEY)
        made = [(self._readout[role] * change[:, None]).sum(axis=2) for role in roles]
        return np.concatenate(made, axis=1)

    @property
    def window(self) -> np.ndarray:
        """Mean tokens (B, T, L), the newest first, at `position`."""
        return np.moveaxis(self._token, -1, 0).copy()

    def _step(self, frame: np.ndarray) -> np.ndarray:
        """One step of all systems, and of tangent vectors (k, T, 3·P + L, B) if there are any.

        A tangent vector holds, token by token, the changes of u, then of value, query and key.
        """
        seen, newest = self._seen, self._token[0]
        query, keys, values = seen[0, QUERY], seen[:, KEY], seen[:, VALUE]
        score = self._gamma * (query * keys).sum(axis=1)
        weight = np.exp(score - score.max(axis=0))
        weight /= weight.sum(axis=0)
        attention = (weight[:, None] * values).sum(axis=0)
        stream = attention
        if self._fed:
            bent = self.beta * (self._inward * attention[:, None]).sum(axis=0)
            bent = bent if self._linear else np.tanh(bent)
            stream = attention + self._feed * (self._outward * bent).sum(axis=1)
        field = (self._output * stream[:, None]).sum(axis=0)
        plus = np.tanh(self.beta * (field + self._residual))
        minus = np.tanh(self.beta * (field - self._residual))
        stay = 0.5 * (plus - minus)
        token = 0.5 * (plus + minus) + stay * newest
        if frame.size:
            segments, features = newest.shape[0], query.shape[0]
            cut = [segments, segments + features, segments + 2 * features]
            dtoken, dvalue, dquery, dkey = np.split(frame, cut, axis=2)
            dscore = self._gamma * ((dquery[:, :1] * keys).sum(axis=2) + (query * dkey).sum(axis=2))
            moved = dvalue + (values - attention) * dscore[:, :, None]
            dstream = (weight[:, None] * moved).sum(axis=1)
            if self._fed:
                inner = (self._inward * dstream[:, :, None]).sum(axis=1)
                slope = self.beta if self._linear else self.beta * (1.0 - bent**2)
                change = (self._outward * (slope * inner)[:, None]).sum(axis=2)
                dstream = dstream + self._feed * change
            dfield = (self._output * dstream[:, :, None]).sum(axis=1)
            slope = (1.0 - plus**2) * (1.0 + newest) + (1.0 - minus**2) * (1.0 - newest)
            dnew = 0.5 * self.beta * slope * dfield + stay * dtoken[:, 0]
            fresh = np.concatenate([dnew, self._roles(dnew)], axis=1)
            frame = np.concatenate([fresh[:, None], frame[:, :-1]], axis=1)
        self.position = (self.position + 1) % self.phases
        self._token = np.concatenate([token[None], self._token[:-1]])
        self._seen = np.concatenate([self._overlaps(token, self.position)[None], seen[:-1]])
        return frame

    def advance(self, steps: int) -> None:
        """`steps` steps."""
        for _ in range(steps):
            self._step(np.empty(0))

    def exponents(self, steps: int, *, count: int = 4, batches: int = 10) -> Estimate:
        """The `count` largest Lyapunov exponents (B, count), the largest first, with errors.

        Aligned for 400 steps first; the errors are those of the means of `batches` stretches.
        A direction that the map destroys counts with its rounding, e^{-36} a step at the least.
        """
        tokens, segments, size = self._token.shape
        start = np.random.default_rng(0).standard_normal((count, tokens, segments))
        frame = np.zeros((count, tokens, segments + 3 * self._seen.shape[2], size))
        frame[:, :, :segments] = start[..., None]
        for age in range(tokens):
            frame[:, age, segments:] = self._roles(frame[:, age, :segments])
        stretch = steps // batches
        growth = np.zeros((batches, count, size))
        for number, length in enumerate((_ALIGN, *[stretch] * batches), start=-1):
            for n in range(length):
                frame = self._step(frame)
                if (n + 1) % _EVERY == 0 or n + 1 == length:
                    logs = _orthonormalize(frame, segments)
                    if number >= 0:
                        growth[number] += logs / length
        order = np.argsort(-growth.mean(axis=0), axis=0, kind="stable")
        value = np.take_along_axis(growth.mean(axis=0), order, axis=0).T
        scatter = growth.std(axis=0, ddof=1) / np.sqrt(batches)
        error = np.take_along_axis(scatter, order, axis=0).T
        return Estimate(value=value, error=error, samples=batches)


def _orthonormalize(frame: np.ndarray, segments: int) -> np.ndarray:
    """Gram-Schmidt in place, in the components of u; the logarithms of the lengths (k, B)."""
    logs = np.empty((len(frame), frame.shape[-1]))
    for i, vector in enumerate(frame):
        for other in frame[:i]:
            along = (vector[:, :segments] * other[:, :segments]).sum(axis=(0, 1))
            vector -= along * other
        length = np.sqrt((vector[:, :segments] ** 2).sum(axis=(0, 1)))
        length = np.maximum(length, np.exp(-36.0 * _EVERY))
        vector /= length
        logs[i] = np.log(length)
    return logs


# ---- the census


def make_blocks(network: Network, seed: int, *, condition: str) -> Blocks:
    """A network with the blocks of a condition; `seed` draws the hidden signs."""
    residual, feed, linear = CONDITIONS[condition]
    hidden = random_hidden(np.random.default_rng((seed, 7)), features=network.features)
    return Blocks(network=network, residual=residual, feed=feed, hidden=hidden, linear=linear)


def _drawn(
    family: int, start: int, stop: int, step: int = 1, *, epsilon: float = 0.02
) -> dict[int, Network]:
    """Networks number `start`, `start` + `step`, … of a family of the document's size."""
    sizes: dict[str, Any] = {"features": 3, "segments": 3, "context": 4, "epsilon": epsilon}
    drawn = draw_networks(family=family, count=stop, **sizes)
    return dict(list(drawn.items())[start::step])


def _exponents(networks: dict[int, Network], *, condition: str, wait: int = _WAIT) -> Estimate:
    """Exponents (networks, BETAS · WINDOWS, 4) of a batch of networks, by their seeds."""
    grid = TOP * np.arange(1, BETAS + 1) / BETAS
    each = BETAS * WINDOWS
    systems, windows = [], []
    for seed, network in networks.items():
        systems += [make_blocks(network, seed, condition=condition)] * each
        shape = (each, network.context, network.segments)
        windows.append(np.random.default_rng((seed, 8)).uniform(-1.0, 1.0, shape))
    beta = np.tile(np.repeat(grid, WINDOWS), len(networks))
    ensemble = BlockEnsemble(systems, np.concatenate(windows), beta=beta)
    ensemble.advance(wait)
    found = ensemble.exponents(_EXPONENT)
    shape = (len(networks), each, -1)
    return Estimate(value=found.value.reshape(shape), error=found.error.reshape(shape))


def _labels(found: Estimate) -> tuple[np.ndarray, np.ndarray]:
    """0 periodic, 1 quasi-periodic, 2 chaotic; and the dimension; each (networks, systems)."""
    leading, error = found.value[..., 0], found.error[..., 0]
    code = np.where(np.abs(leading) <= _NEUTRAL, 1, 0)
    code[leading - _SIGMAS * error > _CHAOTIC] = 2
    value = np.where(np.abs(found.value) <= _NEUTRAL, 0.0, found.value)
    return code, kaplan_yorke_dimension(-np.sort(-value, axis=-1))


def block_rows(condition: str, *, family: int, chunk: int, epsilon: float = 0.02) -> Rows:
    """One row a network: chaos, dimension, variety, and the mean leading exponent above zero."""
    first = _CHUNK * chunk
    networks = _drawn(family, first, first + _CHUNK, epsilon=epsilon)
    found = _exponents(networks, condition=condition)
    code, dimension = _labels(found)
    return rows_of(
        network=first + np.arange(_CHUNK),
        chaos=(code == 2).mean(axis=1),
        quasi=(code == 1).mean(axis=1),
        dimension=dimension.mean(axis=1),
        variety=[entropy(np.bincount(labels, minlength=3)) for labels in code],
        exponent=np.maximum(found.value[..., 0], 0.0).mean(axis=1),
        capped=(dimension >= found.value.shape[-1]).mean(axis=1),
    )


@cache
def _fresh(condition: str, epsilon: float) -> dict[str, np.ndarray]:
    """The rows of sixty networks that are not in the census, as columns."""
    rows = [
        row
        for chunk in range(5)
        for row in block_rows(condition, family=2, chunk=chunk, epsilon=epsilon)
    ]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


@stored(
    _FOLDER / "settings_C23.csv",
    units=grid(
        condition=("residual 1/2", "residual 1", "feed 1", "both 1/2, 1"), epsilon=(0.02, 0.1)
    ),
    seconds=60.0,
    within={"value": 0.02, "low": 0.03, "high": 0.03},
)
def SETTINGS(condition: str, *, epsilon: float) -> Rows:
    """Paired differences from the bare network, by four readings of complexity."""
    one, two = (_fresh(name, epsilon) for name in (condition, "bare"))
    measures = ("chaos", "dimension", "variety", "exponent")
    return [{"measure": m} | row for m in measures for row in mean_rows(one[m] - two[m])]


@stored(
    _FOLDER / "longer.csv",
    units=[{"condition": name} for name in ("bare", "residual 1/2", "feed 1", "both 1/2, 1")],
)
def LONGER(condition: str) -> Rows:
    """How many chaotic systems of every tenth network are chaotic after ten times the wait."""
    networks = _drawn(0, 0, 10 * _CHUNK, 10)
    early, late = (
        _labels(_exponents(networks, condition=condition, wait=wait))[0] == 2
        for wait in (_WAIT, 10 * _WAIT)
    )
    return rows_of(
        networks=len(networks), early=early.sum(), still=(early & late).sum(), late=late.sum()
    )


def first_mode(blocks: Blocks) -> tuple[float, float]:
    """β at which rest, without positions, first turns unstable, and the turns a token there.

    The slowest if several do at once, as for a negative eigenvalue of ⟨W^v W^oᵀ⟩. (inf, 0) where
    it is stable up to β = 20.
    """

    def excess(beta: float) -> float:
        return float(np.abs(rest_multipliers(blocks, beta=beta)[0])) - 1.0

    grid = np.geomspace(0.02, 20.0, 200)
    over = [n for n, beta in enumerate(grid) if excess(float(beta)) > 1e-9]
    if not over:
        return np.inf, 0.0
    beta = float(brentq(excess, float(grid[over[0] - 1]), float(grid[over[0]])))
    found = rest_multipliers(blocks, beta=beta)
    together = np.abs(found) > np.abs(found[0]) - 1e-7
    return beta, float(np.abs(np.angle(found[together])).min() / (2.0 * np.pi))


CENSUS = Table(
    path=_FOLDER / "census.csv",
    units=[
        {"condition": condition, "family": family, "chunk": chunk}
        for condition in CONDITIONS
        for family, networks in FAMILIES.items()
        for chunk in range(networks // _CHUNK)
    ],
    rows=block_rows,
    seconds=15.0,
    rtol=1e-3,
    within=dict.fromkeys(("chaos", "quasi", "dimension", "variety"), 0.1)
    | {"exponent": 0.01, "capped": 0.1},
)

"""Mean field of self-attention with a residual connection and a feed-forward block.

To [poclopez2024dynamical, Eqs. (7), (8), (15)] come a residual connection of strength r, by which
every bit sees its own last value, and a feed-forward block of strength s, many hidden spins with
signs U, V at the same β (`eq-blocks-model`, `eq-blocks-residual` of the chapter). The state is the
mean tokens u of the window; with r = s = 0 this is `dmft.mean_field`. Positions act on overlaps,
not on the residual connection. Exponents are in nats per step, from tangent vectors of u.
"Linear" blocks take the argument of the hidden tanh for it.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax
from scipy.stats import entropy

from bookmaker.tables import Rows, stored
from compendium.common.networks import draw_networks
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.chaos import kaplan_yorke_dimension
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network

# Steps between two orthonormalizations, until the frame has aligned; stretches that are averaged.
_EVERY = 4
_ALIGN = 400
_STRETCHES = 10
# The census: values of β up to the top, windows at each, steps dropped and averaged.
TOP = 3.0
BETAS = 24
WINDOWS = 2
_WAIT = 3000
_EXPONENT = 1600
_CHUNK = 12
# Above it by three errors is chaos; within the other is zero.
_CHAOTIC = 0.005
_NEUTRAL = 0.004
_SIGMAS = 3.0
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


class Blocks(NamedTuple):
    """A network with residual strength r, feed-forward strength s, and hidden signs U, V (2, P, H).

    H: equally many kinds of hidden spins. linear: without saturation.
    """

    network: Network
    residual: float = 0.0
    feed: float = 0.0
    hidden: np.ndarray = np.ones((2, 1, 1))
    linear: bool = False


def random_hidden(seed: Seed, *, features: int, kinds: int = 3) -> np.ndarray:
    """Random signs U, V (2, P, H), into the hidden spins and out of them."""
    return numpy_generator(seed).choice((-1.0, 1.0), size=(2, features, kinds))


class BlockEnsemble:
    """B systems of equal sizes side by side, each with its own network, blocks and β.

    All are linear, or none. A window is (T, L, B), mean tokens, newest first.
    """

    def __init__(self, systems: Sequence[Blocks], *, beta: Sequence[float] | np.ndarray) -> None:
        def lanes(values: list[Any]) -> np.ndarray:
            return np.ascontiguousarray(np.moveaxis(np.array(values, dtype=float), 0, -1))

        nets = [one.network for one in systems]
        self.size = (nets[0].context, nets[0].segments)
        self.linear = systems[0].linear
        self.beta = np.asarray(beta)
        self.gamma = lanes([net.gamma for net in nets])
        self.output = lanes([net.semantic[OUTPUT] for net in nets])
        self.readout = lanes([(1.0 - net.epsilon) * net.semantic * net.fractions for net in nets])
        self.drive = lanes([net.epsilon * net.position_overlaps() for net in nets])
        self.residual = lanes([one.residual for one in systems])
        self.inward, self.outward = lanes([one.hidden for one in systems])
        self.outward *= lanes([one.feed for one in systems]) / self.outward.shape[1]

    def _roles(self, tokens: np.ndarray) -> np.ndarray:
        """Overlaps (4, ..., P, B) that tokens (..., L, B) make in the four roles."""
        return np.array([(tokens[..., None, :, :] * role).sum(axis=-2) for role in self.readout])

    def step(
        self, window: np.ndarray, position: int, frame: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """A window whose newest token is at `position`, and tangents (k, T, L, B), a step later."""
        places = (position - np.arange(self.size[0])) % len(self.drive)
        seen = self._roles(window) + self.drive[places].swapaxes(0, 1)
        query = seen[QUERY, 0]
        keys = seen[KEY]
        values = seen[VALUE]
        newest = window[0]
        weight = softmax(self.gamma * (query * keys).sum(axis=1), axis=0)
        attention = (weight[:, None] * values).sum(axis=0)
        bent = self.beta * (self.inward * attention[:, None]).sum(axis=0)
        bent = bent if self.linear else np.tanh(bent)
        stream = attention + (self.outward * bent).sum(axis=1)
        field = (self.output * stream[:, None]).sum(axis=0)
        plus = np.tanh(self.beta * (field + self.residual))
        minus = np.tanh(self.beta * (field - self.residual))
        stay = 0.5 * (plus - minus)
        token = 0.5 * (plus + minus) + stay * newest

        moved = self._roles(frame)
        dscore = (moved[QUERY, :, :1] * keys).sum(axis=2) + (query * moved[KEY]).sum(axis=2)
        dvalue = moved[VALUE] + (values - attention) * (self.gamma * dscore)[:, :, None]
        dstream = (weight[:, None] * dvalue).sum(axis=1)
        slope = self.beta * (1.0 if self.linear else 1.0 - bent**2)
        inner = slope * (self.inward * dstream[:, :, None]).sum(axis=1)
        dstream = dstream + (self.outward * inner[:, None]).sum(axis=2)
        dfield = (self.output * dstream[:, :, None]).sum(axis=1)
        slope = (1.0 - plus**2) * (1.0 + newest) + (1.0 - minus**2) * (1.0 - newest)
        dtoken = 0.5 * self.beta * slope * dfield + stay * frame[:, 0]
        window = np.concatenate([token[None], window[:-1]])
        return window, np.concatenate([dtoken[:, None], frame[:, :-1]], axis=1)

    def advance(self, window: np.ndarray, steps: int, *, position: int = 0) -> np.ndarray:
        """The window after `steps` steps."""
        for place in range(position, position + steps):
            window, _ = self.step(window, place, window[None][:0])
        return window

    def exponents(
        self, window: np.ndarray, steps: int, *, position: int = 0, count: int = 4
    ) -> Estimate:
        """The `count` largest Lyapunov exponents (B, count), the largest first, with errors.

        From a multiple of 40 steps. A direction that the map destroys counts as e^{-36} a step.
        """
        start = np.random.default_rng(0).standard_normal((count, *self.size))
        frame = np.repeat(start[..., None], window.shape[-1], axis=-1)
        logs = []
        for begin in range(position, position + _ALIGN + steps, _EVERY):
            for place in range(begin, begin + _EVERY):
                window, frame = self.step(window, place, frame)
            flat = frame.reshape(count, -1, window.shape[-1]).transpose(2, 1, 0)
            axes, triangle = np.linalg.qr(flat)
            frame = np.ascontiguousarray(axes.transpose(2, 1, 0)).reshape(frame.shape)
            sizes = np.abs(np.diagonal(triangle, axis1=1, axis2=2))
            logs.append(np.log(np.maximum(sizes, np.exp(-36.0 * _EVERY))))
        growth = np.reshape(logs[_ALIGN // _EVERY :], (_STRETCHES, -1, *logs[0].shape))
        result = mean_estimate(growth.mean(axis=1) / _EVERY)
        order = np.argsort(-result.value, axis=1, kind="stable")
        return Estimate(
            value=np.take_along_axis(result.value, order, axis=1),
            error=np.take_along_axis(result.error, order, axis=1),
            samples=_STRETCHES,
        )


def block_step(blocks: Blocks, window: np.ndarray, *, position: int, beta: float) -> np.ndarray:
    """One step of one system: mean tokens (T, L), the newest at `position` → the next window."""
    ensemble = BlockEnsemble([blocks], beta=[beta])
    return ensemble.advance(window[..., None], 1, position=position)[..., 0]


def first_mode(blocks: Blocks) -> tuple[float, float]:
    """β at which rest, without positions, first turns unstable, and the turns a token there.

    The slowest if several do at once. (inf, 0) where it is stable up to β = 20.
    """
    still = blocks._replace(network=blocks.network.with_parameters(epsilon=0.0))

    def multipliers(betas: Sequence[float] | np.ndarray) -> np.ndarray:
        """Of a step at u = 0: (n, T·L) complex."""
        ensemble = BlockEnsemble([still], beta=betas)
        size = int(np.prod(ensemble.size))
        basis = np.eye(size).reshape(size, *ensemble.size)[..., None].repeat(len(betas), axis=-1)
        _, moved = ensemble.step(0.0 * basis[0], 0, basis)
        return np.linalg.eigvals(moved.reshape(size, size, -1).transpose(2, 0, 1))

    def excess(beta: float) -> float:
        return float(np.abs(multipliers([beta])).max()) - 1.0

    betas = np.geomspace(0.02, 20.0, 200)
    over = np.abs(multipliers(betas)).max(axis=1) > 1.0 + 1e-9
    if not over.any():
        return np.inf, 0.0
    first = int(over.argmax())
    beta = float(brentq(excess, betas[first - 1], betas[first]))
    result = multipliers([beta])[0]
    together = np.abs(result) > np.abs(result).max() - 1e-7
    return beta, float(np.abs(np.angle(result[together])).min() / (2.0 * np.pi))


def make_blocks(network: Network, seed: int, *, condition: str) -> Blocks:
    """A network with the blocks of a condition; `seed` draws the hidden signs."""
    residual, feed, linear = CONDITIONS[condition]
    hidden = random_hidden(np.random.default_rng((seed, 7)), features=network.features)
    return Blocks(network=network, residual=residual, feed=feed, hidden=hidden, linear=linear)


def _drawn(family: int, *places: int, epsilon: float = 0.02) -> dict[int, Network]:
    """Networks of a family of the published size, at the places `start, stop, step`."""
    drawn = draw_networks(
        family=family, features=3, segments=3, context=4, epsilon=epsilon, count=places[1]
    )
    return dict(islice(drawn.items(), *places))


def _surveyed(
    networks: dict[int, Network], *, condition: str, wait: int = _WAIT
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of a batch of networks by their seeds, (networks, BETAS · WINDOWS) each.

    Code (0 periodic, 1 quasi-periodic, 2 chaotic), Kaplan-Yorke dimension ≤ 4, leading exponent.
    """
    betas = np.repeat(TOP * np.arange(1, BETAS + 1) / BETAS, WINDOWS)
    systems = []
    windows = []
    for seed, network in networks.items():
        systems += [make_blocks(network, seed, condition=condition)] * len(betas)
        shape = (len(betas), network.context, network.segments)
        windows.append(np.random.default_rng((seed, 8)).uniform(-1.0, 1.0, shape))
    ensemble = BlockEnsemble(systems, beta=np.tile(betas, len(networks)))
    window = ensemble.advance(np.moveaxis(np.concatenate(windows), 0, -1), wait)
    result = ensemble.exponents(window, _EXPONENT, position=wait)
    shape = (len(networks), len(betas), -1)
    value = result.value.reshape(shape)
    error = result.error.reshape(shape)
    leading = value[..., 0]
    code = np.where(np.abs(leading) <= _NEUTRAL, 1, 0)
    code[leading - _SIGMAS * error[..., 0] > _CHAOTIC] = 2
    value = np.where(np.abs(value) <= _NEUTRAL, 0.0, value)
    return code, kaplan_yorke_dimension(-np.sort(-value, axis=-1)), leading


@stored(
    "census",
    [
        {"condition": condition, "family": family, "chunk": chunk}
        for condition in CONDITIONS
        # 120 networks of the sample, 60 of another.
        for family, chunks in ((0, 10), (1, 5))
        for chunk in range(chunks)
    ],
    seconds=4.0,
    rtol=1e-3,
    within=dict.fromkeys(("chaos", "quasi", "dimension", "variety"), 0.1) | {"exponent": 0.01},
)
def census_table(condition: str, *, family: int, chunk: int, epsilon: float = 0.02) -> Rows:
    """One row a network: chaos, dimension, variety, and the mean leading exponent above zero."""
    first = _CHUNK * chunk
    networks = _drawn(family, first, first + _CHUNK, epsilon=epsilon)
    code, dimension, leading = _surveyed(networks, condition=condition)
    return rows_of(
        network=first + np.arange(_CHUNK),
        chaos=(code == 2).mean(axis=1),
        quasi=(code == 1).mean(axis=1),
        dimension=dimension.mean(axis=1),
        variety=[entropy(np.bincount(labels, minlength=3)) for labels in code],
        exponent=np.maximum(leading, 0.0).mean(axis=1),
    )


@stored(
    "longer",
    parameter_product(condition=("bare", "residual 1/2", "feed 1", "both 1/2, 1")),
    seconds=11.0,
    within=dict.fromkeys(("early", "still", "late"), 4),
)
def longer_table(condition: str) -> Rows:
    """How many chaotic systems of every tenth network are chaotic after ten times the wait."""
    networks = _drawn(0, 0, 10 * _CHUNK, 10)
    early = _surveyed(networks, condition=condition, wait=_WAIT)[0] == 2
    late = _surveyed(networks, condition=condition, wait=10 * _WAIT)[0] == 2
    return rows_of(early=early.sum(), still=(early & late).sum(), late=late.sum())

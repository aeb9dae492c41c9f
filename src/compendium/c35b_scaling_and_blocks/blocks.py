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

import numpy as np
from scipy.special import expit

from spinformer.core.checks import (
    check_array,
    check_flag,
    check_instance,
    check_integer,
    check_real,
)
from spinformer.core.random import Seed, numpy_generator
from spinformer.core.records import record
from spinformer.core.statistics import Estimate
from spinformer.dmft.network import KEY, OUTPUT, QUERY, VALUE, Network
from spinformer.dmft.state import Context, fitting

# Steps between two orthonormalizations, and until the frame has aligned.
_EVERY = 4
_ALIGN = 400


@record
class Blocks:
    """A network with a residual connection and a feed-forward block.

    residual: r ≥ 0. feed: s ≥ 0. hidden: (2, P, H) signs U, V of H equally many kinds of hidden
    spins; None: no feed-forward block. linear: hidden spins without saturation.

    >>> Blocks(network=Network.document(), residual=0.5).residual
    0.5
    """

    network: Network
    residual: float = 0.0
    feed: float = 0.0
    hidden: np.ndarray = None  # type: ignore[assignment]
    linear: bool = False

    def __post_init__(self) -> None:
        """Validate, and store float64 arrays."""
        check_instance("network", self.network, Network)
        check_real("residual", self.residual, low=0.0)
        check_real("feed", self.feed, low=0.0)
        check_flag("linear", self.linear)
        signs = np.ones((2, self.network.features, 1)) if self.hidden is None else self.hidden
        signs = check_array("hidden", signs, values=(-1.0, 1.0)).copy()
        if signs.ndim != 3 or signs.shape[:2] != (2, self.network.features):
            raise ValueError(f"hidden must have shape (2, P, H), got {signs.shape}")
        if self.hidden is None and self.feed > 0.0:
            raise ValueError("hidden must be given where feed is positive, got None")
        signs.setflags(write=False)
        object.__setattr__(self, "hidden", signs)


def random_hidden(seed: Seed, *, features: int, kinds: int = 3) -> np.ndarray:
    """Random signs (2, P, H) of a feed-forward block, into the hidden spins and out of them.

    >>> random_hidden(0, features=3).shape
    (2, 3, 3)
    """
    size = (2, check_integer("features", features, low=1), check_integer("kinds", kinds, low=1))
    return numpy_generator(seed).choice((-1.0, 1.0), size=size)


def mean_tokens(blocks: Blocks, context: Context, *, beta: float) -> np.ndarray:
    """Mean tokens u (..., T, L) of a context of attention vectors, newest first.

    >>> blocks = Blocks(network=Network.document())
    >>> mean_tokens(blocks, Context(np.zeros((4, 3)), 0), beta=1.2).shape
    (4, 3)
    """
    check_instance("blocks", blocks, Blocks)
    attention, _ = fitting(blocks.network, context)
    beta = check_real("beta", beta, low=0.0)
    return np.asarray(np.tanh(beta * attention @ blocks.network.semantic[OUTPUT]))


def block_step(
    blocks: Blocks, window: np.ndarray, *, position: int, beta: float
) -> tuple[np.ndarray, np.ndarray]:
    """One step in plain NumPy: mean tokens (T, L), the newest at `position` → the next window.

    With it the fields h (L,) of the segments, residual connection not included.

    >>> blocks = Blocks(network=Network.document())
    >>> step, field = block_step(blocks, np.zeros((4, 3)), position=3, beta=1.2)
    >>> step.shape, field.shape
    ((4, 3), (3,))
    """
    check_instance("blocks", blocks, Blocks)
    network = blocks.network
    window = check_array("window", window, shape=(network.context, network.segments))
    beta = check_real("beta", beta, low=0.0)
    position = check_integer("position", position)
    places = (position - np.arange(network.context)) % network.positions
    share, drive = network.epsilon, network.position_overlaps()[places]
    overlap = (1.0 - share) * network.overlaps(window) + share * drive
    score = network.gamma * overlap[:, KEY] @ overlap[0, QUERY]
    weight = np.exp(score - score.max())
    attention = (weight / weight.sum()) @ overlap[:, VALUE]
    inward, outward = blocks.hidden
    argument = beta * attention @ inward
    bent = argument if blocks.linear else np.tanh(argument)
    stream = attention + blocks.feed * (outward @ bent) / inward.shape[1]
    field = stream @ network.semantic[OUTPUT]
    plus, minus = (np.tanh(beta * (field + sign * blocks.residual)) for sign in (1.0, -1.0))
    newest = 0.5 * (plus + minus) + 0.5 * (plus - minus) * window[0]
    return np.concatenate([newest[None], window[:-1]]), field


def rest_multipliers(blocks: Blocks, *, beta: float) -> np.ndarray:
    """Multipliers z of one step at rest, u = 0, without positions: (T·L,) complex, largest first.

    There attention is the mean of the window, so that δu' = tanh(βr) δu + β sech²(βr) W^oᵀ
    (1 + sβ⟨V Uᵀ⟩) (1/T) Σ_τ ⟨W^v δu_τ⟩. The resting state is unstable where |z_0| > 1.

    >>> round(float(abs(rest_multipliers(Blocks(network=Network.document()), beta=1.2212)[0])), 3)
    1.0
    """
    check_instance("blocks", blocks, Blocks)
    network = blocks.network
    beta = check_real("beta", beta, low=0.0)
    inward, outward = blocks.hidden
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


def generate_blocks(
    blocks: Blocks,
    window: np.ndarray,
    *,
    size: int,
    position: int,
    beta: float,
    steps: int,
    seed: Seed,
    runs: int = 1,
) -> np.ndarray:
    """Texts of a network of `size` bits and as many hidden spins: mean bits (runs, steps, L).

    window: (T, L) mean bits of the first tokens, newest first, on `position`. Bits of a segment
    differ only in their sign, so a segment is a number of bits that are up, and a step draws how
    many of those up and of those down are up next: exact, at any size.

    >>> texts = generate_blocks(Blocks(network=Network.document()), np.ones((4, 3)), size=300,
    ...                         position=3, beta=1.2, steps=5, seed=0)
    >>> texts.shape
    (1, 5, 3)
    """
    check_instance("blocks", blocks, Blocks)
    network, rng = blocks.network, numpy_generator(seed)
    counts = network.counts(size)
    position, beta = check_integer("position", position), check_real("beta", beta, low=0.0)
    steps, runs = check_integer("steps", steps, low=1), check_integer("runs", runs, low=1)
    window = check_array("window", window, shape=(network.context, network.segments))
    kinds = blocks.hidden.shape[2]
    hidden = check_integer("size / kinds of hidden spins", size // kinds, low=1)
    inward, outward = blocks.hidden
    past = np.broadcast_to(window, (runs, *window.shape))
    up = np.rint(0.5 * (1.0 + past[:, 0]) * counts).astype(np.int64)
    found = []
    for n in range(steps):
        places = (position + n - np.arange(network.context)) % network.positions
        share, drive = network.epsilon, network.position_overlaps()[places]
        overlap = (1.0 - share) * network.overlaps(past) + share * drive
        score = np.einsum("na,nta->nt", overlap[:, 0, QUERY], overlap[:, :, KEY])
        weight = np.exp(network.gamma * (score - score.max(axis=1, keepdims=True)))
        weight /= weight.sum(axis=1, keepdims=True)
        attention = np.einsum("nt,nta->na", weight, overlap[:, :, VALUE])
        argument = beta * attention @ inward
        if blocks.linear:
            bent = argument
        else:
            bent = 2.0 * rng.binomial(hidden, expit(2.0 * argument)) / hidden - 1.0
        stream = attention + blocks.feed * bent @ outward.T / kinds
        field = stream @ network.semantic[OUTPUT]
        stay, rise = (expit(2.0 * beta * (field + sign * blocks.residual)) for sign in (1.0, -1.0))
        up = rng.binomial(up, stay) + rng.binomial(counts - up, rise)
        token = 2.0 * up / counts - 1.0
        past = np.concatenate([token[:, None], past[:, :-1]], axis=1)
        found.append(token)
    return np.moveaxis(np.array(found), 0, 1)


class BlockEnsemble:
    """Many systems of equal sizes at once, each with its own network, blocks and β.

    systems: B of them. window: (B, T, L) mean tokens, newest first, the newest at `position`.

    >>> systems = [Blocks(network=Network.document())] * 2
    >>> both = BlockEnsemble(systems, np.zeros((2, 4, 3)), beta=np.ones(2))
    >>> both.record(5).shape
    (2, 5, 3)
    """

    def __init__(
        self,
        systems: Sequence[Blocks],
        window: np.ndarray,
        *,
        beta: np.ndarray,
        position: int = 0,
    ) -> None:
        if not isinstance(systems, Sequence) or not systems:
            raise TypeError(f"systems must be a non-empty sequence of Blocks, got {systems!r:.60}")
        for one in systems:
            check_instance("systems", one, Blocks)
        first = systems[0].network
        shape = (len(systems), first.context, first.segments)
        window = check_array("window", window, shape=shape)
        self.beta = check_array("beta", beta, shape=shape[:1], low=0.0)
        alike = {(*one.network.semantic.shape, one.network.context, one.network.bits,
                  one.hidden.shape[2], one.linear) for one in systems}  # fmt: skip
        if len(alike) > 1:
            raise ValueError(f"systems must have equal sizes, got {sorted(alike)}")
        self.phases = first.positions
        self.position = check_integer("position", position, low=0, high=self.phases - 1)

        def lanes(values: list[np.ndarray | float]) -> np.ndarray:
            return np.ascontiguousarray(np.moveaxis(np.array(values, dtype=float), 0, -1))

        nets = [one.network for one in systems]
        share = lanes([net.epsilon for net in nets])
        self._output = lanes([net.semantic[OUTPUT] for net in nets])
        self._readout = lanes([(1.0 - net.epsilon) * net.semantic * net.fractions for net in nets])
        self._drive = share * lanes([net.position_overlaps() for net in nets])
        self._gamma = lanes([net.gamma for net in nets])
        self._residual = lanes([one.residual for one in systems])
        self._inward, self._outward = lanes([one.hidden for one in systems])
        self._feed = lanes([one.feed / one.hidden.shape[2] for one in systems])
        self._linear, self._fed = systems[0].linear, any(one.feed > 0.0 for one in systems)
        self._token = np.ascontiguousarray(np.moveaxis(window, 0, -1))
        made = [
            self._overlaps(token, (self.position - age) % self.phases)
            for age, token in enumerate(self._token)
        ]
        self._seen = np.array(made)

    def _overlaps(self, token: np.ndarray, position: int) -> np.ndarray:
        return (self._readout * token).sum(axis=2) + self._drive[position]

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
            parts = [(self._readout[role] * dnew[:, None]).sum(axis=2)
                     for role in (VALUE, QUERY, KEY)]  # fmt: skip
            fresh = np.concatenate([dnew, *parts], axis=1)
            frame = np.concatenate([fresh[:, None], frame[:, :-1]], axis=1)
        self.position = (self.position + 1) % self.phases
        self._token = np.concatenate([token[None], self._token[:-1]])
        self._seen = np.concatenate([self._overlaps(token, self.position)[None], seen[:-1]])
        return frame

    def advance(self, steps: int) -> None:
        """`steps` steps."""
        for _ in range(check_integer("steps", steps, low=0)):
            self._step(np.empty(0))

    def record(self, steps: int) -> np.ndarray:
        """Semantic m^o (B, steps, P) of the tokens that `steps` steps make, 1 − ε included."""
        found = []
        for _ in range(check_integer("steps", steps, low=1)):
            self._step(np.empty(0))
            found.append((self._readout[OUTPUT] * self._token[0]).sum(axis=1))
        return np.moveaxis(np.array(found), -1, 0)

    def exponents(self, steps: int, *, count: int = 4, batches: int = 10) -> Estimate:
        """The `count` largest Lyapunov exponents (B, count), the largest first, with errors.

        Aligned for 400 steps first; the errors are those of the means of `batches` stretches.
        A direction that the map destroys counts with its rounding, e^{-36} a step at the least.
        """
        batches = check_integer("batches", batches, low=2)
        stretch = check_integer("steps", steps, low=batches * _EVERY) // batches
        tokens, segments, size = self._token.shape
        roles = self._seen.shape[2]
        count = check_integer("count", count, low=1, high=tokens * segments)
        start = np.random.default_rng(0).standard_normal((count, tokens, segments))
        frame = np.zeros((count, tokens, segments + 3 * roles, size))
        frame[:, :, :segments] = start[..., None]
        readout = np.concatenate([self._readout[role] for role in (VALUE, QUERY, KEY)])
        for age in range(tokens):
            frame[:, age, segments:] = (readout * frame[:, age, None, :segments]).sum(axis=2)
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

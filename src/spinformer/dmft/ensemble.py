"""Many mean-field systems at once: memory, threads, and nothing else.

An `Ensemble` lays independent systems (values of β, γ and ε, initial contexts, networks) out in
blocks of `LANES`, keeps their state, and runs kernels over the blocks with threads. Blocks do not
talk to each other, so results do not depend on the number of threads.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from spinformer.core.checks import check_integer
from spinformer.dmft import kernels
from spinformer.dmft.kernels import LANES, Block, Clock
from spinformer.dmft.network import OUTPUT, AttentionNetwork, Context, fitting, parameters

_Task = Callable[[Block, Clock], tuple[Clock, tuple[np.ndarray, ...]]]


class Ensemble:
    """State of a batch of systems of equal sizes (P, T, 2^K).

    networks: one network, or M networks of equal P, T and K.
    context: its attention broadcasts to (..., T, P), for M networks to (M, ..., T, P); all
        systems share its position.
    beta, gamma, epsilon: broadcast to (...) or (M, ...); None takes the networks' own.
    threads: how many threads; None: as many as the machine has cores.

    Raises TypeError or ValueError, naming the argument, for what does not fit together.

    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.zeros((5, 4, 3)), 0)
    >>> ensemble = Ensemble(Network.document(), start, beta=1.2)
    >>> ensemble.record(10).shape, ensemble.state().position
    ((5, 10, 3), 2)
    """

    def __init__(
        self,
        networks: AttentionNetwork | Sequence[AttentionNetwork],
        context: Context,
        *,
        beta: float | np.ndarray,
        gamma: float | np.ndarray | None = None,
        epsilon: float | np.ndarray | None = None,
        threads: int | None = None,
    ) -> None:
        single = isinstance(networks, AttentionNetwork)
        nets = _alike(networks)
        contexts, position = fitting(nets[0], context)
        values = parameters(networks, beta, gamma, epsilon, batch=contexts.shape[:-2])
        batch = np.broadcast_shapes(contexts.shape[:-2], *(value.shape for value in values))
        if not single and len(batch) > 1 and batch[0] not in (1, len(nets)):
            raise ValueError(
                "the batch of attention, beta, gamma and epsilon must have the networks "
                f"({len(nets)}) on its first axis, got {batch}"
            )
        self.threads = check_integer(
            "threads", os.cpu_count() or 1 if threads is None else threads, low=1
        )
        # One network has no axis of its own, and a single system of it none at all.
        self._shape = batch if single else (len(nets), *(batch[1:] or batch or (1,)))
        size = math.prod(self._shape) // len(nets)
        self._full = (len(nets), size)
        self._per_network = -(-size // LANES)
        self.blocks = len(nets) * self._per_network
        self.features, self.window = nets[0].features, nets[0].context
        # Of m^o_a, the largest in any of the networks.
        self.reach = np.max([net.reach[OUTPUT] for net in nets], axis=0)
        self.clock = Clock(0, position)
        self._weights = [
            tuple(map(np.ascontiguousarray, (*net.hidden_units(), net.position_overlaps())))
            for net in nets
        ]
        self._parameters = [self._lanes(self._spread(value)) for value in values]
        vectors = self._spread(contexts, self.window, self.features)
        self._ring = np.zeros((self.blocks, self.window, 4, self.features, LANES))
        self._ring[:, self._slots(), 0] = self._lanes(vectors)
        self.run(lambda block, clock: (kernels.warm(block, clock) or clock, ()))

    # ---- layout

    def _spread(self, value: np.ndarray, *own: int) -> np.ndarray:
        """A value of the batch, its own axes last, as (M, B, ...)."""
        return np.broadcast_to(value, (*self._shape, *own)).reshape(*self._full, *own)

    def _slots(self) -> np.ndarray:
        """Slots of the ring by age, the newest first."""
        return (self.clock.cursor - np.arange(self.window)) % self.window

    def _lanes(self, value: np.ndarray) -> np.ndarray:
        """(M, B, ...) → (blocks, ..., lanes); the spare lanes repeat the last system."""
        spare = self._per_network * LANES - value.shape[1]
        padded = np.concatenate([value, np.repeat(value[:, -1:], spare, axis=1)], axis=1)
        split = padded.reshape(self.blocks, LANES, *value.shape[2:])
        return np.ascontiguousarray(np.moveaxis(split, 1, -1))

    def _gather(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Per-block arrays (..., lanes) → (M, B, ...) or, for one network, (B, ...)."""
        stacked = np.moveaxis(np.stack(parts), -1, 1)
        # Not −1: a record of no steps has no entries to tell the number of systems by.
        padded = len(parts) * LANES // self._full[0]
        full = stacked.reshape(self._full[0], padded, *stacked.shape[2:])[:, : self._full[1]]
        return np.ascontiguousarray(full).reshape((*self._shape, *full.shape[2:]))

    def _block(self, number: int) -> Block:
        """Block `number`, with scratch memory of its own."""
        patterns, readout, degeneracy, drive = self._weights[number // self._per_network]
        beta, gamma, epsilon = (parameter[number] for parameter in self._parameters)
        units = len(patterns)
        return Block(
            self._ring[number],
            np.empty((units, LANES)),
            np.empty((self.window, units + len(degeneracy), LANES)),
            np.empty((self.window + 1, LANES)),
            beta,
            gamma,
            epsilon,
            patterns,
            readout,
            degeneracy,
            drive,
        )

    # ---- running

    def run(self, task: _Task) -> tuple[np.ndarray, ...]:
        """Call task(block, clock) for every block, in threads, and collect what it returns.

        A task runs kernels on its block, for the same number of steps on each, and returns the
        clock after them and any number of arrays whose last axis is the lanes, (..., W). The
        ensemble's clock moves on; returned are these arrays with the axes of the batch in front.
        An exception in a task ends the run.
        """

        def work(number: int) -> tuple[Clock, tuple[np.ndarray, ...]]:
            return task(self._block(number), self.clock)

        threads = min(self.threads, self.blocks)
        if threads == 1:
            # A single system's return map is asked for thousands of times: no thread for each.
            results = list(map(work, range(self.blocks)))
        else:
            with ThreadPoolExecutor(threads) as pool:
                try:
                    results = list(pool.map(work, range(self.blocks)))
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        self.clock = Clock(*map(int, results[0][0]))
        arrays = zip(*(found for _, found in results), strict=True)
        return tuple(self._gather(parts) for parts in arrays)

    def advance(self, steps: int) -> None:
        """Run `steps` steps, keeping nothing but the state."""
        if check_integer("steps", steps, low=0):
            self.run(lambda block, clock: (kernels.advance(steps, block, clock), ()))

    def record(self, steps: int, *, every: int = 1) -> np.ndarray:
        """Semantic m^o, factor 1 − ε included, of `steps` tokens, every `every`-th one.

        Shape (..., steps, P).
        """
        steps = check_integer("steps", steps, low=0)
        every = check_integer("every", every, low=1)

        def task(block: Block, clock: Clock) -> tuple[Clock, tuple[np.ndarray, ...]]:
            out = np.empty((steps, self.features, LANES))
            return kernels.record(out, every, block, clock), (out,)

        return self.run(task)[0]

    def state(self) -> Context:
        """The contexts now: attention (..., T, P), newest first, and the position."""
        vectors = self._gather(list(self._ring[:, self._slots(), 0]))
        return Context(vectors, self.clock.position)


def _alike(networks: AttentionNetwork | Sequence[AttentionNetwork]) -> list[AttentionNetwork]:
    """The networks as a list, all of one size."""
    nets = [networks] if isinstance(networks, AttentionNetwork) else networks
    nets = list(nets) if isinstance(nets, Sequence) else []
    if not nets or not all(isinstance(net, AttentionNetwork) for net in nets):
        raise TypeError(
            "network or networks must be a Network or a non-empty sequence of them, "
            f"got {networks!r:.60}"
        )
    sizes = {(net.features, net.context, net.bits) for net in nets}
    if len(sizes) != 1:
        raise ValueError(f"networks must share (P, T, K), got {sorted(sizes)}")
    return nets

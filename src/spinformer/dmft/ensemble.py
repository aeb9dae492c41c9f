"""Many mean-field systems at once: memory, threads, and nothing else.

An `Ensemble` lays independent systems (values of β, γ and ε, initial contexts, networks) out in
blocks of `LANES`, keeps their state, and runs kernels over the blocks with threads. Blocks do not
talk to each other, so results do not depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import numpy as np
from tqdm import tqdm

from spinformer.core.checks import check_array, check_integer
from spinformer.dmft import kernels
from spinformer.dmft.kernels.lanes import LANES
from spinformer.dmft.kernels.stepping import Block, Clock
from spinformer.dmft.state import Context, fitting
from spinformer.dmft.weights import AttentionNetwork

Task = Callable[[Block, Clock], tuple[Clock, tuple[np.ndarray, ...]]]


class Ensemble:
    """State of a batch of systems of equal sizes (P, T, 2^K).

    networks: one network, or M networks of equal P, T and K.
    context: its attention broadcasts to (M, B, T, P) for M networks, else to (B, T, P); all
        systems share its position.
    beta, gamma, epsilon: broadcast to (M, B) or (B,); None takes the networks' own.
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
        self.single = isinstance(networks, AttentionNetwork)
        nets = _alike(networks)
        contexts, position = fitting(nets[0], context)
        given = _parameters(nets, self.single, beta, gamma, epsilon)
        batch = _batch_shape(nets, self.single, contexts, given)
        self.scalar = len(batch) == 0
        size = batch[-1] if batch else 1
        full = (len(nets), size)
        self.threads = check_integer(
            "threads", os.cpu_count() or 1 if threads is None else threads, low=1
        )
        self.networks, self.size = nets, size
        self.features, self.window = nets[0].features, nets[0].context
        self.clock = Clock(0, position)
        self._weights = [
            tuple(
                np.ascontiguousarray(array)
                for array in (*network.hidden_units(), network.position_overlaps())
            )
            for network in nets
        ]
        self._per_network = -(-size // LANES)
        self.blocks = len(nets) * self._per_network
        self._parameters = [self._lanes(np.broadcast_to(value, full)) for value in given.values()]
        vectors = np.broadcast_to(contexts, (*full, self.window, self.features))
        ring = np.empty(vectors.shape)
        ring[:, :, self._slots()] = vectors
        self._attention = self._lanes(ring)
        self._value = np.zeros(self._attention.shape)
        self._key = np.zeros(self._attention.shape)

        def warm(block: Block, clock: Clock) -> tuple[Clock, tuple[np.ndarray, ...]]:
            kernels.warm(block, clock)
            return clock, ()

        self.run(warm)

    # ---- layout

    def _slots(self) -> np.ndarray:
        """Slots of the ring by age, the newest first."""
        return (self.clock.cursor - np.arange(self.window)) % self.window

    def _lanes(self, value: np.ndarray) -> np.ndarray:
        """(M, B, ...) → (blocks, ..., lanes); the spare lanes repeat the last system."""
        spare = self._per_network * LANES - self.size
        padded = np.concatenate([value, np.repeat(value[:, -1:], spare, axis=1)], axis=1)
        split = padded.reshape(self.blocks, LANES, *value.shape[2:])
        return np.ascontiguousarray(np.moveaxis(split, 1, -1))

    def _gather(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Per-block arrays (..., lanes) → (M, B, ...) or, for one network, (B, ...)."""
        stacked = np.moveaxis(np.stack(parts), -1, 1)
        full = stacked.reshape(len(self.networks), self._per_network * LANES, *stacked.shape[2:])
        full = full[:, : self.size]
        if self.single:
            full = full[0]
            if self.scalar:
                full = full[0]
        return np.asarray(full, order="C")

    def _block(self, number: int) -> Block:
        """Block `number`, with scratch memory of its own."""
        patterns, readout, degeneracy, drive = self._weights[number // self._per_network]
        beta, gamma, epsilon = (parameter[number] for parameter in self._parameters)
        return Block(
            attention=self._attention[number],
            value=self._value[number],
            key=self._key[number],
            query=np.empty((self.features, LANES)),
            hidden=np.empty((patterns.shape[0], LANES)),
            weight=np.empty((self.window + 2, LANES)),
            beta=beta,
            gamma=gamma,
            epsilon=epsilon,
            patterns=patterns,
            readout=readout,
            degeneracy=degeneracy,
            drive=drive,
        )

    # ---- running

    def run(
        self, task: Task, *, progress: bool = False, label: str = "blocks"
    ) -> tuple[np.ndarray, ...]:
        """Call task(block, clock) for every block, in threads, and collect what it returns.

        A task runs kernels on its block, for the same number of steps on each, and returns the
        clock after them and any number of arrays whose last axis is the lanes, (..., W). The
        ensemble's clock moves on; returned are these arrays with the batch in front, (B, ...) or
        (M, B, ...). An exception in a task ends the run.
        """
        results: dict[int, tuple[Clock, tuple[np.ndarray, ...]]] = {}

        def work(number: int) -> None:
            results[number] = task(self._block(number), self.clock)

        bar = tqdm(total=self.blocks, desc=label, disable=not progress)
        threads = min(self.threads, self.blocks)
        if threads == 1:
            # A single system's return map is asked for thousands of times: no thread for each.
            with bar:
                for number in range(self.blocks):
                    work(number)
                    bar.update()
            return self._collect(results)
        with ThreadPoolExecutor(threads) as pool, bar:
            futures = [pool.submit(work, number) for number in range(self.blocks)]
            try:
                for future in as_completed(futures):
                    future.result()
                    bar.update()
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        return self._collect(results)

    def _collect(
        self, results: dict[int, tuple[Clock, tuple[np.ndarray, ...]]]
    ) -> tuple[np.ndarray, ...]:
        """Move the clock on, and put the blocks' arrays together."""
        cursor, position = results[0][0]
        self.clock = Clock(int(cursor), int(position))
        arrays = [results[number][1] for number in range(self.blocks)]
        return tuple(self._gather(parts) for parts in zip(*arrays, strict=True))

    def advance(self, steps: int, *, progress: bool = False) -> None:
        """Run `steps` steps, keeping nothing but the state."""
        steps = check_integer("steps", steps, low=0)
        if steps:
            self.run(
                lambda block, clock: (kernels.advance(steps, block, clock), ()),
                progress=progress,
                label="transient",
            )

    def record(self, steps: int, *, every: int = 1, progress: bool = False) -> np.ndarray:
        """Semantic m^o, factor 1 − ε included, of `steps` tokens, every `every`-th one.

        Shape (..., steps, P).
        """
        steps = check_integer("steps", steps, low=0)
        every = check_integer("every", every, low=1)

        def task(block: Block, clock: Clock) -> tuple[Clock, tuple[np.ndarray, ...]]:
            out = np.empty((steps, self.features, LANES))
            return kernels.record(out, every, block, clock), (out,)

        return self.run(task, progress=progress, label="trajectory")[0]

    def state(self) -> Context:
        """The contexts now: attention (..., T, P), newest first, and the position."""
        slots = self._slots()
        return Context(self._gather(list(self._attention[:, slots])), self.clock.position)


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


def _parameters(
    nets: Sequence[AttentionNetwork],
    single: bool,
    beta: float | np.ndarray,
    gamma: float | np.ndarray | None,
    epsilon: float | np.ndarray | None,
) -> dict[str, np.ndarray]:
    """β, γ and ε as arrays; the networks' own ones have shape (M, 1), or () for one network."""
    own = {
        "gamma": np.array([net.gamma for net in nets])[:, None],
        "epsilon": np.array([net.epsilon for net in nets])[:, None],
    }
    if single:
        # So that a scalar β stays without a batch axis.
        own = {name: value[0, 0] for name, value in own.items()}
    given = {
        "beta": check_array("beta", beta, low=0.0),
        "gamma": own["gamma"] if gamma is None else check_array("gamma", gamma, low=0.0),
        "epsilon": own["epsilon"]
        if epsilon is None
        else check_array("epsilon", epsilon, low=0.0, high=1.0),
    }
    if nets[0].bits == 0 and given["epsilon"].any():
        raise ValueError("epsilon must be 0 without position bits")
    return given


def _batch_shape(
    nets: Sequence[AttentionNetwork],
    single: bool,
    contexts: np.ndarray,
    given: dict[str, np.ndarray],
) -> tuple[int, ...]:
    """What contexts and parameters broadcast to: (), (B,) or, networks first, (M, B)."""
    shapes = [contexts.shape[:-2], *(value.shape for value in given.values())]
    try:
        batch = np.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(
            f"attention, beta, gamma and epsilon must broadcast together, got batch shapes {shapes}"
        ) from None
    axes = 1 if single else 2
    if len(batch) > axes or (len(batch) == 2 and batch[0] not in (1, len(nets))):
        raise ValueError(
            f"the batch of attention, beta, gamma and epsilon must have at most {axes} axes"
            f"{'' if single else f' (networks first: {len(nets)})'}, got {batch}"
        )
    if 0 in batch:
        raise ValueError(
            f"attention, beta, gamma and epsilon must not be empty, got a batch of shape {batch}"
        )
    return batch

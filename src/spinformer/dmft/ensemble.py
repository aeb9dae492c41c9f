"""Many mean-field systems at once: memory, threads, and nothing else.

An `Ensemble` lays independent systems out in blocks, of 8 lanes if they are few, else of 64, keeps
their state, and runs kernels over the blocks with threads. No result depends on lanes or threads.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Required, TypedDict

import numpy as np

from spinformer.core.checks import check_function, check_integer
from spinformer.dmft import kernels, narrow_kernels
from spinformer.dmft.kernel_inputs import Block, Clock
from spinformer.dmft.kernels import SOURCE
from spinformer.dmft.network import AttentionNetwork, Context, fitting, parameters

_Task = Callable[[Block, Clock], tuple[Clock, tuple[np.ndarray, ...]]]
_CORES = os.cpu_count() or 1
# By the number of lanes.
_KERNELS: dict[int, Any] = {module.LANES: module for module in (kernels, narrow_kernels)}
# A step of a wide block takes a little longer than one of three narrow ones.
_FEW = 3 * narrow_kernels.LANES


def kernels_of(block: Block) -> Any:
    """The kernels for as many lanes as a block has: `kernels` or `narrow_kernels`."""
    return _KERNELS[block.beta.size]


class Parameters(TypedDict, total=False):
    """What an `Ensemble` takes besides a network and a context."""

    beta: Required[float | np.ndarray]
    gamma: float | np.ndarray | None
    epsilon: float | np.ndarray | None
    threads: int | None


class Ensemble:
    """State of a batch of systems of one network.

    context: its attention broadcasts to (..., T, P); all systems share its position.
    beta, gamma, epsilon: broadcast to (...); None takes the network's own.
    threads: how many threads; None: as many as the machine has cores.

    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.zeros((5, 4, 3)), 0)
    >>> ensemble = Ensemble(Network.document(), start, beta=1.2)
    >>> ensemble.record(10).shape, ensemble.state().position
    ((5, 10, 3), 2)
    """

    def __init__(
        self,
        network: AttentionNetwork,
        context: Context,
        *,
        beta: float | np.ndarray,
        gamma: float | np.ndarray | None = None,
        epsilon: float | np.ndarray | None = None,
        threads: int | None = None,
    ) -> None:
        contexts, position = fitting(network, context)
        *values, self._batch = parameters(network, beta, gamma, epsilon, batch=contexts.shape[:-2])
        self.threads = check_integer("threads", _CORES if threads is None else threads, low=1)
        self._systems = math.prod(self._batch)
        compiled = narrow_kernels if self._systems <= _FEW else kernels
        self.lanes, self._aligned = compiled.LANES, compiled.aligned
        self.blocks = -(-self._systems // self.lanes)
        # The system in each lane; the last one is repeated.
        places = np.arange(self.blocks * self.lanes).reshape(self.blocks, self.lanes)
        self._filled = np.minimum(places, self._systems - 1)
        self.features, self.window = network.features, network.context
        self.clock = Clock(0, position)
        weights = network.compiled_weights
        self._ring = self._aligned(self.blocks, self.window, 4, self.features)
        self._ring[:, self.slots(), SOURCE] = self._lanes(contexts, self.window, self.features)
        units, groups = len(weights[0]), len(weights[2])
        scratch = ((units,), (self.window, units + groups), (self.window + 1,))
        # β, γ and ε side by side, so that they are laid out at once.
        own = np.empty((*self._batch, len(values)))
        for number, value in enumerate(values):
            own[..., number] = value
        self._blocks = [
            Block(ring, *(self._aligned(*shape) for shape in scratch), *rows, *weights)
            for ring, rows in zip(self._ring, self._lanes(own, len(values)), strict=True)
        ]
        self.run(lambda block, clock: (compiled.warm(block, clock) or clock, ()))

    # ---- layout

    def slots(self) -> np.ndarray:
        """Slots of the ring by age, the newest first."""
        return (self.clock.cursor - np.arange(self.window)) % self.window

    def _lanes(self, value: np.ndarray, *own: int) -> np.ndarray:
        """A value of the batch, its own axes last → (blocks, ..., lanes), the last repeated."""
        systems = np.broadcast_to(value, (*self._batch, *own)).reshape(-1, *own)
        result = self._aligned(self.blocks, *own)
        result[...] = systems[self._filled].transpose(0, *range(2, 2 + len(own)), 1)
        return result

    def _gather(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Per-block arrays (..., lanes) → the batch's axes first."""
        stacked = np.moveaxis(np.stack(parts), -1, 1)
        systems = stacked.reshape(self.blocks * self.lanes, *stacked.shape[2:])
        systems = systems[: self._systems]
        return np.ascontiguousarray(systems).reshape((*self._batch, *systems.shape[1:]))

    # ---- running

    def run(self, task: _Task) -> tuple[np.ndarray, ...]:
        """Call task(block, clock) for every block, in threads, and collect what it returns.

        A task runs as many steps on each block and returns the clock after them and any number of
        arrays (..., W); returned are these, the axes of the batch in front. An exception in a task
        ends the run.
        """

        check_function("task", task)

        def work(block: Block) -> tuple[Clock, tuple[np.ndarray, ...]]:
            return task(block, self.clock)

        # Narrow blocks are so few that a thread for each would take longer to start than to run.
        threads = 1 if self._systems <= _FEW else min(self.threads, self.blocks)
        if threads == 1:
            # A single system's return map is asked for thousands of times: no thread for each.
            results = list(map(work, self._blocks))
        else:
            with ThreadPoolExecutor(threads) as pool:
                try:
                    results = list(pool.map(work, self._blocks))
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        self.clock = Clock(*map(int, results[0][0]))
        arrays = zip(*(found for _, found in results), strict=True)
        return tuple(self._gather(parts) for parts in arrays)

    def advance(self, steps: int) -> None:
        """Run `steps` steps, keeping nothing but the state."""
        if check_integer("steps", steps, low=0):
            self.run(lambda block, clock: (kernels_of(block).advance(steps, block, clock), ()))

    def record(self, steps: int, *, every: int = 1) -> np.ndarray:
        """Semantic m^o, factor 1 − ε included, of `steps` tokens, every `every`-th one.

        Shape (..., steps, P).
        """
        steps = check_integer("steps", steps, low=0)
        every = check_integer("every", every, low=1)

        def task(block: Block, clock: Clock) -> tuple[Clock, tuple[np.ndarray, ...]]:
            out = np.empty((steps, self.features, self.lanes))
            return kernels_of(block).record(out, every, block, clock), (out,)

        return self.run(task)[0]

    def state(self) -> Context:
        """The contexts now: attention (..., T, P), newest first, and the position."""
        vectors = self._gather(list(self._ring[:, self.slots(), SOURCE]))
        return Context(vectors, self.clock.position)

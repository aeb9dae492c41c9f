"""Many mean-field systems at once: memory, threads, and nothing else.

An `Ensemble` lays independent systems out in blocks, of 4 lanes if they are few, else of 64, keeps
their state, and runs kernels over the blocks with threads. No result depends on lanes or threads.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Required, TypedDict

import numpy as np

from spinformer.core.checks import check_function, check_instance, check_integer
from spinformer.dmft import kernels, narrow_kernels
from spinformer.dmft.kernel_inputs import SystemBatch, TimeIndex
from spinformer.dmft.kernels import SOURCE
from spinformer.dmft.network import AttentionNetwork, Context, check_context, parameters

_Task = Callable[[SystemBatch, TimeIndex], tuple[TimeIndex, tuple[np.ndarray, ...]]]
_CORES = os.cpu_count() or 1
# By the number of lanes.
_KERNELS: dict[int, Any] = {module.LANES: module for module in (kernels, narrow_kernels)}
# A step of a wide block takes as long as one of twelve narrow ones.
_FEW = 12 * narrow_kernels.LANES


def kernels_of(batch: SystemBatch) -> Any:
    """Choose the compiled kernels for the number of lanes of a batch.

    Parameters
    ----------
    batch : SystemBatch
        The systems.

    Returns
    -------
    module
        The kernels, `dmft.kernels` or `dmft.narrow_kernels`.
    """
    return _KERNELS[batch.beta.size]


class Parameters(TypedDict, total=False):
    """Keyword arguments of an `Ensemble` besides the network and the context.

    These are the inverse temperature `beta` of the tokens, which is required, the inverse
    temperature `gamma` of attention, the weight `epsilon` of the position, and the number of
    `threads`. Numbers and arrays are as in `Ensemble`.
    """

    beta: Required[float | np.ndarray]
    gamma: float | np.ndarray | None
    epsilon: float | np.ndarray | None
    threads: int | None


class Ensemble:
    """State of a batch of mean-field systems of one network, iterated by compiled kernels.

    Parameters
    ----------
    network : AttentionNetwork
        The network.
    context : Context
        Initial states; their attention broadcasts to (..., T, P), and all systems share the
        position.
    beta : float or ndarray
        Inverse temperature β of the tokens, required; it broadcasts to (...).
    gamma : float or ndarray, optional
        Inverse temperature γ of attention; None takes that of the network.
    epsilon : float or ndarray, optional
        Weight ε of the position; None takes that of the network.
    threads : int, optional
        Number of threads; None uses as many as the machine has cores. No result depends on it.

    Raises
    ------
    TypeError
        If `network` or `context` is of another class, or `beta` is missing.
    ValueError
        If the context does not fit the network, shapes do not broadcast, or a parameter is out of
        its range.

    Examples
    --------
    >>> from spinformer.dmft.network import Network
    >>> start = Context(np.zeros((5, 4, 3)), 0)
    >>> ensemble = Ensemble(Network.poclopez2024(), start, beta=1.2)
    >>> ensemble.record(10).shape, ensemble.state().position
    ((5, 10, 3), 2)
    """

    def __init__(
        self,
        network: AttentionNetwork,
        context: Context,
        *,
        beta: float | np.ndarray | None = None,
        gamma: float | np.ndarray | None = None,
        epsilon: float | np.ndarray | None = None,
        threads: int | None = None,
    ) -> None:
        # Most callers pass on keywords of their own callers, who would read of this class.
        check_instance("network", network, AttentionNetwork)  # type: ignore[type-abstract]
        if beta is None:
            raise TypeError("beta must be given, the inverse temperature of the tokens, got None")
        contexts, position = check_context(network, context)
        *values, self._batch = parameters(network, beta, gamma, epsilon, batch=contexts.shape[:-2])
        self.threads = check_integer("threads", _CORES if threads is None else threads, low=1)
        self._systems = math.prod(self._batch)
        compiled = narrow_kernels if self._systems <= _FEW else kernels
        self.lanes = compiled.LANES
        self._aligned = compiled.aligned
        self.blocks = -(-self._systems // self.lanes)
        # The system in each lane; the last one is repeated.
        places = np.arange(self.blocks * self.lanes).reshape(self.blocks, self.lanes)
        self._filled = np.minimum(places, self._systems - 1)
        self.features = network.features
        self.window = network.context
        self.time = TimeIndex(0, position)
        weights = network.compiled_weights
        self._ring = self._aligned(self.blocks, self.window, 4, self.features)
        self._ring[:, self.slots(), SOURCE] = self._lanes(contexts, self.window, self.features)
        units = len(weights[0])
        groups = len(weights[2])
        scratch = ((units,), (self.window, units + groups), (self.window + 1,))
        # β, γ and ε side by side, so that they are laid out at once.
        own = np.empty((*self._batch, len(values)))
        for number, value in enumerate(values):
            own[..., number] = value
        self._blocks = [
            SystemBatch(ring, *(self._aligned(*shape) for shape in scratch), *rows, *weights)
            for ring, rows in zip(self._ring, self._lanes(own, len(values)), strict=True)
        ]
        self.run(lambda batch, time: (compiled.initialise_cache(batch, time) or time, ()))

    # ---- layout

    def slots(self) -> np.ndarray:
        """Compute the slots of the ring buffer by age, the newest first.

        Returns
        -------
        ndarray of int, shape (T,)
            Indices into the ring buffer of the window.
        """
        return (self.time.cursor - np.arange(self.window)) % self.window

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
        """Run a task on every block of systems, in threads, and collect its results.

        Parameters
        ----------
        task : callable
            Called as `task(batch, time)`. It runs the same number of steps on each block and
            returns the clock after them and any number of arrays (..., W), W being the number of
            systems in a block. An exception in a task ends the run.

        Returns
        -------
        tuple of ndarray
            The arrays of all systems, with the axes of the batch in front.

        Raises
        ------
        TypeError
            If `task` is not a function.
        """

        check_function("task", task)

        def work(batch: SystemBatch) -> tuple[TimeIndex, tuple[np.ndarray, ...]]:
            return task(batch, self.time)

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
        self.time = TimeIndex(*map(int, results[0][0]))
        arrays = zip(*(found for _, found in results), strict=True)
        return tuple(self._gather(parts) for parts in arrays)

    def advance(self, steps: int) -> None:
        """Iterate the map without recording a trajectory.

        Parameters
        ----------
        steps : int
            Number of steps.

        Raises
        ------
        ValueError
            If `steps` is negative.
        """
        if check_integer("steps", steps, low=0):
            self.run(lambda batch, time: (kernels_of(batch).advance(steps, batch, time), ()))

    def record(self, steps: int, *, every: int = 1) -> np.ndarray:
        """Iterate the map and record the trajectory.

        Parameters
        ----------
        steps : int
            Number of tokens that are recorded.
        every : int, default 1
            Sampling interval: the last of every `every` tokens is recorded.

        Returns
        -------
        ndarray, shape (..., steps, P)
            Semantic overlaps m^o with their factor 1 − ε.

        Raises
        ------
        ValueError
            If `steps` is negative or `every` is below 1.
        """
        steps = check_integer("steps", steps, low=0)
        every = check_integer("every", every, low=1)

        def task(batch: SystemBatch, time: TimeIndex) -> tuple[TimeIndex, tuple[np.ndarray, ...]]:
            out = np.empty((steps, self.features, self.lanes))
            return kernels_of(batch).record(out, every, batch, time), (out,)

        return self.run(task)[0]

    def state(self) -> Context:
        """Return the current contexts of all systems.

        Returns
        -------
        Context
            Attention (..., T, P), the newest vector first, and the position.
        """
        vectors = self._gather(list(self._ring[:, self.slots(), SOURCE]))
        return Context(vectors, self.time.position)

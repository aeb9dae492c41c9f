"""Many mean-field systems at once: memory, threads, and nothing else.

An `Ensemble` lays independent systems (values of β, γ and ε, initial contexts, networks) out in
blocks of `LANES`, keeps their state, and runs the compiled kernels over the blocks with threads.
Blocks do not talk to each other, so results do not depend on the number of threads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import numpy as np
from tqdm import tqdm

from spinformer.core.checks import check_array, check_integer
from spinformer.dmft import kernels
from spinformer.dmft.kernels import LANES
from spinformer.dmft.network import Network


def coefficients(
    networks: Sequence[Network],
) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(patterns, readout, position overlaps) of each network, as the kernels take them."""
    return [
        tuple(
            np.ascontiguousarray(array)
            for array in (*network.output_patterns(), network.position_overlaps())
        )
        for network in networks
    ]


class Ensemble:
    """State of a batch of systems of equal sizes (P, T, 2^K).

    networks: one network, or M networks of equal P, T and K.
    attention: contexts, broadcast to (M, B, T, P) for M networks, else to (B, T, P); the newest
        attention vector first.
    position: position of the token that the newest attention vector makes (shared by all).
    beta, gamma, epsilon: broadcast to (M, B) or (B,); None takes the networks' own.
    threads: how many threads; None: as many as the machine has cores.
    """

    def __init__(
        self,
        networks: Network | Sequence[Network],
        attention: np.ndarray,
        position: int,
        beta: float | np.ndarray,
        gamma: float | np.ndarray | None = None,
        epsilon: float | np.ndarray | None = None,
        threads: int | None = None,
    ) -> None:
        self.single = isinstance(networks, Network)
        nets = [networks] if isinstance(networks, Network) else list(networks)
        if not nets or not all(isinstance(net, Network) for net in nets):
            raise TypeError("networks must be a Network or a non-empty sequence of them")
        sizes = {(net.features, net.context, net.bits) for net in nets}
        if len(sizes) != 1:
            raise ValueError(f"networks must share (P, T, K), got {sorted(sizes)}")
        features, context, bits = sizes.pop()
        position = check_integer("position", position, low=0, high=2**bits - 1)
        contexts = check_array("attention", attention)
        if contexts.shape[-2:] != (context, features):
            raise ValueError(
                f"attention must end in (context, features) = {(context, features)}, "
                f"got shape {contexts.shape}"
            )
        own = {
            "gamma": np.array([net.gamma for net in nets])[:, None],
            "epsilon": np.array([net.epsilon for net in nets])[:, None],
        }
        given = {
            "beta": check_array("beta", beta, low=0.0),
            "gamma": own["gamma"] if gamma is None else check_array("gamma", gamma, low=0.0),
            "epsilon": own["epsilon"]
            if epsilon is None
            else check_array("epsilon", epsilon, low=0.0, high=1.0),
        }
        if bits == 0 and given["epsilon"].any():
            raise ValueError("epsilon must be 0 without position bits")
        if self.single:
            # One network: its γ and ε are scalars, so that a scalar β stays without a batch axis.
            given = {k: v[0, 0] if v is own.get(k) else v for k, v in given.items()}
        try:
            batch = np.broadcast_shapes(
                contexts.shape[:-2], *(value.shape for value in given.values())
            )
        except ValueError:
            raise ValueError(
                "attention, beta, gamma and epsilon must broadcast together, got batch shapes "
                f"{[contexts.shape[:-2], *(value.shape for value in given.values())]}"
            ) from None
        wanted = 1 if self.single else 2
        if len(batch) > wanted or (not self.single and batch and len(batch) == 2
                                   and batch[0] not in (1, len(nets))):  # fmt: skip
            raise ValueError(
                f"the batch must have at most {wanted} axes"
                f"{'' if self.single else f' (networks first: {len(nets)})'}, got {batch}"
            )
        self.scalar = len(batch) == 0
        size = batch[-1] if batch else 1
        full = (len(nets), size)
        self.threads = check_integer(
            "threads", os.cpu_count() or 1 if threads is None else threads, low=1
        )
        self.networks, self.size = nets, size
        self.features, self.context, self.period = features, context, 2**bits
        self.cursor, self.position = 0, position
        self._coefficients = coefficients(nets)
        per_network = -(-size // LANES)
        self._blocks = len(nets) * per_network
        self._per_network = per_network

        def lanes(value: np.ndarray) -> np.ndarray:
            # (M, B, ...) → (blocks, ..., lanes); the spare lanes repeat the last system.
            padded = np.concatenate(
                [value, np.repeat(value[:, -1:], per_network * LANES - size, axis=1)], axis=1
            )
            split = padded.reshape(len(nets) * per_network, LANES, *value.shape[2:])
            return np.ascontiguousarray(np.moveaxis(split, 1, -1))

        self._parameters = [
            lanes(np.broadcast_to(given[name], full)) for name in ("beta", "gamma", "epsilon")
        ]
        window = np.broadcast_to(contexts, (*full, context, features))
        # Slot of age a is (0 − a) mod T.
        slots = (-np.arange(context)) % context
        ring = np.empty(window.shape)
        ring[:, :, slots] = window
        self._attention = lanes(ring)
        shape = (self._blocks, context, features, LANES)
        self._value, self._key = np.zeros(shape), np.zeros(shape)
        self._each(lambda b, _: kernels.warm(self.cursor, self.position, *self._arrays(b)))

    # ---- running

    def _arrays(self, block: int) -> tuple[Any, ...]:
        network = self._coefficients[block // self._per_network]
        outputs = network[0].shape[0]
        return (
            self._attention[block],
            self._value[block],
            self._key[block],
            np.empty((self.features, LANES)),
            np.empty((outputs, LANES)),
            np.empty((self.context + 2, LANES)),
            tuple(parameter[block] for parameter in self._parameters),
            network,
        )

    def _each(
        self,
        task: Callable[[int, int], Any],
        progress: bool = False,
        label: str = "blocks",
    ) -> list[Any]:
        """task(block, first lane's index) for every block; results in the order of the blocks."""
        results: list[Any] = [None] * self._blocks
        bar = tqdm(total=self._blocks, desc=label, disable=not progress)
        with ThreadPoolExecutor(min(self.threads, self._blocks)) as pool, bar:
            futures = {pool.submit(task, b, b * LANES): b for b in range(self._blocks)}
            try:
                for future in as_completed(futures):
                    results[futures[future]] = future.result()
                    bar.update()
            except BaseException:
                for future in futures:
                    future.cancel()
                raise
        return results

    def _move(self, end: tuple[int, int]) -> None:
        self.cursor, self.position = int(end[0]), int(end[1])

    def gather(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        """Per-block arrays (..., lanes) → (M, B, ...) or, for one network, (B, ...)."""
        stacked = np.moveaxis(np.stack(parts), -1, 1)
        rest = stacked.shape[2:]
        full = stacked.reshape(len(self.networks), self._per_network * LANES, *rest)
        full = full[:, : self.size]
        if self.single:
            full = full[0]
            if self.scalar:
                full = full[0]
        return np.ascontiguousarray(full)

    def advance(self, steps: int, progress: bool = False) -> None:
        """Run `steps` steps, keeping nothing but the state."""
        steps = check_integer("steps", steps, low=0)
        if not steps:
            return
        self._move(
            self._each(
                lambda b, _: kernels.advance(steps, self.cursor, self.position, *self._arrays(b)),
                progress,
                "transient",
            )[0]
        )

    def record(self, samples: int, every: int = 1, progress: bool = False) -> np.ndarray:
        """Semantic m^o, factor 1 − ε included, of every `every`-th step: (..., samples, P)."""
        samples = check_integer("samples", samples, low=0)
        every = check_integer("every", every, low=1)

        def task(block: int, _: int) -> tuple[np.ndarray, tuple[int, int]]:
            out = np.empty((samples, self.features, LANES))
            end = kernels.record(out, every, self.cursor, self.position, *self._arrays(block))
            return out, end

        parts = self._each(task, progress, "trajectory")
        self._move(parts[0][1])
        return self.gather([part[0] for part in parts])

    def attention(self) -> np.ndarray:
        """The contexts now, newest first: (..., T, P)."""
        slots = (self.cursor - np.arange(self.context)) % self.context
        return self.gather(list(self._attention[:, slots]))

"""What a small call costs beside what it computes, and the same work in large.

    python benchmarks/small_calls.py [--repeats 40] [--write]

First `hopfield.continuous.update` on 8 × 16 states and 32 patterns, alone and for a thousand
memories at once, beside the two lines that it computes and the framework's fused attention, which
a user would pick. Then a step of the mean field of self-attention for one system and for a
thousand, beside the scalar compiled loop of `benchmarks/dmft.py`, plain NumPy and torch; and what
the making of an `Ensemble` costs, which is given in steps of the scalar loop.

One thread. Contestants take turns, times are the smallest of processor time, and ratios are to the
first of each table.
"""

import argparse
import math
import time
from collections.abc import Callable

import numpy as np
import torch
from dmft import scalar_loop
from torch.nn.functional import scaled_dot_product_attention

from bookmaker.measured import write_results
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.mean_field import random_contexts, step, torch_step
from spinformer.dmft.network import Context, Network
from spinformer.hopfield.continuous import update

MANY = 1000
BETA = 1.27
MEMORY_BETA = 0.25
# At so many steps the call itself no longer counts.
STEPS = 20_000


def smallest(
    actions: dict[str, tuple[Callable[[], object], int]], repeats: int
) -> dict[str, float]:
    """Seconds of processor time per unit of work, of actions that do so many units each."""
    times = dict.fromkeys(actions, math.inf)
    for _ in range(repeats):
        for name, (action, units) in actions.items():
            begin = time.process_time()
            action()
            times[name] = min(times[name], (time.process_time() - begin) / units)
    return times


def repeated(action: Callable[[], object], times: int) -> Callable[[], None]:
    """`action`, so often that the clock can tell."""

    def run() -> None:
        for _ in range(times):
            action()

    return run


def compare_updates(batch: tuple[int, ...], repeats: int) -> dict[str, float]:
    """Seconds of an update of 8 states of width 16 among 32 patterns, for each memory."""
    torch.manual_seed(0)
    patterns = torch.randn(*batch, 32, 16)
    states = torch.randn(*batch, 8, 16)

    def plain() -> torch.Tensor:
        weights = torch.softmax(MEMORY_BETA * states @ patterns.mT, dim=-1)
        return weights @ patterns

    actions = {
        "two plain lines": plain,
        "ours": lambda: update(patterns, states=states, beta=MEMORY_BETA),
        "torch's attention": lambda: scaled_dot_product_attention(
            states, patterns, patterns, scale=MEMORY_BETA
        ),
    }
    memories = math.prod(batch)
    calls = max(1, 200 // memories)
    return smallest(
        {name: (repeated(action, calls), calls * memories) for name, action in actions.items()},
        repeats,
    )


def compare_steps(systems: int, repeats: int) -> dict[str, float]:
    """Seconds of a step of the document's network, for each system."""
    network = Network.poclopez2024()
    start = random_contexts(network, 0, count=systems)
    beta = np.full(systems, BETA)
    drive = network.position_overlaps()
    ensemble = Ensemble(network, start, beta=beta, threads=1)
    own = STEPS if systems == 1 else STEPS // 100
    slow = 100 if systems == 1 else 5

    def scalar() -> None:
        for attention in start.attention[:10]:
            ring = np.ascontiguousarray(attention[(-np.arange(network.context)) % network.context])
            scalar_loop(
                ring, start.position, BETA, network.gamma, network.epsilon, network.semantic, drive,
                STEPS,
            )  # fmt: skip

    def in_numpy() -> None:
        context = Context(start.attention, start.position)
        for _ in range(slow):
            context, _ = step(network, context, beta)

    weights = {
        "semantic": torch.tensor(network.semantic),
        "fractions": torch.tensor(network.fractions),
        "position_overlaps": torch.tensor(drive),
    }

    def in_torch() -> None:
        attention = torch.tensor(start.attention)
        with torch.no_grad():
            for position in range(slow):
                attention, _ = torch_step(
                    **weights, attention=attention, position=position, beta=BETA,
                    gamma=network.gamma, epsilon=network.epsilon,
                )  # fmt: skip

    scalar()
    return smallest(
        {
            "scalar compiled loop": (scalar, min(systems, 10) * STEPS),
            "ours": (lambda: ensemble.advance(own), own * systems),
            "plain NumPy": (in_numpy, slow * systems),
            "torch": (in_torch, slow * systems),
        },
        repeats,
    )


def construction(repeats: int) -> float:
    """Seconds that an `Ensemble` of one system takes to be made."""
    network = Network.poclopez2024()
    start = random_contexts(network, 0, count=1).select(0)
    make = repeated(lambda: Ensemble(network, start, beta=BETA), 100)
    return smallest({"make": (make, 100)}, repeats)["make"]


def show(title: str, times: dict[str, float]) -> dict[str, float]:
    """Print times and ratios to the first; return the ratios."""
    print(title)
    first = next(iter(times.values()))
    for name, seconds in times.items():
        print(f"  {name:24s} {1e9 * seconds:12.1f} ns   x {seconds / first:8.2f}")
    return {name.replace("'", "").replace(" ", "_"): t / first for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--write", action="store_true", help="store the ratios")
    options = parser.parse_args()
    torch.set_num_threads(1)
    steps = compare_steps(1, options.repeats)
    ratios = {
        "update": show("an update", compare_updates((), options.repeats)),
        "updates": show(f"an update of {MANY}", compare_updates((MANY,), options.repeats)),
        "step": show("a step of one system", steps),
        "steps": show(f"a step of {MANY}", compare_steps(MANY, max(5, options.repeats // 4))),
    }
    making = construction(options.repeats)
    in_steps = making / steps["scalar compiled loop"]
    print(f"an Ensemble of one system: {1e6 * making:.0f} us, {in_steps:.0f} steps of the loop")
    if options.write:
        write_results(__file__, ratios | {"many": MANY, "making": in_steps})


if __name__ == "__main__":
    main()

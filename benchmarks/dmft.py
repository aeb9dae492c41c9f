"""Speed of the mean field of self-attention: one run, medians, every number measured here.

    python benchmarks/dmft.py [--full] [--write]

Rows: a step of the document's network batched over β (compiled lanes), of a scalar compiled loop
with the C library's exp and tanh, of plain NumPy and of batched torch; other sizes; sites with
letters; the Lyapunov spectra in units of a step; the roofline; and, with --full, Figures 3a and 3b
at full size.
Times of a step are processor time of one thread divided by steps and systems.
"""

import argparse
import math
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numba
import numpy as np
import torch
from numba import njit

from bookmaker.measured import write_results
from compendium.c33e_census.study import network_row
from compendium.c35_other_tokens.letters import LetterNetwork
from spinformer.dmft import kernels
from spinformer.dmft.attractors import find_attractors
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import poclopez2024_context, random_contexts, step, torch_step
from spinformer.dmft.network import Context, Network

LANES = 512
# Of the document's two figures.
VALUES = 4001
TRANSIENT = 100_000
KEPT = 20_000


def medians(actions: dict[str, Callable[[], int]], repeats: int = 7) -> dict[str, float]:
    """Nanoseconds of processor time per unit of work; the actions take turns."""
    times: dict[str, list[float]] = {name: [] for name in actions}
    for action in actions.values():
        action()
    for _ in range(repeats):
        for name, action in actions.items():
            begin = time.process_time()
            work = action()
            times[name].append((time.process_time() - begin) / work * 1e9)
    return {name: float(np.median(values)) for name, values in times.items()}


@njit(error_model="numpy")
def fused_chain(values, rounds):
    """32 fused multiply-adds on every entry, `rounds` times over: what a core can do at most."""
    for _ in range(rounds):
        for i in range(0, values.size, kernels.LANES):
            x = kernels.get(values[i:])
            for _ in range(32):
                x = kernels.fma(x, 0.999999, 1e-7)
            kernels.put(values[i:], x)


@njit(error_model="numpy")
def apart(values, hyperbolic):
    """exp or tanh of every entry, lanes by lanes; the length is a multiple of them."""
    out = np.empty_like(values)
    for i in range(0, values.size, kernels.LANES):
        x = kernels.get(values[i:])
        if hyperbolic:
            e = kernels.expm1_double(x)
            kernels.put(out[i:], e / (e + 2.0))
        else:
            kernels.put(out[i:], kernels.exp(x))
    return out


@njit(error_model="numpy")
def scalar_loop(attention, position, beta, gamma, epsilon, weights, drive, steps):
    """The same step for one system, written as anyone would: loops, math.exp, math.tanh."""
    context, features = attention.shape
    segments = weights.shape[2]
    value = np.zeros((context, features))
    key = np.zeros((context, features))
    query = np.zeros(features)
    score = np.zeros(context)
    slot = 0
    for n in range(steps + context - 1):
        # The first T − 1 rounds rebuild the older tokens.
        age = context - 1 - n if n < context - 1 else 0
        source = (slot - age) % context
        place = (position + n - (context - 1)) % drive.shape[0]
        for a in range(features):
            value[source, a] = epsilon * drive[place, 1, a]
            query[a] = epsilon * drive[place, 2, a]
            key[source, a] = epsilon * drive[place, 3, a]
        for l in range(segments):
            field = 0.0
            for b in range(features):
                field += weights[0, b, l] * attention[source, b]
            h = (1.0 - epsilon) * math.tanh(beta * field) / segments
            for a in range(features):
                value[source, a] += weights[1, a, l] * h
                query[a] += weights[2, a, l] * h
                key[source, a] += weights[3, a, l] * h
        if age:
            continue
        top = -np.inf
        total = 0.0
        for t in range(context):
            score[t] = 0.0
            for b in range(features):
                score[t] += gamma * query[b] * key[t, b]
            top = max(top, score[t])
        for t in range(context):
            score[t] = math.exp(score[t] - top)
            total += score[t]
        slot = (slot + 1) % context
        for a in range(features):
            s = 0.0
            for t in range(context):
                s += score[t] * value[t, a]
            attention[slot, a] = s / total
    return attention


def operations(network: Network) -> tuple[int, int, int]:
    """(additions and products outside exp and tanh, transcendentals, flops of all) of a step."""
    p = network.features
    t = network.context
    u = network.output_patterns()[0].shape[0]
    plain = u * (2 * p - 1 + 2) + 3 * p * (1 + 2 * u) + p
    plain += t * (2 * p - 1) + 3 * t + 1 + p * (2 * t)
    # exp: 11 fused pairs and 5 more; tanh: the same, a fused pair, 2 more and 1 division.
    return plain, u + t, plain + t * 27 + u * 33


def lane_action(ensemble: Ensemble, steps: int) -> Callable[[], int]:
    def run() -> int:
        ensemble.advance(steps)
        return steps * ensemble.blocks * ensemble.lanes

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="also run Figures 3a and 3b")
    parser.add_argument("--write", action="store_true", help="store the time of the two figures")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = next(
        (
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    ) if Path("/proc/cpuinfo").exists() else platform.processor()  # fmt: skip
    print(f"{model}, {platform.system()}, Python {platform.python_version()}")
    print(f"numba {numba.__version__}, torch {torch.__version__}, NumPy {np.__version__}")

    network = Network.poclopez2024()
    start = poclopez2024_context(network, steps=2000)
    betas = np.linspace(1.24, 1.28, LANES)
    lanes = Ensemble(network, start, beta=betas, threads=1)
    drive = network.position_overlaps()

    def scalar() -> int:
        ring = np.ascontiguousarray(start.attention[(-np.arange(4)) % 4])
        scalar_loop(ring, start.position, 1.27, network.gamma, network.epsilon,
                    network.semantic, drive, 100_000)  # fmt: skip
        return 100_000

    def plain_one() -> int:
        context = start
        for _ in range(200):
            context, _ = step(network, context, 1.27)
        return 200

    def plain_batch() -> int:
        context = Context(np.repeat(start.attention[None], LANES, 0), start.position)
        for _ in range(20):
            context, _ = step(network, context, betas)
        return 20 * LANES

    tensors = torch.tensor(network.semantic), torch.tensor(drive), torch.tensor(network.fractions)
    window = torch.tensor(np.repeat(start.attention[None], LANES, 0))

    def torch_batch() -> int:
        attention = window
        with torch.no_grad():
            for n in range(20):
                attention, _ = torch_step(
                    tensors[0], position_overlaps=tensors[1], attention=attention,
                    fractions=tensors[2], position=n % 4, beta=1.27, gamma=network.gamma,
                    epsilon=network.epsilon,
                )  # fmt: skip
        return 20 * LANES

    result = medians(
        {
            "compiled lanes (ours)": lane_action(lanes, 1000),
            "scalar compiled loop, C library": scalar,
            "plain NumPy reference, one system": plain_one,
            f"plain NumPy reference, {LANES} systems": plain_batch,
            f"torch, {LANES} systems": torch_batch,
        }
    )
    ours = result["compiled lanes (ours)"]
    print(f"\none step of the document's network, ns per beta (goal: 25), batch of {LANES}")
    for name, value in result.items():
        print(f"  {name:40s} {value:10.1f}   x {value / ours:8.1f}")

    plain, calls, flops = operations(network)
    x = np.linspace(-20.0, 0.0, 4096)
    y = np.linspace(-2.0, 2.0, 4096)

    def exps() -> int:
        for _ in range(100):
            apart(x, False)
        return 100 * x.size

    def tanhs() -> int:
        for _ in range(100):
            apart(y, True)
        return 100 * y.size

    def peak() -> int:
        fused_chain(acc, 500)
        return 500 * acc.size * 32

    acc = np.full(1024, 0.5)
    roof = medians({"exp": exps, "tanh": tanhs, "peak": peak}, 5)
    u = network.output_patterns()[0].shape[0]
    t = network.context
    bound = t * roof["exp"] + u * roof["tanh"] + plain / 2 * roof["peak"]
    print("\nroofline of that step")
    print(f"  {flops} flops, of which {plain} outside the {calls} transcendentals")
    print(f"  this core: {2 / roof['peak']:.1f} Gflop/s in fused multiply-adds, "
          f"exp {roof['exp']:.2f} ns, tanh {roof['tanh']:.2f} ns")  # fmt: skip
    calls_ns = t * roof["exp"] + u * roof["tanh"]
    print(f"  bound {bound:.1f} ns ({calls_ns:.1f} of it transcendentals); we take {ours:.1f} ns, "
          f"{bound / ours:.0%} of the bound's speed, {flops / ours:.1f} Gflop/s")  # fmt: skip

    print("\nother networks, same path: ns per step and per flop")
    sizes = ((3, 3, 2), (1, 2, 1), (2, 4, 3), (3, 8, 4), (4, 12, 3), (5, 20, 5), (6, 40, 4))
    many = {}
    for p, l, k in sizes:
        other = Network.segmented(0, features=p, segments=l, bits=k)
        context = random_contexts(other, 0, count=128)
        many[(p, l, k)] = (other, Ensemble(other, context, beta=1.2, threads=1))
    times = medians({str(s): lane_action(e, 1000) for s, (_, e) in many.items()}, 5)
    for s, (other, _) in many.items():
        work = operations(other)[2]
        per = times[str(s)] / work / (times[str(sizes[0])] / flops)
        print(f"  P, L, K = {s}, T = {2 ** s[2]:2d}: {times[str(s)]:8.1f} ns, {work:5d} flops, "
              f"cost per flop x {per:.2f} of the document's")  # fmt: skip

    alphabets = {f"q = {q}": LetterNetwork.segmented(0, letters=q) for q in (2, 3, 4, 8, 64)}
    many_letters = {
        name: Ensemble(machine, random_contexts(machine, 0, count=LANES),
                       beta=1.27 * (machine.letters - 1), threads=1)
        for name, machine in alphabets.items()
    }  # fmt: skip
    with_letters = medians(
        {
            "bits": lane_action(lanes, 1000),
            **{name: lane_action(machine, 1000) for name, machine in many_letters.items()},
        }
    )
    print("\nthe document's labels with q letters, ns per step (goal: q = 2 at most twice bits)")
    for name, value in with_letters.items():
        print(f"  {name:40s} {value:10.1f}   x {value / with_letters['bits']:8.2f}")

    def spectrum(count: int | None, every: int | None) -> Callable[[], int]:
        def run() -> int:
            lyapunov_spectrum(network, start, beta=betas, steps=1000, count=count, align=0,
                              qr_interval=every, batches=1, threads=1)  # fmt: skip
            return 1000 * LANES

        return run

    def bare() -> int:
        lanes.advance(1000)
        return 1000 * LANES

    spectra = medians(
        {
            "a step": bare,
            "1 exponent": spectrum(1, 4),
            "2 exponents": spectrum(2, 4),
            "12 exponents": spectrum(None, 2),
            "12 exponents, QR at every step": spectrum(None, 1),
        },
        5,
    )
    print("\nLyapunov exponents, in units of a step (goals: one 4, two 6, all twelve 20)")
    for name, value in spectra.items():
        print(f"  {name:40s} {value:10.1f} ns   x {value / spectra['a step']:8.1f}")

    begin = time.process_time()
    network_row(network, 0)
    spent = time.process_time() - begin
    print(f"\none network through the census, the document's: 64 beta, 8 contexts: {spent:.2f} s")

    if not (options.full or options.write):
        return
    print("\nFigures 3a and 3b, 2 x 4001 values of beta, 100,000 + 20,000 steps, all cores")
    seconds = []
    for label, exponents in (("diagrams alone", 0), ("with two exponents each", 2)):
        wall = time.perf_counter()
        spent = time.process_time()
        for low, high in ((0.0, 3.0), (1.24, 1.28)):
            betas = np.linspace(low, high, VALUES)
            find_attractors(network, start, beta=betas, exponents=exponents,
                            transient=TRANSIENT, kept=KEPT)  # fmt: skip
        seconds.append(time.process_time() - spent)
        print(f"  {label:26s} {time.perf_counter() - wall:6.1f} s wall, "
              f"{seconds[-1]:6.1f} s of processor time")  # fmt: skip
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  most memory {memory:.2f} GiB; document: 8002 x 5 min on two cores, 8 GB each")
    if options.write:
        figures = {"diagrams": seconds[0], "with_exponents": seconds[1]}
        sizes = {"values": VALUES, "steps": TRANSIENT + KEPT, "torch": torch.__version__}
        write_results(__file__, sizes | figures)


if __name__ == "__main__":
    main()

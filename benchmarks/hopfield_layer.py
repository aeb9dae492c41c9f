"""Cost of the Hopfield layer, forward and backward, beside what it is made of and its rivals.

    python benchmarks/hopfield_layer.py [--repeats 15] [--write]

One thread, batch 8, sequence 256, width 256, 4 heads, float32, 1 and 3 update steps. Ratios are
to `bare`: the same norms and projections around as many bare scaled_dot_product_attention calls.
`plain` spells the softmax out, as the sparse weights of `1.5-entmax` and `sparsemax` must;
`torch.nn` is what a user would pick: MultiheadAttention between
the same norms, in a loop for more steps (it projects again at each, having no other way to feed
a state back). Contestants take turns; times are medians of process time, and each ratio is the
median of the ratios within a turn.

The second table stops on a tolerance: ratios are to a layer of as many fixed steps as the slowest
state needed, on the same weights and inputs. Its derivative is implicit. Stored are the ratios of
the sparse layers to ours.
"""

import argparse
import math
import platform
import statistics
import time

import torch
from torch import nn
from torch.nn import functional

from bookmaker.measured import write_results
from spinformer.hopfield.layer import HopfieldLayer

BATCH = 8
LENGTH = 256
WIDTH = 256
HEADS = 4


class Bare(nn.Module):
    def __init__(self, steps: int, *, plain: bool) -> None:
        super().__init__()
        self.steps = steps
        self.plain = plain
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.maps = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, queries: torch.Tensor, *, patterns: torch.Tensor) -> torch.Tensor:
        normed = self.norms[1](patterns)
        sources = (self.norms[0](queries), normed, normed)
        state, keys, values = (
            linear(x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for linear, x in zip(self.maps, sources, strict=False)
        )
        for step in range(self.steps):
            content = values if step == self.steps - 1 else keys
            if self.plain:
                scores = state @ keys.mT / math.sqrt(WIDTH // HEADS)
                state = torch.softmax(scores, dim=-1) @ content
            else:
                state = functional.scaled_dot_product_attention(state, keys, content)
        return self.maps[3](state.transpose(1, 2).flatten(-2))


class Library(nn.Module):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, queries: torch.Tensor, *, patterns: torch.Tensor) -> torch.Tensor:
        state = self.norms[0](queries)
        stored = self.norms[1](patterns)
        for _ in range(self.steps):
            state = self.attention(state, stored, stored, need_weights=False)[0]
        return state


def compare(
    modules: dict[str, nn.Module], repeats: int, *, base: str = "bare"
) -> tuple[dict[str, float], dict[str, float]]:
    torch.manual_seed(0)
    queries = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    patterns = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    times: dict[str, list[float]] = {name: [] for name in modules}
    for repeat in range(repeats + 2):
        for name, module in modules.items():
            start = time.process_time()
            module(queries, patterns=patterns).sum().backward()
            if repeat >= 2:
                times[name].append(time.process_time() - start)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ratios = {
        name: statistics.median(a / b for a, b in zip(values, times[base], strict=True))
        for name, values in times.items()
    }
    return medians, ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--write", action="store_true", help="store the ratios of the first table")
    options = parser.parse_args()
    repeats = options.repeats
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, one thread")
    print(f"batch {BATCH}, sequence {LENGTH}, width {WIDTH}, {HEADS} heads, float32")
    stored = {}
    for steps in (1, 3):
        warm = HopfieldLayer(WIDTH, heads=HEADS, steps=steps, beta=[0.1, 0.2, 0.3, 0.4])
        warm.log_beta.requires_grad_()
        medians, ratios = compare(
            {
                "bare": Bare(steps, plain=False),
                "ours": HopfieldLayer(WIDTH, heads=HEADS, steps=steps),
                "ours, trained beta": warm,
                "1.5-entmax": HopfieldLayer(WIDTH, heads=HEADS, steps=steps, alpha=1.5),
                "sparsemax": HopfieldLayer(WIDTH, heads=HEADS, steps=steps, alpha=2.0),
                "plain": Bare(steps, plain=True),
                "torch.nn": Library(steps),
            },
            repeats,
        )
        for name, seconds in medians.items():
            print(f"{steps} step(s)  {name:20s} {1e3 * seconds:8.1f} ms   {ratios[name]:5.2f}")
        of_softmax = {
            "entmax": ratios["1.5-entmax"] / ratios["ours"],
            "sparsemax": ratios["sparsemax"] / ratios["ours"],
        }
        stored[f"steps_{steps}"] = of_softmax
    if options.write:
        write_results(__file__, stored | {"tokens": LENGTH, "width": WIDTH, "heads": HEADS})
    for tolerance, beta in ((1e-2, None), (1e-3, None), (1e-3, 0.3)):
        resting = HopfieldLayer(WIDTH, heads=HEADS, tolerance=tolerance, beta=beta, steps=200)
        torch.manual_seed(0)
        queries, patterns = torch.randn(2, BATCH, LENGTH, WIDTH)
        _, solution = resting(queries, patterns=patterns, return_states=True)
        steps = int(solution.steps.max()) + 1
        fixed = HopfieldLayer(WIDTH, heads=HEADS, steps=steps, beta=beta)
        fixed.load_state_dict(resting.state_dict())
        medians, ratios = compare({"fixed": fixed, "resting": resting}, repeats, base="fixed")
        share = float(solution.converged.double().mean())
        for name, seconds in medians.items():
            print(
                f"tolerance {tolerance:g}, beta {beta or 'default'}, {steps} steps, "
                f"{share:.2f} converged  {name:8s} {1e3 * seconds:8.1f} ms   {ratios[name]:5.2f}"
            )


if __name__ == "__main__":
    main()

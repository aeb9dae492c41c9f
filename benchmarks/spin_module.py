"""Cost of the spin module against torch's TransformerEncoderLayer, forward and backward.

Process time of one thread, single precision, medians of interleaved runs, and ratios within the
same run. The yardstick is the layer at its own default feed-forward width, 2048, and at the
common four times the model width. Run: python benchmarks/spin_module.py [--width 64] [--write]
"""

import argparse
import platform
import statistics
import time

import torch

from bookmaker.measured import write_results
from spinformer.spins.driven_module import DrivenSpinModule
from spinformer.spins.module import Solver, SpinTransformerModule

HEADS = 4
# Batch and number of tokens, of about the same cost.
SIZES = ((64, 8), (32, 16), (16, 64), (8, 128))
ONE_STEP = Solver(steps=1)
# The pages state how the time of these compares with that of torch's layer of four widths.
YARDSTICK = "TransformerEncoderLayer, 4 widths"
STATED = {
    "saddle": "spin module, saddle",
    "one_step": "spin module, K = 1",
    "driven": "driven module, 2 steps",
}
MOST_SITES = 64


def contestants(width: int) -> dict[str, torch.nn.Module]:
    def layer(inner: int) -> torch.nn.Module:
        return torch.nn.TransformerEncoderLayer(width, HEADS, inner, dropout=0.0, batch_first=True)

    return {
        "TransformerEncoderLayer, default 2048": layer(2048),
        YARDSTICK: layer(4 * width),
        "spin module, K = 1": SpinTransformerModule(width, heads=HEADS, solver=ONE_STEP),
        "spin module, K = 1, order 1": SpinTransformerModule(
            width, heads=HEADS, solver=Solver(steps=1, order=1)
        ),
        "spin module, K = 1, no response": SpinTransformerModule(
            width, heads=HEADS, solver=ONE_STEP, response=False
        ),
        "spin module, fixed point": SpinTransformerModule(width, heads=HEADS, solver="fixed point"),
        "spin module, fixed point, order 1": SpinTransformerModule(
            width, heads=HEADS, solver=Solver(order=1)
        ),
        "spin module, saddle": SpinTransformerModule(width, heads=HEADS, solver="saddle"),
        "spin module, saddle, g = 2": SpinTransformerModule(
            width, heads=HEADS, solver="saddle", coupling_strength=2.0
        ),
        "driven module, 2 steps": DrivenSpinModule(width, heads=HEADS),
    }


def once(module: torch.nn.Module, inputs: torch.Tensor) -> float:
    module.zero_grad()
    start = time.process_time()
    module(inputs).square().mean().backward()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--write", action="store_true", help="store what the pages state")
    options = parser.parse_args()
    rounds = options.rounds
    width = options.width
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{platform.machine()}, {platform.system()}, torch {torch.__version__}, one thread")
    ratios: dict[str, list[float]] = {name: [] for name in STATED}
    for batch, sites in SIZES:
        inputs = torch.randn(batch, sites, width, requires_grad=True)
        modules = contestants(width)
        times: dict[str, list[float]] = {name: [] for name in modules}
        for turn in range(rounds + 2):
            for name, module in modules.items():
                elapsed = once(module, inputs)
                if turn >= 2:
                    times[name].append(elapsed)
        medians = {name: statistics.median(values) for name, values in times.items()}
        solved = ("spin module, fixed point", "spin module, saddle", "spin module, saddle, g = 2")
        most = {
            name: int(modules[name](inputs, return_parts=True)[1].solution.steps.max())
            for name in solved
        }
        if sites <= MOST_SITES:
            for name, contestant in STATED.items():
                ratios[name].append(medians[contestant] / medians[YARDSTICK])
        yardsticks = list(medians.values())[:2]
        print(f"N = {sites}, batch {batch}, width {width}, {HEADS} heads")
        print(f"  at most {', '.join(f'{n} steps ({name})' for name, n in most.items())}")
        for name, median in medians.items():
            print(
                f"  {name:38} {1e3 * median:7.1f} ms   "
                f"{median / yardsticks[0]:5.2f} x 2048   {median / yardsticks[1]:5.2f} x 4 widths"
            )
    if options.write:
        stated = {
            name: {"low": min(values), "high": max(values)} for name, values in ratios.items()
        }
        sizes = {"width": width, "hidden": 4 * width, "most_sites": MOST_SITES}
        write_results(__file__, sizes | stated)


if __name__ == "__main__":
    main()

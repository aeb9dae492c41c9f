"""Cost of the spin module against torch's TransformerEncoderLayer, forward and backward.

Process time of one thread, single precision, medians of interleaved runs, and ratios within the
same run. The yardstick is the layer at its own default feed-forward width, 2048, and at the
common four times the model width. Run: python benchmarks/spin_module.py
"""

from __future__ import annotations

import argparse
import platform
import statistics
import time

import torch

from spinformer.spins.module import DrivenSpinModule, Solver, SpinTransformerModule

DIM, HEADS, BATCH = 128, 4, 8
ONE_STEP = Solver(steps=1)


def contestants() -> dict[str, torch.nn.Module]:
    def layer(width: int) -> torch.nn.Module:
        return torch.nn.TransformerEncoderLayer(DIM, HEADS, width, dropout=0.0, batch_first=True)

    return {
        "TransformerEncoderLayer, default 2048": layer(2048),
        "TransformerEncoderLayer, 512": layer(512),
        "spin module, K = 1": SpinTransformerModule(DIM, heads=HEADS, solver=ONE_STEP),
        "spin module, K = 1, order 1": SpinTransformerModule(
            DIM, heads=HEADS, solver=Solver(steps=1, order=1)
        ),
        "spin module, K = 1, no response": SpinTransformerModule(
            DIM, heads=HEADS, solver=ONE_STEP, response=False
        ),
        "spin module, fixed point": SpinTransformerModule(DIM, heads=HEADS, solver="fixed point"),
        "spin module, fixed point, order 1": SpinTransformerModule(
            DIM, heads=HEADS, solver=Solver(order=1)
        ),
        "spin module, saddle": SpinTransformerModule(DIM, heads=HEADS, solver="saddle"),
        "spin module, saddle, g = 2": SpinTransformerModule(
            DIM, heads=HEADS, solver="saddle", strength=2.0
        ),
        "driven module, 2 steps": DrivenSpinModule(DIM, heads=HEADS),
    }


def once(module: torch.nn.Module, inputs: torch.Tensor) -> float:
    module.zero_grad()
    start = time.process_time()
    module(inputs).square().mean().backward()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{platform.machine()}, {platform.system()}, torch {torch.__version__}, one thread")
    for sites in (64, 256):
        inputs = torch.randn(BATCH, sites, DIM, requires_grad=True)
        modules = contestants()
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
        yardsticks = list(medians.values())[:2]
        print(f"N = {sites}, batch {BATCH}, width {DIM}, {HEADS} heads")
        print(f"  at most {', '.join(f'{n} steps ({name})' for name, n in most.items())}")
        for name, median in medians.items():
            print(
                f"  {name:38} {1e3 * median:7.1f} ms   "
                f"{median / yardsticks[0]:5.2f} x 2048   {median / yardsticks[1]:5.2f} x 512"
            )


if __name__ == "__main__":
    main()

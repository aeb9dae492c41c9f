"""Cost of the spin modules against torch's TransformerEncoderLayer, forward and backward.

Process time of one thread, single precision, batches of 4, four heads. Minima of interleaved runs,
as ratios within the same run, since other programs disturb the longer of two passes more often. The
yardstick is the layer with a feed-forward width of four times its own. Memory is what is kept for
the backward pass, parameters left out. Run:
python benchmarks/spin_module.py [--rounds 15] [--strengths] [--write]
"""

import argparse
import platform
import time

import torch

from bookmaker.measured import write_results
from spinformer.spins.driven_module import DrivenSpinModule
from spinformer.spins.module import Solver, SpinTransformerModule

HEADS = 4
BATCH = 4
# Width and number of tokens.
SIZES = ((64, 64), (64, 256), (256, 64), (256, 256))
YARDSTICK = "TransformerEncoderLayer"
ONE_STEP = Solver(steps=1)
STRENGTHS = (1.0, 2.0, 4.0)


def contestants(width: int, *, strengths: bool) -> dict[str, torch.nn.Module]:
    modules: dict[str, torch.nn.Module] = {
        YARDSTICK: torch.nn.TransformerEncoderLayer(
            width, HEADS, 4 * width, dropout=0.0, batch_first=True
        ),
        "one_step": SpinTransformerModule(width, heads=HEADS, solver=ONE_STEP),
        "saddle": SpinTransformerModule(width, heads=HEADS, solver="saddle"),
        "fixed_point": SpinTransformerModule(width, heads=HEADS, solver="fixed point"),
        "driven": DrivenSpinModule(width, heads=HEADS),
    }
    if strengths:
        for strength in STRENGTHS:
            for solver in ("saddle", "fixed point"):
                modules[f"{solver}, g = {strength:g}"] = SpinTransformerModule(
                    width, heads=HEADS, solver=solver, coupling_strength=strength
                )
    for module in modules.values():
        module.warned = True  # some of these fixed points are not found
    return modules


def once(module: torch.nn.Module, inputs: torch.Tensor) -> float:
    module.zero_grad()
    start = time.process_time()
    module(inputs).square().mean().backward()
    return time.process_time() - start


def kept_megabytes(module: torch.nn.Module, inputs: torch.Tensor) -> float:
    """What a forward pass keeps for the backward pass."""
    sizes: dict[int, int] = {}

    def pack(values: torch.Tensor) -> torch.Tensor:
        storage = values.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return values

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda values: values):
        output = module(inputs)
    for parameter in module.parameters():
        sizes.pop(parameter.untyped_storage().data_ptr(), None)
    del output
    return sum(sizes.values()) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--strengths", action="store_true", help="also stronger couplings")
    parser.add_argument("--write", action="store_true", help="store what the pages state")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{platform.machine()}, {platform.system()}, torch {torch.__version__}, one thread")
    rows = []
    for width, sites in SIZES:
        inputs = torch.randn(BATCH, sites, width, requires_grad=True)
        modules = contestants(width, strengths=options.strengths)
        times: dict[str, list[float]] = {name: [] for name in modules}
        for turn in range(options.rounds + 2):
            for name, module in modules.items():
                elapsed = once(module, inputs)
                if turn >= 2:
                    times[name].append(elapsed)
        shortest = {name: min(values) for name, values in times.items()}
        kept = {name: kept_megabytes(module, inputs) for name, module in modules.items()}
        print(f"width {width}, {sites} tokens")
        for name, seconds in shortest.items():
            ratio = seconds / shortest[YARDSTICK]
            memory = kept[name] / kept[YARDSTICK]
            print(
                f"  {name:24} {1e3 * seconds:7.1f} ms  {ratio:5.2f} x the layer   "
                f"{kept[name]:6.1f} MB  {memory:5.2f} x"
            )
            if name != YARDSTICK:
                rows.append(
                    {
                        "module": name,
                        "width": width,
                        "tokens": sites,
                        "time": round(ratio, 3),
                        "memory": round(memory, 3),
                    }
                )
    if options.write:
        stated = {}
        for name in ("saddle", "one_step", "fixed_point", "driven"):
            ratios = [row["time"] for row in rows if row["module"] == name]
            memory = max(row["memory"] for row in rows if row["module"] == name)
            stated[name] = {"low": min(ratios), "high": max(ratios), "memory": memory}
        tokens = [sites for _, sites in SIZES]
        widths = [width for width, _ in SIZES]
        sizes = {
            "width": min(widths),
            "most_width": max(widths),
            "sites": min(tokens),
            "most_sites": max(tokens),
        }
        write_results(__file__, {**sizes, **stated, "rows": rows})


if __name__ == "__main__":
    main()

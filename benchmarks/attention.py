"""What attention costs in time: the formula, its cheaper relatives, the framework's kernel.

Run: python benchmarks/attention.py [--longest 8192] [--repeats 5]

Self-attention of independent vectors of width 64, float32, one thread: medians of process time over
the repeats, all in one run, at a quarter, a half and the whole of the longest length, with the
exponent of time between the last two and the ratio to dense attention at the longest.
"""

import argparse
import math
import os
import platform
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from compendium.c10_attention.study import (
    kernel_attention,
    low_rank_attention,
    recurrent_attention,
    sparse_attention,
    streaming_attention,
)
from spinformer.hopfield.attention import attention

WIDTH = 64
BETA = WIDTH**-0.5
WAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense, as written": lambda x: attention(x, keys=x, values=x),
    "dense, framework's kernel": lambda x: torch.nn.functional.scaled_dot_product_attention(
        x[None], x[None], x[None]
    ),
    "streaming, blocks of 256": lambda x: streaming_attention(x, 256, beta=BETA),
    "low rank, 16 landmarks": lambda x: low_rank_attention(x, 16, beta=BETA),
    "sparse, 16 to each side": lambda x: sparse_attention(x, 16, beta=BETA),
    "recurrent, 16 into one": lambda x: recurrent_attention(x, 16, block=32, beta=BETA),
    "recurrent, 64 slots": lambda x: recurrent_attention(x, 16, block=32, slots=64, beta=BETA),
    "kernel, 64 features": lambda x: kernel_attention(x, 64, beta=BETA),
}


def clock(work: Callable[[], torch.Tensor], repeats: int) -> float:
    """Median process time in seconds, after one call that warms up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longest", type=int, default=8192)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    lengths = [options.longest // 4, options.longest // 2, options.longest]
    print(f"torch {torch.__version__}, {platform.machine()}, one thread, width {WIDTH}")
    print(f"{'':26s}" + "".join(f"{f'N = {n}':>12s}" for n in lengths) + "    exponent  over dense")
    dense = math.nan
    for name, way in WAYS.items():
        seconds = []
        for length in lengths:
            generator = torch.Generator().manual_seed(length)
            tokens = torch.randn(length, WIDTH, generator=generator)
            seconds.append(clock(lambda x=tokens, way=way: way(x), options.repeats))
        dense = seconds[-1] if math.isnan(dense) else dense
        slope = math.log2(seconds[-1] / seconds[-2])
        cells = "".join(f"{1000 * s:9.1f} ms" for s in seconds)
        print(f"{name:26s}{cells}{slope:12.2f}{seconds[-1] / dense:12.3f}")


if __name__ == "__main__":
    main()

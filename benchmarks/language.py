"""Cost of the map of soft tokens of SmolLM2-135M-Instruct, in seconds of one core.

    python benchmarks/language.py [--write]

A stability calculation is the fixed point and its leading multiplier at one β, for a window of
four tokens. A sweep is 64 values of β and 1,000 tokens with a window of eight, by the map, which
reads the whole window for each token, and with a KV cache, which reads the newest token alone.
These are other maps: a cache keeps what was computed from tokens that have left the window. A few
tokens are measured, after one that is not counted, and scaled. The gain is the time of a step in
which the last token is chosen by a slice over that of one in which it is chosen by an index, as the
map does; the two are interleaved, and the shortest of each is taken. One thread, float32, process
time.
"""

import argparse
import time

import torch

from bookmaker.measured import write_results
from spinformer.language.checkpoints import Checkpoint, load_checkpoint
from spinformer.language.soft_map import SoftTokenMap
from spinformer.language.text import sample_texts

BETAS = 64
TOKENS = 1000
MEASURED = 2
# Windows whose gain is measured, number of windows read at once, and repetitions.
GAIN_WINDOWS = (2, 8)
GAIN_BATCH = 24
REPEATS = 4


def index_gain(loaded: Checkpoint, *, window: int) -> float:
    """Time of a step with a slice of the last token, over that with an index."""
    soft = SoftTokenMap(loaded.model, window=window, tokenizer=loaded.tokenizer)
    start = soft.starts([sample_texts()["narrative"][:300]])
    betas = torch.linspace(0.1, 2.0, GAIN_BATCH)
    last_token = {"index": soft._options["logits_to_keep"], "slice": 1}
    shortest = dict.fromkeys(last_token, float("inf"))
    for _ in range(REPEATS):
        for name, chosen in last_token.items():
            soft._options["logits_to_keep"] = chosen
            begin = time.process_time()
            soft.step(start, beta=betas)
            shortest[name] = min(shortest[name], time.process_time() - begin)
    return shortest["slice"] / shortest["index"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    write = parser.parse_args().write
    torch.set_num_threads(1)
    loaded = load_checkpoint()

    four = SoftTokenMap(loaded.model, window=4)
    start = time.process_time()
    point = four.fixed_point(beta=0.6)
    size = abs(four.multipliers(point.value, beta=0.6)[0])
    stability = time.process_time() - start
    print(f"fixed point and multiplier ({size:.3f}) at one β: {stability:.0f} s")

    eight = SoftTokenMap(loaded.model, window=8, tokenizer=loaded.tokenizer)
    begin = eight.starts([sample_texts()["narrative"][:300]])
    betas = torch.linspace(0.1, 2.0, BETAS)
    per_token = {}
    for name, run in (("window", eight.trajectory), ("cache", eight.stream)):
        seconds = []
        for steps in (1, 1 + MEASURED):
            start = time.process_time()
            run(begin, steps=steps, beta=betas)
            seconds.append(time.process_time() - start)
        per_token[name] = (seconds[1] - seconds[0]) / MEASURED
        minutes = per_token[name] * TOKENS / 60
        print(f"{BETAS} β, {TOKENS:,} tokens, {name}: {minutes:.0f} minutes of one core")
    gains = {f"gain_{window}": index_gain(loaded, window=window) for window in GAIN_WINDOWS}
    for name, gain in gains.items():
        print(f"{name}: {gain:.2f}")
    if write:
        write_results(
            __file__,
            {
                "stability": round(stability),
                "betas": BETAS,
                "tokens": TOKENS,
                "window": round(per_token["window"] * TOKENS / 60),
                "cache": round(per_token["cache"] * TOKENS / 60),
            }
            | {name: round(gain, 2) for name, gain in gains.items()},
        )


if __name__ == "__main__":
    main()

"""Layers in the place of torch's own, in two common training loops: accuracies and times.

    python benchmarks/drop_in.py [--task digits] [--seeds 3] [--write]

Digits: the 1,797 of 8 × 8 pixels, a row of them a token, read by two layers and the mean over
tokens. Characters: windows of 32 of the help that comes with Python, the next one asked at every
place under a causal mask. Everything but the line that makes the layer is the same: width 32, four
heads, Adam with batches of 32. Each layer has the best of three rates by validation with the first
seed; shown are medians over seeds of the test and, in brackets, their range, and of the process
time of a training of 200 steps, one thread.
"""

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from bookmaker.measured import write_results
from compendium.c25b_learning_under_a_drive.study import ALPHABET, cut_text
from compendium.common.images import digit_labels, digits
from spinformer.hopfield.layer import AttentionModule, HopfieldLayer
from spinformer.spins.driven_module import DrivenSpinModule
from spinformer.spins.module import SpinTransformerModule

RATES = (1e-3, 3e-3, 1e-2)
STEPS = 200
WINDOW = 32


def torch_layer() -> nn.Module:
    return nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)


def memory_layer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    layer.self_attn = AttentionModule(HopfieldLayer(32, heads=4, steps=2))
    return layer


def spin_layer() -> nn.Module:
    return SpinTransformerModule(32, heads=4, channel_maps=True)


def driven_layer() -> nn.Module:
    return DrivenSpinModule(32, heads=4, channel_maps=True)


LAYERS: dict[str, list[Callable[[], nn.Module]]] = {
    "digits": [torch_layer, memory_layer, spin_layer, driven_layer],
    "characters": [torch_layer, memory_layer, driven_layer],
}


class Reader(nn.Module):
    """Embedding with places, two layers, and a read-out of every token."""

    def __init__(self, layer: nn.Module, *, tokens: int, features: int, answers: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(features, 32)
        self.place = nn.Parameter(torch.randn(tokens, 32) / 2)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(32), enable_nested_tensor=False)
        self.readout = nn.Linear(32, answers)

    def forward(self, tokens: Tensor, **masks: Tensor) -> Tensor:
        logits: Tensor = self.readout(self.encoder(self.embedding(tokens) + self.place, **masks))
        return logits


Data = dict[str, tuple[Tensor, Tensor]]


def digit_data(seed: int) -> Data:
    """Rows (n, 8, 8) and labels (n,), three fifths to train on."""
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(seed))
    images = torch.as_tensor(digits()).float().reshape(-1, 8, 8)
    labels = torch.as_tensor(digit_labels())
    parts = zip(("train", "validation", "test"), order.split((1078, 359, 360)), strict=True)
    return {name: (images[part], labels[part]) for name, part in parts}


def character_data(seed: int) -> Data:
    """Windows (n, WINDOW, letters) and the characters that follow (n, WINDOW)."""
    data = {}
    for name, text in cut_text(validation=0, test=1 + 2 * (seed % 5)).items():
        windows = text[: len(text) // WINDOW * WINDOW].view(-1, WINDOW)[
            : 512 if name != "train" else None
        ]
        data[name] = windows[:, :-1], windows[:, 1:]
    return data


def train(
    make: Callable[[], nn.Module], task: str, *, rate: float, seed: int, steps: int = STEPS
) -> dict[str, float]:
    """Shares of right answers after training, and the process time it took."""
    data = (digit_data if task == "digits" else character_data)(seed)
    torch.manual_seed(seed)
    letters = len(ALPHABET)
    if task == "digits":
        model = Reader(make(), tokens=8, features=8, answers=10)
    else:
        model = Reader(make(), tokens=WINDOW - 1, features=letters, answers=letters)
        causal = nn.Transformer.generate_square_subsequent_mask(WINDOW - 1)

    def logits(inputs: Tensor) -> Tensor:
        if task == "digits":
            return model(inputs).mean(1)
        return model(functional.one_hot(inputs, letters).float(), mask=causal).flatten(0, 1)

    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    inputs, labels = data["train"]
    start = time.process_time()
    for _ in range(steps):
        batch = torch.randint(len(inputs), (32,))
        loss = functional.cross_entropy(logits(inputs[batch]), labels[batch].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    figures = {"seconds": time.process_time() - start}
    model.eval()
    with torch.no_grad():
        for part in ("validation", "test"):
            inputs, labels = data[part]
            figures[part] = float((logits(inputs).argmax(-1) == labels.flatten()).float().mean())
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=list(LAYERS), action="append")
    parser.add_argument("--layer", choices=[make.__name__ for make in LAYERS["digits"]])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="store what the pages state")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.processor() or platform.machine()}, torch {torch.__version__}, one thread")
    measured: dict[str, dict[str, dict[str, float]]] = {}
    for task in options.task or LAYERS:
        measured[task] = {}
        for make in LAYERS[task]:
            if options.layer not in (None, make.__name__):
                continue
            rate = max(RATES, key=lambda r: train(make, task, rate=r, seed=0)["validation"])
            runs = [train(make, task, rate=rate, seed=seed) for seed in range(options.seeds)]
            test = sorted(run["test"] for run in runs)
            seconds = statistics.median(run["seconds"] for run in runs)
            measured[task][make.__name__] = {
                "rate": rate,
                "median": statistics.median(test),
                "low": test[0],
                "high": test[-1],
                "seconds": seconds,
            }
            shown = f"{statistics.median(test):.3f} ({test[0]:.3f} to {test[-1]:.3f})"
            line = f"{task:10s} {make.__name__:13s} rate {rate:5g}  right {shown}"
            print(f"{line}  {seconds:5.1f} s", flush=True)
    if options.write:
        for layers in measured.values():
            for layer in layers.values():
                layer["ratio"] = layer["seconds"] / layers["torch_layer"]["seconds"]
        write_results(__file__, measured | {"steps": STEPS, "window": WINDOW - 1})


if __name__ == "__main__":
    main()

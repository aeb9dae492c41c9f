"""Two tasks: recall of pairs, and the next character of a text that Python ships.

Recall: PAIRS tokens hold a key and a value each, then come the same keys in another order,
alone. No key and no value occurs twice among the pairs, so that without a look-up nobody is right
more often than once in PAIRS. The text is that of `help_text`.

Every network adds two embeddings a token, applies one pre-norm layer, x ← x + mix(x), x ← x + W₂
relu(W₁ LN(x)), and reads each token out; the arms differ in the mixer only, driven vector spins or
causal attention, whose sizes agree: four maps of width × width.
"""

import copy
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from compendium.c25b_learning_under_a_drive.directions import sample_von_mises_fisher
from compendium.c25b_learning_under_a_drive.help_text import ALPHABET, cut_text
from spinformer.core.random import Seed, TorchSeed, numpy_generator, torch_generator
from spinformer.core.special import log_sphere_integral
from spinformer.core.statistics import Estimate, mean_estimate
from spinformer.spins.module import DrivenParts, DrivenSpinModule

PAIRS, KEYS, WINDOW = 8, 16, 32
# Sizes of the two embeddings whose sum is a token, and of the read-out.
SHAPES = {"recall": (KEYS, PAIRS + 1, PAIRS), "text": (len(ALPHABET), WINDOW, len(ALPHABET))}
# Pseudo-counts among which a validation part chooses.
WEIGHTS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class Batch(NamedTuple):
    """Tokens (batch, N, 2) and targets (batch, N), −100 where nothing is asked."""

    tokens: Tensor
    targets: Tensor


def draw_recall(count: int, *, seed: TorchSeed, shuffled: bool = False) -> Batch:
    """`count` sequences of recall, fresh; `shuffled` answers belong to keys drawn by chance."""
    generator = torch_generator(seed)

    def orders(size: int) -> Tensor:
        return torch.rand(count, size, generator=generator).argsort(-1)

    keys, values, asked = orders(KEYS)[:, :PAIRS], orders(PAIRS), orders(PAIRS)
    said = values.gather(1, orders(PAIRS) if shuffled else asked)
    told = torch.stack([keys, values], -1)
    questions = torch.stack([keys.gather(1, asked), torch.full_like(values, PAIRS)], -1)
    targets = torch.cat([torch.full_like(said, -100), said], 1)
    return Batch(torch.cat([told, questions], 1), targets)


def text_part(part: str, *, split: int) -> Tensor:
    """One part of the text: a tenth each for "validation" and "test", the rest for "train".

    Split s takes as test the tenth number 9 − 4s, and the one before it for validation.
    """
    last = 9 - 4 * split
    return cut_text(validation=last - 1, test=last)[part]


def text_batch(text: Tensor, *, starts: Tensor) -> Batch:
    """Windows of WINDOW characters from `starts` on, and the character after each."""
    found = text[starts[:, None] + torch.arange(WINDOW + 1)]
    places = torch.arange(WINDOW).expand(len(starts), -1)
    return Batch(torch.stack([found[:, :-1], places], -1), found[:, 1:])


def whole_windows(text: Tensor) -> Batch:
    """All of `text` in windows one after the other."""
    return text_batch(text, starts=torch.arange(0, len(text) - WINDOW, WINDOW))


def count_bits(split: int) -> dict[str, float]:
    """Bits per character of the test part, in its windows, from counts in the training part.

    Each order is mixed with the one below, p(c|ab) = (n_abc + κ p(c|b))/(n_ab + κ), κ chosen on
    the validation part.
    """
    size = len(ALPHABET)
    train = text_part("train", split=split).numpy()

    def counts(order: int) -> np.ndarray:
        runs = [train[k : len(train) - order + 1 + k] for k in range(order)]
        number = np.ravel_multi_index(runs, [size] * order)
        return np.bincount(number, minlength=size**order).reshape([size] * order)

    def mixed(counted: np.ndarray, below: np.ndarray) -> list[np.ndarray]:
        total = counted.sum(-1, keepdims=True)
        return [(counted + weight * below) / (total + weight) for weight in WEIGHTS]

    def bits(part: str, pairs: np.ndarray, triples: np.ndarray | None = None) -> float:
        windows = whole_windows(text_part(part, split=split))
        now, then = windows.tokens[..., 0].numpy(), windows.targets.numpy()
        found = pairs[now, then]
        if triples is not None:
            found[:, 1:] = triples[now[:, :-1], now[:, 1:], then[:, 1:]]
        return float(-np.log2(found).mean())

    one = (counts(1) + 1.0) / (len(train) + size)
    pairs = min(mixed(counts(2), one), key=lambda p: bits("validation", p))
    triples = min(mixed(counts(3), pairs), key=lambda t: bits("validation", pairs, t))
    return {
        "unigram": bits("test", np.broadcast_to(one, (size, size))),
        "bigram": bits("test", pairs),
        "trigram": bits("test", pairs, triples),
    }


WIDTH, HEADS, HIDDEN, STEPS = 32, 2, 32, 2
# Driven spins; in one step; without the term of fluctuations; with both directions of a coupling
# made equal; with the maps of the scores as they were drawn; with couplings that know no tokens,
# the same to all earlier ones; the causal pre-norm layer of torch.
ARMS = ("driven", "one step", "naive", "symmetric", "frozen", "uniform", "attention")


class SpinLayer(nn.Module):
    """Driven spins in the place of attention in a pre-norm layer: (batch, N, WIDTH) to the same."""

    def __init__(self, arm: str, *, strength: float) -> None:
        super().__init__()
        self.mixer = DrivenSpinModule(
            WIDTH,
            heads=HEADS,
            steps=1 if arm == "one step" else STEPS,
            theory="naive" if arm == "naive" else "second order",
            strength=strength,
            gamma=0.0 if arm == "uniform" else 1.0,
            symmetric=arm == "symmetric",
            channel_maps=True,
        )
        if arm == "frozen":
            for fixed in (self.mixer.query, self.mixer.key, self.mixer.log_strength):
                fixed.requires_grad_(False)
        self.norm = nn.LayerNorm(WIDTH)
        self.hidden = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))

    def forward(self, inputs: Tensor) -> Tensor:
        """The layer's output."""
        mixed = inputs + self.mixer(inputs)
        return mixed + self.hidden(self.norm(mixed))


class AttentionLayer(nn.TransformerEncoderLayer):
    """torch's layer, normalization first, causal."""

    def __init__(self) -> None:
        sizes: Any = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": HIDDEN, "dropout": 0.0}
        super().__init__(**sizes, batch_first=True, norm_first=True)

    def forward(self, inputs: Tensor) -> Tensor:  # type: ignore[override]
        """The layer's output."""
        later = torch.ones(2 * inputs.shape[1:2], dtype=torch.bool).triu(1)
        return super().forward(inputs, src_mask=later, is_causal=True)


class Network(nn.Module):
    """Tokens (batch, N, 2) of two numbers each to logits (batch, N, answers); weights by `seed`."""

    def __init__(self, arm: str, *, task: str, strength: float = 1.0, seed: int = 0) -> None:
        super().__init__()
        first, second, answers = SHAPES[task]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Embedding(first, WIDTH)
            self.second = nn.Embedding(second, WIDTH)
            self.readout = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, answers))
            attention = arm == "attention"
            self.layer = AttentionLayer() if attention else SpinLayer(arm, strength=strength)

    def embed(self, tokens: Tensor) -> Tensor:
        """What the layer is given, (batch, N, WIDTH)."""
        return self.first(tokens[..., 0]) + self.second(tokens[..., 1])

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of every token."""
        return self.readout(self.layer(self.embed(tokens)))


def stationary_spins(network: Network, tokens: Tensor) -> tuple[DrivenSpinModule, DrivenParts]:
    """The spins of `network` in float64 and the theory "large D", N + 1 steps under `tokens`.

    With triangular couplings that is their stationary state.
    """
    mixer: Any = copy.deepcopy(network.layer.get_submodule("mixer")).double()
    mixer.steps, mixer.theory = tokens.shape[1] + 1, "large D"
    with torch.no_grad():
        _, parts = mixer(network.embed(tokens).double(), return_parts=True)
    return mixer, parts


UPDATES, BATCH = 400, 32
# Seeds of the fresh sequences on which recall is tested, and on which it is tuned.
HELD = {"test": 2_000_003, "validation": 2_000_029}


def train(
    arm: str,
    *,
    task: str,
    rate: float,
    strength: float,
    seed: int,
    split: int = 0,
    shuffled: bool = False,
    looks: Sequence[int] = (),
) -> dict[int, Network]:
    """Adam with a cosine of the `rate` to zero, on batches that depend on `seed` alone.

    Copies of the network after the UPDATES and after each of the `looks`, by their number.
    """
    network = Network(arm, task=task, strength=strength, seed=seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / UPDATES))
    )
    generator, text = torch.Generator().manual_seed(1_000_003 + seed), torch.empty(0)
    if task == "text":
        text = text_part("train", split=split)
    kept = {0: copy.deepcopy(network)} if 0 in looks else {}
    for step in range(1, UPDATES + 1):
        if task == "recall":
            batch = draw_recall(BATCH, seed=generator, shuffled=shuffled)
        else:
            starts = torch.randint(len(text) - WINDOW, (BATCH,), generator=generator)
            batch = text_batch(text, starts=starts)
        logits = network(batch.tokens)
        loss = functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step in (*looks, UPDATES):
            kept[step] = copy.deepcopy(network)
    return kept


def held_batch(task: str, *, part: str, split: int = 0) -> Batch:
    """What a network is judged on."""
    if task == "recall":
        return draw_recall(256, seed=HELD[part])
    return whole_windows(text_part(part, split=split))


class Score(NamedTuple):
    """Bits an answer, and the share of right answers."""

    bits: float
    accuracy: float


@torch.no_grad()
def score(network: Network, batch: Batch, *, past_alone: bool = False) -> Score:
    """Of the answers that are asked for, in one pass or each from the tokens up to its own."""
    tokens, targets = batch
    if past_alone:
        ends = range(1, tokens.shape[1] + 1)
        logits = torch.stack([network(tokens[:, :end])[:, -1] for end in ends], 1)
    else:
        logits = network(tokens)
    asked = targets >= 0
    loss = functional.cross_entropy(logits[asked].double(), targets[asked])
    right = (logits.argmax(-1) == targets)[asked].double().mean()
    return Score(bits=float(loss) / math.log(2), accuracy=float(right))


def simulated_entropy(
    couplings: np.ndarray,
    *,
    fields: np.ndarray,
    beta: float,
    steps: int = 20,
    replicas: int = 1000,
    seed: Seed = 0,
) -> Estimate:
    """Mean of ln W(u'|u)/W(u|u') over steps u → u', nats per spin and component, its error.

    Unit spins in `fields` (N, D), ln W(u'|u) = Σ_i (βD u'_i·θ_i(u) − ln Z(βD‖θ_i(u)‖)). The first
    half of the steps is not counted. In a stationary state that is the entropy production: the
    state's own probability drops out of the mean.
    """
    rng, (count, dim) = numpy_generator(seed), fields.shape

    def pull(spins: Any) -> Any:
        return beta * dim * (fields + couplings @ spins)

    def log_weight(after: np.ndarray, force: np.ndarray) -> Any:
        sizes = np.linalg.norm(force, axis=-1)
        return (after * force).sum((-2, -1)) - log_sphere_integral(sizes, dim=dim).sum(-1)

    spins = sample_von_mises_fisher(pull(np.zeros((replicas, count, dim))), seed=rng)
    ratios = []
    for step in range(steps):
        after = sample_von_mises_fisher(pull(spins), seed=rng)
        if 2 * step >= steps:
            ratios.append(log_weight(after, pull(spins)) - log_weight(spins, pull(after)))
        spins = after
    return mean_estimate(np.mean(ratios, axis=0) / (count * dim))

"""Two tasks: recall of pairs, and the next character of a text that Python ships.

Recall: PAIRS tokens hold a key and a value each, then come the same keys in another order,
alone. No key and no value occurs twice among the pairs, so that without a look-up nobody is right
more often than once in PAIRS. The text is that of `help_text`.

One layer for sequences whose mixer is exchanged: driven vector spins, or causal attention.

Every network adds two embeddings a token, applies one layer and reads each token out. The layer is
a pre-norm transformer layer, x ← x + mix(x), x ← x + W₂ relu(W₁ LN(x)); the arms differ in the
mixer only, whose sizes agree: four maps of width × width.

The entropy production of a trained layer is also simulated, from steps and their probabilities.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from compendium.c25b_learning_under_a_drive.directions import sample_von_mises_fisher
from compendium.c25b_learning_under_a_drive.help_text import ALPHABET, WEIGHTS, cut_text, mixed
from spinformer.core.random import Seed, TorchSeed, numpy_generator, torch_generator
from spinformer.core.records import record
from spinformer.core.special import log_sphere_integral
from spinformer.core.statistics import Estimate
from spinformer.spins.module import DrivenParts, DrivenSpinModule

PAIRS, KEYS, WINDOW = 8, 16, 32
# Sizes of the two embeddings whose sum is a token, and of the read-out.
SHAPES = {
    "recall": (KEYS, PAIRS + 1, PAIRS),
    "text": (len(ALPHABET), WINDOW, len(ALPHABET)),
}


@record
class Batch:
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
    nothing = torch.full_like(values, PAIRS)
    told = torch.stack([keys, values], -1)
    questions = torch.stack([keys.gather(1, asked), nothing], -1)
    targets = torch.cat([torch.full_like(said, -100), said], 1)
    return Batch(tokens=torch.cat([told, questions], 1), targets=targets)


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
    return Batch(tokens=torch.stack([found[:, :-1], places], -1), targets=found[:, 1:])


def whole_windows(text: Tensor) -> Batch:
    """All of `text` in windows one after the other."""
    return text_batch(text, starts=torch.arange(0, len(text) - WINDOW, WINDOW))


def count_bits(split: int) -> dict[str, float]:
    """Bits per character of the test part from counts in the training part, in its windows.

    Each order is mixed with the one below, p(c|ab) = (n_abc + κ p(c|b))/(n_ab + κ), κ chosen on
    the validation part; the first character of a window is known only to the one after it.
    """
    size = len(ALPHABET)
    train = text_part("train", split=split).numpy()
    one = (np.bincount(train, minlength=size) + 1.0) / (len(train) + size)
    two = np.bincount(train[:-1] * size + train[1:], minlength=size**2).reshape(size, size)
    three = np.bincount(
        (train[:-2] * size + train[1:-1]) * size + train[2:], minlength=size**3
    ).reshape(size, size, size)

    def bits(part: str, *, pairs: np.ndarray, triples: np.ndarray | None = None) -> float:
        windows = whole_windows(text_part(part, split=split))
        now, then = windows.tokens[..., 0].numpy(), windows.targets.numpy()
        found = pairs[now, then]
        if triples is not None:
            found[:, 1:] = triples[now[:, :-1], now[:, 1:], then[:, 1:]]
        return float(-np.log2(found).mean())

    pairs = min(
        (mixed(two, below=one, weight=w) for w in WEIGHTS),
        key=lambda p: bits("validation", pairs=p),
    )
    triples = min(
        (mixed(three, below=pairs, weight=w) for w in WEIGHTS),
        key=lambda t: bits("validation", pairs=pairs, triples=t),
    )
    return {
        "unigram": bits("test", pairs=np.broadcast_to(one, (size, size))),
        "bigram": bits("test", pairs=pairs),
        "trigram": bits("test", pairs=pairs, triples=triples),
    }


WIDTH, HEADS, HIDDEN, STEPS = 32, 2, 32, 2
# Driven spins; in one step; without the term of fluctuations; with both directions of a coupling
# made equal; with the maps of the scores as they were drawn; with couplings that know no tokens,
# the same to all earlier ones; the causal pre-norm layer of torch.
ARMS = ("driven", "one step", "naive", "symmetric", "frozen", "uniform", "attention")


class SpinLayer(nn.Module):
    """Driven spins in the place of attention in a pre-norm layer: (batch, N, WIDTH) to the same.

    `strength` is the g from which training starts.
    """

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


class Network(nn.Module):
    """Tokens (batch, N, 2) of two numbers each to logits (batch, N, answers); weights by `seed`."""

    def __init__(
        self, arm: str, *, shape: tuple[int, int, int], strength: float = 1.0, seed: int = 0
    ) -> None:
        super().__init__()
        self.arm = arm
        first, second, answers = shape
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.first = nn.Embedding(first, WIDTH)
            self.second = nn.Embedding(second, WIDTH)
            self.readout = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, answers))
            self.layer: nn.Module = (
                nn.TransformerEncoderLayer(
                    WIDTH, HEADS, HIDDEN, dropout=0.0, batch_first=True, norm_first=True
                )
                if arm == "attention"
                else SpinLayer(arm, strength=strength)
            )

    def embed(self, tokens: Tensor) -> Tensor:
        """What the layer is given, (batch, N, WIDTH)."""
        summed: Tensor = self.first(tokens[..., 0]) + self.second(tokens[..., 1])
        return summed

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of every token."""
        inputs = self.embed(tokens)
        if self.arm == "attention":
            count = tokens.shape[1]
            later = torch.ones(count, count, dtype=torch.bool).triu(1)
            outputs = self.layer(inputs, src_mask=later, is_causal=True)
        else:
            outputs = self.layer(inputs)
        answer: Tensor = self.readout(outputs)
        return answer


def stationary_spins(network: Network, tokens: Tensor) -> tuple[DrivenSpinModule, DrivenParts]:
    """The spins of `network` in float64 and the theory "large D", N + 1 steps under `tokens`.

    With triangular couplings that is their stationary state.
    """
    mixer = copy.deepcopy(network.layer.get_submodule("mixer")).double()
    if not isinstance(mixer, DrivenSpinModule):
        raise TypeError("network must have a mixer of driven spins")
    mixer.steps, mixer.theory = tokens.shape[1] + 1, "large D"
    with torch.no_grad():
        _, parts = mixer(network.embed(tokens).double(), return_parts=True)
    return mixer, parts


BATCH = 32
# Seed of the fresh sequences on which recall is tested, and on which it is tuned.
TEST, VALIDATION = 2_000_003, 2_000_029


@record
class Score:
    """Bits an answer, and the share of right answers."""

    bits: float
    accuracy: float


def train(
    arm: str,
    *,
    task: str,
    rate: float,
    strength: float,
    seed: int,
    updates: int,
    split: int = 0,
    shuffled: bool = False,
    looks: Sequence[int] = (),
) -> dict[int, Network]:
    """Adam with a cosine of the `rate` to zero, on batches that depend on `seed` alone.

    `strength` is the first g of the spins, without meaning for attention. Returns copies of the
    network after the `updates` and after those of the `looks` that lie before, by their number.
    """
    network = Network(arm, shape=SHAPES[task], strength=strength, seed=seed)
    learned = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(learned, lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / updates))
    )
    kept = {0: copy.deepcopy(network)} if 0 in looks else {}
    batches = _batches(task, seed=seed, split=split, shuffled=shuffled)
    for step in range(1, updates + 1):
        batch = next(batches)
        logits = network(batch.tokens)
        loss = functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step in looks or step == updates:
            kept[step] = copy.deepcopy(network)
    return kept


def held_batch(task: str, *, part: str, split: int = 0) -> Batch:
    """What a network is judged on."""
    if task == "recall":
        return draw_recall(256, seed=TEST if part == "test" else VALIDATION)
    return whole_windows(text_part(part, split=split))


def score(network: Network, batch: Batch) -> Score:
    """Bits and accuracy of the answers that are asked for, all tokens in one pass."""
    with torch.no_grad():
        return _score(network(batch.tokens), batch.targets)


def prefix_score(network: Network, batch: Batch) -> Score:
    """`score` with every answer read from the tokens up to its own, the later ones unwritten."""
    count = batch.tokens.shape[1]
    with torch.no_grad():
        logits = [network(batch.tokens[:, : last + 1])[:, -1] for last in range(count)]
        return _score(torch.stack(logits, 1), batch.targets)


def focus(network: Network, batch: Batch) -> float:
    """Share of a question's coupling that lies on its own pair (recall), in the better head.

    By chance it would be about one in PAIRS + 4, as questions couple to those before them.
    """
    _, parts = stationary_spins(network, batch.tokens)
    keys = batch.tokens[..., 0]
    own = keys[:, PAIRS:, None] == keys[:, None, :PAIRS]
    looks = parts.couplings[:, :, PAIRS:]
    shares = looks[..., :PAIRS].mul(own[:, None]).sum(-1) / looks.sum(-1)
    return float(shares.mean((0, 2)).max())


def _score(logits: Tensor, targets: Tensor) -> Score:
    asked = targets >= 0
    loss = functional.cross_entropy(logits[asked].double(), targets[asked])
    right = (logits.argmax(-1) == targets)[asked].double().mean()
    return Score(bits=float(loss) / math.log(2), accuracy=float(right))


def _batches(task: str, *, seed: int, split: int, shuffled: bool) -> Iterator[Batch]:
    generator = torch.Generator().manual_seed(1_000_003 + seed)
    text = text_part("train", split=split) if task == "text" else None
    while True:
        if text is None:
            yield draw_recall(BATCH, seed=generator, shuffled=shuffled)
        else:
            high = len(text) - WINDOW
            yield text_batch(text, starts=torch.randint(high, (BATCH,), generator=generator))


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

    Unit spins (N, D) in `fields` (N, D), ln W(u'|u) = Σ_i (βD u'_i·θ_i(u) − ln Z(βD‖θ_i(u)‖)), all
    spins at once; `couplings` (N, N). The first half of the steps is not counted. In a stationary
    state that is the entropy production: the state's own probability drops out of the mean.
    """
    rng = numpy_generator(seed)
    count, dim = fields.shape

    def pull(spins: np.ndarray) -> np.ndarray:
        result: np.ndarray = beta * dim * (fields + couplings @ spins)
        return result

    def log_weight(after: np.ndarray, force: np.ndarray) -> np.ndarray:
        sizes = np.linalg.norm(force, axis=-1)
        found: np.ndarray = (after * force).sum((-2, -1))
        return found - log_sphere_integral(sizes, dim=dim).sum(-1)

    force = np.broadcast_to(beta * dim * fields, (replicas, count, dim))
    spins = sample_von_mises_fisher(force, seed=rng)
    force = pull(spins)
    ratios = []
    for step in range(steps):
        after = sample_von_mises_fisher(force, seed=rng)
        force_after = pull(after)
        if 2 * step >= steps:
            ratios.append(log_weight(after, force) - log_weight(spins, force_after))
        spins, force = after, force_after
    means = np.mean(ratios, axis=0) / (count * dim)
    return Estimate(
        value=np.array(means.mean()),
        error=np.array(means.std(ddof=1) / replicas**0.5),
        samples=replicas,
    )

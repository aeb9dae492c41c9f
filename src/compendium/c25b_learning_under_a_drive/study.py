"""Driven vector spins in the place of attention: two tasks, networks, training, stored tables.

Recall: PAIRS tokens hold a key and a value each, then come the same keys in another order, alone;
no key and no value occurs twice among the pairs. The text is the help that comes with Python,
`pydoc_data.topics`, here that of 3.11, in small letters, runs of blanks made one, digits zeros.

Every network adds two embeddings a token, applies one pre-norm layer, x ← x + mix(x), x ← x + W₂
relu(W₁ LN(x)), and reads each token out; the arms differ in the mixer only. Tuning uses a seed and
validation sequences that the results do not use.
"""

import copy
import itertools
import math
import re
from collections.abc import Sequence
from functools import cache
from pydoc_data.topics import topics
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from bookmaker.tables import Rows, stored
from compendium.common.rows import array_of, median_rows, parameter_product, rows_of
from spinformer.core.random import TorchSeed, torch_generator
from spinformer.spins.driven_module import DrivenParts, DrivenSpinModule

PAIRS = 8
KEYS = 16
WINDOW = 32
ALPHABET = "\0\n abcdefghijklmnopqrstuvwxyz0.,:;()[]_=*-+<>|\"'`/#"
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

    keys = orders(KEYS)[:, :PAIRS]
    values = orders(PAIRS)
    asked = orders(PAIRS)
    said = values.gather(1, orders(PAIRS) if shuffled else asked)
    told = torch.stack([keys, values], -1)
    questions = torch.stack([keys.gather(1, asked), torch.full_like(values, PAIRS)], -1)
    targets = torch.cat([torch.full_like(said, -100), said], 1)
    return Batch(torch.cat([told, questions], 1), targets)


@cache
def help_text() -> Tensor:
    """The text as numbers of ALPHABET, (characters,); what is not in it is number 0."""
    text = "\n".join(topics[name] for name in sorted(topics)).lower()
    text = re.sub(r"[0-9]", "0", re.sub(r"\s*\n\s*", "\n", re.sub(r"[^\S\n]+", " ", text)))
    return torch.tensor([max(ALPHABET.find(letter), 0) for letter in text])


def cut_text(*, validation: int, test: int) -> dict[str, Tensor]:
    """The text in parts: the tenths of these numbers, and for "train" all others in their order."""
    tenths = help_text().tensor_split(10)
    rest = [tenth for number, tenth in enumerate(tenths) if number not in (validation, test)]
    return {"train": torch.cat(rest), "validation": tenths[validation], "test": tenths[test]}


def text_part(part: str, *, split: int) -> Tensor:
    """A part of split s, one of ten: as test the tenth number 9 − 4s − ⌊s/5⌋, modulo ten.

    The one before it is for validation.
    """
    last = (9 - 4 * split - split // 5) % 10
    return cut_text(validation=(last - 1) % 10, test=last)[part]


def text_batch(text: Tensor, *, starts: Tensor) -> Batch:
    """Windows of WINDOW characters from `starts` on, and the character after each."""
    found = text[starts[:, None] + torch.arange(WINDOW + 1)]
    places = torch.arange(WINDOW).expand(len(starts), -1)
    return Batch(torch.stack([found[:, :-1], places], -1), found[:, 1:])


def whole_windows(text: Tensor) -> Batch:
    """All of `text` in windows one after the other."""
    return text_batch(text, starts=torch.arange(0, len(text) - WINDOW, WINDOW))


# Sizes of the two embeddings whose sum is a token, and of the read-out.
SHAPES = {"recall": (KEYS, PAIRS + 1, PAIRS), "text": (len(ALPHABET), WINDOW, len(ALPHABET))}
WIDTH = 32
HEADS = 2
HIDDEN = 32
STEPS = 2
# Driven spins; in one step; without the term of fluctuations; with both directions of a coupling
# made equal; with the maps of the scores as they were drawn; with couplings that know no tokens,
# the same to all earlier ones; the causal pre-norm layer of torch.
ARMS = ("driven", "one step", "naive", "symmetric", "frozen", "uniform", "attention")


class SpinLayer(nn.Module):
    """A pre-norm layer with driven spins for attention: (batch, N, WIDTH) to the same."""

    def __init__(self, arm: str, *, strength: float) -> None:
        super().__init__()
        self.mixer = DrivenSpinModule(
            WIDTH,
            heads=HEADS,
            steps=1 if arm == "one step" else STEPS,
            theory="naive" if arm == "naive" else "second order",
            coupling_strength=strength,
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
        mixed = inputs + self.mixer(inputs)
        return mixed + self.hidden(self.norm(mixed))


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
            if arm == "attention":
                self.layer: nn.Module = nn.TransformerEncoderLayer(
                    WIDTH,
                    HEADS,
                    dim_feedforward=HIDDEN,
                    dropout=0.0,
                    batch_first=True,
                    norm_first=True,
                )
            else:
                self.layer = SpinLayer(arm, strength=strength)

    def embed(self, tokens: Tensor) -> Tensor:
        """What the layer is given, (batch, N, WIDTH)."""
        return self.first(tokens[..., 0]) + self.second(tokens[..., 1])

    def forward(self, tokens: Tensor) -> Tensor:
        state = self.embed(tokens)
        if isinstance(self.layer, SpinLayer):
            return self.readout(self.layer(state))
        later = torch.ones(2 * state.shape[1:2], dtype=torch.bool).triu(1)
        return self.readout(self.layer(state, src_mask=later, is_causal=True))


def stationary_spins(network: Network, tokens: Tensor) -> tuple[DrivenSpinModule, DrivenParts]:
    """The spins of `network` in float64 and the theory "large D", N + 1 steps under `tokens`:
    stationary, as couplings are triangular."""
    mixer: Any = copy.deepcopy(network.layer.get_submodule("mixer")).double()
    mixer.steps = tokens.shape[1] + 1
    mixer.theory = "large D"
    with torch.no_grad():
        _, parts = mixer(network.embed(tokens).double(), return_parts=True)
    return mixer, parts


UPDATES = 400
BATCH = 32
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
    generator = torch.Generator().manual_seed(1_000_003 + seed)
    text = text_part("train", split=split)
    kept = {0: copy.deepcopy(network)} if 0 in looks else {}
    for step in range(1, UPDATES + 1):
        if task == "recall":
            tokens, targets = draw_recall(BATCH, seed=generator, shuffled=shuffled)
        else:
            starts = torch.randint(len(text) - WINDOW, (BATCH,), generator=generator)
            tokens, targets = text_batch(text, starts=starts)
        loss = functional.cross_entropy(network(tokens).flatten(0, 1), targets.flatten())
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


@torch.no_grad()
def score(network: Network, batch: Batch, *, past_alone: bool = False) -> dict[str, float]:
    """`bits` an answer that is asked for and `accuracy`, the share of right ones.

    In one pass, or each from the tokens up to its own.
    """
    tokens, targets = batch
    if past_alone:
        ends = range(1, tokens.shape[1] + 1)
        logits = torch.stack([network(tokens[:, :end])[:, -1] for end in ends], 1)
    else:
        logits = network(tokens)
    asked = targets >= 0
    loss = functional.cross_entropy(logits[asked].double(), targets[asked])
    right = (logits.argmax(-1) == targets)[asked].double().mean()
    return {"bits": float(loss) / math.log(2), "accuracy": float(right)}


RATES = (0.003, 0.01, 0.03)
STRENGTHS = (1.0, 3.0)
LOOKS = (0, 25, 50, 100, 200, 300)
SEEDS = tuple(range(10))
TEXT_SEEDS = tuple(range(5))
SPLITS = (0, 1)
# A split on which two arms were trained later, to see whether the lead is one of the first two.
THIRD = 2
# The recall arm that is trained on answers dealt out by chance.
SHUFFLED = "shuffled"
TEXT_ARMS = ("driven", "symmetric", "uniform", "attention")


def _thinned(batch: Batch) -> Batch:
    return Batch(*(part[::4] for part in batch))


@stored(
    "tuning",
    [
        *parameter_product(task=("recall",), arm=ARMS),
        *parameter_product(task=("text",), arm=TEXT_ARMS),
    ],
    checked=ARMS.index("attention"),
    seconds=10.0,
    within={"bits": 0.1},
)
def tuning_table(task: str, arm: str) -> Rows:
    """Validation bits of all settings of one arm; read from the past alone if it is symmetric."""
    held = held_batch(task, part="validation")
    past_alone = arm == "symmetric"
    held = _thinned(held) if past_alone else held
    rows = []
    strengths = STRENGTHS[:1] if arm == "attention" else STRENGTHS
    for strength, rate in itertools.product(strengths, RATES):
        network = train(arm, task=task, rate=rate, strength=strength, seed=100)[UPDATES]
        bits = score(network, held, past_alone=past_alone)["bits"]
        rows.append({"rate": rate, "strength": strength, "bits": bits})
    return rows


def chosen_setting(arm: str, *, task: str) -> tuple[float, float]:
    """Rate and strength of the least validation bits."""
    table = tuning_table.read()
    here = np.flatnonzero((table["arm"] == arm) & (table["task"] == task))
    best = here[np.nanargmin(table["bits"][here])]
    return float(table["rate"][best]), float(table["strength"][best])


@stored(
    "recall",
    [{"arm": arm, "seed": seed} for seed in SEEDS for arm in (*ARMS, SHUFFLED)],
    checked=len(ARMS),  # shuffled answers: nothing is learned that could amplify rounding much
    seconds=3.0,
    within={"entropy": 0.3, "strength": 0.3, "bits": 0.1, "accuracy": 0.1},
)
def recall_table(arm: str, seed: int) -> Rows:
    """A row a look: bits, accuracy, entropy production (per spin and component), strength g."""
    kind = "driven" if arm == SHUFFLED else arm
    rate, strength = chosen_setting(kind, task="recall")
    found = train(
        kind,
        task="recall",
        rate=rate,
        strength=strength,
        seed=seed,
        shuffled=arm == SHUFFLED,
        looks=LOOKS,
    )
    held = held_batch("recall", part="test")
    rows = []
    for update, network in found.items():
        spins = dict.fromkeys(("entropy", "strength"), math.nan)
        if kind != "attention":
            mixer, parts = stationary_spins(network, held.tokens[:32])
            spins = {
                "entropy": float(parts.entropy_production.mean()),
                "strength": float(mixer.log_strength.detach().exp().mean()),
            }
        rows.append({"update": update} | score(network, held) | spins)
    return rows


@stored(
    "text",
    [
        {"arm": arm, "split": split, "seed": seed}
        for splits, arms in ((SPLITS, TEXT_ARMS), ((THIRD,), ("driven", "uniform")))
        for seed in TEXT_SEEDS
        for split in splits
        for arm in arms
    ],
    checked=TEXT_ARMS.index("attention"),
    seconds=3.0,
    # Another Python has another help text, as in `counts_table`.
    within=dict.fromkeys(("bits", "bits_quarter", "bits_past"), 0.1),
)
def text_table(arm: str, split: int, seed: int) -> Rows:
    """Bits per character of the test part in one pass, and read from the past alone; entropy.

    From the past alone on every fourth window, and in one pass on these as well: `bits_quarter`.
    """
    rate, strength = chosen_setting(arm, task="text")
    found = train(
        arm, task="text", rate=rate, strength=strength, seed=seed, split=split, looks=(0,)
    )
    held = held_batch("text", part="test", split=split)
    few = _thinned(held)
    network = found[UPDATES]
    entropy = [math.nan] * 2
    if arm != "attention":
        states = [stationary_spins(one, few.tokens[::10])[1] for one in found.values()]
        entropy = [float(parts.entropy_production.mean()) for parts in states]
    return rows_of(
        bits=score(network, held)["bits"],
        bits_quarter=score(network, few)["bits"],
        bits_past=score(network, few, past_alone=True)["bits"],
        entropy_before=entropy[0],
        entropy_after=entropy[1],
    )


# The help of another Python has another length, by a tenth from 3.11 to 3.13.
@stored(
    "counts",
    [{"split": split} for split in (*SPLITS, THIRD)],
    seconds=2.0,
    within=dict.fromkeys(("unigram", "bigram", "trigram"), 0.1),
)
def counts_table(split: int) -> Rows:
    """Bits per character of the test part, in its windows, from counts in the training part.

    Each order is mixed with the one below, p(c|ab) = (n_abc + κ p(c|b))/(n_ab + κ), κ chosen on
    the validation part.
    """
    size = len(ALPHABET)
    text = text_part("train", split=split).numpy()

    def mixed(order: int, below: np.ndarray) -> list[np.ndarray]:
        runs = [text[k : len(text) - order + 1 + k] for k in range(order)]
        number = np.ravel_multi_index(runs, [size] * order)
        counted = np.bincount(number, minlength=size**order).reshape([size] * order)
        total = counted.sum(-1, keepdims=True)
        return [(counted + weight * below) / (total + weight) for weight in WEIGHTS]

    def bits(part: str, pairs: np.ndarray, triples: np.ndarray | None = None) -> float:
        windows = whole_windows(text_part(part, split=split))
        now = windows.tokens[..., 0].numpy()
        then = windows.targets.numpy()
        found = pairs[now, then]
        if triples is not None:
            found[:, 1:] = triples[now[:, :-1], now[:, 1:], then[:, 1:]]
        return float(-np.log2(found).mean())

    one = (np.bincount(text, minlength=size) + 1.0) / (len(text) + size)
    pairs = min(mixed(2, one), key=lambda p: bits("validation", p))
    triples = min(mixed(3, pairs), key=lambda t: bits("validation", pairs, t))
    return rows_of(
        unigram=bits("test", np.broadcast_to(one, (size, size))),
        bigram=bits("test", pairs),
        trigram=bits("test", pairs, triples),
    )


# Answers that a network is asked for in the recall test.
RECALL_ANSWERS = 256 * PAIRS
COUNTED = {"counted letters": "unigram", "counted pairs": "bigram"}


@stored(
    "settings_B13b",
    [
        *parameter_product(task=("text",), null=(*COUNTED, "uniform")),
        *parameter_product(task=("recall",), null=("chance", "uniform", SHUFFLED)),
    ],
    seconds=0.1,
)
def settings_b13b(task: str, null: str) -> Rows:
    """What driven spins are ahead of a null after all updates, in bits or in accuracy.

    In the text a line is a split, the median of five trainings; in recall it is one training.
    """
    return _text_lines(null) if task == "text" else _recall_lines(null)


def _text_lines(null: str) -> Rows:
    table = text_table.read()
    counts = counts_table.read()
    rows = []
    for split in (*SPLITS, THIRD):
        own = array_of(table, "bits", "seed", arm="driven", split=split)
        if null in COUNTED:
            other = counts[COUNTED[null]][counts["split"] == split]
        else:
            other = array_of(table, "bits", "seed", arm=null, split=split)
        (line,) = median_rows(other - own)
        rows.append({"data": f"text, split {split}"} | line)
    return rows


def _recall_lines(null: str) -> Rows:
    table = recall_table.read()
    own = array_of(table, "accuracy", "seed", arm="driven", update=UPDATES)
    if null == "chance":
        other = np.full(len(own), 1 / PAIRS)
    else:
        other = array_of(table, "accuracy", "seed", arm=null, update=UPDATES)
    return [
        {"data": f"recall, seed {seed}"} | _lead(mine, rival, null=null)
        for seed, mine, rival in zip(SEEDS, own, other, strict=True)
    ]


def _lead(own: float, other: float, *, null: str) -> dict[str, float]:
    """The line of two shares of right answers."""
    # The errors of both shares; that of chance is known.
    variance = own * (1 - own) + (0.0 if null == "chance" else other * (1 - other))
    half = 1.96 * math.sqrt(variance / RECALL_ANSWERS)
    lead = own - other
    runs = 1 if null == "chance" else 2
    return {"value": lead, "low": lead - half, "high": lead + half, "runs": runs}


@stored(
    "confirm_B13b",
    parameter_product(task=("text",), data=range(5, 10))
    + parameter_product(task=("recall",), data=range(25, 33)),
    checked=5,
    seconds=10.0,
    within={"value": 0.1, "low": 0.1, "high": 0.1},
)
def confirm_b13b(task: str, data: int) -> Rows:
    """The same after other trainings: three on the split `data` of the text, or of this seed."""

    def trained(arm: str, *, seed: int, split: int = 0) -> dict[str, float]:
        rate, strength = chosen_setting(arm, task=task)
        found = train(arm, task=task, rate=rate, strength=strength, seed=seed, split=split)
        return score(found[UPDATES], held_batch(task, part="test", split=split))

    if task == "text":
        bits = np.array([trained("driven", seed=k, split=data)["bits"] for k in (20, 21, 22)])
        counts = counts_table.rows(data)[0]
        nulls = {null: median_rows(counts[name] - bits)[0] for null, name in COUNTED.items()}
    else:
        own = trained("driven", seed=data)["accuracy"]
        others = {"chance": 1 / PAIRS, "uniform": trained("uniform", seed=data)["accuracy"]}
        nulls = {null: _lead(own, other, null=null) for null, other in others.items()}
    return [{"null": null} | line for null, line in nulls.items()]

"""Chains of linked tokens in a line: a query names the first, the answer is the last one's label.

N = LENGTH tokens. Three chains of k links each stand side by side: three neighbours hold the first
tokens, the next three the second ones, and so on, each three in random order. A token is (tag of
the link before it, tag of the link after it, one-hot label or nothing); tags are random unit
vectors, new in every draw, read with some noise, and the last tokens of the chains carry labels.
The other tokens are fillers with tags of their own, some with labels. A query is the tag before
the first token of one chain. Every link spans less than the window of REACH tokens to each side.

All readers are given match_i, the product of the query's tag with the tag before token i, and L_ij
of the tag after token i with the tag before token j, for |i − j| ≤ REACH. They learn a handful of
numbers and answer with gain · Σ_i p_i y_i, y_i the label of token i, one-hot or zero.

- "dense": p = softmax(s), s_i = β · match_i + b · (i has a label), all tokens.
- "window": the same, within REACH of the first token only.
- "interacting": p ← softmax(s + Jp), ROUNDS times; s as in "window", and outside of it one learned
  number in place of β · match_i; J = κ(L + Lᵀ) off the diagonal and one learned number on it.
- "directed": the same with J_ji = κL_ij, weight moves from i to the token after it; no energy.
- "tied layers": LAYERS times, every token adds ω Σ_j a_ij y_j to its own label, with
  a = softmax(β'L + b' · (j has a label)) within its window; then the look of "window".
- "untied layers": the same, and each layer has its own β', b', ω.

ROUNDS have as many multiplications for one query as LAYERS.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

from bookmaker.tables import Rows, stored
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.random import TorchSeed, torch_generator

LENGTH = 30  # tokens of a line
CHAINS = 3
LABELS = 4
REACH = 5  # tokens to each side that a window has
TAG = 10  # width of a tag
NOISE = 0.2  # norm of what is added to the tag after each token

LINKED = ("interacting", "directed")
LAYERED = ("tied layers", "untied layers")
ARMS = ("dense", "window", *LINKED, *LAYERED)
LAYERS = 5
ROUNDS = 15
SEEDS = 10
LINKS = (1, 2, 4)
RATES = (0.1, 0.3)
# A training: updates, lines of a reader in each, and those that it is judged on.
STEPS = 300
BATCH = 32
TEST = 500
# Where learning starts; one number, or one for each layer.
LOOK = {"sharpness": 5.0, "label": 0.0, "gain": 5.0}
INTERACTION = {"pair link": 5.0, "pair self": 0.0, "pair outside": -1.0}
LAYER = {"layer link": 5.0, "layer bonus": 0.0, "layer add": 1.0}
# A search instead: where the numbers may lie, positive ones evenly in the logarithm; rounds of
# settings, each tried on so many lines. Two rounds are random, the others vary the best so far.
RANGES = {
    "sharpness": (1.0, 100.0),
    "pair link": (0.5, 100.0),
    "label": (-5.0, 10.0),
    "pair self": (-30.0, 60.0),
    "pair outside": (-10.0, 10.0),
}
ROUNDS_OF_SEARCH = 8
SETTINGS = 48
LINES = 96

# Of every reader, by name, (readers, 1) or (readers, LAYERS).
Numbers = dict[str, Tensor]
_APART = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs()
_NEAR = (_APART <= REACH) & (_APART > 0)


class Chains(NamedTuple):
    """tokens (B, N, features), query (B, TAG), place (B,) of the first token, label (B,)."""

    tokens: Tensor
    query: Tensor
    place: Tensor
    label: Tensor


def draw_chains(batch: int, *, links: int, seed: TorchSeed) -> Chains:
    """`batch` independent lines of tokens with chains of `links` links."""
    source = torch_generator(seed)
    members = links + 1
    tags = normalize(torch.randn(batch, CHAINS, members + 1, TAG, generator=source), dim=-1)
    loose = normalize(torch.randn(batch, LENGTH, 2, TAG, generator=source), dim=-1)
    labels = torch.randint(LABELS, (batch, LENGTH), generator=source)
    ends = torch.randint(LABELS, (batch, CHAINS), generator=source)
    shown = torch.rand(batch, LENGTH, generator=source) < 0.2
    order = torch.rand(batch, members, CHAINS, generator=source).argsort(-1)
    offset = torch.randint(LENGTH - CHAINS * members + 1, (batch,), generator=source)
    wanted = torch.randint(CHAINS, (batch,), generator=source)
    blur = torch.randn(batch, LENGTH, TAG, generator=source) * (NOISE / TAG**0.5)

    tokens = torch.cat([loose.flatten(-2), one_hot(labels, LABELS) * shown.unsqueeze(-1)], -1)
    # Where the chains stand: place, chain and link of every token of them.
    row = torch.arange(batch)[:, None]
    member = torch.arange(members).repeat_interleave(CHAINS)
    at = offset[:, None] + torch.arange(members * CHAINS)
    chain = order.flatten(1)
    tokens[row, at, :TAG] = tags[row, chain, member]
    tokens[row, at, TAG : 2 * TAG] = tags[row, chain, member + 1]
    last = one_hot(ends[row, chain], LABELS) * (member == links)[:, None]
    tokens[row, at, 2 * TAG :] = last.float()
    tokens[..., TAG : 2 * TAG] += blur
    place = offset + (order[:, 0] == wanted[:, None]).int().argmax(-1)
    asked = row[:, 0], wanted
    return Chains(tokens, query=tags[asked][:, 0], place=place, label=ends[asked])


def first_numbers(arm: str, *, count: int) -> Numbers:
    """What the numbers of `count` readers of an arm are before they learn."""
    begin = LOOK | (INTERACTION if arm in LINKED else {}) | (LAYER if arm in LAYERED else {})
    depth = {name: LAYERS if arm == "untied layers" and name in LAYER else 1 for name in begin}
    return {name: torch.full((count, depth[name]), value) for name, value in begin.items()}


def logits(arm: str, numbers: Numbers, chains: Chains) -> Tensor:
    """(B, LABELS) for a batch that holds equal shares for every reader, in their order."""
    readers = len(numbers["gain"])
    tokens = chains.tokens.unflatten(0, (readers, -1))
    query = chains.query.unflatten(0, (readers, -1))
    place = chains.place.unflatten(0, (readers, -1))
    before, after, labels = tokens.split((TAG, TAG, LABELS), dim=-1)
    has = labels.sum(-1)
    links = after @ before.mT
    look = {name: values[:, :1, None] for name, values in numbers.items()}
    scores = look["sharpness"] * (before @ query.unsqueeze(-1)).squeeze(-1) + look["label"] * has
    if arm != "dense":
        outside = look["pair outside"] + look["label"] * has if arm in LINKED else -torch.inf
        scores = torch.where(_APART[place] <= REACH, scores, outside)
    weights = torch.softmax(scores, -1)
    if arm in LINKED:
        joint = links + links.mT if arm == "interacting" else links.mT
        couplings = look["pair link"].unsqueeze(-1) * joint * _NEAR
        for _ in range(ROUNDS):
            fields = (couplings @ weights.unsqueeze(-1)).squeeze(-1)
            weights = torch.softmax(scores + fields + look["pair self"] * weights, -1)
    for layer in range(LAYERS if arm in LAYERED else 0):
        # Tied layers have one number for all.
        own = {name: numbers[name].expand(-1, LAYERS)[:, layer].view(-1, 1, 1, 1) for name in LAYER}
        pulls = own["layer link"] * links + own["layer bonus"] * has.unsqueeze(-2)
        seen = torch.softmax(pulls.masked_fill(~_NEAR, -torch.inf), -1)
        labels = labels + own["layer add"] * seen @ labels
    return (look["gain"] * (weights.unsqueeze(-2) @ labels).squeeze(-2)).flatten(0, 1)


@torch.no_grad()
def accuracy(arm: str, numbers: Numbers, chains: Chains) -> Tensor:
    """Fraction of right answers of each reader, (readers,)."""
    right = logits(arm, numbers, chains).argmax(-1) == chains.label
    return right.unflatten(0, (len(numbers["sharpness"]), -1)).float().mean(-1)


_WITHIN = {"validation": 0.02, "test": 0.02}


@stored(
    "hops",
    parameter_product(arm=ARMS, links=LINKS, rate=RATES),
    checked=6,
    seconds=3.0,
    within=_WITHIN,
)
def hops_table(arm: str, links: int, rate: float, *, first_seed: int = 0) -> Rows:
    """Accuracies of ten readers trained at once, by Adam with a rate that falls to zero."""
    seeds = range(first_seed, first_seed + SEEDS)
    numbers = first_numbers(arm, count=SEEDS)
    optimizer = torch.optim.Adam([values.requires_grad_() for values in numbers.values()], lr=rate)
    # One stream for the draws of all: each reader gets its own part of every batch.
    source = torch_generator(1_000_000 + sum((k + 1) * seed for k, seed in enumerate(seeds)))
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate * (1.0 - step / STEPS)
        chains = draw_chains(BATCH * SEEDS, links=links, seed=source)
        # The mean over all readers: gradients are smaller by their number, Adam does not notice.
        loss = cross_entropy(logits(arm, numbers, chains), chains.label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    validation = draw_chains(TEST * SEEDS, links=links, seed=source)
    test = draw_chains(TEST * SEEDS, links=links, seed=source)
    return rows_of(
        seed=seeds,
        validation=accuracy(arm, numbers, validation),
        test=accuracy(arm, numbers, test),
    )


@stored(
    "hops_again",
    parameter_product(arm=("dense", "interacting"), links=(2,), rate=RATES),
    seconds=3.0,
    within=_WITHIN,
)
def hops_again_table(arm: str, links: int, rate: float) -> Rows:
    """Ten other seeds of the closest case."""
    return hops_table.rows(arm, links, rate, first_seed=SEEDS)


@stored("search", parameter_product(arm=LINKED, links=LINKS, seed=range(3)), seconds=1.0)
@torch.no_grad()
def search_table(arm: str, links: int, seed: int) -> Rows:
    """Accuracy on 1000 lines of the best reader that a random search of 384 settings finds."""
    source = torch.Generator().manual_seed(seed)
    numbers = first_numbers(arm, count=SETTINGS)
    chosen = 0
    for number in range(ROUNDS_OF_SEARCH):
        for name, (low, high) in RANGES.items():
            if number < 2:
                even = torch.rand(SETTINGS, 1, generator=source)
                values = low * (high / low) ** even if low > 0 else low + (high - low) * even
            else:
                best = numbers[name][chosen]
                width = 0.2 * best.abs() + 0.3
                values = best + width * torch.randn(SETTINGS, 1, generator=source)
                values[0] = best
            numbers[name] = values
        lines = draw_chains(LINES, links=links, seed=source)
        # The same lines for each of the settings.
        same = Chains(*(x.repeat(SETTINGS, *[1] * (x.ndim - 1)) for x in lines))
        chosen = int(accuracy(arm, numbers, same).argmax())
    single = {name: values[chosen : chosen + 1] for name, values in numbers.items()}
    return [{"test": float(accuracy(arm, single, draw_chains(1000, links=links, seed=source)))}]

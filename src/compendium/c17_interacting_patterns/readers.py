"""Readers of chains: one look, a look through a window, with interactions, or in layers.

What matches what is given to all of them: the product of the query's tag with the tag before
token i, and L_ij of the tag after token i with the tag before token j, for |i − j| ≤ REACH. A
reader has a handful of numbers, learned by gradient descent: sharpness, strength of the links, what
a label is worth. All answer with gain · Σ_i p_i y_i, y_i the label of token i, one-hot or zero.

- "dense": p = softmax(s), s_i = β · match_i + b · (i has a label), all tokens.
- "window": the same, within REACH of the first token only.
- "interacting": p ← softmax(s + Jp), ROUNDS times; s as in "window", and outside of it one learned
  number in place of β · match_i; J = κ(L + Lᵀ) off the diagonal and one learned number on it:
  symmetric, with an energy.
- "directed": the same with J_ji = κL_ij, weight moves from i to the token after it; no energy.
- "tied layers": LAYERS times, every token adds ω Σ_j a_ij y_j to its own label, with
  a = softmax(β'L + b' · (j has a label)) within its window; then the look of "window".
- "untied layers": the same, and each layer has its own β', b', ω.

Ten readers of different seeds are trained at once, each on its own draws. `operations` counts the
multiplications for one query; rounds are chosen so that interactions have as many as layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compendium.c17_interacting_patterns.chains import (
    LABELS,
    LENGTH,
    REACH,
    TAG,
    Chains,
    draw_chains,
)
from spinformer.core.random import torch_generator

ARMS = ("dense", "window", "interacting", "directed", "tied layers", "untied layers")
LAYERS = 5
ROUNDS = 15
NEIGHBOURS = 2 * REACH + 1
# A training: updates, lines of a reader in each, and those that it is judged on.
STEPS, BATCH, TEST = 300, 32, 500
# Where learning starts; one number, or one for each layer.
LOOK = {"sharpness": 5.0, "label": 0.0, "gain": 5.0}
INTERACTION = {"pair link": 5.0, "pair self": 0.0, "pair outside": -1.0}
LAYER = {"layer link": 5.0, "layer bonus": 0.0, "layer add": 1.0}
# A search instead: where the numbers of readers that interact may lie, the first two evenly in the
# logarithm; rounds of settings, each tried on so many lines. Two rounds are random, the others
# vary the best so far.
RANGES = {
    "sharpness": (1.0, 100.0),
    "pair link": (0.5, 100.0),
    "label": (-5.0, 10.0),
    "pair self": (-30.0, 60.0),
    "pair outside": (-10.0, 10.0),
}
ROUNDS_OF_SEARCH, SETTINGS, LINES = 8, 48, 96


def operations(arm: str) -> int:
    """Multiplications for one query, each sum over tokens taken over the window it has."""
    seen = LENGTH if arm == "dense" else NEIGHBOURS
    look, pairs = seen * TAG + LENGTH * LABELS, LENGTH * NEIGHBOURS
    if arm in ("interacting", "directed"):
        return look + pairs * TAG * (2 if arm == "interacting" else 1) + ROUNDS * pairs
    if arm in ("tied layers", "untied layers"):
        return look + pairs * TAG + LAYERS * pairs * (1 + LABELS)
    return look


class Readers:
    """One arm, one reader for each of `count`; `numbers` have the readers as first axis."""

    def __init__(self, arm: str, *, count: int) -> None:
        self.arm, self.count = arm, count
        begin = dict(LOOK)
        if arm in ("interacting", "directed"):
            begin |= INTERACTION
        if arm in ("tied layers", "untied layers"):
            begin |= LAYER
        self.numbers = {}
        for name, value in begin.items():
            depth = LAYERS if arm == "untied layers" and name in LAYER else 1
            self.numbers[name] = torch.full((count, depth), value).requires_grad_()
        apart = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs()
        self.near = apart <= REACH
        self.linked = self.near & (apart > 0)

    def _number(self, name: str, *, layer: int = 0) -> Tensor:
        """(count, 1, 1), to multiply (count, B, N)."""
        values = self.numbers[name]
        return values[:, min(layer, values.shape[1] - 1), None, None]

    def logits(self, chains: Chains) -> Tensor:
        """(B, LABELS) for a batch that holds equal shares for every reader, in their order."""
        tokens = chains.tokens.unflatten(0, (self.count, -1))
        before, after, labels, _ = tokens.split((TAG, TAG, LABELS, 1), dim=-1)
        has, inside = labels.sum(-1), self.near[chains.place].unflatten(0, (self.count, -1))
        match = (before @ chains.query.unflatten(0, (self.count, -1)).unsqueeze(-1)).squeeze(-1)
        scores = self._number("sharpness") * match + self._number("label") * has
        links = after @ before.mT
        if self.arm in ("interacting", "directed"):
            outside = self._number("pair outside") + self._number("label") * has
            scores = torch.where(inside, scores, outside)
            weights = self._interact(scores, links)
        else:
            if self.arm != "dense":
                scores = scores.masked_fill(~inside, -torch.inf)
            weights = torch.softmax(scores, -1)
        if self.arm in ("tied layers", "untied layers"):
            for layer in range(LAYERS):
                labels = labels + self._layer(links, has, layer) @ labels
        answer = self._number("gain") * (weights.unsqueeze(-2) @ labels).squeeze(-2)
        return answer.flatten(0, 1)

    def _layer(self, links: Tensor, has: Tensor, layer: int) -> Tensor:
        link, bonus, add = (self._number(name, layer=layer).unsqueeze(-1) for name in LAYER)
        scores = link * links + bonus * has.unsqueeze(-2)
        return add * torch.softmax(scores.masked_fill(~self.linked, -torch.inf), -1)

    def _interact(self, scores: Tensor, links: Tensor) -> Tensor:
        joint = links + links.mT if self.arm == "interacting" else links.mT
        couplings = self._number("pair link").unsqueeze(-1) * joint * self.linked
        weights = torch.softmax(scores, -1)
        for _ in range(ROUNDS):
            fields = (couplings @ weights.unsqueeze(-1)).squeeze(-1)
            weights = torch.softmax(scores + fields + self._number("pair self") * weights, -1)
        return weights


def train_readers(
    arm: str, *, links: int, seeds: Sequence[int], rate: float
) -> tuple[Tensor, Tensor]:
    """Accuracy of each reader, (seeds,), on a validation draw and on a test draw of TEST lines.

    Adam with a `rate` that falls linearly to zero; every step has new draws.
    """
    model = Readers(arm, count=len(seeds))
    optimizer = torch.optim.Adam(list(model.numbers.values()), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / STEPS)
    # One stream for the draws of all: each reader gets its own part of every batch.
    source = torch_generator(1_000_000 + sum((k + 1) * seed for k, seed in enumerate(seeds)))
    for _ in range(STEPS):
        chains = draw_chains(BATCH * len(seeds), links=links, seed=source)
        loss = torch.nn.functional.cross_entropy(model.logits(chains), chains.label)
        optimizer.zero_grad()
        # The mean over all readers: each has the gradient of its own mean, smaller by their number,
        # which Adam does not notice.
        loss.backward()
        optimizer.step()
        schedule.step()
    tuning, held = (
        _accuracy(model, draw_chains(TEST * len(seeds), links=links, seed=source)) for _ in range(2)
    )
    return tuning, held


def search_readers(arm: str, *, links: int, seed: int, test: int = 1000) -> float:
    """Accuracy of the best reader that a random search finds for "interacting" or "directed".

    Gradient descent may get stuck; this tries 384 settings on 96 lines each, and the best of
    the last round on `test` new ones.
    """
    source = torch.Generator().manual_seed(seed)
    model = Readers(arm, count=SETTINGS)
    best: dict[str, Tensor] = {}
    with torch.no_grad():
        for number in range(ROUNDS_OF_SEARCH):
            for index, (name, (low, high)) in enumerate(RANGES.items()):
                if number < 2:
                    even = torch.rand(SETTINGS, 1, generator=source)
                    values = low * (high / low) ** even if index < 2 else low + (high - low) * even
                else:
                    step = 0.2 * best[name].abs() + 0.3
                    values = best[name] + step * torch.randn(SETTINGS, 1, generator=source)
                    values[0] = best[name]
                model.numbers[name] = values
            lines = draw_chains(LINES, links=links, seed=source)
            # The same lines for each of the settings.
            lines = Chains(
                tokens=lines.tokens.repeat(SETTINGS, 1, 1),
                query=lines.query.repeat(SETTINGS, 1),
                place=lines.place.repeat(SETTINGS),
                label=lines.label.repeat(SETTINGS),
            )
            chosen = int(_accuracy(model, lines).argmax())
            best = {name: values[chosen] for name, values in model.numbers.items()}
    single = Readers(arm, count=1)
    single.numbers = {name: values[None] for name, values in best.items()}
    return float(_accuracy(single, draw_chains(test, links=links, seed=source)))


def _accuracy(model: Readers, chains: Chains) -> Tensor:
    with torch.no_grad():
        right = model.logits(chains).argmax(-1) == chains.label
    return right.unflatten(0, (model.count, -1)).float().mean(-1)

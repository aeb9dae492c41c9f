"""Readers of chains, trained: one look, a look through a window, with interactions, or in layers.

All see the same tokens and answer by Σ p_i V x_i. Scores are products of learned projections.

- "dense": p = softmax(s), s_i the match of the query with token i, all N tokens.
- "window": the same with the tokens within REACH of the first one only.
- "interacting": p ← softmax(s + Jp), HOPS times; s is learned within the window and one learned
  number outside, J_ij = x_iᵀ(B + Bᵀ)x_j for 0 < |i − j| ≤ REACH and 0 else: symmetric, with an energy.
- "directed": the same with x_iᵀBx_j, no energy.
- "tied layers", "untied layers": HOPS layers of windowed self-attention with a residual connection, in
  which tokens read their neighbours, then the look of "window". Tied layers share their weights.

Ten networks of different seeds are trained at once, as one batch of matrices; each has its own draws.
`operations` counts the multiplications for one query; widths are chosen so that none needs more
than "interacting".
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spinformer.core.checks import check_choice, check_integer, check_real
from spinformer.studies.interacting_patterns.chains import (
    FEATURES,
    LABELS,
    LENGTH,
    REACH,
    TAG,
    Chains,
    draw_chains,
)

ARMS = ("dense", "window", "interacting", "directed", "tied layers", "untied layers")
HOPS = 5
WIDTH = 64  # of the projections of a single look, and of the interactions
LAYER_WIDTH, LAYER_VALUES = 12, 6  # of the projections and of the values inside of a layer
NEIGHBOURS = 2 * REACH + 1


def operations(arm: str) -> int:
    """Multiplications for one query, each sum over tokens taken over the window it has.

    >>> operations("untied layers") <= operations("interacting")
    True
    """
    check_choice("arm", arm, ARMS)
    seen = LENGTH if arm == "dense" else NEIGHBOURS
    look = TAG * WIDTH + seen * (FEATURES * WIDTH + WIDTH)
    read = LENGTH * (FEATURES * LABELS + LABELS)
    if arm in ("interacting", "directed"):
        links = 2 * LENGTH * FEATURES * WIDTH + LENGTH * NEIGHBOURS * WIDTH
        return look + read + links + HOPS * LENGTH * NEIGHBOURS
    if arm in ("tied layers", "untied layers"):
        maps = LENGTH * FEATURES * (2 * LAYER_WIDTH + 2 * LAYER_VALUES)
        return look + read + HOPS * (maps + LENGTH * NEIGHBOURS * (LAYER_WIDTH + LAYER_VALUES))
    return look + read


class Readers:
    """One arm, one network for each of `seeds`; `parameters` have the networks as first axis.

    >>> Readers("window", seeds=[0, 1]).logits(draw_chains(6, links=1, seed=0)).shape
    torch.Size([6, 4])
    """

    def __init__(self, arm: str, *, seeds: Sequence[int]) -> None:
        self.arm, self.seeds = check_choice("arm", arm, ARMS), list(seeds)
        shapes = {"query": (TAG, WIDTH), "key": (FEATURES, WIDTH), "read": (FEATURES, LABELS)}
        if arm in ("interacting", "directed"):
            shapes |= {"left": (FEATURES, WIDTH), "right": (FEATURES, WIDTH), "outside": (1, 1)}
        depth = {"tied layers": 1, "untied layers": HOPS}.get(arm, 0)
        for layer in range(depth):
            for name in ("from", "to"):
                shapes[f"{name}{layer}"] = (FEATURES, LAYER_WIDTH)
            shapes[f"value{layer}"] = (FEATURES, LAYER_VALUES)
            shapes[f"write{layer}"] = (LAYER_VALUES, FEATURES)
        self.depth = depth
        sources = [torch.Generator().manual_seed(seed) for seed in self.seeds]
        self.parameters = {
            name: torch.stack([torch.randn(shape, generator=g) for g in sources])
            .mul_((2.0 if name in ("left", "right", "query", "key") else 1.0) / shape[0] ** 0.5)
            .requires_grad_()
            for name, shape in shapes.items()
        }
        apart = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs()
        self.near = apart <= REACH
        self.linked = self.near & (apart > 0)

    def _map(self, rows: Tensor, name: str) -> Tensor:
        """Each network's matrix on its own share of the batch; rows (seeds, B, ..., features)."""
        return (rows.flatten(1, -2) @ self.parameters[name]).unflatten(1, rows.shape[1:-1])

    def logits(self, chains: Chains) -> Tensor:
        """(B, LABELS) for a batch that holds equal shares for every network, in their order."""
        count = len(self.seeds)
        tokens = chains.tokens.unflatten(0, (count, -1))
        query = chains.query.unflatten(0, (count, -1)).unsqueeze(-2)
        for layer in range(HOPS if self.depth else 0):
            tokens = tokens + self._layer(tokens, min(layer, self.depth - 1))
        inside = self.near[chains.place].unflatten(0, (count, -1))
        match = (self._map(query, "query") @ self._map(tokens, "key").mT).squeeze(-2)
        if self.arm in ("interacting", "directed"):
            weights = self._interact(tokens, torch.where(inside, match, self.parameters["outside"]))
        else:
            if self.arm != "dense":
                match = match.masked_fill(~inside, -torch.inf)
            weights = torch.softmax(match, -1)
        answer = (weights.unsqueeze(-2) @ self._map(tokens, "read")).squeeze(-2)
        return answer.flatten(0, 1)

    def _layer(self, tokens: Tensor, layer: int) -> Tensor:
        scores = self._map(tokens, f"from{layer}") @ self._map(tokens, f"to{layer}").mT
        weights = torch.softmax(scores.masked_fill(~self.near, -torch.inf), -1)
        return self._map(weights @ self._map(tokens, f"value{layer}"), f"write{layer}")

    def _interact(self, tokens: Tensor, scores: Tensor) -> Tensor:
        couplings = self._map(tokens, "left") @ self._map(tokens, "right").mT
        if self.arm == "interacting":
            couplings = couplings + couplings.mT
        couplings = couplings * self.linked
        weights = torch.softmax(scores, -1)
        for _ in range(HOPS):
            fields = (couplings @ weights.unsqueeze(-1)).squeeze(-1)
            weights = torch.softmax(scores + fields, -1)
        return weights


def train_readers(
    arm: str,
    *,
    links: int,
    seeds: Sequence[int],
    rate: float,
    steps: int = 1500,
    batch: int = 32,
    test: int = 1000,
) -> tuple[Tensor, Tensor]:
    """Accuracy of each network, (seeds,), on a validation draw and on a test draw of `test` lines.

    Adam with a rate that falls linearly to zero; every step has new draws.

    >>> train_readers("window", links=0, seeds=[0], rate=0.01, steps=2, test=50)[0].shape
    torch.Size([1])
    """
    rate = check_real("rate", rate, low=0.0, open_low=True)
    steps = check_integer("steps", steps, low=1)
    model = Readers(arm, seeds=seeds)
    optimizer = torch.optim.Adam(list(model.parameters.values()), lr=rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 - step / steps)
    sources = [torch.Generator().manual_seed(10_000 + seed) for seed in seeds]
    for _ in range(steps):
        chains = _together([draw_chains(batch, links=links, seed=g) for g in sources])
        loss = torch.nn.functional.cross_entropy(model.logits(chains), chains.label)
        optimizer.zero_grad()
        # The mean over all networks: each has the gradient of its own mean, smaller by their number,
        # which Adam does not notice.
        loss.backward()
        optimizer.step()
        schedule.step()
    return tuple(
        _accuracy(model, [draw_chains(test, links=links, seed=shift + seed) for seed in seeds])
        for shift in (20_000, 30_000)
    )  # type: ignore[return-value]


def _accuracy(model: Readers, draws: list[Chains]) -> Tensor:
    chains = _together(draws)
    with torch.no_grad():
        right = model.logits(chains).argmax(-1) == chains.label
    return right.unflatten(0, (len(draws), -1)).float().mean(-1)


def _together(draws: list[Chains]) -> Chains:
    names = ("tokens", "query", "place", "label")
    return Chains(**{name: torch.cat([getattr(draw, name) for draw in draws]) for name in names})

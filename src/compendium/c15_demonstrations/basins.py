"""Kicks to the query, and demonstrations against what training has made the model remember."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from compendium.c15_demonstrations.episodes import (
    WORDS,
    Episodes,
    Pools,
    digit_inputs,
    draw_episodes,
)
from compendium.c15_demonstrations.model import WIDTH, Weights, read

CONTROLS = ("none", "shuffled words", "other classes")
KICKS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Half-way between the certain answer and a coin that falls for either word.
LEVEL = 0.75


def draw_queries(
    pools: Sequence[Pools], *, count: int, copies: int, control: str = "none", seed: int
) -> Episodes:
    """Episodes of unseen classes, `copies` demonstrations of each, the query of either class.

    control: "shuffled words" deals the words of the demonstrations anew, blind to their classes;
    "other classes" takes the demonstrations from the two remaining test classes.
    """
    generators = [np.random.default_rng([seed, place]) for place in range(len(pools))]
    found = draw_episodes(pools, part="test", count=count, shown=(copies, copies), seeds=generators)
    rows, words = found.rows.clone(), found.words.clone()
    for place, generator in enumerate(generators):
        if control == "shuffled words":
            order = torch.as_tensor(generator.random((count, 2 * copies)).argsort(1))
            words[place, :, :-1] = words[place, :, :-1].gather(1, order)
        if control == "other classes":
            tables = pools[place]["test"]
            for episode, shown in enumerate(found.classes[place]):
                others = [number for number in range(len(tables)) if number not in shown][:2]
                for half, number in enumerate(others):
                    drawn = generator.choice(tables[number], size=copies)
                    here = slice(half * copies, (half + 1) * copies)
                    rows[place, episode, here] = torch.as_tensor(drawn)
    return replace(found, rows=rows, words=words)


def return_shares(
    weights: Weights,
    episodes: Episodes,
    *,
    kicks: Sequence[float] = KICKS,
    copies: float = 1.0,
    own_only: bool = False,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Share of queries whose answer outlives a kick (S, kicks), and how far the kick gets.

    The query's embedding is moved in a random direction by `kicks` times its norm. It has
    returned where the highest word is that of the unmoved query. The second array (S, kicks) is
    the mean distance of the last hidden state from the unmoved one, over that state's norm.
    Each demonstration counts `copies` times; with `own_only` only those with the word that
    the unmoved query is given.
    """
    generator = np.random.default_rng([seed, 7])
    given: Any = {"images": digit_inputs()[episodes.rows], "words": episodes.words}
    direction = torch.as_tensor(generator.standard_normal((*episodes.target.shape, WIDTH)))
    direction = direction / direction.norm(dim=-1, keepdim=True)
    shown = episodes.words[:, :, :-1]
    field = torch.full(shown.shape, float(np.log(copies)), dtype=direction.dtype)
    shares, distances = [], []
    with torch.no_grad():
        if own_only:
            plain = read(weights, **given).logits.argmax(-1)
            field = field * (shown == plain.unsqueeze(-1))
        start = read(weights, **given, field=field)
        answer = start.logits.argmax(-1)
        for size in kicks:
            moved = read(weights, **given, field=field, kick=size * direction)
            shares.append((moved.logits.argmax(-1) == answer).double().mean(1))
            apart = (moved.state - start.state).norm(dim=-1) / start.state.norm(dim=-1)
            distances.append(apart.mean(1))
    return torch.stack(shares, 1).numpy(), torch.stack(distances, 1).numpy()


def radius(shares: np.ndarray) -> np.ndarray:
    """The kick at which the share that returns falls to 0.75, for rows of `shares` (S, KICKS).

    Linear between the kicks, with share 1 at kick 0; the largest kick where it never falls.
    """
    places = np.concatenate([[0.0], KICKS])
    found = []
    for row in shares:
        values = np.concatenate([[1.0], row])
        below = np.flatnonzero(values < LEVEL)
        if not len(below):
            found.append(places[-1])
            continue
        ends = [below[0], below[0] - 1]
        found.append(np.interp(LEVEL, values[ends], places[ends]))
    return np.array(found)


def conflict_shares(
    weights: Weights,
    pools: Sequence[Pools],
    *,
    labelings: Sequence[np.ndarray] | None,
    numbers: Sequence[float],
    count: int,
    seed: int,
) -> np.ndarray:
    """Share of trials (S, numbers) in which demonstrations beat the remembered word.

    A trial takes a labeling of the training and two of its classes. A digit of B is shown with
    its word; a digit of A is shown with a word that the labeling does not give to either, and
    counts as often as `numbers` says; the query is another digit of A, from images that were
    never trained on. Demonstrations win where their word scores higher than the labeling's.
    Without labelings the word "remembered" is any other one: nothing is to be remembered.
    """
    generators = [np.random.default_rng([seed, place]) for place in range(len(pools))]
    found = draw_episodes(
        pools, part="valid", count=count, shown=(1, 1), seeds=generators, share_a=1.0,
        labelings=labelings,
    )  # fmt: skip
    draws = np.stack([generator.random((count, WORDS)) for generator in generators])
    np.put_along_axis(draws, found.pair.numpy(), -1.0, axis=-1)
    foreign, remembered = torch.as_tensor(draws.argmax(-1)), found.pair[:, :, 0]
    words = found.words.clone()
    words[:, :, 0] = foreign
    images = digit_inputs()[found.rows]
    shares = []
    with torch.no_grad():
        for number in numbers:
            field = torch.zeros(*found.target.shape, 2, dtype=images.dtype)
            field[..., 0] = float(np.log(number))
            logits = read(weights, images=images, words=words, field=field).logits
            told, kept = (logits.gather(-1, x.unsqueeze(-1)) for x in (foreign, remembered))
            shares.append((told > kept)[..., 0].double().mean(1))
    return torch.stack(shares, 1).numpy()

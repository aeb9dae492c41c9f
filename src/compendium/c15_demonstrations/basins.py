"""Kicks to the query, and demonstrations against what training has made the model remember."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from compendium.c15_demonstrations.episodes import WORDS, Episodes, Pool, draw_episodes, streams
from compendium.c15_demonstrations.model import WIDTH, Weights, read
from compendium.common.curves import crossing

CONTROLS = ("none", "shuffled words", "other classes")
KICKS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
# Copies of the contradicting demonstration; fractions are fields below zero.
NUMBERS = tuple(float(2**power) for power in range(-8, 9, 2))


def draw_queries(
    pools: Sequence[Pool], *, count: int, copies: int, control: str = "none", seed: int
) -> Episodes:
    """Episodes of unseen classes, `copies` demonstrations of each, the query of either class.

    control: "shuffled words" deals the words of the demonstrations anew, blind to their classes;
    "other classes" takes the demonstrations from the two remaining test classes.
    """
    generators = streams(pools, seed)
    found = draw_episodes(pools, part="test", count=count, shown=(copies, copies), seeds=generators)
    rows, words = found.rows.clone(), found.words.clone()
    for place, generator in enumerate(generators):
        if control == "shuffled words":
            order = torch.as_tensor(generator.random((count, 2 * copies)).argsort(1))
            words[place, :, :-1] = words[place, :, :-1].gather(1, order)
        if control == "other classes":
            tables = pools[place]["test"]
            for episode, shown in enumerate(found.classes[place]):
                others = np.delete(np.arange(len(tables)), shown.numpy())[:2]
                drawn = [generator.choice(tables[number], size=copies) for number in others]
                rows[place, episode, :-1] = torch.as_tensor(np.concatenate(drawn))
    return found._replace(rows=rows, words=words)


def return_shares(
    weights: Weights, episodes: Episodes, *, copies: float = 1.0, own_only: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Share of queries whose answer outlives each kick (S, KICKS), and how far the kick gets.

    The query's embedding is moved in a random direction by KICKS times its norm. It has
    returned where the highest word is that of the unmoved query. The second array (S, KICKS) is
    the mean distance of the last hidden state from the unmoved one, over that state's norm.
    Each demonstration counts `copies` times; with `own_only` only those with the word that
    the unmoved query is given.
    """
    shape = (*episodes.target.shape, WIDTH)
    drawn = torch.as_tensor(np.random.default_rng([4, 7]).standard_normal(shape))
    direction = torch.nn.functional.normalize(drawn, dim=-1)
    images, words = episodes.images, episodes.words
    field = torch.full(words[:, :, :-1].shape, float(np.log(copies)), dtype=torch.float64)
    shares, distances = [], []
    with torch.no_grad():
        if own_only:
            plain = read(weights, images=images, words=words).logits.argmax(-1)
            field = field * (words[:, :, :-1] == plain.unsqueeze(-1))
        start = read(weights, images=images, words=words, field=field)
        for size in KICKS:
            moved = read(weights, images=images, words=words, field=field, kick=size * direction)
            same = moved.logits.argmax(-1) == start.logits.argmax(-1)
            shares.append(same.double().mean(1))
            apart = (moved.state - start.state).norm(dim=-1) / start.state.norm(dim=-1)
            distances.append(apart.mean(1))
    return torch.stack(shares, 1).numpy(), torch.stack(distances, 1).numpy()


def radius(shares: np.ndarray) -> np.ndarray:
    """The kick at which the share that returns falls to 0.75, for rows of `shares` (S, KICKS).

    That is half-way between the certain answer and a coin that falls for either word. Linear
    between the kicks, with share 1 at kick 0; the largest kick where it never falls.
    """
    places, lost = np.array([0.0, *KICKS]), np.pad(1.0 - shares, ((0, 0), (1, 0)))
    found = [crossing(places, values=row, past=row > 0.25, level=0.25) for row in lost]
    return np.nan_to_num(found, nan=KICKS[-1])


def half_point(shares: np.ndarray) -> np.ndarray:
    """The number of copies at which rows of `shares` (S, NUMBERS) rise through one half.

    Linear in the logarithm of the number; 0 where the share is above one half throughout, inf
    where it is below throughout.
    """
    logs = np.log(NUMBERS)
    found = [crossing(logs, values=row, past=row >= 0.5, level=0.5) for row in shares]
    return np.where(shares[:, 0] >= 0.5, 0.0, np.nan_to_num(np.exp(found), nan=np.inf))


def conflict_shares(weights: Weights, pools: Sequence[Pool], *, count: int) -> np.ndarray:
    """Share of trials (S, NUMBERS) in which demonstrations beat the remembered word.

    A trial takes a labeling of the training and two of its classes. A digit of B is shown with
    its word; a digit of A is shown with a word that the labeling does not give to either, and
    counts as often as NUMBERS says; the query is another digit of A, from images that were
    never trained on. Demonstrations win where their word scores higher than the labeling's.
    Without labelings the word "remembered" is any other one: nothing is to be remembered.
    """
    generators = streams(pools, 1)
    found = draw_episodes(
        pools, part="valid", count=count, shown=(1, 1), seeds=generators, share_a=1.0
    )
    draws = np.stack([generator.random((count, WORDS)) for generator in generators])
    np.put_along_axis(draws, found.pair.numpy(), -1.0, axis=-1)
    foreign = torch.as_tensor(draws.argmax(-1))
    words = found.words.clone()
    words[:, :, 0] = foreign
    shares = []
    with torch.no_grad():
        for number in NUMBERS:
            field = torch.zeros(*found.target.shape, 2, dtype=torch.float64)
            field[..., 0] = float(np.log(number))
            logits = read(weights, images=found.images, words=words, field=field).logits
            asked = torch.stack([foreign, found.pair[:, :, 0]], -1)
            told, kept = logits.gather(-1, asked).unbind(-1)
            shares.append((told > kept).double().mean(1))
    return torch.stack(shares, 1).numpy()

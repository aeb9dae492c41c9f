"""A token is changed, leaves the window, and two texts go on with the same random numbers.

One sample, whole tokens, windows of T; the noise is Gumbel noise, one number a word of the
vocabulary. Tolerances: rounding may turn a draw; shares within 0.15.
"""

from pydoc_data.topics import topics

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.common.decoder import Decoder, encode
from compendium.common.models import decoder, next_token_distribution, text_numbers
from compendium.common.rows import parameter_product, rows_of
from spinformer.core.statistics import mean_estimate
from spinformer.language.soft_map_cache import WindowCache
from spinformer.language.text import sample_texts

LAGS = (1, 2, 4, 8, 16, 24, 32, 48)


def text_windows(model: Decoder, *, span: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Windows (count, span) from random places of the seven texts, and words from other places."""
    words = torch.cat(text_numbers(model))
    generator = torch.Generator().manual_seed(seed)
    places = torch.randint(len(words) - span, (count, 1), generator=generator)
    others = words[torch.randint(len(words), (count,), generator=generator)]
    return words[places + torch.arange(span)], others


def pairs_apart(
    model: Decoder, one: Tensor, other: Tensor, *, beta: float, lags: tuple[int, ...], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Two windows (B, T) each go on with one noise: distance of laws, and whether they differ.

    Both (lags, B), lags rising. At lag n, n new tokens have been said by both; equal windows stay
    equal and are not run any more.
    """
    generator = torch.Generator().manual_seed(seed)
    pair = torch.stack((one, other))
    distances, apart = [], []
    for step in range(max(lags) + 1):
        live = (pair[0] != pair[1]).any(1)
        noise = torch.empty(len(one), len(model.embedding)).exponential_(generator=generator)
        distance = torch.zeros(len(one), dtype=torch.float64)
        if live.any():
            laws = next_token_distribution(
                model, model.embedding[pair[:, live].flatten(0, 1)], beta=beta
            )
            laws = laws.unflatten(0, (2, -1))
            distance[live] = 0.5 * (laws[0] - laws[1]).abs().sum(1).double()
            # argmax of ln p + Gumbel noise is that of p over exponential noise.
            said = (laws / noise[live]).argmax(-1)
            pair[:, live] = torch.cat((pair[:, live, 1:], said[..., None]), -1)
        if step in lags:
            distances.append(distance.numpy())
            apart.append(live.numpy())
    return np.stack(distances), np.stack(apart)


PAIRS = ("changed", "unrelated")
LEFT = [(4, 1.0, 128), (8, 0.5, 256), (8, 1.0, 256), (8, 2.0, 48)]


@stored(
    "left",
    [{"span": span, "beta": beta, "count": count} for span, beta, count in LEFT],
    small={"span": 4, "beta": 1.0, "count": 8},
    seconds=20.0,
    within={"distance": 0.05, "error": 0.03, "apart": 0.13},
)
def left_table(span: int, *, beta: float, count: int) -> Rows:
    """Distances of laws by lag: `changed` pairs, and `unrelated` windows with one noise."""
    model, rows, few = decoder(), [], min(count // 4, 16)
    windows, others = text_windows(model, span=span, count=count, seed=1)
    changed = torch.cat((others[:, None], windows[:, 1:]), 1)
    pairs = ((windows, changed), (windows[:few], windows.roll(1, 0)[:few]))
    for kind, (first, second) in zip(PAIRS, pairs, strict=True):
        distance, apart = pairs_apart(model, first, second, beta=beta, lags=LAGS, seed=2)
        found = mean_estimate(distance.T)
        told = {"distance": found.value, "error": found.error, "apart": apart.mean(1)}
        rows += rows_of(pairs=kind, lag=LAGS, **told)
    return rows


def recurrence(words: np.ndarray, *, distance: int, null: str) -> float:
    """How often the word `distance` later (texts, words) is the same, over what chance gives.

    null: "unrelated", pairs of words from two texts; "shuffled", two words of one text anywhere.
    """
    same = (words[:, :-distance] == words[:, distance:]).mean()
    if null == "unrelated":
        chance = np.mean([(words == np.roll(words, k, 0)).mean() for k in range(1, len(words))])
    else:
        counts = [np.unique(text, return_counts=True)[1] for text in words]
        chance = np.mean([count @ (count - 1) for count in counts])
        chance /= words.shape[1] * (words.shape[1] - 1)
    return float(same / chance)


def spoken(model: Decoder, *, span: int, beta: float, count: int, steps: int, seed: int) -> Tensor:
    """What one sample says, (count, steps) words, with keys and values of the last T words."""
    windows, _ = text_windows(model, span=span, count=count, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    cache = WindowCache(model.model, prefix=0, window=span)
    logits = cache.read(model.embedding[windows], None)
    said = []
    for step in range(steps):
        chances = torch.softmax(beta * logits, -1)
        said.append(torch.multinomial(chances, 1, generator=generator)[:, 0])
        logits = cache.read(model.embedding[said[-1]][:, None], span + step)
    return torch.stack(said, 1)


def words_of(source: str) -> np.ndarray:
    """What is counted, (texts, words): real texts of two kinds, or what one sample says."""
    model = decoder()
    if source.startswith("window"):
        span, count = int(source.split()[1]), 28 if source == "window 8" else 14
        return spoken(model, span=span, beta=1.0, count=count, steps=464, seed=0)[:, 64:].numpy()
    texts = sample_texts() if source == "texts" else topics
    numbers = (encode(model, text).numpy() for text in texts.values())
    return np.stack([text[:400] for text in numbers if len(text) >= 400])


@stored(
    "recurrences", parameter_product(source=("texts", "help", "window 8", "window 64")), seconds=3.0
)
def recurrence_table(source: str) -> Rows:
    """Recurrence at distances up to 64 words; errors by leaving a seventh of the texts out."""
    words, rows = words_of(source), []
    parts = np.array_split(np.arange(len(words)), 7)
    for about in parameter_product(
        null=("unrelated", "shuffled"), distance=(1, 2, 4, 8, 16, 32, 64)
    ):
        left = np.array([recurrence(np.delete(words, part, 0), **about) for part in parts])
        error = (6 / 7 * np.square(left - left.mean()).sum()) ** 0.5
        rows += rows_of(**about, ratio=recurrence(words, **about), error=error, texts=len(words))
    return rows

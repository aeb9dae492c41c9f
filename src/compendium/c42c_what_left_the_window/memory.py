"""What the text tells of a window that it has left: continuations with random numbers of their own.

Two windows of unrelated texts are each continued many times, one word after the other. How well
the next-token distribution n words later tells which window began is the squared maximum mean
discrepancy (MMD) of the two sets of distributions, with the kernel Σ_v √(p_v p'_v); its estimate is
unbiased, so that windows that cannot be told apart give zero on average.
"""

from importlib.resources import files
from pydoc_data.topics import topics

import numpy as np
import torch
from torch import Tensor

from bookmaker.tables import Rows, stored
from compendium.c42c_what_left_the_window.study import recurrence, recurrence_table
from compendium.common.decoder import encode
from compendium.common.models import decoder
from compendium.common.rows import groupby, parameter_product, rows_of
from spinformer.language.checkpoints import load_checkpoint
from spinformer.language.soft_map import SoftTokenMap
from spinformer.language.text import sample_texts

# What may be left of what a window told when all its words are gone.
FORGOTTEN = 0.1


def unbiased_discrepancy(one: Tensor, other: Tensor) -> float:
    """Unbiased squared MMD of two samples of distributions (K, V), kernel Σ_v √(p_v p'_v)."""
    first = one.sqrt()
    second = other.sqrt()
    count = len(first)

    def within(roots: Tensor) -> float:
        # The sum over pairs of two different ones; a distribution has the kernel 1 with itself.
        return float(roots.sum(0).square().sum() - count) / (count * (count - 1))

    return within(first) + within(second) - 2.0 * float(first.mean(0) @ second.mean(0))


def what_windows_tell(
    soft: SoftTokenMap, pair: Tensor, *, beta: float, copies: int, lags: tuple[int, ...], seed: int
) -> list[float]:
    """Squared MMD at each lag of the continuations of two windows of words, (2, T) numbers.

    At lag n each of the `copies` of a window has said n words with random numbers of its own.
    """
    generator = torch.Generator().manual_seed(seed)
    words = pair.repeat_interleave(copies, 0)
    found = []
    for lag in range(max(lags) + 1):
        chances = soft.next_token_distribution(soft.embed(words), beta=beta)
        if lag in lags:
            found.append(unbiased_discrepancy(chances[:copies], chances[copies:]))
        said = torch.multinomial(chances, 1, generator=generator)
        words = torch.cat((words[:, 1:], said), 1)
    return found


def window_pairs(soft: SoftTokenMap, corpus: str, *, count: int, seed: int) -> Tensor:
    """Token numbers (count, 2, T) of pairs of windows, from two different texts each."""
    generator = np.random.default_rng(seed)
    texts = sample_texts() if corpus == "texts" else topics
    numbers = [soft.encode(text) for text in texts.values()]
    long = [text for text in numbers if len(text) > 2 * soft.window]
    pairs = []
    for _ in range(count):
        windows = []
        for k in generator.choice(len(long), 2, replace=False):
            place = int(generator.integers(len(long[k]) - soft.window))
            windows.append(long[k][place : place + soft.window])
        pairs.append(torch.stack(windows))
    return torch.stack(pairs)


_MEMORY = [
    *parameter_product(window=(2, 4), beta=(0.5, 1.0, 2.0), corpus=("texts", "help")),
    *parameter_product(window=(8,), beta=(1.0,), corpus=("texts", "help")),
]


_MEMORY_SMALL = {
    "data": 0,
    "window": 2,
    "beta": 0.5,
    "corpus": "texts",
    "pairs": 2,
    "copies": 4,
}
_MEMORY_WITHIN = dict.fromkeys(("value", "low", "high", "before"), 0.3)


@stored(
    "settings_R9",
    [{"data": data} | unit for data, unit in enumerate(_MEMORY)],
    small=_MEMORY_SMALL,
    seconds=10.0,
    within=_MEMORY_WITHIN,
)
def settings_R9(
    data: int, *, window: int, beta: float, corpus: str, pairs: int = 4, copies: int = 12
) -> Rows:
    """FORGOTTEN less what is left of what pairs of windows told, once all their words are gone.

    Left is the ratio of the mean squared MMD after T words to that before the first; bars are two
    errors of the ratio over pairs. before: the mean before the first word, of 2.
    """
    found = load_checkpoint()
    soft = SoftTokenMap(found.model, tokenizer=found.tokenizer, window=window)
    told = []
    for k, pair in enumerate(window_pairs(soft, corpus, count=pairs, seed=data)):
        seed = 100 * data + k
        told.append(
            what_windows_tell(soft, pair, beta=beta, copies=copies, lags=(0, window), seed=seed)
        )
    first, last = np.array(told).T
    ratio = last.mean() / first.mean()
    error = 2.0 * (last - ratio * first).std(ddof=1) / (pairs**0.5 * first.mean())
    value = FORGOTTEN - ratio
    return rows_of(
        value=value, low=value - error, high=value + error, runs=pairs, before=first.mean()
    )


_FRESH = parameter_product(window=(2, 4), beta=(0.5, 0.7, 1.0), corpus=("texts", "help"))


@stored(
    "confirm_R9",
    [{"data": len(_MEMORY) + k} | unit for k, unit in enumerate(_FRESH)],
    small=_MEMORY_SMALL,
    seconds=10.0,
    within=_MEMORY_WITHIN,
)
def confirm_R9(
    data: int, *, window: int, beta: float, corpus: str, pairs: int = 6, copies: int = 12
) -> Rows:
    """The same of other pairs of windows, six in place of four, with other random numbers."""
    return settings_R9.rows(
        data, window=window, beta=beta, corpus=corpus, pairs=pairs, copies=copies
    )


def corpora() -> dict[str, list[str]]:
    """Texts of several kinds that are installed with what this chapter needs."""
    described = files("sklearn.datasets.descr").iterdir()
    return {
        "texts": list(sample_texts().values()),
        "help": list(topics.values()),
        "data sets": [
            file.read_text(encoding="utf-8")
            for file in sorted(described, key=lambda file: file.name)
            if file.name.endswith(".rst")
        ],
        "functions": [
            str(function.__doc__)
            for _, function in sorted(vars(np).items())
            if callable(function) and len(str(function.__doc__)) > 2000
        ],
    }


def corpus_words(name: str) -> np.ndarray:
    """The first 400 words, by their numbers, of each text of a corpus that has them, (n, 400)."""
    numbers = [encode(decoder(), text).numpy() for text in corpora()[name]]
    return np.stack([text[:400] for text in numbers if len(text) >= 400])


# Groups of texts of one kind, of 7 to 14 each: from which corpus, and how many groups of it.
_GROUPS = {"texts": 1, "help": 3, "data sets": 1, "functions": 15}
_KINDS = [(kind, part) for kind, parts in _GROUPS.items() for part in range(parts)]


def recurrence_rows(words: np.ndarray) -> Rows:
    """Recurrence in texts (n, 400) less that in what the model says: two nulls, three distances.

    Bars are 1.96 errors, by leaving a seventh of the texts out on either side.
    """
    said = dict(groupby(recurrence_table.read(), "null", "distance", "source"))
    rows: Rows = []
    parts = np.array_split(np.arange(len(words)), 7)
    for about in parameter_product(null=("unrelated", "shuffled"), distance=(16, 32, 64)):
        left = np.array([recurrence(np.delete(words, part, 0), **about) for part in parts])
        error = (6 / 7 * np.square(left - left.mean()).sum()) ** 0.5
        model = said[about["null"], about["distance"], "window 8"]
        value = recurrence(words, **about) - model["ratio"]
        half = 1.96 * np.hypot(error, model["error"])
        rows += rows_of(**about, value=value, low=value - half, high=value + half, runs=len(words))
    return rows


@stored("settings_R10", parameter_product(data=range(len(_KINDS))), seconds=3.0)
def settings_R10(data: int) -> Rows:
    """Recurrence in groups of real texts of four kinds less that in what the model says."""
    kind, part = _KINDS[data]
    words = np.array_split(corpus_words(kind), _GROUPS[kind])[part]
    return [{"kind": kind} | row for row in recurrence_rows(words)]

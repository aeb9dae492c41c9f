"""A softmax over a list of random words beside the network of sites that it is a list of."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bookmaker.tables import Rows, Table
from compendium.c35_other_tokens.words import freezing_beta, random_words
from spinformer.dmft.letters import LetterNetwork
from spinformer.dmft.network import OUTPUT, Network

# One step of the document's network from this attention vector.
ATTENTION = np.array([0.3, -0.2, 0.4])
BETA = 1.5
_LISTS = 20


def word_rows(size: int, *, share: float, first: int, lists: int = _LISTS) -> Rows:
    """Lists of V = 2^(`share` N) words of N = `size` bits, seeds from `first`, as one row.

    gap: root mean square over the lists of the distance of the mean overlaps from those of sites,
    with its error; frozen: what it tends to below the threshold, 0 above. spread: root mean square
    of a draw's distance from its mean; sites: that of N sites.

    >>> row, = word_rows(30, share=1.0, first=0, lists=4)
    >>> row["gap"] < 0.02, row["frozen"]
    (True, 0.0)
    """
    network = Network.document()
    letters = LetterNetwork.from_binary(network)
    at = np.array(BETA)
    goal = letters.mean_overlaps(ATTENTION, beta=at)[OUTPUT]
    log_words = share * np.log(2.0)
    cold = np.array(min(BETA, freezing_beta(letters, ATTENTION, log_words=log_words)))
    frozen = letters.mean_overlaps(ATTENTION, beta=cold)[OUTPUT]
    draws = [
        random_words(
            network, size, log_words=log_words, attention=ATTENTION, beta=BETA, seed=first + k
        )
        for k in range(lists)
    ]
    squares = np.array([((draw.mean - goal) ** 2).sum() for draw in draws])
    gap = float(np.sqrt(squares.mean()))
    bits = np.tanh(BETA * (ATTENTION @ network.semantic[OUTPUT]))
    variance = float(network.features * (network.fractions @ (1.0 - bits**2)))
    return [
        {
            "gap": gap,
            "error": float(squares.std(ddof=1) / np.sqrt(lists)) / (2.0 * max(gap, 1e-300)),
            "frozen": float(np.linalg.norm(frozen - goal)),
            "spread": float(np.sqrt(np.mean([draw.spread**2 for draw in draws]))),
            "sites": float(np.sqrt(variance / size)),
            "effective": float(np.median([draw.effective for draw in draws])),
        }
    ]


WORDS = Table(
    path=Path(__file__).parent / "words.csv",
    units=[
        {"size": size, "share": share, "first": first}
        for first in (0, 1000)
        for size in (30, 60, 120, 240)
        for share in (0.1, 0.2, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.8, 1.0)
    ],
    rows=word_rows,
)

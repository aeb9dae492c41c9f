"""How long a message is remembered by a network whose window has passed it: chapter 34."""

from __future__ import annotations

import numpy as np

from spinformer.core.checks import check_instance, check_integer
from spinformer.dmft.tokens import TokenRuns


def window_after(runs: TokenRuns, *, delay: int) -> np.ndarray:
    """The window `delay` tokens after the first one, flattened: one row for each run, (R, T·L).

    A message that was the newest token of the first window has left the window from delay T on.
    Raises ValueError if the runs are shorter.

    >>> from spinformer.dmft.network import Network
    >>> from spinformer.dmft.tokens import generate
    >>> start = np.ones((4, 3))
    >>> runs = generate(
    ...     Network.document(), 30, beta=1.0, window=start, steps=6, runs=2, seed=0
    ... )
    >>> bool((window_after(runs, delay=0) == 1.0).all()), window_after(runs, delay=6).shape
    (True, (2, 12))
    """
    check_instance("runs", runs, TokenRuns)
    context = runs.network.context
    delay = check_integer("delay", delay, low=0, high=runs.tokens.shape[1] - context)
    return runs.tokens[:, delay : delay + context].reshape(len(runs.tokens), -1)

"""Where a measured curve passes a level."""

import numpy as np


def crossing(places: np.ndarray, *, values: np.ndarray, past: np.ndarray, level: float) -> float:
    """Place where values (n,) pass the level, linear up to the first that is `past` it.

    NaN where none is, the first place where that one is already.

    >>> shares = np.array([0.2, 0.4, 0.8])
    >>> crossing(np.array([1.0, 2.0, 3.0]), values=shares, past=shares >= 0.5, level=0.5)
    2.25
    """
    if not past.any():
        return float("nan")
    after = int(np.argmax(past))
    if after == 0:
        return float(places[0])
    around = [after - 1, after] if values[after] > values[after - 1] else [after, after - 1]
    return float(np.interp(level, values[around], places[around]))

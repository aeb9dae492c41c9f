"""Numbers in a row, for the printed lines under a figure."""

from collections.abc import Iterable

import numpy as np


def number_row(values: Iterable[float], *, digits: int = 2, width: int = 7) -> str:
    """Numbers with `digits` decimals in columns of `width`, without negative zeros.

    >>> number_row([1.0, -0.001], width=5)
    ' 1.00  0.00'
    """
    return " ".join(f"{np.round(float(v), digits) + 0.0:{width}.{digits}f}" for v in values)

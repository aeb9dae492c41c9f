"""What needs no stack: logistic regression and the nearest neighbour, on the same digits."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from bookmaker.tables import Rows
from compendium.common.token_tasks import digit_images

PENALTIES = (0.001, 0.01, 0.1, 1.0)


def reference_rows(*, split: int) -> Rows:
    """Test accuracies on the split of `tasks.digit_task`; the penalty is tuned on its validation.

    >>> callable(reference_rows)
    True
    """
    pixels, labels, (train, held, test) = digit_images(split)
    regressions = [
        LogisticRegression(C=c, max_iter=2000).fit(pixels[train], labels[train]) for c in PENALTIES
    ]
    best = max(regressions, key=lambda model: float(model.score(pixels[held], labels[held])))
    nearest = KNeighborsClassifier(1).fit(pixels[train], labels[train])
    scores = {"logistic regression": best, "nearest neighbour": nearest}
    return [
        {"method": name, "accuracy": float(np.round(model.score(pixels[test], labels[test]), 4))}
        for name, model in scores.items()
    ]

"""The table of what a per-token network learns: a unit again, and what bounds it."""

import numpy as np
import pytest
import torch

from compendium.c23_anatomy.study import dissect, draw_bilinear, draw_tokens
from compendium.c23b_response_as_feed_forward.study import LEARNED, learned_rows


@pytest.mark.claim("B12")
def test_a_unit_of_the_table_and_what_bounds_it():
    """One network again, and what the table says of all against a look-up of the clusters."""
    table = LEARNED.read()
    unit = {"gamma": 1.0, "surroundings": "clusters", "seed": 3}
    (again,) = learned_rows(**unit, fits=((1500, 400, 128, "both"),))
    rows = np.logical_and.reduce([table[name] == value for name, value in unit.items()])
    row = rows & (table["systems"] == 1500) & (table["steps"] == 400)
    assert row.sum() == 1
    assert table["decided"][row][0] == pytest.approx(again["decided"], abs=1e-5)
    assert table["test"][row][0] == pytest.approx(again["test"], abs=0.01)
    # No network: the mean response of the tokens of each cluster, on other systems of this draw.
    bilinear = draw_bilinear(16, seed=301)
    centres = draw_tokens(1, sites=4, dim=16, seed=302)[0]
    h = draw_tokens(600, sites=12, dim=16, seed=9, prototypes=centres)
    response = dissect(h, bilinear=bilinear, beta=1.0).response.flatten(0, 1)
    which = (h.flatten(0, 1) @ centres.T).argmax(-1)
    half = len(which) // 2
    means = torch.stack([response[:half][which[:half] == k].mean(0) for k in range(4)])
    wrong = (response[half:] - means[which[half:]]).square().sum()
    looked_up = 1 - float(wrong / (response[half:] - response[:half].mean(0)).square().sum())
    # Which cluster it is tells a part of what the token decides, which a network finds more of.
    assert 0.1 < looked_up < again["decided"] + 0.05 < table["test"][row][0] + 0.1
    long = table["steps"] == 2500
    whole = {
        (kind, gamma): table["test"][
            long
            & (table["systems"] == 3000)
            & (table["surroundings"] == kind)
            & (table["gamma"] == gamma)
        ]
        for kind, gamma in (("clusters", 1.0), ("clusters", 3.0), ("random", 1.0))
    }
    assert all(len(values) == 10 for values in whole.values())
    assert whole["clusters", 1.0].min() > 0.7 > 0.6 > whole["clusters", 3.0].max()
    assert whole["random", 1.0].max() < 0.4

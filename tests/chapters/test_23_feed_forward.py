"""The table of what a per-token network learns: a unit again, and what bounds it."""

import numpy as np
import pytest
import torch

from compendium.c23_anatomy.study import (
    LEARNED,
    dissect,
    draw_bilinear,
    draw_tokens,
    fit_per_token,
    share_between_groups,
)


@pytest.mark.claim("B12")
def test_what_bounds_the_networks_of_the_table():
    """A row of the table against a look-up of the clusters on other systems."""
    table = LEARNED.read()
    unit = {"gamma": 1.0, "surroundings": "clusters", "seed": 3, "systems": 1500, "steps": 400}
    here = np.all([table[name] == value for name, value in unit.items()], axis=0)
    (learned,), (decided,) = table["test"][here], table["decided"][here]
    # No network: the mean response of the tokens of each cluster, on other systems of this draw.
    bilinear = draw_bilinear(16, seed=301)
    centres = draw_tokens(1, sites=4, dim=16, seed=302)[0]
    h = draw_tokens(300, sites=12, dim=16, seed=9, prototypes=centres)
    response = dissect(h, bilinear=bilinear, beta=1.0).response.flatten(0, 1)
    which = (h.flatten(0, 1) @ centres.T).argmax(-1)
    half = len(which) // 2
    means = torch.stack([response[:half][which[:half] == k].mean(0) for k in range(4)])
    wrong = (response[half:] - means[which[half:]]).square().sum()
    looked_up = 1 - float(wrong / (response[half:] - response[:half].mean(0)).square().sum())
    # Which cluster it is tells a part of what the token decides, which a network finds more of.
    assert 0.1 < looked_up < decided + 0.05 < learned + 0.1


def test_limits_of_a_share_between_groups():
    """A fixed environment leaves all of it to the owner, a fixed owner nothing."""
    bilinear = draw_bilinear(6, seed=0)
    owners, crowd = draw_tokens(40, sites=8, dim=6, seed=1), draw_tokens(8, sites=8, dim=6, seed=2)
    for fixed, share in (("environment", 1.0), ("owner", 0.0)):
        fields = crowd.expand(40, 8, 8, 6).clone()
        if fixed == "environment":
            fields[:] = crowd[0]
            fields[:, :, 0] = owners[:, None, 0]
        response = dissect(fields, bilinear=bilinear, beta=1.0).response[:, :, 0]
        # With the same owner everywhere the groups are copies: between them nothing varies.
        assert abs(share_between_groups(response) - share) < (1e-12 if share else 0.2)


def test_per_token_fit_finds_what_is_there():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4000, 3, generator=generator).double()
    targets = torch.stack([inputs[:, 0] - inputs[:, 1], inputs[:, 2].square()], dim=1)
    wide = {"targets": targets, "width": 64, "steps": 600, "seed": 0}
    network = fit_per_token(inputs, **wide, elsewhere=(inputs[3000:], targets[3000:]))
    assert network["test"] > 0.97
    assert network["elsewhere"] == pytest.approx(network["test"])
    noise = torch.randn(4000, 2, generator=generator).double()
    assert fit_per_token(inputs, targets=noise, width=16, steps=300, seed=0)["test"] < 0.02
    # Scales are per feature, and from the training set alone: units and offsets of a feature
    # change nothing, nor does what the test set holds change the training.
    units = torch.tensor([1e-3, 1.0, 1e3]).double()
    short = {"targets": targets, "width": 8, "steps": 50, "seed": 0}
    plain = fit_per_token(inputs, **short)
    scaled = fit_per_token(inputs * units + 5 * units, **short)
    assert scaled["train"] == pytest.approx(plain["train"], abs=1e-6)
    strange = inputs.clone()
    strange[3000:] *= 1e3
    assert fit_per_token(strange, **short)["train"] == plain["train"]

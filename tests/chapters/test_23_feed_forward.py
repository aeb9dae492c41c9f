"""The table of what a per-token network learns: a unit again, and what bounds it."""

import numpy as np
import pytest
import torch

from compendium.c23_anatomy.feed_forward import (
    LEARNED,
    fit_per_token,
    own_token_share,
    share_between_groups,
)
from compendium.c23_anatomy.study import best_pair_weights, dissect, draw_bilinear, draw_tokens
from spinformer.spins.large_d import magnetization
from spinformer.spins.vectors import two_spins


@pytest.mark.claim("B12")
def test_what_bounds_the_networks_of_the_table():
    """What the table says of all, against a look-up of the clusters on other systems."""
    table = LEARNED.read()
    unit = {"gamma": 1.0, "surroundings": "clusters", "seed": 3, "systems": 1500, "steps": 400}
    row = np.logical_and.reduce([table[name] == value for name, value in unit.items()])
    assert row.sum() == 1
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
    assert 0.1 < looked_up < table["decided"][row][0] + 0.05 < table["test"][row][0] + 0.1
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


def test_own_token_share_limits():
    """A fixed environment leaves all of it to the owner, a
    fixed owner nothing; sharp scores in a random crowd leave the owner little."""
    bilinear = draw_bilinear(6, seed=0)
    settings_ = {"owners": 40, "environments": 8, "seed": 0, "beta": 1.0}
    owners, crowd = draw_tokens(40, sites=8, dim=6, seed=1), draw_tokens(8, sites=8, dim=6, seed=2)
    for fixed, share in (("environment", 1.0), ("owner", 0.0)):
        fields = crowd.expand(40, 8, 8, 6).clone()
        if fixed == "environment":
            fields[:] = crowd[0]
            fields[:, :, 0] = owners[:, None, 0]
        response = dissect(fields, bilinear=bilinear, beta=1.0).response[:, :, 0]
        # With the same owner everywhere the groups are copies: between them nothing varies.
        assert abs(share_between_groups(response) - share) < (1e-12 if share else 0.2)
    weak, strong = (own_token_share(bilinear, sites=8, gamma=g, **settings_) for g in (0.1, 6.0))
    assert weak > 0.2 > 0.1 > strong
    # By hand for one case: variance of the means over many environments.
    many = {"owners": 30, "environments": 60, "seed": 5, "beta": 1.0}
    fields = draw_tokens(1800, sites=4, dim=6, seed=5).reshape(30, 60, 4, 6).clone()
    fields[:, :, 0] = fields[:, :1, 0]
    response = dissect(fields, bilinear=bilinear, beta=1.0).response[:, :, 0]
    plain = response.mean(1).var(0).sum() / response.flatten(0, 1).var(0).sum()
    assert abs(own_token_share(bilinear, sites=4, **many) - float(plain)) < 0.05


def test_per_token_fit_finds_what_is_there():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4000, 3, generator=generator)
    targets = torch.stack([inputs[:, 0] - inputs[:, 1], inputs[:, 2].square()], dim=1)
    network = fit_per_token(
        inputs, targets=targets, width=64, steps=600, seed=0, elsewhere=(inputs, targets)
    )
    assert network["test"] > 0.97
    assert network["elsewhere"] > 0.97
    noise = torch.randn(4000, 2, generator=generator)
    assert fit_per_token(inputs, targets=noise, width=16, steps=300, seed=0)["test"] < 0.02
    # Scales are per feature, and from the training set alone: units and offsets of a feature
    # change nothing, nor does what the test set holds change the training.
    units = torch.tensor([1e-3, 1.0, 1e3])
    short = {"targets": targets, "width": 8, "steps": 50, "seed": 0}
    plain = fit_per_token(inputs, **short)
    scaled = fit_per_token(inputs.double() * units + 5 * units, **short)
    assert scaled["train"] == pytest.approx(plain["train"], abs=1e-6)
    strange = inputs.clone()
    strange[3000:] *= 1e3
    assert fit_per_token(strange, **short)["train"] == plain["train"]


def test_at_finite_d_the_reaction_also_adds_up_the_other_token():
    """Second order in the coupling of an exact pair, along the other token's field: 1/D off."""

    def along_other(channels, solve):
        h = torch.zeros(2, channels, dtype=torch.float64)
        h[0, 0], h[1, 0], h[1, 1] = 1.0, 0.6, 0.8
        bond = torch.tensor([[0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
        up, off, down = (solve(x * bond, h * channels**0.5) for x in (0.02, 0.0, -0.02))
        curved = (up + down - 2 * off) / (2 * 0.02**2 * channels**0.5)
        return float(best_pair_weights(curved, fields=h)[0, 1])

    def exact(couplings, fields):
        solved = two_spins(couplings.numpy(), fields=fields.numpy(), beta=1.0)
        return torch.from_numpy(solved.magnetization)

    theory = along_other(64, lambda j, h: magnetization(j, fields=h, beta=1.0))
    assert theory == pytest.approx(-0.625, abs=1e-3)
    gaps = [theory - along_other(channels, exact) for channels in (4, 16, 64)]
    assert gaps == pytest.approx([0.051, 0.014, 0.004], abs=1e-3)

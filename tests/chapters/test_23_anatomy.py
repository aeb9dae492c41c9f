"""The parts of the magnetization add up to −dF/dh, and each is what its name says; what learns."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from open_cells import run_open_cells
from scipy.stats import ortho_group

from compendium.c23_anatomy import blocks, study
from compendium.c25b_learning_under_a_drive.directions import sample_von_mises_fisher
from spinformer.core.special import log_sphere_integral
from spinformer.spins.block_couplings import solve_block_fixed_point
from spinformer.spins.exact_vectors import two_spins
from spinformer.spins.module import response_attention
from spinformer.spins.solvers import solve_saddle_point


@settings(deadline=None, max_examples=12, derandomize=True)
@given(
    sites=st.integers(2, 10),
    dim=st.integers(2, 12),
    seed=st.integers(0, 10_000),
    beta=st.floats(0.1, 8.0),
    gamma=st.floats(0.0, 5.0),
    strength=st.floats(0.05, 3.0),
    mask_diagonal=st.booleans(),
)
def test_parts_are_the_gradient(sites, dim, seed, beta, gamma, strength, mask_diagonal):
    """−(1/D) dF/dh by autograd through couplings and saddle point, and the closed-form response."""
    fields = study.draw_tokens(2, sites=sites, dim=dim, seed=seed)
    push = study.draw_tokens(2, sites=sites, dim=dim, seed=seed + 1)
    options = {"beta": beta, "gamma": gamma, "strength": strength, "mask_diagonal": mask_diagonal}
    options["bilinear"] = study.draw_bilinear(dim, seed=seed)
    shares = study.dissect(fields, **options).shares()
    assert sum(shares.values()) == pytest.approx([1.0, 1.0], abs=1e-9)
    errors = study.derivative_errors(fields, push=push, **options)
    scale = 1 + gamma * dim**0.5
    assert errors["autograd"] < 1e-11 * scale
    assert errors["formula"] < 1e-12 * scale


def test_the_open_cells_give_the_parts():
    cells = run_open_cells("23_anatomy")
    parts = study.dissect(cells["twelve_tokens"], bilinear=cells["score_matrix"], beta=1.0)
    for name, part in parts.parts().items():
        torch.testing.assert_close(cells["output_parts"][name], part, rtol=0, atol=1e-8)
        fraction = float(parts.shares()[name])
        assert cells["fractions"][name] == pytest.approx(fraction, abs=1e-8)


@pytest.mark.claim("B9")
def test_rotations_and_spans():
    """All but the response commute with any rotation of the channels; the response does not."""
    fields = study.draw_tokens(1, sites=5, dim=9, seed=0)[0]
    bilinear = study.draw_bilinear(9, seed=1)
    turn = torch.tensor(ortho_group.rvs(9, random_state=2))
    here = study.dissect(fields, bilinear=bilinear, beta=1.2, gamma=2.0)
    both = study.dissect(fields @ turn, bilinear=turn.T @ bilinear @ turn, beta=1.2, gamma=2.0)
    for name, part in here.parts().items():
        torch.testing.assert_close(both.parts()[name], part @ turn, rtol=0, atol=1e-12)
        assert (study.outside_span(part, fields=fields) > 1e-3) == (name == "response")
    held = study.dissect(fields @ turn, bilinear=bilinear, beta=1.2, couplings=here.couplings)
    torch.testing.assert_close(held.spins, here.spins @ turn, rtol=0, atol=1e-12)
    assert (held.response == 0).all()


def test_the_echo_of_a_pair_is_a_number_for_many_components():
    """Order J² of ⟨u_1⟩ along h_2, from second differences, and what few components add to it."""

    def along_the_other(dim, solve):
        fields = np.zeros((2, dim))
        bond = np.eye(2)[::-1]
        fields[:, :2] = np.sqrt(dim) * np.array([[1.0, 0.0], [0.6, 0.8]])
        down = solve(-0.02 * bond, fields)[0, 1]
        none = solve(0.0 * bond, fields)[0, 1]
        up = solve(0.02 * bond, fields)[0, 1]
        return (down + up - 2 * none) / (2 * 0.02**2 * fields[1, 1])

    def saddle(bond, fields):
        found = solve_saddle_point(torch.tensor(bond), fields=torch.tensor(fields), beta=1.0)
        return found.magnetization.numpy()

    # From a free spin's answer across and along its direction, chapter 22's case for the hand.
    across = (np.sqrt(5) - 1) / 2
    along = 0.2763932
    limit = -8 * 0.6 * across**2 * (across - along)
    assert limit == pytest.approx(-0.626, abs=5e-4)
    assert along_the_other(2, saddle) == pytest.approx(limit, abs=2e-3)
    for dim, share in ((4, -0.051), (16, -0.014), (64, -0.004)):
        found = along_the_other(dim, lambda j, h: two_spins(j, fields=h, beta=1.0).magnetization)
        assert found - limit == pytest.approx(share, abs=2e-3)


@pytest.mark.parametrize("mask_diagonal", [True, False])
def test_series_and_onsager_term(mask_diagonal):
    """τ_i⟨u_i⟩ = h_i/2 + Σ_{j≠i} J_ij⟨u_j⟩, its first iterate, and what is left for weak J."""
    fields = study.draw_tokens(2, sites=7, dim=9, seed=0)
    bilinear = study.draw_bilinear(9, seed=1)
    scores = {"bilinear": bilinear, "strength": 0.02, "mask_diagonal": mask_diagonal}
    a = study.dissect(fields, beta=1.4, **scores)
    beta = 1.4
    others = (a.couplings + a.couplings.mT) / 2
    others = others - torch.diag_embed(others.diagonal(dim1=-2, dim2=-1))
    tau = (fields / (2 * a.residual))[..., :1]
    want = fields / 2 + others @ a.spins
    torch.testing.assert_close(tau * a.spins, want, rtol=0, atol=1e-12)
    torch.testing.assert_close(tau * a.residual, fields / 2, rtol=0, atol=1e-13)
    torch.testing.assert_close(tau * a.first_step, others @ a.residual, rtol=0, atol=1e-13)
    assert a.higher_orders.norm() < 0.05 * a.first_step.norm() < 0.05 * a.residual.norm()
    width = 1 - a.spins.square().sum(-1, keepdim=True)
    second = 2 * beta * (others.square() @ width)[..., 0]
    # What a free spin of the same magnetization would not have: Onsager's term.
    onsager = (tau - 1 / (2 * beta * width))[..., 0]
    torch.testing.assert_close(onsager, second, rtol=0.1, atol=0)


def test_locality_adds_up():
    """The Jacobian against finite differences, and its frozen part against moving h in G h only."""
    fields = study.draw_tokens(1, sites=5, dim=4, seed=0)[0]
    bilinear = study.draw_bilinear(4, seed=1)
    options = {"beta": 1.0, "gamma": 1.5}
    total = study.locality(fields, bilinear=bilinear, **options)
    pushes = torch.zeros(4, 5, 4, dtype=torch.float64)
    pushes[:, 2] = 1e-5 * torch.eye(4)
    ahead = study.dissect(fields + pushes, bilinear=bilinear, **options).response
    behind = study.dissect(fields - pushes, bilinear=bilinear, **options).response
    block = ((ahead - behind) / 2e-5).square().sum((0, 2))
    torch.testing.assert_close(total[:, 2], block, rtol=1e-6, atol=0)
    # Frozen: the fields that G averages move, G does not.
    held = study.dissect(fields, bilinear=bilinear, **options)
    weights = response_attention(
        held.couplings, correlation=held.correlation, coupling_strength=0.5
    )

    def averaged(h):
        return 1.5 * 4**0.5 * (weights @ h @ bilinear.T + weights.T @ h @ bilinear)

    torch.testing.assert_close(averaged(fields), held.response, rtol=0, atol=1e-13)
    want = torch.autograd.functional.jacobian(averaged, fields).square().sum(dim=(1, 3))
    frozen = study.locality(fields, bilinear=bilinear, frozen=True, **options)
    torch.testing.assert_close(frozen, want, rtol=1e-12, atol=1e-15)
    assert (frozen.diagonal() == 0).all()


def test_own_field_terms_are_what_a_token_adds_alone():
    """At held weights the response is linear in the fields: each token is fed in alone."""
    fields = study.draw_tokens(1, sites=5, dim=6, seed=2)[0]
    options = {"bilinear": study.draw_bilinear(6, seed=3), "gamma": 1.5}
    for masked in (False, True):
        known = {**options, "beta": 1.0, "strength": 0.4, "mask_diagonal": masked}
        held = study.dissect(fields, **known)
        response, own = study.own_field_term(fields, **known)
        torch.testing.assert_close(response, held.response)
        alone = []
        for site in range(5):
            single = torch.zeros_like(fields)
            single[site] = fields[site]
            part = study.softmax_response(
                single,
                bilinear=options["bilinear"],
                couplings=held.couplings,
                correlation=held.correlation,
                scale=1.5 * 6**0.5,
                strength=0.4,
            )
            alone.append(part[site])
        torch.testing.assert_close(own, torch.stack(alone))
        assert bool(own.abs().max() > 0.01) is not masked


def test_deviations_that_are_there_are_seen(monkeypatch):
    fields = study.draw_tokens(2, sites=4, dim=5, seed=0)
    push = study.draw_tokens(2, sites=4, dim=5, seed=1)
    options = {"beta": 1.2, "gamma": 2.0, "strength": 0.5}
    options |= {"bilinear": study.draw_bilinear(5, seed=2), "push": push}
    assert study.derivative_errors(fields, **options)["difference"] < 1e-9

    # Parts whose response is off in a single component, and a free energy off by a factor.
    dissect = study.dissect

    def disturbed(*args, **options):
        parts = dissect(*args, **options)
        off = torch.zeros_like(parts.response)
        off[0, 0] = 1e-3
        off[1, 1] = -1e-3
        return replace(parts, response=parts.response + off, free_energy=1.5 * parts.free_energy)

    monkeypatch.setattr(study, "dissect", disturbed)
    wrong = study.derivative_errors(fields, **options)
    assert (wrong["autograd"], wrong["formula"]) == pytest.approx((1e-3, 1e-3), rel=1e-6)
    assert wrong["difference"] > 1e-2


@pytest.mark.claim("B12")
def test_what_bounds_the_networks_of_the_table():
    """A row of the table against a look-up of the clusters on other systems."""
    table = study.learned_table.read()
    unit = {"gamma": 1.0, "surroundings": "clusters", "seed": 3, "systems": 1500, "steps": 400}
    here = np.all([table[name] == value for name, value in unit.items()], axis=0)
    (learned,) = table["test"][here]
    (decided,) = table["decided"][here]
    # No network: the mean response of the tokens of each cluster, on other systems of this draw.
    bilinear = study.draw_bilinear(16, seed=301)
    centres = study.draw_tokens(1, sites=4, dim=16, seed=302)[0]
    h = study.draw_tokens(300, sites=12, dim=16, seed=9, prototypes=centres)
    response = study.dissect(h, bilinear=bilinear, beta=1.0).response.flatten(0, 1)
    which = (h.flatten(0, 1) @ centres.T).argmax(-1)
    half = len(which) // 2
    means = torch.stack([response[:half][which[:half] == k].mean(0) for k in range(4)])
    wrong = (response[half:] - means[which[half:]]).square().sum()
    looked_up = 1 - float(wrong / (response[half:] - response[:half].mean(0)).square().sum())
    # Which cluster it is tells a part of what the token decides, which a network finds more of.
    assert 0.1 < looked_up < decided + 0.05 < learned + 0.1


def test_a_share_between_groups():
    """Of sums of an effect of the group and one of each member, of known sizes."""
    generator = torch.Generator().manual_seed(0)
    group = torch.randn(4000, 1, 3, generator=generator)
    member = torch.randn(4000, 8, 3, generator=generator)
    for size, share in ((0.0, 0.0), (0.5, 0.2), (2.0, 0.8)):
        assert study.share_between_groups(size * group + member) == pytest.approx(share, abs=0.02)


def test_per_token_fit_finds_what_is_there():
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(4000, 3, generator=generator).double()
    targets = torch.stack([inputs[:, 0] - inputs[:, 1], inputs[:, 2].square()], dim=1)
    wide = {"targets": targets, "width": 64, "steps": 600, "seed": 0}
    network = study.fit_per_token(inputs, **wide, elsewhere=(inputs[3000:], targets[3000:]))
    assert network["test"] > 0.97
    assert network["elsewhere"] == pytest.approx(network["test"])
    noise = torch.randn(4000, 2, generator=generator).double()
    assert study.fit_per_token(inputs, targets=noise, width=16, steps=300, seed=0)["test"] < 0.02
    # Scales are per feature, and from the training set alone: units and offsets of a feature
    # change nothing, nor does what the test set holds change the training.
    units = torch.tensor([1e-3, 1.0, 1e3]).double()
    short = {"targets": targets, "width": 8, "steps": 50, "seed": 0}
    plain = study.fit_per_token(inputs, **short)
    scaled = study.fit_per_token(inputs * units + 5 * units, **short)
    assert scaled["train"] == pytest.approx(plain["train"], abs=1e-6)
    strange = inputs.clone()
    strange[3000:] *= 1e3
    assert study.fit_per_token(strange, **short)["train"] == plain["train"]


def test_couplings_that_are_matrices_by_drawn_spins():
    """Mean spins of a pair with a coupling W by importance sampling, in 24 components."""
    dim = 24
    beta = 1.0
    fields = study.draw_tokens(1, sites=2, dim=dim, seed=3)[0]
    matrix = study.draw_bilinear(dim, seed=4)
    couplings = torch.tensor([[0.0, 0.3], [0.0, 0.0]], dtype=torch.float64)
    solved = blocks.block_spins(couplings, matrix, fields, beta=beta)
    # The second spin is summed exactly: the first is drawn in its own field and weighted.
    spins = torch.as_tensor(
        sample_von_mises_fisher(
            np.tile(beta * dim * fields[0].numpy(), (400_000, 1)),
            seed=0,
        )
    )
    received = fields[1] + 0.3 * spins @ matrix
    sizes = beta * dim * received.norm(dim=1).numpy()
    weights = log_sphere_integral(sizes, dim=dim)
    weights = torch.as_tensor(np.exp(weights - weights.max()))
    drawn = (weights[:, None] * spins).sum(0) / weights.sum()
    # Three parts of the first mean spin that are no multiples of each other.
    echo = 0.09 * matrix @ matrix.T @ fields[0]
    other = 0.3 * matrix @ fields[1]
    basis = torch.linalg.qr(torch.stack([fields[0], other, echo], 1))[0]
    along = basis.T @ drawn
    expected = basis.T @ solved.means[0]
    # Along its own field a free spin of 24 components is off by a hundredth already.
    assert abs(float((expected - along)[0])) < 0.012
    assert float((expected - along)[1:].abs().max()) < 0.004
    # Without what comes back, along the echo beside the other two, that would be missed.
    plain = blocks.block_spins(0 * couplings, matrix, fields, beta=beta)
    assert abs(float(basis[:, 2] @ (solved.means[0] - plain.means[0]))) > 0.008


def test_block_couplings_hold_those_that_are_numbers():
    """With W the identity the package's saddle point; the equation of state for any W."""
    fields = study.draw_tokens(1, sites=7, dim=9, seed=0)[0]
    scores = {"scale": 3.0, "strength": 0.4}
    couplings = study.softmax_couplings(fields, bilinear=study.draw_bilinear(9, seed=1), **scores)
    identity = torch.eye(9, dtype=torch.float64)
    plain = blocks.block_spins(couplings, identity, fields, beta=1.3)
    want = solve_saddle_point(couplings, fields=3 * fields, beta=1.3).magnetization / 3
    torch.testing.assert_close(plain.means, want, rtol=0, atol=1e-10)
    assert float(blocks.off_direction(plain.echo, directions=fields).max()) < 1e-12
    matrix = study.draw_bilinear(9, seed=2)
    solved = blocks.block_spins(couplings, matrix, fields, beta=1.3)
    energy = torch.einsum("ij,ab->iajb", couplings, matrix)
    received = torch.einsum("iajb,jb->ia", energy + energy.permute(2, 3, 0, 1), solved.means)
    left = 2 * solved.multipliers[:, None] * solved.means - fields - received
    assert float(left.abs().max()) < 1e-12
    # The echo is what weak couplings add in second order along a token's own field.
    step = 1e-3
    alone = torch.zeros_like(fields)
    alone[0] = fields[0]
    strong = blocks.block_spins(step * couplings, matrix, alone, beta=1.3)
    none = blocks.block_spins(0.0 * couplings, matrix, alone, beta=1.3)
    gain = strong.residual[0] - none.residual[0]
    added = (strong.means[0] - none.means[0] - gain) / step**2
    torch.testing.assert_close(added, strong.echo[0] / step**2, rtol=0.02, atol=1e-5)
    with pytest.raises(ValueError, match="saddle point"):
        blocks.block_spins(couplings, matrix, fields, beta=1.3, steps=1)


def test_block_couplings_are_those_of_the_second_order_for_weak_ones():
    """Against the mean-field equations of the package, whose error is of third order."""
    fields = study.draw_tokens(1, sites=5, dim=8, seed=4)[0]
    matrix = study.draw_bilinear(8, seed=5)
    couplings = torch.randn(5, 5, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    gaps = []
    for size in (0.02, 0.04):
        solved = blocks.block_spins(size * couplings, matrix, fields, beta=1.0)
        second = solve_block_fixed_point(
            size * couplings, channels=matrix, fields=fields, beta=1.0, tolerance=1e-13
        )
        gaps.append(float((solved.means - second.value).norm()))
    assert gaps[0] < 1e-3
    assert 6.0 < gaps[1] / gaps[0] < 20.0


@pytest.mark.parametrize("surroundings", ["clusters", "random"])
def test_lessons_of_the_networks_are_the_response_of_the_same_spins(surroundings, monkeypatch):
    fits = []
    owners = []

    def fit(inputs, *, targets, elsewhere, **lengths):
        fits.append((inputs, targets, elsewhere, lengths))
        return {"train": 0.5, "test": 0.25}

    def share(bilinear, **chosen):
        owners.append((bilinear, chosen))
        return 0.75

    monkeypatch.setattr(study, "fit_per_token", fit)
    monkeypatch.setattr(study, "own_token_share", share)
    lessons = ((2, 7), (4, 9))
    chosen = {"surroundings": surroundings, "seed": 2, "lessons": lessons}
    rows = study.learned_rows(1.5, **chosen)
    assert [(row["systems"], row["steps"]) for row in rows] == list(lessons)
    assert all(row["decided"] == 0.75 and row["test"] == 0.25 for row in rows)
    (bilinear, share_of), size = owners[0], study.SITES
    # Of spins in these fields, whose means the network is shown, it learns the response.
    inputs, targets, away, lengths = fits[1]
    fields = inputs[:, : study.DIM].unflatten(0, (4, size))
    solved = study.dissect(fields, bilinear=bilinear, beta=1.0, gamma=1.5, mask_diagonal=True)
    torch.testing.assert_close(inputs[:, study.DIM :], solved.spins.flatten(0, 1))
    torch.testing.assert_close(targets, solved.response.flatten(0, 1))
    assert share_of["gamma"] == 1.5
    assert lengths["steps"] == 9
    # Fewer systems are the first of more.
    torch.testing.assert_close(fits[0][0], inputs[: 2 * size])
    torch.testing.assert_close(fits[0][1], targets[: 2 * size])
    assert fits[0][3]["steps"] == 7
    prototypes = share_of["prototypes"]
    if surroundings == "random":
        assert prototypes is None
        assert away is None
        return
    near = (fields.flatten(0, 1) @ prototypes.T).amax(1)
    far = (away[0][:, : study.DIM] @ prototypes.T).amax(1)
    assert len(away[0]) == len(away[1]) == size
    assert near.min() > 0.7
    assert far.mean() < near.mean() - 0.2
    alone = study.learned_rows(1.5, **chosen, beside=False)[0]
    assert fits[-1][2] is None
    assert np.isnan(alone["decided"])

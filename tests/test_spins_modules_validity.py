"""The meter of the spin module: held against Monte Carlo, closed forms and cases that must fail."""

import pytest
import torch
from known_memories import normal

from compendium.c24a_teacher_and_student.study import coupling_excess
from spinformer.spins.module import Solver, SpinTransformerModule
from spinformer.spins.monte_carlo import sample_vector_spins
from spinformer.spins.solvers import solve_saddle_point
from spinformer.spins.validity import Validity

DOUBLE = torch.float64
SOLVERS = {
    "one step": {"solver": Solver(steps=1)},
    "fixed point": {"solver": "fixed point"},
    "saddle": {"solver": "saddle"},
}


def _module(dim=16, heads=1, seed=1, **options):
    torch.manual_seed(seed)
    return SpinTransformerModule(dim, heads=heads, dtype=DOUBLE, **options)


def test_the_meter_says_what_monte_carlo_finds():
    """Strong couplings, D = 16: one step is far off, the saddle is not, and the meter knows."""
    seed, strength = 3, 4.0
    inputs, measured, words, truth = normal(seed, 1, 8, 16), {}, {}, None
    for name, options in SOLVERS.items():
        module = _module(coupling_strength=strength, seed=seed, **options)
        module.warned = True
        with torch.no_grad():
            _, parts = module(inputs, return_parts=True)
            if truth is None:
                couplings, fields = parts.couplings[0, 0].numpy(), module.fields(inputs)[0].numpy()
                run = {"beta": 1.0, "sweeps": 60_000, "seed": seed}
                sampled = sample_vector_spins(couplings, fields=fields, **run)
                truth = torch.from_numpy(sampled.magnetization.value)
                noise = float(torch.from_numpy(sampled.magnetization.error).norm() / truth.norm())
                assert noise < 0.01
        measured[name] = float((parts.spins[0] - truth).norm() / truth.norm())
        words[name] = parts.validity()
        word = float(words[name].expected_error)
        assert measured[name] < word + 3 * noise
        assert measured[name] > float(words[name].distance - 2 * words[name].correction) - 3 * noise
    assert measured["one step"] > 0.5
    assert measured["saddle"] < 0.06
    assert not words["one step"].trusted().any()
    assert words["saddle"].trusted(0.1).all()
    assert measured["saddle"] < 0.5 * measured["fixed point"]


def test_the_correction_is_what_the_next_order_adds():
    module = _module(dim=12, heads=3, coupling_strength=1.5, solver="saddle", beta=1.2)
    inputs = normal(0, 2, 5, 12)
    with torch.no_grad():
        _, parts = module(inputs, return_parts=True)
        given = {"fields": parts.fields * 2, "beta": torch.tensor(1.2, dtype=DOUBLE)}
        leading, next_order = (
            solve_saddle_point(parts.pair / 2, **given, corrected=c) for c in (False, True)
        )
    spins = leading.magnetization
    want = (next_order.magnetization - spins).norm(dim=(-2, -1)) / spins.norm(dim=(-2, -1))
    torch.testing.assert_close(parts.validity().correction, want, rtol=1e-9, atol=0)
    assert (parts.validity().distance < 1e-10).all()
    # The covariance of the saddle is V⁻¹/(2β).
    v = torch.diag_embed(leading.saddle.value) - parts.pair / 2
    largest = torch.linalg.eigvalsh(v)[..., -1]
    torch.testing.assert_close(parts.validity().lowest, 1 / (2.4 * largest))


@pytest.mark.parametrize("coupling", [0.2, 2.0])
def test_a_pair_without_field_has_no_physical_solution_beyond_strength_one_half(coupling):
    """θ = 0 gives m (1/x + x − 1) = 0 with x = βB(1−m²): only m = 0, and there C_12 = βB = 2βg.

    The flag must fail beyond 2βg = 1, though the equations are solved. At the saddle C_12 = g/t
    with t = (1 + √(1 + 16β²g²))/(4β), which is below one always.
    """
    silent = torch.zeros(1, 2, 16, dtype=DOUBLE)
    module = _module(coupling_strength=coupling, normalize=False, solver="fixed point")
    saddle = _module(coupling_strength=coupling, normalize=False, solver="saddle")
    with torch.no_grad():
        found, right = (m(silent, return_parts=True)[1].validity() for m in (module, saddle))
    assert found.converged.all()
    assert float(found.largest) == pytest.approx(2 * coupling)
    assert float(found.lowest) == pytest.approx(1 - 2 * coupling)
    weak = 2 * coupling < 1
    assert bool(found.physical.all()) is weak
    assert bool(found.trusted(1.0).all()) is weak
    t = (1 + (1 + 16 * coupling**2) ** 0.5) / 4
    assert float(right.largest) == pytest.approx(coupling / t)
    assert right.physical.all()


def test_single_precision_is_measured_in_double():
    """The distance of a float32 saddle is its rounding and tolerance, not zero by construction."""
    torch.manual_seed(0)
    module = SpinTransformerModule(16, heads=2, coupling_strength=2.0, solver="saddle")
    with torch.no_grad():
        _, parts = module(normal(0, 3, 9, 16).float(), return_parts=True)
    distance = parts.validity().distance
    assert (distance > 1e-9).any()
    assert (distance < 1e-4).all()


def test_trust_needs_convergence_physics_and_a_small_error():
    good = {"converged": True, "distance": 0.1, "correction": 0.05, "largest": 1.0, "lowest": 0.0}
    bad = {"converged": False, "distance": 0.151, "largest": 1.01, "lowest": -0.01}
    for changed in [None, *bad]:
        values = good | ({changed: bad[changed]} if changed else {})
        meter = Validity(**{name: torch.tensor([[value]]) for name, value in values.items()})
        assert bool(meter.trusted(0.2)) is (changed is None), changed
        assert bool(meter.physical) is (changed not in ("largest", "lowest"))


def test_the_penalty_counts_negative_couplings():
    pair = torch.tensor([[0.0, -1.5], [-1.5, 0.0]], dtype=DOUBLE)
    beta = torch.ones(1, 1, dtype=DOUBLE)
    assert float(coupling_excess(pair, beta=beta, limit=1.0)) == pytest.approx(0.25)


def test_free_spins_have_one_free_energy_whatever_the_solver():
    """Zero without fields: it is normalised to free spins. With fields both theories are exact."""
    for size in (0.0, 0.7):
        saddle, fixed = (
            _module(coupling_strength=1e-14, beta=0.8, solver=s).free_energy(
                normal(0, 2, 3, 16) * size
            )
            for s in ("saddle", "fixed point")
        )
        torch.testing.assert_close(saddle, fixed, rtol=1e-9, atol=2e-10)
        assert bool((fixed < -0.2).all()) is (size > 0)
        if not size:
            assert saddle.abs().max() < 2e-10


def test_fields_keep_their_size_where_they_are_not_normalized():
    """Three times the tokens are three times the fields, or the same ones."""
    tokens = normal(0, 2, 3, 16)
    for normalize, factor in ((True, 1.0), (False, 3.0)):
        module = _module(normalize=normalize)
        torch.testing.assert_close(
            module.fields(3 * tokens), factor * module.fields(tokens), rtol=1e-4, atol=1e-12
        )

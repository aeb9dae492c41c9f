import numpy as np
import pytest

from compendium.common.information import gaussian_information, label_information


def binary_information(error):
    """Bits that a symmetric guess wrong with probability `error` tells about a fair label."""
    return 1.0 + error * np.log2(error) + (1 - error) * np.log2(1 - error)


def test_label_information_of_known_clouds():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 4000, 2))
    same = label_information(a, second=b, seed=rng)
    assert abs(same.value) < 4 * same.error
    far = label_information(a, second=b + 20.0, seed=rng)
    assert far.value == pytest.approx(1.0, abs=1e-3)
    # Two unit Gaussians at distance 2: the best classifier errs with Phi(-1) = 0.15866, so
    # the information of its guess is 1 - h(0.15866) bits, the most that can be reached.
    best = binary_information(0.15865525)
    assert gaussian_information(2.0) == pytest.approx(best, abs=1e-7)
    shifted = label_information(a, second=b + np.array([2.0, 0.0]), seed=rng)
    assert abs(shifted.value - best) < 4 * shifted.error < 0.1


def test_a_discriminant_sees_what_neighbours_do_not_and_the_other_way_round():
    rng = np.random.default_rng(4)
    # Eleven loud directions hide a quiet one from neighbours: distance 4 along it.
    a, b = rng.standard_normal((2, 800, 12)) * np.r_[0.01, np.full(11, 1.0)]
    quiet = label_information(a, second=b + np.r_[0.04, np.zeros(11)], seed=0)
    assert abs(quiet.value - gaussian_information(4.0)) < 0.15
    # A ring around a disk has the same mean: no plane parts them.
    angle = rng.uniform(0, 2 * np.pi, 800)
    ring = 3.0 * np.stack([np.cos(angle), np.sin(angle)], 1)
    disk = 0.5 * rng.standard_normal((800, 2))
    assert label_information(ring, second=disk, seed=0).value > 0.9


@pytest.mark.parametrize("shift", [1.0, 3.0])
def test_error_is_the_scatter_over_clouds(shift):
    rng = np.random.default_rng(1)
    found = [
        label_information(a, second=b + shift, seed=seed)
        for seed, (a, b) in enumerate(rng.standard_normal((250, 2, 300, 1)))
    ]
    scatter = np.std([one.value for one in found], ddof=1)
    error = np.sqrt(np.mean([one.error**2 for one in found]))
    assert error / scatter == pytest.approx(1.0, abs=0.2)
    assert all(one.samples == 150 for one in found)


def test_equal_clouds_tell_nothing_on_average():
    rng = np.random.default_rng(2)
    found = [
        label_information(a, second=b, seed=seed)
        for seed, (a, b) in enumerate(rng.standard_normal((300, 2, 80, 1)))
    ]
    values = np.array([one.value for one in found])
    # The bias without correction is 1/(80 ln 2) = 0.018 bits, ten times the error here.
    assert abs(values.mean()) < 4 * values.std() / np.sqrt(300)
    assert values.std() / np.sqrt(300) < 0.0016
    assert np.mean(np.abs(values) < 4 * np.array([one.error for one in found])) > 0.98


def test_the_guess_is_made_on_points_that_were_not_learned():
    # One neighbour knows every point it has learned: tested on those, noise would tell one bit.
    a, b = np.random.default_rng(3).standard_normal((2, 2000, 2))
    found = label_information(a, second=b, seed=0, neighbours=1)
    assert abs(found.value) < 0.01


def test_a_seed_repeats_and_a_generator_moves_on():
    a, b = np.random.default_rng(3).standard_normal((2, 200, 2))
    first, again = (label_information(a, second=b + 1.0, seed=5) for _ in range(2))
    assert first == again
    stream = np.random.default_rng(5)
    assert label_information(a, second=b + 1.0, seed=stream) == first
    assert label_information(a, second=b + 1.0, seed=stream) != first


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"second": np.ones((40, 3))}, ValueError, "second"),
        ({"first": np.ones((10, 2)), "second": np.ones((10, 2))}, ValueError, "samples"),
        ({"neighbours": 0}, ValueError, "neighbours"),
        ({"first": np.full((40, 2), np.nan)}, ValueError, "first"),
        ({"first": np.ones(40)}, ValueError, "first"),
        ({"seed": None}, TypeError, "seed"),
    ],
)
def test_bad_input_names_the_argument(change, error, message):
    good = {"first": np.ones((40, 2)), "second": np.ones((40, 2)), "seed": 0} | change
    with pytest.raises(error, match=message):
        label_information(good.pop("first"), **good)

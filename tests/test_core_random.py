import numpy as np
import pytest
import torch

from spinformer.core.random import numpy_generator, torch_generator


def test_a_number_starts_a_stream_and_a_generator_goes_on():
    expected = np.random.default_rng(7).random(6)
    np.testing.assert_array_equal(numpy_generator(7).random(6), expected)
    np.testing.assert_array_equal(numpy_generator(np.int64(7)).random(6), expected)
    stream = np.random.default_rng(7)
    parts = [numpy_generator(stream).random(3) for _ in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)

    wanted = torch.rand(6, generator=torch.Generator().manual_seed(7))
    assert torch.equal(torch.rand(6, generator=torch_generator(7)), wanted)
    going = torch.Generator().manual_seed(7)
    pair = [torch.rand(3, generator=torch_generator(going)) for _ in range(2)]
    assert torch.equal(torch.cat(pair), wanted)


def test_global_state_is_neither_used_nor_moved():
    before = torch.get_rng_state()
    torch.rand(3, generator=torch_generator(1))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("make", [numpy_generator, torch_generator])
@pytest.mark.parametrize(
    ("seed", "error"),
    [
        (None, TypeError),
        (True, TypeError),
        (1.0, TypeError),
        ("1", TypeError),
        ([1, 2], TypeError),
        (-1, ValueError),
        (2**63, ValueError),
    ],
)
def test_what_is_no_seed_is_refused(make, seed, error):
    with pytest.raises(error, match="seed must"):
        make(seed)


def test_generators_of_the_other_library_and_of_old_are_refused():
    with pytest.raises(TypeError, match="seed must be"):
        numpy_generator(torch.Generator())
    with pytest.raises(TypeError, match="seed must"):
        numpy_generator(np.random.RandomState(0))
    with pytest.raises(TypeError, match="seed must be"):
        torch_generator(np.random.default_rng(0))
    with pytest.raises(ValueError, match="seed must be a generator of the device meta"):
        torch_generator(torch.Generator(), device="meta")

import numpy as np
import pytest
import torch

from spinformer.core.random import numpy_generator, torch_generator


def test_a_number_starts_a_stream_and_a_generator_goes_on():
    expected = np.random.default_rng(7).random(6)
    np.testing.assert_array_equal(numpy_generator(np.int64(7)).random(6), expected)
    stream = np.random.default_rng(7)
    parts = [numpy_generator(stream).random(3) for _ in range(2)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)

    before = torch.get_rng_state()
    wanted = torch.rand(6, generator=torch.Generator().manual_seed(7))
    assert torch.equal(torch.rand(6, generator=torch_generator(7)), wanted)
    going = torch.Generator().manual_seed(7)
    pair = [torch.rand(3, generator=torch_generator(going)) for _ in range(2)]
    assert torch.equal(torch.cat(pair), wanted)
    # Global state is neither used nor moved.
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("make", "of_the_other_library"),
    [(numpy_generator, torch.Generator()), (torch_generator, np.random.default_rng(0))],
)
def test_what_is_no_seed_is_refused(make, of_the_other_library):
    for seed in (None, True, 1.0, "1", [1, 2], np.random.RandomState(0), of_the_other_library):
        with pytest.raises(TypeError, match="seed must"):
            make(seed)
    for seed in (-1, 2**63):
        with pytest.raises(ValueError, match="seed must"):
            make(seed)
    with pytest.raises(ValueError, match="seed must"):
        torch_generator(torch.Generator(), device="meta")

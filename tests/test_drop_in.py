"""Every layer in the place of torch's own: the loops of `benchmarks/drop_in.py`, shorter."""

import runpy
from pathlib import Path

import pytest

LOOPS = runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "drop_in.py"))
# Rate, steps, and what is learned: chance is 0.10, the commonest character 0.14 of the text.
ENOUGH = {"digits": (1e-2, 60, 0.6), "characters": (3e-3, 150, 0.2)}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("task", "make"), [(task, make) for task, layers in LOOPS["LAYERS"].items() for make in layers]
)
def test_it_learns_in_the_place_of_torchs_layer(task, make):
    rate, steps, least = ENOUGH[task]
    assert LOOPS["train"](make, task, rate=rate, steps=steps, seed=0)["test"] > least


def test_an_equilibrium_refuses_the_causal_loop():
    with pytest.raises(ValueError, match="every token feels the future"):
        LOOPS["train"](LOOPS["spin_layer"], "characters", rate=1e-2, steps=1, seed=0)

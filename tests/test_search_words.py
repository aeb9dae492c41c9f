"""Tasks in the field's words lead to the code: to a docstring of the reference, and to the book."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BOOK = [*(ROOT / "notebooks").glob("*.md"), *(ROOT / "book").glob("*.md")]
# What a reader types, and where the package answers it.
HOMES = {
    "monodromy matrix": "dmft.lyapunov.period_map",
    "parallel tempering": "spins.monte_carlo.parallel_tempering",
    "softmax temperature": "hopfield.attention.attention",
    "Lyapunov spectrum": "dmft.lyapunov.lyapunov_spectrum",
    "basin of attraction": "hopfield.fixed_points.find_fixed_points",
    "Onsager": "spins.mean_field.solve_mean_field",
    "modern Hopfield": "hopfield.continuous.retrieve",
    "Neimark–Sacker": "dmft.cycles.Bifurcation",
    "sparsemax": "hopfield.separation.entmax",
    "attention weights": "hopfield.continuous.attention_weights",
    "dense associative memory": "hopfield.discrete.energy",
    "expectation–maximization": "hopfield.density.fit_em",
    "KV cache": "language.soft_map_stream.stream",
}


def plain(text):
    """Words as a search compares them: no case, one kind of dash and of space, no plurals."""
    text = re.sub(r"[–-]", " ", text.lower())
    return re.sub(r"\bbasins\b", "basin", re.sub(r"\s+", " ", text))


def described(name):
    """The docstrings that a page of the reference shows of an object, its module's first."""
    module, _, own = f"spinformer.{name}".rpartition(".")
    home = importlib.import_module(module)
    return plain(f"{home.__doc__} {own.replace('_', ' ')} {inspect.getdoc(getattr(home, own))}")


@pytest.mark.parametrize(("words", "home"), HOMES.items())
def test_a_search_finds_the_function(words, home):
    assert plain(words) in described(home)
    listed = " ".join(path.read_text("utf-8") for path in (ROOT / "book/reference").glob("*.md"))
    assert f"`~spinformer.{home}`" in listed or home.rpartition(".")[0] in listed


@pytest.mark.parametrize("words", HOMES)
def test_a_search_finds_the_book(words):
    assert any(plain(words) in plain(path.read_text("utf-8")) for path in BOOK)

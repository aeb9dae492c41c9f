"""Values that no run of a chapter can mean anything by are refused before a kernel starts.

Each was allowed once and failed after seconds, in a cell or in a drawing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from bookmaker import execution
from bookmaker.__main__ import main

ROOT = Path(__file__).resolve().parents[1]

# Chapter, values on the command line, and what the line of the refusal must name.
REFUSED = [
    ("14b_heads_and_fixed_points", {"layer": "6"}, ["layer = 6", "model_path = ''"]),
    ("14_real_transformer", {"text": "missing.txt"}, ["text must be", "'missing.txt'"]),
    ("14_real_transformer", {"model_path": "/missing"}, ["model_path must be", "'/missing'"]),
    ("24_training", {"heads": "3"}, ["dim = 32", "heads = 3"]),
    ("31_asymmetric_hopfield", {"beta": "10"}, ["beta must be"]),
    ("31_asymmetric_hopfield", {"steps": "100"}, ["steps must be"]),
    (
        "32b_finite_size",
        {"smallest_exponent": "6", "largest_exponent": "3"},
        ["smallest_exponent = 6.0", "largest_exponent = 3.0"],
    ),
    ("32_paths_to_mean_fields", {"epsilon": "1"}, ["epsilon must be"]),
    ("32b_finite_size", {"beta_chaos": "0"}, ["beta_chaos must be"]),
    (
        "33_phase_transitions",
        {"beta_low": "1", "beta_high": "1"},
        ["beta_low = 1.0", "beta_high = 1.0"],
    ),
    ("33_phase_transitions", {"zoom_low": "1.3"}, ["zoom_low = 1.3", "zoom_high = 1.28"]),
    ("34_memory_beyond_window", {"samples": "100"}, ["samples must be"]),
]


@pytest.mark.parametrize(("chapter", "values", "named"), REFUSED)
def test_impossible_values_are_refused_in_one_line(
    chapter: str,
    values: dict[str, str],
    named: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_kernel(*_: object, **__: object) -> None:
        raise AssertionError("a kernel was asked for")

    monkeypatch.setattr(execution.papermill, "execute_notebook", no_kernel)
    monkeypatch.chdir(ROOT)
    pairs = [word for pair in values.items() for word in ("-p", *pair)]
    result = CliRunner().invoke(main, ["run", chapter, *pairs, "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    for part in named:
        assert part in line
    assert not (tmp_path / "out").exists()

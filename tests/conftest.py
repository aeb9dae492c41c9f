"""Fixtures for tests of the book as a whole: the checkout and a one-chapter copy of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SMALL_CHAPTER = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A small chapter

```{code-cell} ipython3
:tags: [remove-cell, nbval-ignore-output, install]

# replaced by the generator; leave exactly this cell with this comment
```

```{code-cell} ipython3
:tags: [parameters]

beta: float = 1.5  # inverse temperature, in [0, 10]
count: int = 2  # how often, in [1, 100]
kind: str = "flat"  # which landscape, one of {flat | steep}
```

```{code-cell} ipython3
from spinformer.core.checks import check_real

for _ in range(count):
    print(f"{kind} {check_real('beta', beta):.2f}")
```
"""


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def small_checkout(tmp_path: Path) -> Path:
    """A checkout that holds one small chapter, `01_small`, and nothing executed."""
    folder = tmp_path / "checkout"
    (folder / "notebooks").mkdir(parents=True)
    (folder / "notebooks" / "01_small.md").write_text(SMALL_CHAPTER, encoding="utf-8")
    for name in ("_toc.yml", "pyproject.toml", "README.md", "CITATION.cff"):
        shutil.copy(ROOT / name, folder / name)
    return folder

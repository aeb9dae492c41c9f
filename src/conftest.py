"""What the examples in the docstrings may use without importing it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def example_names(doctest_namespace: dict[str, Any]) -> None:
    """`np` and `torch`."""
    doctest_namespace.update(np=np, torch=torch)

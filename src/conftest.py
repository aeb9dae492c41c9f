"""What the examples in the docstrings may use without importing it, and what they leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def example_names(doctest_namespace: dict[str, Any]) -> Iterator[None]:
    """`np` and `torch`; figures that an example opened are closed behind it."""
    doctest_namespace.update(np=np, torch=torch)
    yield
    plt.close("all")

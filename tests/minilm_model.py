"""The installed language model and what it computes on two short windows, once a process."""

from functools import cache

import pytest
import torch

from spinformer.language.encoder import run_model
from spinformer.language.minilm import ModelUnavailable, load_model
from spinformer.language.text import sample_text, text_windows
from spinformer.language.untrained import example_model


@cache
def installed_model():
    """The model; the test that asks is skipped where it is not installed."""
    try:
        return load_model()
    except ModelUnavailable as missing:
        pytest.skip(str(missing))


@cache
def installed_traces():
    """Traces of the first two windows of 64 tokens of the essay."""
    model = installed_model()
    return run_model(model, text_windows(model, sample_text(), 64)[:2])


def two_models(layer):
    """The model with a layer of its run, and a small one with the last of a run on two windows."""
    small = example_model(seed=3)
    tokens = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 9, 6, 3]])
    return (installed_model(), installed_traces()[layer]), (small, run_model(small, tokens)[1])

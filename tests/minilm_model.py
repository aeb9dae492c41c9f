"""The installed language model and what it computes on two short windows, once a process."""

from functools import cache

import pytest
import torch

from spinformer.language.minilm import ModelUnavailable, load_model
from spinformer.language.text import sample_text, text_windows
from spinformer.language.traces import trace_layers
from spinformer.language.untrained import example_model


@cache
def installed_model():
    """Model and tokenizer; the test that asks is skipped where they are not installed."""
    try:
        return load_model()
    except ModelUnavailable as missing:
        pytest.skip(str(missing))


@cache
def installed_traces():
    """Traces of the first two windows of 64 tokens of the essay."""
    encoder = installed_model()
    return trace_layers(encoder.model, text_windows(encoder, sample_text(), 64)[:2])


def two_models(layer):
    """The model with a layer of its run, and a small one with the last of a run on two windows."""
    small = example_model(seed=3).model
    tokens = torch.tensor([[2, 5, 6, 7, 3], [2, 9, 9, 6, 3]])
    return (
        (installed_model().model, installed_traces()[layer]),
        (small, trace_layers(small, tokens)[1]),
    )

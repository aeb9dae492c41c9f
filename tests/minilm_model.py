"""The installed language model and what it computes on two short windows, once a process."""

from functools import cache

import pytest

from spinformer.language.encoder import run_model
from spinformer.language.minilm import ModelUnavailable, load_model
from spinformer.language.text import sample_text, text_windows


@cache
def _load():
    try:
        return load_model()
    except ModelUnavailable as missing:
        return str(missing)


def installed_model():
    """The model; the test that asks is skipped where it is not installed."""
    found = _load()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@cache
def _trace():
    model = installed_model()
    windows = text_windows(model, sample_text(), 64)
    return run_model(model, windows[:2])


def installed_traces():
    """Traces of the first two windows of 64 tokens of the essay."""
    installed_model()
    return _trace()

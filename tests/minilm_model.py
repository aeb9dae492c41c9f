"""The installed language model and what it computes on two short windows, once a process."""

from __future__ import annotations

from functools import cache

import pytest

from spinformer import language


@cache
def _load() -> language.LanguageModel | str:
    try:
        return language.load_model()
    except language.ModelUnavailable as missing:
        return str(missing)


def installed_model() -> language.LanguageModel:
    """The model; the test that asks is skipped where it is not installed."""
    found = _load()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@cache
def _trace() -> list[language.LayerTrace]:
    model = installed_model()
    windows = language.text_windows(model, language.sample_text(), 64)
    return language.run_model(model, windows[:2])


def installed_traces() -> list[language.LayerTrace]:
    """Traces of the first two windows of 64 tokens of the essay."""
    installed_model()
    return _trace()

"""Windows of the sample texts as units of robustness tables: a window is one raw run of a model."""

from collections.abc import Sequence

from bookmaker.tables import Rows
from compendium.common.models import encoder
from compendium.common.rows import parameter_product
from spinformer.language.text import sample_texts, text_windows
from spinformer.language.traces import LayerTrace, trace_layers


def window_traces(source: str, length: int, window: int) -> list[LayerTrace]:
    """The layers of MiniLM on one of the consecutive windows of a text, by its number from 0."""
    windows = text_windows(encoder(), sample_texts()[source], length)
    return trace_layers(encoder().model, windows[window : window + 1])


def named_windows(
    *, sources: Sequence[str], lengths: Sequence[int], windows: Sequence[int]
) -> Rows:
    """Units with a name in `data` for each window of each text.

    >>> named_windows(sources=["essay"], lengths=[32], windows=[4])
    [{'data': 'essay 32 4', 'source': 'essay', 'length': 32, 'window': 4}]
    """
    return [
        {"data": f"{unit['source']} {unit['length']} {unit['window']}", **unit}
        for unit in parameter_product(source=sources, length=lengths, window=windows)
    ]


def unread_windows() -> Rows:
    """Units for windows of text behind the first 512 tokens, which are read for confirmation only.

    Those texts that are long enough.
    """
    texts = ("narrative", "dialogue", "list", "verse")
    units = named_windows(sources=texts, lengths=(32,), windows=(17, 18, 19))
    units += named_windows(sources=("law",), lengths=(32,), windows=(17, 18))
    return units + named_windows(sources=("essay",), lengths=(128,), windows=(5, 6, 7, 8))

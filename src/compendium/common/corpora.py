"""Corpora on which the chapters about a generator ask the same questions."""

from pydoc_data.topics import topics

from spinformer.language.text import sample_texts


def corpus(name: str) -> list[str]:
    """The texts of a corpus: seven of this package, or the pages of Python's help."""
    texts = sample_texts() if name == "texts" else topics
    return list(texts.values())

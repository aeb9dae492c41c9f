"""Text to read: seven short texts, cut into windows of tokens.

The texts lie in `texts/`, one file each, 380 to 1,160 words. Written for this package: "essay"
(spins and reading machines), "protocol" (how to measure a heat capacity), "list" (an inventory).
In the public domain: "narrative", the opening of Moby-Dick (Melville, 1851); "dialogue", that of
Pride and Prejudice (Austen, 1813); "law", the first ten amendments to the constitution of the
United States (1791); "verse", sonnets 18, 29, 73 and 116 (Shakespeare, 1609).
"""

from importlib import resources
from pathlib import Path

import torch

from spinformer.core.checks import check_instance, check_integer
from spinformer.language.checkpoints import Checkpoint

TEXTS = ("essay", "narrative", "dialogue", "law", "protocol", "list", "verse")


def sample_text(path: str | Path | None = None) -> str:
    """Sample text in English: the essay that ships with the package, or a file.

    Parameters
    ----------
    path : str, Path or None, default None
        File of UTF-8 text. None takes the essay.

    Returns
    -------
    str
        The text.

    Raises
    ------
    TypeError
        If `path` is of the wrong type.
    ValueError
        If `path` names no file of UTF-8 text.

    Examples
    --------
    >>> sample_text()[:17]
    'A magnet is the s'
    """
    if path is None:
        return sample_texts()["essay"]
    if not isinstance(path, str | Path):
        raise TypeError(f"path must be a str or a Path, got {path!r:.60}")
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"path must name a file of UTF-8 text, got {path}: {error}") from None


def sample_texts() -> dict[str, str]:
    """Sample texts of all kinds that ship with the package.

    Each text fills one window of 512 tokens, or four of 128 (see `text_windows`). They are
    examples of kinds of English, not random samples.

    Returns
    -------
    dict of str to str
        The texts, by the names in `TEXTS`.

    Examples
    --------
    >>> list(sample_texts())[1:3], sample_texts()["narrative"][:15]
    (['narrative', 'dialogue'], 'Call me Ishmael')
    """
    folder = resources.files(__package__).joinpath("texts")
    return {name: folder.joinpath(f"{name}.txt").read_text(encoding="utf-8") for name in TEXTS}


def text_windows(model: Checkpoint, text: str, length: int) -> torch.Tensor:
    """Tokenize a text and cut it into consecutive windows of equal length.

    Each window begins with [CLS] and ends with [SEP]. A last window that is not full is dropped.

    Parameters
    ----------
    model : Checkpoint
        An encoder with its tokenizer, as `load_model` returns it.
    text : str
        The text.
    length : int
        Length of a window in tokens, from 3 to the number of positions of the model.

    Returns
    -------
    Tensor of int, shape (windows, length)
        Token numbers.

    Raises
    ------
    TypeError
        If an argument is of the wrong type.
    ValueError
        If the length is out of range, the text does not fill one window, or the model lacks a
        tokenizer with [CLS] and [SEP].

    Examples
    --------
    >>> from spinformer.language.untrained import example_model
    >>> text_windows(example_model(), "a b c d e", 4)
    tensor([[2, 5, 6, 3],
            [2, 7, 8, 3]])
    """
    check_instance("model", model, Checkpoint)
    check_instance("text", text, str)
    most = model.model.config.max_position_embeddings
    length = check_integer("length", length, low=3, high=most)
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ValueError("model must have a tokenizer, this one has none")
    first = tokenizer.cls_token_id
    last = tokenizer.sep_token_id
    if first is None or last is None:
        raise ValueError("model must have a tokenizer with [CLS] and [SEP]")
    # Without the warning that the whole text is longer than the model reads.
    tokens = tokenizer(text, add_special_tokens=False, truncation=False, verbose=False).input_ids
    inside = length - 2
    if len(tokens) < inside:
        raise ValueError(f"text must hold at least {inside} tokens, got {len(tokens)}")
    rows = [
        [first, *tokens[start : start + inside], last]
        for start in range(0, len(tokens) - inside + 1, inside)
    ]
    return torch.tensor(rows)

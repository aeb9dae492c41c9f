"""What cells print, as small tables and sentences: notebooks keep the printed lines, pages do not.

Lines with the same words around other numbers are rows of a table whose columns bear these words;
lines set in columns are a table, too; any other line is a sentence. Under a figure, which says the
same to the eye, and where they are many, they stand behind "The numbers".
"""

import re
from collections.abc import Iterable
from html import escape
from itertools import takewhile, zip_longest
from typing import Any

_NUMBER = (
    r"(?<![\w^.])(?<!\w\()[-+]?(?:\d+(?:\.\d+)?|inf\b)(?:e[-+]?\d+)?(?:\s?%)?(?![\w^]|\.\d|-[a-z])"
)
_JOINED = rf"{_NUMBER}(?:\s*(?:\+-|\bto\b|\bof\b|\band\b|->)\s*{_NUMBER})*"
# A list of numbers stays in one cell; 95 % before a word is no result.
_VALUE = re.compile(rf"((?!95 % \w)(?:\[[-\d., ]+\]|{_JOINED}(?:\s*\({_JOINED}\))?))")
_COLUMNS = re.compile(r"\s{2,}")
_NAMES = ["alpha", "beta", "gamma", "epsilon", "eta", "lambda", "kappa", "mu", "sigma", "phi"]
_GREEK = dict(zip(_NAMES, "αβγεηλκμσφ", strict=True))
_LETTER = re.compile(rf"(?<![a-zA-Z])({'|'.join(_GREEK)})(?![a-zA-Z])")
_ENDS = " ,;:=()"
_MANY = 12


def signs(text: str) -> str:
    """Return printed text as HTML, with the signs that a keyboard lacks.

    >>> signs("beta -0.5 +- 0.1")
    'β −0.5 ± 0.1'
    """
    text = _LETTER.sub(lambda match: _GREEK[match[0]], text.strip())
    text = text.replace("+-", "±").replace("->", "→").replace("<u>", "⟨u⟩")
    return escape(re.sub(r"(?<![\w)])-(?=[\d.])", "−", re.sub(r"\s+", " ", text)))


def printed(text: str, *, folded: bool = False) -> str:
    """Return what a cell printed as HTML, behind a line that opens it if `folded` or long."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    body, begin = "", 0
    while begin < len(lines):
        for end in range(len(lines), begin, -1):
            if part := _grid(lines[begin:end]) or _phrases(lines[begin:end]):
                break
        body += part or f"<p>{signs(lines[begin])}</p>"
        begin = end
    if folded or len(lines) > _MANY:
        body = f"<details><summary>The numbers</summary>{body}</details>"
    return f'<div class="printed">{body}</div>' if lines else ""


def _grid(lines: list[str]) -> str:
    """Return a table of lines that are set in columns, "" if they are not."""
    if len(lines) < 2 or any(len(_COLUMNS.split(line.strip())) < 3 for line in lines):
        return ""
    # Columns are cut where all lines are blank for two letters.
    letters = zip_longest(*lines, fillvalue=" ")
    blank = "".join(" " if set(place) == {" "} else "x" for place in letters)
    spans = [match.span() for match in re.finditer(r"x+(?: x+)*", blank)]
    head, *rows = ([line[begin:end].strip() for begin, end in spans] for line in lines)
    if any(_VALUE.fullmatch(cell) for cell in head[1:]):
        head, rows = [], [head, *rows]
    cells = [cell for row in rows for cell in row[1:]]
    # Words with a number in one column are sentences.
    whole = all(_VALUE.fullmatch(cell) or not _VALUE.search(cell) for cell in cells)
    return _table(head, rows) if whole and any(map(_VALUE.fullmatch, cells)) else ""


def _phrases(lines: list[str]) -> str:
    """Return a table of lines with the same words around other numbers, "" if they have others.

    Where their first words differ, these name the rows. Of words between two numbers what stands
    before a comma belongs to the first, the rest to the second.
    """
    rows = [[" ".join(part.split()) for part in _VALUE.split(line)] for line in lines]
    if len(lines) < 2 or len(rows[0]) < 3 or len({tuple(row[2::2]) for row in rows}) > 1:
        return ""
    ends = zip(*(row[0].split()[::-1] for row in rows), strict=False)
    shared = takewhile(lambda words: len(set(words)) == 1, ends)
    name = " ".join([words[0] for words in shared][::-1])
    labels = [row[0].removesuffix(name).strip(_ENDS) for row in rows]
    head, columns = ([""], [labels]) if any(labels) else ([], [])
    # Of a matrix, with nothing but blanks between its numbers, none has a name.
    matrix = not any(rows[0][2:-1:2])
    for place in range(1, len(rows[0]), 2):
        column, after = [row[place] for row in rows], rows[0][place + 1]
        last = place == len(rows[0]) - 2
        ends = last or matrix or after.startswith((",", ";"))
        if not ends and len(set(column)) == 1:
            # "lost at 0.9: …": the number belongs to the words.
            name = f"{name} {column[0]} {after.strip(_ENDS)}"
            continue
        unit, comma, following = re.split("([,;]|$)", after, maxsplit=1)
        if after.startswith((":", "=")) or not (comma or last):
            unit, following = "", after
        head.append(", ".join(filter(None, [name.strip(_ENDS), unit.strip(_ENDS)])))
        columns.append(column)
        if not (head[-1] or matrix or place == 1):
            return ""
        name = following
    return _table(head, zip(*columns, strict=True))


def _table(head: list[str], rows: Iterable[Iterable[str]]) -> str:
    found = ["<table>"]
    if any(head):
        cells = "".join(f'<th scope="col">{signs(name)}</th>' for name in head)
        found.append(f"<thead><tr>{cells}</tr></thead>")
    for first, *others in rows:
        cells = "".join(f"<td>{signs(cell)}</td>" for cell in others)
        found.append(f'<tr><th scope="row">{signs(first)}</th>{cells}</tr>')
    return "".join([*found, "</table>"])


def take_printed(cell: dict[str, Any]) -> str:
    """Take what a cell of a notebook prints out of it; return it in the form of the page."""
    tags = set(cell["metadata"].get("tags", []))
    if tags & {"remove-cell", "remove-output"}:
        return ""
    lines = [output for output in cell["outputs"] if output.get("name") == "stdout"]
    cell["outputs"] = [output for output in cell["outputs"] if output not in lines]
    drawn = any("image/svg+xml" in output.get("data", {}) for output in cell["outputs"])
    text = "".join("".join(output["text"]) for output in lines)
    # Lines for a sweep are for the notebook alone.
    return "" if "results" in tags else printed(text, folded=drawn)

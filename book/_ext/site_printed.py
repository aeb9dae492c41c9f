"""What cells print, as small tables and sentences: notebooks keep the printed lines, pages do not.

Lines of one kind, with the same words around other numbers, are rows of a table whose columns bear
these words; lines set in columns are a table, too; any other line is a sentence. Under a figure,
which says the same to the eye, and where they are many, they stand behind "The numbers".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import Any

_NUMBER = (
    r"(?<![\w^.])(?<!\w\()[-+]?(?:\d+(?:\.\d+)?|inf\b)(?:e[-+]?\d+)?(?:\s?%)?(?![\w^]|\.\d|-[a-z])"
)
_JOINED = rf"{_NUMBER}(?:\s*(?:\+-|\bto\b|\bof\b|\band\b|->)\s*{_NUMBER})*"
# A list of numbers stays in one cell; 95 % before a word is no result.
_VALUE = re.compile(rf"(?!95 % \w)(?:\[[-\d., ]+\]|{_JOINED}(?:\s*\({_JOINED}\))?)")
_BETWEEN = re.compile(r"([,;:=](?=\s|$)|\s=|\s{2,})")
_ASIDE = re.compile(r"\s\(([^()]*(?:\([^()]*\)[^()]*)*)\)(?=[\s,:;]|$)")
_MASKED = re.compile(r"(?P<before>[^\0]*)\0(?P<number>\d+)\0(?P<behind>[^\0]*)")
_MADE = "made by: "
_COMMAND = re.compile(r"python -m bookmaker table [\w ]+\w")
_COLUMNS = re.compile(r"\s{2,}")
_TOGETHER = re.compile(rf"{_NUMBER}\s+{_NUMBER}")
_ROW = re.compile(rf"(.*?)((?:\s+{_NUMBER}){{3,}})")
_NAMES = ["alpha", "beta", "gamma", "epsilon", "eta", "lambda", "kappa", "mu", "sigma", "phi"]
_GREEK = dict(zip(_NAMES, "αβγεηλκμσφ", strict=True))
_LETTER = re.compile(rf"(?<![a-zA-Z])({'|'.join(_GREEK)})(?![a-zA-Z])")
_MANY = 12


@dataclass(frozen=True)
class Piece:
    """Words; a value and the words behind it, which say what it is; or both, in a phrase."""

    words: str
    value: str = ""
    # What comes next is told by this.
    opens: bool = False

    @property
    def kind(self) -> tuple[bool, bool]:
        """Whether it has a value, and words beside it."""
        return bool(self.value), bool(self.value and self.words)


def pieces(line: str) -> list[Piece]:
    """Cut a printed line into words and values.

    >>> [p.value or p.words for p in pieces("d = 500: lost 0.22 +- 0.01, 3 left")]
    ['d', '500', 'lost', '0.22 +- 0.01', '3']
    """
    values: list[str] = []

    def mask(match: re.Match[str]) -> str:
        values.append(match[0])
        return f"\0{len(values) - 1}\0"

    found: list[Piece] = []
    parts = [*_BETWEEN.split(_ASIDE.sub(r", \1,", _VALUE.sub(mask, line))), ""]
    for text, separator in zip(parts[::2], parts[1::2], strict=True):
        text, opens = text.strip(" {}'"), separator.strip() in (":", "=")
        if not text:
            continue
        match = _MASKED.fullmatch(text)
        if match and not match["before"]:
            found.append(Piece(match["behind"].strip(), values[int(match["number"])], opens))
        elif match and not match["behind"]:
            found.append(Piece(match["before"].strip()))
            found.append(Piece("", values[int(match["number"])], opens))
        else:
            phrase = re.sub(r"\0(\d+)\0", lambda m: values[int(m[1])], text)
            found.append(Piece(phrase, "", opens))
    return found


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
    made: list[str] = []
    for number, line in enumerate(lines):
        if line.startswith(_MADE) and (commands := _COMMAND.findall(line)):
            made += commands
            lines[number] = _COMMAND.sub("", line.removeprefix(_MADE)).strip(" ,;")
    lines = [line for line in lines if line]
    parts = []
    rest = lines
    while rest:
        count, part = _grid(rest) or _matrix(rest) or _sentences(rest)
        parts.append(part)
        rest = rest[count:]
    if made:
        commands = ", ".join(f"<code>{escape(command)}</code>" for command in made)
        parts.append(f'<p class="made">From a stored table, made by {commands}.</p>')
    body = "".join(parts)
    if folded or len(lines) > _MANY:
        body = f"<details><summary>The numbers</summary>{body}</details>"
    return f'<div class="printed">{body}</div>' if parts else ""


def _grid(lines: list[str]) -> tuple[int, str] | None:
    """Return a table of lines that are set in columns, and how many these are."""
    count = 0
    while count < len(lines) and _fields(lines[count]) > 2:
        count += 1
    while count > 1:
        rows = _cut(lines[:count])
        # Words with a number in one column are sentences; the last may be a remark.
        named = not any(_VALUE.fullmatch(cell) for cell in rows[0][1:])
        inner = [cell for row in rows[named:] for cell in row[1:-1]]
        whole = all(_VALUE.fullmatch(cell) or not _VALUE.search(cell) for cell in inner)
        # Numbers that stand together, or below words that lie elsewhere, belong to other columns.
        whole &= not any(_TOGETHER.search(cell) for row in rows[named:] for cell in row)
        whole &= not named or len(rows[0]) - (not rows[0][0]) == _fields(lines[0])
        if whole and any(_VALUE.fullmatch(cell) for cell in inner):
            return count, _table(rows[0], rows[1:]) if named else _table([], rows)
        count -= 1
    return None


def _fields(line: str) -> int:
    return len(_COLUMNS.split(line.strip()))


def _cut(lines: list[str]) -> list[list[str]]:
    """Cut lines where all of them are blank for two letters."""
    width = max(map(len, lines))
    padded = [line.ljust(width) for line in lines]
    blank = "".join(" " if set(letters) == {" "} else "x" for letters in zip(*padded, strict=True))
    spans = [match.span() for match in re.finditer(r"x+(?: x+)*", blank)]
    return [[line[begin:end].strip() for begin, end in spans] for line in padded]


def _matrix(lines: list[str]) -> tuple[int, str] | None:
    """Return a table of lines that end in as many numbers, and how many these are."""
    rows: list[list[str]] = []
    for line in lines:
        match = _ROW.fullmatch(line)
        row = [match[1], *match[2].split()] if match else []
        if not match or (rows and len(row) != len(rows[0])):
            break
        rows.append(row)
    return (len(rows), _table([], rows)) if len(rows) > 1 else None


def _sentences(lines: list[str]) -> tuple[int, str]:
    """Return the first line as a sentence, or those like it as a table, and how many these are."""
    first = pieces(lines[0])
    cut = [first]
    for line in lines[1:]:
        other = pieces(line)
        if [piece.kind for piece in other] != [piece.kind for piece in first]:
            break
        pairs = list(zip(first, other, strict=True))[1:]
        same = [one.words == two.words for one, two in pairs if one.words]
        if sum(same) < len(same) / 2:
            break
        cut.append(other)
    if len(cut) == 1 or not any(piece.value for piece in first):
        return _plain(lines)
    head: list[str] = []
    columns: list[list[str]] = []
    words: list[str] = []
    told = False
    for column in zip(*cut, strict=True):
        values = [piece.value for piece in column]
        whole = [f"{piece.value} {piece.words}".strip() for piece in column]
        same = len(set(whole)) == 1
        if same and (not values[0] or (column[0].opens and column[0] is not first[0])):
            # A value within words belongs to them: "lost at 0.9: …".
            words = (
                [*words[:-1], " ".join([*words[-1:], whole[0]])]
                if values[0]
                else [*words, whole[0]]
            )
            continue
        alone = bool(values[0]) and len({piece.words for piece in column}) == 1
        name = ", ".join(words + ([column[0].words] if alone and column[0].words else []))
        if alone and not name and not told and columns and " to " not in values[0]:
            # A number of which no word says what it is.
            return _plain(lines)
        head.append(name)
        columns.append(values if alone else whole)
        told, words = not alone, []
    head[-1:] = [", ".join(filter(None, [*head[-1:], *words]))]
    return len(cut), _table(head, [list(row) for row in zip(*columns, strict=True)])


def _plain(lines: list[str]) -> tuple[int, str]:
    """Return a sentence, or as they are lines set in columns in a way of their own."""
    count = 1
    if _fields(lines[0]) < 4:
        return count, f"<p>{signs(lines[0])}</p>"
    while count < len(lines) and _fields(lines[count]) > 2:
        count += 1
    return count, f"<pre>{escape(chr(10).join(lines[:count]))}</pre>"


def _table(head: list[str], rows: list[list[str]]) -> str:
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
    lines = [output for output in cell["outputs"] if output.get("name") == "stdout"]
    if not lines or tags & {"remove-cell", "remove-output"}:
        return ""
    cell["outputs"] = [output for output in cell["outputs"] if output.get("name") != "stdout"]
    # Lines for a sweep are for the notebook alone.
    if "results" in tags:
        return ""
    drawn = any("image/svg+xml" in output.get("data", {}) for output in cell["outputs"])
    return printed("".join("".join(output["text"]) for output in lines), folded=drawn)

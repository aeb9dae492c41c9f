"""What a cell hands over to the text around it: figures by name, and tables.

Prose reads them as {value}`name`; see CONTRIBUTING, "Numbers". Nothing is printed to be copied.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from IPython.display import display

from bookmaker.figures import FIGURES, is_estimate, plain, written


def report_figures(**figures: Any) -> None:
    """Hand figures over by name, so that prose, captions, claims and other pages can read them.

    A figure is a number, a text, an estimate with its error, or a list, dictionary or array of
    these. Numbers are kept with six significant digits; round those that are less exact
    (`round(x, 3)`), and hand over a text for one that has more (`f"{x:.9f}"`). Nothing is shown.

    Raises ValueError for a number that is not finite and TypeError for anything that is no figure.
    """
    if not figures:
        raise ValueError("figures must have at least one name, got none")
    display({FIGURES: {name: plain(name, figure) for name, figure in figures.items()}}, raw=True)


@dataclass(frozen=True, repr=False)
class ShownTable:
    """A table as notebooks show it: `html` where they can, `text` elsewhere and for comparison."""

    html: str
    text: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        """The table in columns."""
        return self.text


def show_table(
    rows: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
    *,
    name: str = "",
    headers: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    formats: Mapping[str, str] | None = None,
    caption: str = "",
    notes: str = "",
) -> ShownTable:
    """Return a table for the end of a cell, which shows it.

    `rows` are columns (n,) by name, as stored tables are read, or n rows with the same names;
    entries are figures (see `report_figures`), and "" for none. A column is headed by its name
    or by what `headers` says, then its unit; `formats` says how its entries are written (see
    `bookmaker.figures.written`). Columns of numbers are set to the right. With a `name` the entries
    are handed over, too: {value}`name[2].column`, {value}`name[column=entry].other`.

    Raises ValueError for columns of unequal length and for names that are no column.

    >>> show_table({"beta": [0.5, 1.0], "field": [-0.25, 2.0]}, formats={"field": ".2f"},
    ...            headers={"beta": "β"}, units={"field": "nats"})
      β  field (nats)
    0.5         −0.25
      1          2.00
    """
    columns = _columns(rows)
    keys = list(columns)
    for what, by_column in (("headers", headers), ("units", units), ("formats", formats)):
        if unknown := set(by_column or ()) - set(keys):
            raise ValueError(f"{what} must name columns ({', '.join(keys)}), got {min(unknown)}")
    entries = {key: [plain(f"{name}.{key}", entry) for entry in columns[key]] for key in keys}
    if name:
        table = {
            "columns": keys,
            "rows": [list(row) for row in zip(*entries.values(), strict=True)],
        }
        display({FIGURES: {name: table}}, raw=True)
    heads = []
    cells = []
    right = []
    for key in keys:
        head = (headers or {}).get(key, key.replace("_", " "))
        unit = (units or {}).get(key, "")
        heads.append(f"{head} ({unit})" if unit else head)
        form = (formats or {}).get(key, "")
        # Texts are shown as they are: words in a column of numbers (none, too short), long numbers.
        forms = ["" if isinstance(entry, str) else form for entry in entries[key]]
        cells.append([written(*both) for both in zip(entries[key], forms, strict=True)])
        right.append(any(map(_is_number, entries[key])))
    lines = list(zip(*cells, strict=True))
    return ShownTable(
        html=_html(heads, lines, right=right, caption=caption, notes=notes),
        text=_text(heads, lines, right=right, caption=caption, notes=notes),
    )


def _is_number(entry: Any) -> bool:
    """Return whether an entry is a number, with its error or as text, and no word."""
    if isinstance(entry, str):
        return entry.strip()[-1:].isdecimal() and entry.strip("+-")[:1].isdecimal()
    return is_estimate(entry) or not isinstance(entry, bool | list | dict)


def _columns(
    rows: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
) -> dict[str, Sequence[Any]]:
    """Return a table by columns, all of one length."""
    if isinstance(rows, Mapping):
        columns = dict(rows)
        lengths = {key: len(column) for key, column in columns.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"rows must have columns of one length, got {lengths}")
        return columns
    names = [list(row) for row in rows]
    if not names or any(keys != names[0] for keys in names):
        raise ValueError(f"rows must all have the same names in the same order, got {names}")
    return {key: [row[key] for row in rows] for key in names[0]}


def _text(
    heads: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    right: Sequence[bool],
    caption: str,
    notes: str,
) -> str:
    widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
    text_lines = [caption] if caption else []
    for line in (heads, *lines):
        places = zip(line, widths, right, strict=True)
        set_out = [cell.rjust(width) if end else cell.ljust(width) for cell, width, end in places]
        text_lines.append("  ".join(set_out).rstrip())
    return "\n".join([*text_lines, *([notes] if notes else [])])


def _html(
    heads: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    right: Sequence[bool],
    caption: str,
    notes: str,
) -> str:
    sides = ["right" if end else "left" for end in right]

    def row(cells: Sequence[str], tag: str) -> str:
        aligned = zip(cells, sides, strict=True)
        return "".join(
            f'<{tag} style="text-align: {side}">{escape(cell)}</{tag.split()[0]}>'
            for cell, side in aligned
        )

    head = f"<thead><tr>{row(heads, 'th')}</tr></thead>"
    body = "\n".join(f"<tr>{row(line, 'td')}</tr>" for line in lines)
    above = f'<caption style="caption-side: top">{escape(caption)}</caption>' if caption else ""
    below = f"<p>{escape(notes)}</p>" if notes else ""
    return (
        f'<div class="shown"><table>{above}{head}\n<tbody>\n{body}\n</tbody></table>{below}</div>'
    )

"""Where a chapter stands in the book, as its front matter says, and the contents made from that.

    book:
      rank: main  # on the main path; `further` for further results
      # A figure, the panel of it from the left, and a sentence of the summary, without questions.
      card: {figure: fig-phase-zoom, panel: 1, sentence: 2}
      evening: What a network settles on  # only on the front page's evening: its line there

The first digit of a chapter's number is the part that it belongs to. Contents, cards, the lists
of the front page and the core path of the tests all read this.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bookmaker.base import CONTENTS, Fault, SourceError
from bookmaker.source import Chapter, chapters, front_matter

RANKS = ("main", "further")
FORM = "`book: {rank: main | further, card: {figure: fig-…, sentence: 1}}`"
# Chapters whose number belongs to no part stand here.
CLOSING = "What came out"
_PARTS = ("0", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
_CAPTION = re.compile(r" *(?:- +)?caption: *[\"']?(.*?)[\"']? *")
_FILE = re.compile(r"( *- file: )(\S+) *")
_BOX = re.compile(r"^:{3,}\{admonition\} Summary\n(.*?)^:{3,}$", re.MULTILINE | re.DOTALL)
# Behind a full stop, at the next capital: not in "e.g. 3", not within mathematics.
_SENTENCE = re.compile(r"(?<=[.?!])\)? (?=[A-Z\[*$])")


@dataclass(frozen=True)
class Place:
    """The chapter `name`; its card shows a sentence of its summary and a figure, if it has any.

    `evening` is its line in the front page's evening, "" if it is not among those chapters.
    """

    name: str
    rank: str
    sentence: int
    figure: str = ""
    evening: str = ""
    panel: int = 1

    @property
    def part(self) -> int:
        """The number of the part."""
        return int(self.name[0])

    def caption(self, captions: Iterable[str]) -> str:
        """Return the caption of the contents, among `captions`, below which the chapter stands."""
        listed = list(captions)
        further = self.rank == "further"
        part = re.compile(rf"\bPart {_PARTS[self.part]}\b")
        named = [text for text in listed if part.search(text) and ("Further" in text) == further]
        return (named or [text for text in listed if text == CLOSING] or listed)[0]


def read_place(chapter: Chapter) -> Place:
    """Return what the front matter of a chapter says; SourceError, with the line, if it cannot."""
    try:
        text = chapter.text
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError([chapter.fault(1, f"the file cannot be read: {error}")]) from None
    said = front_matter(text).get("book")
    entry = re.search(r"^book:", text, re.MULTILINE)
    line = text.count("\n", 0, entry.start()) + 1 if entry else 1
    problems = _problems(said, text)
    if said is None or problems:
        raise SourceError([chapter.fault(line, f"the front matter: {text}") for text in problems])
    return Place(
        chapter.name,
        rank=said["rank"],
        sentence=said["card"]["sentence"],
        figure=said["card"].get("figure", ""),
        evening=said.get("evening", ""),
        panel=said["card"].get("panel", 1),
    )


def _problems(said: Any, text: str) -> list[str]:
    """Return what is wrong with the entry `book` of a source."""
    if not isinstance(said, dict) or not isinstance(said.get("card"), dict):
        return [f"needs {FORM}"]
    problems = []
    card = said["card"]
    unknown = [
        *(set(said) - {"rank", "card", "evening"}),
        *(set(card) - {"figure", "panel", "sentence"}),
    ]
    if unknown:
        problems.append(f"book has no entry {', '.join(map(str, unknown))}; it reads {FORM}")
    if said.get("rank") not in RANKS:
        problems.append(f"rank must be one of {' | '.join(RANKS)}, got {said.get('rank')!r:.60}")
    figure = card.get("figure", "")
    if figure and f"name: {figure}\n" not in text:
        problems.append(f"the card shows {figure}, which is not there")
    panel = card.get("panel", 1)
    if type(panel) is not int or panel < 1:
        problems.append(f"the card's panel must be a whole number from 1, got {panel!r:.60}")
    sentence = card.get("sentence")
    count = len(statements(text))
    if type(sentence) is not int or not 1 <= sentence <= count:
        message = f"the card shows sentence {sentence!r:.60}, but the box `Summary` has {count}"
        problems.append(message + " that are no questions")
    if not isinstance(said.get("evening", ""), str):
        problems.append(f"evening must be a line of text, got {said['evening']!r:.60}")
    return problems


def all_places(root: Path) -> list[Place]:
    """Return the places of all chapters in order; SourceError that names all that have none."""
    places = []
    faults = []
    for chapter in chapters(root):
        try:
            places.append(read_place(chapter))
        except SourceError as error:
            faults += error.faults
    if faults:
        raise SourceError(faults)
    return places


def statements(text: str) -> list[str]:
    """Return the sentences of a chapter's "Summary" that are no questions.

    >>> statements(":::{admonition} Summary\\nIs it? Yes, it is. Very.\\n:::\\n")
    ['Yes, it is.', 'Very.']
    """
    box = _BOX.search(text)
    sentences = _SENTENCE.split(" ".join(box[1].split())) if box else []
    return [sentence for sentence in sentences if sentence and not sentence.endswith("?")]


def contents_text(text: str, places: Iterable[Place]) -> str:
    """Return the contents with every chapter in its place, in the order of the numbers.

    `text` is that of the contents; its captions and its pages without code stay as they are.
    Raises SourceError if it lists no file behind which a chapter could stand.
    """
    sections: list[tuple[str, list[str]]] = [("", [])]
    for line in text.splitlines():
        if match := _CAPTION.fullmatch(line):
            sections.append((match[1], []))
        sections[-1][1].append(line)
    captions = [caption for caption, lines in sections if any(map(_FILE.fullmatch, lines))]
    if not captions:
        message = "no line `- file: NAME` that a chapter could stand behind"
        raise SourceError([Fault(CONTENTS, 1, message)])
    below: dict[str, list[str]] = {caption: [] for caption in captions}
    for place in sorted(places, key=lambda place: place.name):
        below[place.caption(captions)].append(place.name)
    written = []
    for caption, lines in sections:
        files = [
            (number, match) for number, line in enumerate(lines) if (match := _FILE.fullmatch(line))
        ]
        listed = [number for number, match in files if match[2].startswith("notebooks/")]
        kept = [line for number, line in enumerate(lines) if number not in listed]
        if files:
            begin = listed[0] if listed else files[0][0] + 1
            kept[begin:begin] = [f"{files[0][1][1]}notebooks/{name}" for name in below[caption]]
        written += kept
    return "\n".join(written) + "\n"

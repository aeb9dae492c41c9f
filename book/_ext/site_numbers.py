"""Chapters bear the number in their name: 12b_words is chapter 12b, its figures 12b.1, 12b.2, …

Sphinx counts what its tables of contents list; the book's numbers leave room between the parts and
let a chapter come between two others, so they are given here, in place of the counted ones.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

_CHAPTER = re.compile(r"(?:^|/)(?P<number>\d\d[a-z]?)_\w+$")


def assign_numbers(_app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Number chapters, their sections, figures and equations; Sphinx asks which pages changed."""
    for docname, contents in env.tocs.items():
        match = _CHAPTER.search(docname)
        if match and contents.children:
            number = match["number"]
            env.titles[docname]["secnumber"] = (number,)
            env.toc_secnumbers[docname] = _numbered(contents.children[0], number)
    # Sphinx has counted through the whole book; what is no chapter goes on to count together.
    counts: dict[str, int] = {}
    for docname, kinds in env.toc_fignumbers.items():
        match = _CHAPTER.search(docname)
        for kind, places in kinds.items():
            begin = 0 if match else counts.get(kind, 0)
            for count, place in enumerate(places, start=begin + 1):
                places[place] = (match["number"], count) if match else (count,)
                counts[kind] = counts.get(kind, 0) if match else count
    return []


def _numbered(title: nodes.Node, number: str) -> dict[str, tuple[str | int, ...]]:
    """Write numbers into the contents of a chapter; return them by anchor."""
    inner = [item for part in title.children[1:] for item in part.children]
    # Chapters below this one stand among its sections.
    sections = [item for item in inner if isinstance(item, nodes.list_item)]
    items = [((number,), title), *(((number, n), item) for n, item in enumerate(sections, 1))]
    numbers: dict[str, tuple[str | int, ...]] = {}
    for value, item in items:
        reference = next(iter(item.findall(nodes.reference)))
        reference["secnumber"] = numbers[reference["anchorname"]] = value
    for reference in title.findall(nodes.reference):
        if reference.get("anchorname") not in numbers and reference.get("anchorname"):
            # Headings below the sections have none; without an entry they would show the title's.
            reference.attributes.pop("secnumber", None)
            numbers[reference["anchorname"]] = ()
    return numbers


def setup(app: Sphinx) -> None:
    """Register the hook, behind Sphinx's own numbers."""
    app.connect("env-get-updated", assign_numbers, priority=900)

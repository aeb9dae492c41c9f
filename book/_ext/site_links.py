"""Numbers, terms, names of the package and buttons: what links in the pages lead to.

Chapters bear the number in their name: 12b_words is chapter 12b, its figures 12b.1, 12b.2, …
Sphinx counts what its tables of contents list; the book's numbers leave room between the parts and
let a chapter come between two others, so they are given here, in place of the counted ones.

Terms of art become links to the glossary where a chapter first uses them in running prose.
Docstrings are shown by autodoc, with links to the sources that they cite and to the chapters.
"""

import re
from collections import defaultdict
from enum import EnumMeta
from functools import cache, partial
from itertools import count, zip_longest
from pathlib import Path
from typing import Any

from docutils import nodes
from pybtex import plugin
from site_pages import used
from sphinx.application import Sphinx
from sphinx.domains.python import PyObject
from sphinx.environment import BuildEnvironment

from bookmaker.base import pages_address, repository_address

GLOSSARY = "book/glossary"
_CHAPTER = re.compile(r"(?:^|/)(?P<number>\d\d[a-z]?)_\w+$")
_CITED = re.compile(r"\[([a-z]+\d{4}[a-z][^\]]*)\]")
_EXAMPLE = re.compile(r"((?:^ *>>>.*\n(?:(?! *$).*\n?)*)+)", re.MULTILINE)
# Sections of NumPy's form, and formulas with the indented lines that belong to them.
_SECTION = re.compile(r"^(?:Parameters|Attributes|Returns|Notes|References|Examples)\n-{5,}$", re.M)
_FORMULA = re.compile(r"(^\.\. math::.*\n(?:(?: +.*)?\n)*)", re.MULTILINE)
# A letter with an index or an exponent, as prose of a docstring has it: W^α_a, N^{−1/2}, J_ij.
_INDEXED = re.compile(
    r"(?<![\w^{}/.])(⟨?(?:[A-Za-zΑ-Ωα-ωℓ]{1,2}|\d+))"
    r"((?:[_^](?:\{[^{}]*\}|[A-Za-z0-9α-ω*]{1,2}(?![A-Za-z0-9])|(?<=\^)[a-z]{3,}(?![A-Za-z0-9])))+)"
    r"(?!\w)"
)
# Several letters that are one index.
_SEVERAL = re.compile(r"(?<=[_^])([^\W_]{2,})")
_AS_ONE = r"{\1}"
_KEY = re.compile(r"\b[a-z]{2,}\d{4}[a-z][a-z0-9]*\b")


def assign_numbers(_app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Number chapters, their sections, figures and equations; Sphinx asks which pages changed."""
    for docname, contents in env.tocs.items():
        match = _CHAPTER.search(docname)
        if match and contents.children:
            number = match["number"]
            env.titles[docname]["secnumber"] = (number,)
            env.toc_secnumbers[docname] = _numbered(contents.children[0], number)
    # Sphinx has counted through the whole book; what is no chapter goes on to count together.
    others = defaultdict(partial(count, 1))
    for docname, kinds in env.toc_fignumbers.items():
        match = _CHAPTER.search(docname)
        for kind, places in kinds.items():
            for number, place in enumerate(places, start=1):
                places[place] = (match["number"], number) if match else (next(others[kind]),)
    return []


def _numbered(title: nodes.Node, number: str) -> dict[str, tuple]:
    """Write numbers into the contents of a chapter; return them by anchor."""
    sections = [item for part in title.children[1:] for item in part.children]
    # Headings below the sections have none; without an entry they would show the title's.
    numbers = {item["anchorname"]: () for item in title.findall(nodes.reference)}
    for place, item in enumerate([title, *sections]):
        reference = next(iter(item.findall(nodes.reference)))
        reference["secnumber"] = (number, place) if place else (number,)
        numbers[reference["anchorname"]] = reference["secnumber"]
    return numbers


@cache
def pattern(terms: tuple[str, ...]) -> re.Pattern[str]:
    """Return what finds any of the terms in prose, each in a group.

    With a hyphen or a space, with an s behind it or not, also at the beginning of a sentence.
    """

    def loose(term: str) -> str:
        text = re.escape(term[1:]).replace(r"\ ", r"[\s-]").replace(r"\-", r"[\s–-]")
        return f"[{term[0]}{term[0].upper()}]{text}"

    each = "|".join(f"({loose(term)})" for term in terms)
    return re.compile(rf"(?<![\w-])(?:{each})s?(?![\w-])")


def link_terms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the links into a chapter."""
    if not docname.startswith("notebooks/") or GLOSSARY not in app.env.all_docs:
        return
    entries = app.env.get_doctree(GLOSSARY).findall(nodes.definition_list_item)
    # Several terms may share an entry; longer ones are looked for first.
    terms = {t.astext(): item[0]["ids"][0] for item in entries for t in item.findall(nodes.term)}
    terms = dict(sorted(terms.items(), key=lambda term: len(term[0]), reverse=True))
    page = app.builder.get_relative_uri(docname, GLOSSARY)
    seen = set[str]()
    for text in list(doctree.findall(nodes.Text)):
        inline = text.parent
        paragraph = inline.parent if isinstance(inline, nodes.emphasis | nodes.strong) else inline
        if not isinstance(paragraph, nodes.paragraph) or isinstance(paragraph.parent, nodes.entry):
            continue
        pieces = []
        end = 0
        for match in pattern(tuple(terms)).finditer(text):
            place = list(terms.values())[match.lastindex - 1]
            if place in seen:
                continue
            seen.add(place)
            link = nodes.reference("", match[0], internal=True, classes=["term"])
            link["refuri"] = f"{page}#{place}"
            pieces += [nodes.Text(text[end : match.start()]), link]
            end = match.end()
        if pieces:
            inline.replace(text, [*pieces, nodes.Text(text[end:])])


def plain_docstring(
    _app: Sphinx, _what: str, _name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Make reStructuredText of a docstring: code in backticks, sources cited, all else as typed.

    Napoleon comes afterwards and reads the sections of NumPy's form, whose layout is kept.
    """
    text = "\n".join(lines) + "\n"
    parts = _EXAMPLE.split(text)
    if _SECTION.search(text):
        parts[::2] = map(_sections, parts[::2])
        text = "".join(parts)
    else:
        parts[::2] = ["\n\n".join(map(_rst, re.split(r"\n *\n", part))) for part in parts[::2]]
        text = "\n".join(parts)
    lines[:] = text.split("\n")


def list_chapters(
    app: Sphinx, what: str, name: str, _object: object, _options: object, lines: list[str]
) -> None:
    """Append the chapters that use a function, behind its last section."""
    chapters = [chapter for chapter, names in used(Path(app.srcdir)).items() if name in names]
    if chapters and what in ("function", "class"):
        shown = [f":doc:`chapter {c.partition('_')[0]} </notebooks/{c}>`" for c in chapters]
        lines += ["", f"*Used in* {', '.join(shown)}.", ""]


def plain_signature(
    _app: Sphinx, _what: str, _name: str, item: object, *_: object
) -> tuple[str, str] | None:
    """Leave out how an enumeration is made, which nobody calls."""
    return ("", "") if isinstance(item, EnumMeta) else None


def _sections(text: str) -> str:
    """Text in NumPy's form, its layout and its formulas as typed."""
    pieces = _FORMULA.split(text)
    pieces[::2] = map(_inline, pieces[::2])
    return "".join(pieces)


def _rst(paragraph: str) -> str:
    if paragraph.startswith("    "):
        return f"::\n\n{paragraph}"
    text = re.sub(r"\n +(?=\S)", " ", paragraph)
    # What is explained name by name, each with its own lines, is a list.
    if text != paragraph and not text.strip().startswith(("*", "-")):
        text = "\n".join(f"* {line}" for line in text.strip("\n").split("\n"))
    return _inline(text)


def _inline(text: str) -> str:
    """Code, sources and characters that reStructuredText would read, in text of any layout."""
    # Code, and formulas that are marked as such.
    pieces = re.split(r"((?::math:)?`+[^`]+`+)", text)
    pieces[1::2] = [
        f"{one}\\ " if one.startswith(":") else f"``{one.strip('`')}``\\ " for one in pieces[1::2]
    ]
    for number, words in enumerate(pieces[::2]):
        parts = _INDEXED.split(words)
        # Between two formulas, each of which is a letter and what belongs to it, stand words.
        told = [_words(part) for part in parts[::3]]
        formulas = [
            f":math:`{letter}{_SEVERAL.sub(_AS_ONE, marks)}`"
            for letter, marks in zip(parts[1::3], parts[2::3], strict=True)
        ]
        pieces[2 * number] = "".join(
            word + (f"\\ {formula}\\ " if formula else "")
            for word, formula in zip_longest(told, formulas, fillvalue="")
        )
    return "".join(pieces)


def _words(words: str) -> str:
    """Sources, and characters that reStructuredText would read, in text without code."""
    return _CITED.sub(
        lambda match: f"({_KEY.sub(lambda key: f':cite:t:`{key[0]}`', match[1])})",
        re.sub(r"([|_\\]|(?<!^)\*|^\*(?! ))", r"\\\1", words, flags=re.MULTILINE),
    )


def add_launch_links(app: Sphinx, config: Any) -> None:
    """Turn on launch buttons and canonical addresses if readers can reach the repository."""
    config.html_baseurl = pages_address(Path(app.srcdir))
    if address := repository_address(Path(app.srcdir)):
        config.html_theme_options |= {
            "repository_url": address,
            "repository_branch": "main",
            "use_repository_button": True,
            "launch_buttons": {
                "colab_url": "https://colab.research.google.com",
                "binderhub_url": "https://mybinder.org",
            },
        }


def setup(app: Sphinx) -> None:
    """Register the hooks."""
    # Each look-up of a plugin that formats citations reads the metadata of all installed packages:
    # a third of the time of a build.
    plugin._load_entry_point = cache(plugin._load_entry_point)
    # Sphinx calls them variables; NumPy's form, and its readers, attributes.
    for field in PyObject.doc_field_types:
        if field.name == "variable":
            field.label = "Attributes"
    app.connect("config-inited", add_launch_links, priority=900)
    # Behind Sphinx's own numbers.
    app.connect("env-get-updated", assign_numbers, priority=900)
    app.connect("doctree-resolved", link_terms)
    # Before napoleon, which reads the sections, and behind it.
    app.connect("autodoc-process-docstring", plain_docstring, priority=400)
    app.connect("autodoc-process-docstring", list_chapters, priority=900)
    app.connect("autodoc-process-signature", plain_signature)

"""Terms of art become links to the glossary where a chapter first uses them.

Only in running prose: headings, code, formulas, captions, tables and links stay as they are.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst.states import Inliner
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

CHAPTERS = "notebooks/"
GLOSSARY = "book/glossary"
# Of the places that a paragraph of a chapter may stand in, these are prose.
_PROSE = (
    nodes.Admonition,
    nodes.block_quote,
    nodes.bullet_list,
    nodes.definition,
    nodes.definition_list,
    nodes.definition_list_item,
    nodes.document,
    nodes.emphasis,
    nodes.enumerated_list,
    nodes.list_item,
    nodes.paragraph,
    nodes.section,
    nodes.strong,
)


@cache
def pattern(terms: tuple[str, ...]) -> re.Pattern[str]:
    """Return what finds any of the terms in prose, longer ones first.

    In one spelling or the other (s or z, a hyphen or a space), with an s behind it or not; terms
    in small letters also at the beginning of a sentence.
    """

    def loose(term: str) -> str:
        text = re.escape(term).replace(r"\ ", r"[\s-]").replace(r"\-", r"[\s–-]")
        text = re.sub(r"iz(?=ation|e)", "i[sz]", text).replace("ior", "iou?r").replace("'", "['’]")
        if term[0].islower():
            text = f"[{term[0]}{term[0].upper()}]{text[1:]}"
        return text

    ordered = sorted(terms, key=len, reverse=True)
    each = "|".join(f"(?P<t{terms.index(term)}>{loose(term)})" for term in ordered)
    return re.compile(rf"(?<![\w-])(?:{each})s?(?![\w-])")


def link_terms(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the links into a chapter."""
    if not docname.startswith(CHAPTERS) or GLOSSARY not in app.env.all_docs:
        return
    if not hasattr(app, "glossary_entries"):
        app.glossary_entries = _entries(app.env.get_doctree(GLOSSARY))
    terms = app.glossary_entries
    found = pattern(tuple(terms))
    names, seen = tuple(terms), set[str]()
    page = app.builder.get_relative_uri(docname, GLOSSARY)
    for text in list(doctree.findall(nodes.Text)):
        if not _is_prose(text):
            continue
        pieces: list[nodes.Node] = []
        end = 0
        for match in found.finditer(str(text)):
            term = names[int((match.lastgroup or "t0")[1:])]
            if terms[term] in seen:
                continue
            seen.add(terms[term])
            link = nodes.reference("", match[0], internal=True, classes=["term"])
            link["refuri"] = f"{page}#{terms[term]}"
            pieces += [nodes.Text(str(text)[end : match.start()]), link]
            end = match.end()
        if pieces:
            text.parent.replace(text, [*pieces, nodes.Text(str(text)[end:])])


def _entries(glossary: nodes.document) -> dict[str, str]:
    """Return the anchor of each term's entry; several terms may share one."""
    return {
        term.astext(): next(iter(item.findall(nodes.term)))["ids"][0]
        for item in glossary.findall(nodes.definition_list_item)
        for term in item.findall(nodes.term)
    }


def _is_prose(node: nodes.Node) -> bool:
    inside = False
    while node.parent is not None:
        node = node.parent
        if not isinstance(node, _PROSE) and "cell" not in node.get("classes", []):
            return False
        inside = inside or isinstance(node, nodes.paragraph)
    return inside


def chapter_role(
    _name: str, rawtext: str, text: str, _line: int, inliner: Inliner
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Return a link to the chapter of that number: {chapter}`12b`."""
    root = Path(inliner.document.settings.env.srcdir)
    paths = sorted((root / "notebooks").glob(f"{text}_*.md"))
    label = nodes.inline("", f"chapter {text}", classes=["doc"])
    if len(paths) != 1:
        message = inliner.reporter.warning(f"there is no chapter {text}")
        return [label], [message]
    link = pending_xref(
        rawtext,
        label,
        refdomain="std",
        reftype="doc",
        refexplicit=True,
        refwarn=True,
        reftarget=f"/notebooks/{paths[0].stem}",
        refdoc=inliner.document.settings.env.docname,
    )
    return [link], []


def setup_terms(app: Sphinx) -> None:
    """Register role and hook."""
    app.add_role("chapter", lambda *given, **_: chapter_role(*given[:5]))
    app.connect("doctree-resolved", link_terms)

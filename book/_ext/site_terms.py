"""Terms of art become links to the glossary where a chapter first uses them in running prose."""

import re
from functools import cache

from docutils import nodes
from sphinx.application import Sphinx

GLOSSARY = "book/glossary"


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
    if not docname.startswith("notebooks/") or GLOSSARY not in app.env.all_docs:
        return
    # Several terms may share an entry.
    terms = {
        term.astext(): item[0]["ids"][0]
        for item in app.env.get_doctree(GLOSSARY).findall(nodes.definition_list_item)
        for term in item.findall(nodes.term)
    }
    page, seen = app.builder.get_relative_uri(docname, GLOSSARY), set[str]()
    for text in list(doctree.findall(nodes.Text)):
        inline = text.parent
        paragraph = inline.parent if isinstance(inline, nodes.emphasis | nodes.strong) else inline
        if not isinstance(paragraph, nodes.paragraph) or isinstance(paragraph.parent, nodes.entry):
            continue
        pieces, end = [], 0
        for match in pattern(tuple(terms)).finditer(text):
            place = list(terms.values())[int(match.lastgroup[1:])]
            if place in seen:
                continue
            seen.add(place)
            link = nodes.reference("", match[0], internal=True, classes=["term"])
            link["refuri"] = f"{page}#{place}"
            pieces += [nodes.Text(text[end : match.start()]), link]
            end = match.end()
        if pieces:
            inline.replace(text, [*pieces, nodes.Text(text[end:])])


def setup(app: Sphinx) -> None:
    """Register the hook."""
    app.connect("doctree-resolved", link_terms)

"""The page of a chapter that was run: complete in itself, without a network."""

import re

import nbformat
from test_book_of_one_chapter import read_links

from bookmaker.execution import write_page
from bookmaker.source import Chapter

PROSE = r"""
See {cite}`bal2021transformers` and [](../notebooks/01_small.md), [the claims](../book/claims.md),
[](#eq-small).

$$ E = \tfrac12 $$ (eq-small)

:::{admonition} In short
A box.
:::
"""
FIGURE = """\
---
mystnb:
  figure:
    name: fig-small
    caption: What the figure says.
  image:
    alt: A single gray point.
---
from"""


def test_page_needs_nothing_from_elsewhere_and_resolves_what_the_source_writes(
    small_checkout, tmp_path
):
    chapter = Chapter(small_checkout, "01_small")
    text = chapter.source_path.read_text(encoding="utf-8")
    text = text.replace("# A small chapter\n", f"# A small chapter\n{PROSE}")
    text = text.replace("```{code-cell} ipython3\nfrom", f"```{{code-cell}} ipython3\n{FIGURE}")
    chapter.source_path.write_text(text, encoding="utf-8")
    notebook = nbformat.from_dict(chapter.template)
    image = nbformat.v4.new_output("display_data", data={"image/svg+xml": "<svg><path/></svg>"})
    notebook.cells[-1].outputs = [nbformat.v4.new_output("stream", text="flat 1.50\n"), image]
    page = write_page(chapter, notebook, tmp_path)
    text = page.read_text(encoding="utf-8")
    targets = [target for target in read_links(page).targets if target[0] != "#"]
    assert any("mathjax" in target for target in targets)
    for target in targets:
        assert target.startswith("data:") or (page.parent / target).is_file(), target
    assert "https://cdn" not in text
    body = " ".join(re.sub(r"<[^>]+>", "", text[text.index("<body") :]).split())
    assert "See [bal2021transformers] and 01_small, the claims" in body
    for told in ('<div class="box">', "<strong>In short</strong>", 'id="eq-small"'):
        assert told in text
    for told in ('aria-label="A single gray point."', "<title>A small chapter"):
        assert told in text
    for raw in ("{cite", ":::", "find_spec"):
        assert raw not in text
    assert "What the figure says." in body
    assert "flat 1.50" in body

"""From a source to its notebook."""

import pytest

from bookmaker.base import BookError
from bookmaker.source import Chapter, chapters


def test_conversion_is_deterministic_and_fills_the_install_cell(small_checkout):
    chapter, again = Chapter(small_checkout, "01_small"), Chapter(small_checkout, "01_small")
    text = chapter.source_path.read_text(encoding="utf-8")
    equation = "chapter\n\nSee [](#eq-e).\n\n$$ E = 0 $$ (eq-e)\n"
    chapter.source_path.write_text(text.replace("chapter\n", equation, 1), encoding="utf-8")
    assert chapter.template == again.template
    assert chapter.title == "A small chapter"
    assert [cell.id for cell in chapter.template.cells] == [f"cell-{i:03d}" for i in range(4)]
    assert "find_spec" in chapter.template.cells[1].source
    # A link to an equation has a text outside of the book.
    assert "[(eq-e)](#eq-e)" in chapter.template.cells[0].source


def test_unknown_chapter_is_named(small_checkout):
    with pytest.raises(BookError, match="no chapter named '02_other'; there are: 01_small"):
        chapters(small_checkout, ("02_other",))

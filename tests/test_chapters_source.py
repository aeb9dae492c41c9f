"""From a source to its notebook, and where the public address comes from."""

import pytest

from bookmaker.errors import ChapterError
from bookmaker.project import public_address, published_address, repository_address
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
    with pytest.raises(ChapterError, match="no chapter named '02_other'; there are: 01_small"):
        chapters(small_checkout, ("02_other",))


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("git@github.com:owner/book.git", "https://github.com/owner/book"),
        ("https://gitlab.com/owner/book.git/", "https://gitlab.com/owner/book"),
        ("ssh://git@github.com/owner/book", "https://github.com/owner/book"),
        ("/home/me/book", ""),
        ("file:///home/me/book", ""),
        ("http://localhost/owner/book", ""),
        ("", ""),
    ],
)
def test_only_public_addresses_count(address, public):
    assert public_address(address) == public


def test_the_address_is_one_setting_and_a_variable_for_the_pages(small_checkout, monkeypatch):
    monkeypatch.delenv("SPINFORMER_REPOSITORY", raising=False)
    assert repository_address(small_checkout) == published_address(small_checkout) == ""
    project = small_checkout / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    setting = '\n[project.urls]\nRepository = "{}"\n'
    project.write_text(text + setting.format("https://github.com/o/set"), encoding="utf-8")
    assert repository_address(small_checkout) == "https://github.com/o/set"
    monkeypatch.setenv("SPINFORMER_REPOSITORY", "git@github.com:o/env.git")
    assert published_address(small_checkout) == "https://github.com/o/env"
    assert repository_address(small_checkout) == "https://github.com/o/set"
    project.write_text(text + setting.format("github.com/o/set"), encoding="utf-8")
    with pytest.raises(ChapterError, match="Repository must read https://host/owner/name"):
        repository_address(small_checkout)

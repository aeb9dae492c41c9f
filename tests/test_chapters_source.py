"""A committed notebook is known to be stale when its source or the package changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from spinformer.chapters import source
from spinformer.chapters.project import (
    citation_text,
    public_address,
    readme_text,
    repository_address,
)
from spinformer.chapters.source import PACKAGE, Chapter, ChapterError, chapters, imported_files


def test_conversion_is_deterministic_and_fills_the_install_cell(small_checkout: Path) -> None:
    chapter = Chapter(small_checkout, "01_small")
    again = Chapter(small_checkout, "01_small")
    assert chapter.template == again.template
    assert chapter.title == "A small chapter"
    assert [cell.id for cell in chapter.template.cells] == [f"cell-{i:03d}" for i in range(4)]
    assert "find_spec" in chapter.template.cells[1].source


def test_links_to_equations_have_a_text_outside_of_the_book() -> None:
    notebook = source.convert("# T\n\nSee [](#eq-energy).\n\n$$ E = 0 $$ (eq-energy)\n")
    assert "[(eq-energy)](#eq-energy)" in notebook.cells[0].source


def test_imports_are_followed_through_the_package() -> None:
    files = {
        p.relative_to(PACKAGE).as_posix() for p in imported_files("import spinformer.core.checks")
    }
    assert files == {"__init__.py", "checks.py"}
    files = {
        p.relative_to(PACKAGE).as_posix()
        for p in imported_files("%pip list\nfrom spinformer.chapters import source")
    }
    assert {"chapters/__init__.py", "chapters/source.py", "chapters/parameters.py"} <= files


def test_digest_changes_with_the_source_and_with_imported_modules(
    small_checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Chapter(small_checkout, "01_small").digest
    path = small_checkout / "notebooks" / "01_small.md"
    path.write_text(path.read_text(encoding="utf-8") + "\nMore.\n", encoding="utf-8")
    assert Chapter(small_checkout, "01_small").digest != before

    package = tmp_path / "spinformer"
    package.mkdir()
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "checks.py").write_text("FACTOR = 2\n", encoding="utf-8")
    (package / "unused.py").write_text("FACTOR = 2\n", encoding="utf-8")
    monkeypatch.setattr(source, "PACKAGE", package)
    digests = [Chapter(small_checkout, "01_small").digest]
    for name in ("unused.py", "checks.py"):
        (package / name).write_text("FACTOR = 3\n", encoding="utf-8")
        source._file_targets.cache_clear()
        digests.append(Chapter(small_checkout, "01_small").digest)
    source._file_targets.cache_clear()
    assert digests[0] == digests[1] != digests[2]


def test_unknown_chapter_is_named(small_checkout: Path) -> None:
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
def test_only_public_addresses_count(address: str, public: str) -> None:
    assert public_address(address) == public


def test_the_setting_wins_over_the_remote_and_the_variable_over_both(
    small_checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPINFORMER_REPOSITORY", raising=False)
    assert repository_address(small_checkout) == ""
    project = small_checkout / "pyproject.toml"
    text = project.read_text(encoding="utf-8")
    project.write_text(
        text.replace('repository = ""', 'repository = "https://github.com/o/set"'), encoding="utf-8"
    )
    assert repository_address(small_checkout) == "https://github.com/o/set"
    monkeypatch.setenv("SPINFORMER_REPOSITORY", "git@github.com:o/env.git")
    assert repository_address(small_checkout) == "https://github.com/o/env"


def test_the_address_reaches_badges_and_citation_and_leaves_them_again(root: Path) -> None:
    address = "https://github.com/owner/book"
    for rewrite, name in ((readme_text, "README.md"), (citation_text, "CITATION.cff")):
        text = (root / name).read_text(encoding="utf-8")
        bare = rewrite(text, "")
        stamped = rewrite(bare, address)
        assert address in stamped
        assert address not in bare
        assert rewrite(rewrite(stamped, address), "") == bare

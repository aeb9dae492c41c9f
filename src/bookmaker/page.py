"""A chapter that was run, as a page of its own: the book's own builder, without the other pages.

The page reads without a network: what it loads (style, MathJax and its fonts, figures) lies in a
folder beside it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
import yaml

from bookmaker.errors import BookError, OutputError, RunError
from bookmaker.source import Chapter
from bookmaker.sweeps.files import write_atomically

_BIBLIOGRAPHY = "## References\n\n```{bibliography}\n:filter: docname in docnames\n```"
_LINK = re.compile(r"(?<!!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_LOADED = re.compile(r'((?:src|href)=")(_static|_images)/')
_OTHER_PAGES = re.compile(r'^\s*<link rel="(?:index|search)"[^>]*>\n', re.MULTILINE)
# Its command lies beside the interpreter, or not.
_BUILDER = "from jupyter_book.cli.main import main; main()"
# Of what the theme brings along, a page alone has no use for these.
_DROPPED = ("*.map", "*.ttf", "locales", "cover.png", "colab-badge.svg")


def page_files(chapter: Chapter) -> list[str]:
    """Return the names of the files that `write_page` writes; the folder comes on top."""
    return [f"{chapter.name}.html"]


def write_page(chapter: Chapter, notebook: nbformat.NotebookNode, folder: Path) -> list[Path]:
    """Write the page of an executed chapter into `folder`, with `<name>_files` beside it.

    Raises RunError if the page cannot be built.
    """
    with tempfile.TemporaryDirectory() as temporary:
        built = _build(chapter, notebook, Path(temporary))
        files = folder / f"{chapter.name}_files"
        text = (built / f"{chapter.name}.html").read_text(encoding="utf-8")
        text = _OTHER_PAGES.sub("", text)
        text = _LOADED.sub(rf"\g<1>{files.name}/\g<2>/", text)
        shutil.rmtree(files, ignore_errors=True)
        try:
            ignore = shutil.ignore_patterns(*_DROPPED)
            for name in ("_static", "_images"):
                if (built / name).is_dir():
                    shutil.copytree(built / name, files / name, ignore=ignore)
            page = folder / f"{chapter.name}.html"
            write_atomically(page, text)
        except OSError as error:
            message = f"the notebook is in {folder}, but not its page: {error.strerror}"
            raise OutputError(message) from None
    return [page]


def _build(chapter: Chapter, notebook: nbformat.NotebookNode, root: Path) -> Path:
    (root / "book").mkdir()
    for name in ("_static", "_ext", "references.bib"):
        (root / "book" / name).symlink_to(chapter.root.resolve() / "book" / name)
    config = yaml.safe_load((chapter.root / "_config.yml").read_text(encoding="utf-8"))
    (root / "_config.yml").write_text(yaml.safe_dump(_alone(config)), encoding="utf-8")
    contents = f"format: jb-book\nroot: {chapter.name}\n"
    (root / "_toc.yml").write_text(contents, encoding="utf-8")
    (root / "pyproject.toml").write_text("", encoding="utf-8")
    nbformat.write(_readable_alone(chapter, notebook), root / f"{chapter.name}.ipynb")
    result = subprocess.run(
        [sys.executable, "-c", _BUILDER, "build", "--quiet", str(root)],
        env={**os.environ, "SPINFORMER_REPOSITORY": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    built = root / "_build" / "html"
    if result.returncode != 0 or not (built / f"{chapter.name}.html").is_file():
        last = (result.stderr or result.stdout).strip().splitlines()[-1:]
        raise RunError(f"{chapter.name}: the page could not be built: {' '.join(last)}")
    return built


def _alone(config: dict[str, Any]) -> dict[str, Any]:
    """Return the book's settings for a page that stands alone: no search, no other pages."""
    sphinx = config.setdefault("sphinx", {}).setdefault("config", {})
    sphinx["html_sidebars"] = {"**": []}
    sphinx["html_theme_options"] = {
        "article_header_start": [],
        "article_header_end": [],
        "navbar_persistent": [],
        "footer_content_items": [],
        "show_prev_next": False,
        "use_download_button": False,
    }
    return config


def _readable_alone(chapter: Chapter, notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    alone = nbformat.from_dict(notebook)
    prose = [cell for cell in alone.cells if cell.cell_type == "markdown"]
    for cell in prose:
        cell.source = _LINK.sub(lambda match: _without_other_pages(chapter, match), cell.source)
    if any("{cite" in cell.source for cell in prose):
        alone.cells.append(nbformat.v4.new_markdown_cell(_BIBLIOGRAPHY, id="bibliography"))
    return alone


def _without_other_pages(chapter: Chapter, match: re.Match[str]) -> str:
    """Return a link as it is if it stays on the page or leaves the book, else its words."""
    target = match["target"].partition("#")[0]
    if not target or "://" in target or target.startswith("mailto:"):
        return match[0]
    return match["text"] or _title(chapter, Path(target).stem)


def _title(chapter: Chapter, name: str) -> str:
    for folder in ("notebooks", "book"):
        path = chapter.root / folder / f"{name}.md"
        try:
            if folder == "notebooks" and path.is_file():
                return Chapter(chapter.root, name).title
            for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
                if line.startswith("# "):
                    return line.removeprefix("#").strip()
        except BookError:
            break
    return name

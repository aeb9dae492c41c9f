"""The main path as one PDF: its built pages in one, printed by Chromium."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bookmaker.errors import BookError
from bookmaker.project import contents

# The theme prints the title of a page from what stands before its article, which is the first's.
_STYLE = (
    "<style>@page { size: A4; margin: 18mm 10mm } html { zoom: 0.8 }"
    " #jb-print-docs-body { display: none } article h1 { display: block !important }</style>"
)
_ARTICLE = re.compile(r"(<article\b[^>]*>)(.*)(</article>)", re.DOTALL)
_PLACE = re.compile(r'(?<= )(id|(?:xlink:)?href)="([^"]*)"|(url)\(#([^)"]*)\)')


def main_path(root: Path) -> list[str]:
    """Return the pages of the book's main path in order: the front page, Parts I to IV, the end.

    What is called further results, and what surrounds the chapters, is left to the pages.
    """
    pages = ["book/welcome"]
    for caption, files in contents(root):
        if caption.startswith("Part "):
            pages += files
        elif "Further results" not in caption:
            pages += [file for file in files if file.startswith("notebooks/")]
    return pages


def write_pdf(root: Path, html: Path) -> Path:
    """Print the main path from the pages in `html` into `html/book.pdf`.

    Raises BookError if the pages are not built or there is no Chromium.
    """
    files = [html / f"{page}.html" for page in main_path(root)]
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not files[0].is_file() or not chromium:
        raise BookError("the PDF needs the pages (`make html`) and Chromium (`.ci/browser`)")
    path, whole = html / "book.pdf", html / "book" / "whole.html"
    whole.write_text(joined(files), encoding="utf-8")
    # Without a network, and with time for MathJax to set all formulas.
    command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=600000"]
    command += ["--no-pdf-header-footer", "--generate-pdf-document-outline"]
    command += [f"--print-to-pdf={path}", whole.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True)
    whole.unlink()
    return path


def joined(files: Sequence[Path]) -> str:
    """Return the first page with the text of all; links between them lead to places in it."""
    pages = {file.stem: file.read_text(encoding="utf-8") for file in files}

    def renamed(match: re.Match[str], here: str) -> str:
        kind, target = match[1] or match[3], match[2] or match[4] or ""
        if kind == "id":
            return f'id="{here}--{target}"'
        if kind == "url":
            return f"url(#{here}--{target})"
        path, _, place = target.partition("#")
        name = Path(path).stem if path else here
        if ":" in target:
            return match[0]
        return f'{kind}="#{name}--{place}"' if name in pages else ""

    text = ""
    for name, page in pages.items():
        found = _ARTICLE.search(page)
        text += f'<div id="{name}--" style="break-before: page">'
        text += _PLACE.sub(partial(renamed, here=name), found[2] if found else page) + "</div>"
    first = next(iter(pages.values()))
    return _ARTICLE.sub(lambda match: match[1] + _STYLE + text + match[3], first, count=1)

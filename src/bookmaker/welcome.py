"""What stands around the chapters: contents, README's figure and row, the front page's pictures.

`python -m bookmaker welcome` draws all anew, with the numbers of `book/_static/welcome/`;
`python -m bookmaker pdf` puts the built pages of the main path in one, which Chromium prints.
"""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path

from bookmaker.base import CONTENTS, BookError, contents, repository_address
from bookmaker.claims import figures_by_chapter, read_claims
from bookmaker.pictures import figure_file
from bookmaker.places import all_places, contents_text
from bookmaker.source import read_notebook

# The figure that README.md shows.
COVER = ("33_phase_transitions", "fig-phase-wide")
# Its row on where else a chapter runs, as long as the repository has an address.
LAUNCH_ROW = (
    "| Colab, Binder | the buttons above each chapter of the published book; the first cell of a "
    "chapter installs the package where it is missing |\n"
)
# What draws the front page.
FRONT = "compendium.front.welcome"
FOLDER = Path("book") / "_static" / "welcome"
# The theme prints the title of a page from what stands before its article, which is the first's.
_STYLE = (
    "<style>@page { size: A4; margin: 18mm 10mm } html { zoom: 0.8 }"
    " #jb-print-docs-body { display: none } article h1 { display: block !important }</style>"
)
_ARTICLE = re.compile(r"(<article\b[^>]*>)(.*)(</article>)", re.DOTALL)
_PLACE = re.compile(r'(?<= )(id|(?:xlink:)?href)="([^"]*)"|(url)\(#([^)"]*)\)')


def cover(root: Path) -> tuple[Path, bytes]:
    """Return the file of README's figure and what belongs there."""
    notebook = read_notebook(root / "notebooks" / f"{COVER[0]}.ipynb")
    return root / "book" / "_static" / "cover.svg", figure_file(notebook, COVER[1])


def readme(root: Path) -> tuple[Path, bytes]:
    """Return README.md and its text: it names Colab and Binder where an address is set.

    Without one no chapter has a button that leads there.
    """
    path = root / "README.md"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    lines = [line for line in lines if not line.startswith(LAUNCH_ROW[:9])]
    if repository_address(root):
        for place, line in enumerate(lines):
            if line.startswith("| only the package |"):
                lines.insert(place + 1, LAUNCH_ROW)
                break
    return path, "".join(lines).encode()


def claim_figures(root: Path, names: tuple[str, ...]) -> dict[str, float]:
    """Return figures of claims, `row.figure`, as the executed chapters print them."""
    printed = figures_by_chapter(root)
    rows = {claim.id: claim.read(printed) for claim in read_claims(root)}
    return {name: float(rows[name.split(".")[0]][name.split(".")[1]]) for name in names}


def welcome_pictures(root: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the files of the front page's pictures, then their numbers and digests."""
    # By its name, as the chapters' tables are found: this tool imports nothing of the compendium.
    front = import_module(FRONT)
    numbers = front.welcome_numbers(claim_figures(root, front.FIGURES))
    digests = {}
    for name, content in front.drawn_pictures(numbers):
        digests[f"{name}.svg"] = hashlib.sha256(content).hexdigest()
        yield root / FOLDER / f"{name}.svg", content
    stored = {"numbers": numbers, "digests": digests}
    yield root / FOLDER / "pictures.json", (json.dumps(stored, indent=1) + "\n").encode()


def main_path(root: Path) -> list[str]:
    """Return the pages of the book's main path in order: the front page, Parts I to IV, the end.

    What is called further results, and what surrounds the chapters, is left to the pages.
    """
    main = {f"notebooks/{place.name}" for place in all_places(root) if place.rank == "main"}
    pages = ["book/welcome"]
    for caption, files in contents(root):
        pages += [file for file in files if caption.startswith("Part ") or file in main]
    return pages


def contents_file(root: Path) -> tuple[Path, bytes]:
    """Return the file of the contents and what belongs there, as the chapters say."""
    path = root / CONTENTS
    return path, contents_text(path.read_text(encoding="utf-8"), all_places(root)).encode()


def write_pdf(root: Path, html: Path) -> Path:
    """Print the main path from the pages in `html` into `html/book.pdf`.

    Raises BookError if the pages are not built or there is no Chromium.
    """
    files = [html / f"{page}.html" for page in main_path(root)]
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not files[0].is_file() or not chromium:
        raise BookError("the PDF needs the pages (`make html`) and Chromium (`.ci/browser`)")
    path = html / "book.pdf"
    whole = html / "book" / "whole.html"
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
        kind = match[1] or match[3]
        target = match[2] or match[4] or ""
        path, _, place = target.partition("#")
        name = Path(path).stem if path else here
        if kind in ("id", "url"):
            return f'id="{here}--{target}"' if kind == "id" else f"url(#{here}--{target})"
        if ":" in target:
            return match[0]
        return f'{kind}="#{name}--{place}"' if name in pages else ""

    text = ""
    for name, page in pages.items():
        article = _ARTICLE.search(page)
        text += f'<div id="{name}--" style="break-before: page">'
        text += _PLACE.sub(partial(renamed, here=name), article[2] if article else page) + "</div>"
    first = next(iter(pages.values()))
    return _ARTICLE.sub(lambda match: match[1] + _STYLE + text + match[3], first, count=1)

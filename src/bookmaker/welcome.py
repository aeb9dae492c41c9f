"""What stands around the chapters: contents, README's figure and row, the front page's pictures.

`python -m bookmaker welcome` draws all anew, with the numbers of `book/_static/welcome/`;
`python -m bookmaker pdf` puts the built pages of the main path in one, which Chromium prints.
"""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path

from bookmaker.base import (
    CONTENTS,
    BookError,
    contents,
    pages_address,
    read_yaml,
    repository_address,
)
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
# What the sheets of the PDF look like.
SHEETS = Path("book") / "_static" / "sheets.css"
# Live figures are scripts; on paper stands where they are.
_LIVE = re.compile(r'<script[^>]*src="[^"]*explorables/[^>]*></script>')
_WITHOUT = "The interactive figure needs scripts, which are off in this browser."
_TITLE = re.compile(r"<h1>(.*?)<a class=\"headerlink\"", re.DOTALL)
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

    It is printed twice: the second time the contents say on which page a chapter begins, which the
    first has shown. Raises BookError if the pages are not built or there is no Chromium.
    """
    files = [html / f"{page}.html" for page in main_path(root)]
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not files[0].is_file() or not chromium:
        raise BookError("the PDF needs the pages (`make html`) and Chromium (`.ci/browser`)")
    path = html / "book.pdf"
    whole = html / "book" / "whole.html"
    # Without a network, and with time for MathJax to set all formulas.
    command = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=600000"]
    command += ["--no-pdf-header-footer", "--generate-pdf-document-outline"]
    command += [f"--print-to-pdf={path}", whole.resolve().as_uri()]
    where = f"{pages_address(root)}book/explorables.html"
    live = f"A live figure stands here in the pages of the book: <em>{where}</em>."
    pages: dict[str, int] = {}
    for _ in range(2):
        front = front_matter(root, files, pages)
        whole.write_text(joined(files, front=front, live=live), encoding="utf-8")
        subprocess.run(command, check=True, capture_output=True)
        pages = first_pages(path.read_bytes())
    whole.unlink()
    return path


def first_pages(pdf: bytes) -> dict[str, int]:
    """Return the number of the page on which each named place of a PDF by Chromium lies."""
    objects = dict(re.findall(rb"^(\d+) 0 obj\n(.*?)^endobj", pdf, re.MULTILINE | re.DOTALL))

    def leaves(number: bytes) -> Iterator[bytes]:
        found = re.search(rb"/Kids\s*\[(.*?)\]", objects[number], re.DOTALL)
        for kid in re.findall(rb"(\d+) 0 R", found[1]) if found else ():
            yield from leaves(kid)
        if not found:
            yield number

    catalog = next(text for text in objects.values() if b"/Type /Catalog" in text)
    top = re.search(rb"/Pages (\d+) 0 R", catalog)
    order = {page: count for count, page in enumerate(leaves(top[1]), start=1)} if top else {}
    places = re.findall(rb"/([\w.-]+--) \[(\d+) 0 R /XYZ", pdf)
    return {name.decode(): order[page] for name, page in places if page in order}


def cover_page(root: Path) -> str:
    """Return the first sheet: title, landscape, authors, date, and where the book lives."""
    said, _ = read_yaml(root, "CITATION.cff", dict)
    authors = ", ".join(
        author.get("name") or f"{author['given-names']} {author['family-names']}"
        for author in said["authors"]
    )
    title, _, kind = str(said["title"]).partition(": ")[2].partition(", ")
    picture = (root / FOLDER / "memory.svg").read_text(encoding="utf-8")
    lines = [
        f"<h1>{title[:1].upper()}{title[1:]}</h1>",
        f"<p>{kind[:1].upper()}{kind[1:]}</p>" if kind else "",
        picture[picture.index("<svg") :],
        f"<p>{authors}</p>",
        f"<p>{datetime.now(UTC):%B %Y}, version {said['version']}</p>",
        f"<p>{pages_address(root)}</p>",
    ]
    return f'<div class="pdf-cover">{"".join(lines)}</div>'


def contents_page(root: Path, titles: Mapping[str, str], pages: Mapping[str, int]) -> str:
    """Return the list of the chapters with the pages on which they begin, as far as known."""
    lines = []
    for caption, files in contents(root):
        mine = [name for name in (Path(file).name for file in files) if name in titles]
        if mine and caption:
            lines.append(f'<li class="part">{caption}</li>')
        lines += [
            f'<li data-page="{pages.get(f"{name}--", "")}"><a href="#{name}--">{titles[name]}</a>'
            "<i></i></li>"
            for name in mine
        ]
    return f'<div class="pdf-contents"><h1>Contents</h1><ol>{"".join(lines)}</ol></div>'


def titles(files: Sequence[Path]) -> dict[str, str]:
    """Return the titles of pages, by their names."""
    articles = {file.stem: _ARTICLE.search(file.read_text(encoding="utf-8")) for file in files}
    found = {name: _TITLE.search(article[2]) for name, article in articles.items() if article}
    return {name: re.sub("<[^>]*>", "", match[1]) for name, match in found.items() if match}


def front_matter(root: Path, files: Sequence[Path], numbers: Mapping[str, int]) -> str:
    """Return what stands before the chapters: style of the sheets, cover and contents."""
    style = f"<style>{(root / SHEETS).read_text(encoding='utf-8')}</style>"
    return style + cover_page(root) + contents_page(root, titles(files), numbers)


def joined(files: Sequence[Path], *, front: str = "", live: str = "") -> str:
    """Return the first page with the text of all, behind `front`.

    Links between the pages lead to places in it. The sentence `live` stands for each live figure.
    """
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
        shown = (article[2] if article else page).replace(_WITHOUT, live)
        text += f'<div id="{name}--" style="break-before: page">'
        text += _PLACE.sub(partial(renamed, here=name), shown) + "</div>"
    first = _LIVE.sub("", next(iter(pages.values())))
    return _ARTICLE.sub(lambda match: match[1] + front + text + match[3], first, count=1)

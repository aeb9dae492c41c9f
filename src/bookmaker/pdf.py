"""The main path as one PDF: its built pages, printed by Chromium, joined, with bookmarks and links.

`make pdf` installs what this needs (the extra `pdf`; Chromium comes from the system).
"""

from __future__ import annotations

import base64
import io
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from bookmaker.errors import BookError
from bookmaker.project import contents

NAME = "book.pdf"
_LINK = f'<p><a href="../{NAME}">The main path as a PDF</a></p>'
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
# A4, in inches.
_SHEET = {"paperWidth": 8.27, "paperHeight": 11.69, "marginTop": 0.7, "marginBottom": 0.7}
_SHEET |= {"scale": 0.8, "printBackground": True}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


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
    """Print the main path from the pages in `html` into `html/book.pdf`, linked on the first.

    Raises BookError if the pages are not built or there is no Chromium.
    """
    files = [html / f"{page}.html" for page in main_path(root)]
    if missing := [file for file in files if not file.is_file()]:
        raise BookError(f"{missing[0]} is not there: run `make html` first")
    path = html / NAME
    path.write_bytes(joined(list(_printed(files))))
    # Pages that are built anew say nothing of a file that may be older than they are.
    front = files[0].read_text(encoding="utf-8")
    files[0].write_text(with_link(front), encoding="utf-8")
    return path


def with_link(page: str) -> str:
    """Return the front page with a link to the PDF below its title."""
    return page if _LINK in page else page.replace("</h1>", f"</h1>\n{_LINK}", 1)


def _printed(files: list[Path]) -> Iterator[tuple[Path, str, bytes]]:
    """Yield each page's file, title and PDF."""
    from selenium import webdriver

    chromium = next(filter(None, map(shutil.which, _BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        raise BookError("the PDF needs Chromium and its driver: `apt-get install chromium-driver`")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in _FLAGS:
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    browser.set_script_timeout(120)
    try:
        for file in files:
            browser.get(file.resolve().as_uri())
            browser.execute_async_script(
                # A page without mathematics has no MathJax to wait for.
                "const done = arguments[0];"
                "const typeset = document.querySelector('script[src*=mathjax]');"
                "const wait = () => !typeset ? done() : window.MathJax?.startup?.promise"
                " ? MathJax.startup.promise.then(() => done()) : setTimeout(wait, 50); wait();"
            )
            title = browser.execute_script(
                "const h = document.querySelector('article h1').cloneNode(true);"
                "h.querySelectorAll('.headerlink').forEach(e => e.remove()); return h.textContent"
            )
            printed = browser.execute_cdp_cmd("Page.printToPDF", _SHEET)
            yield file, title.strip(), base64.b64decode(printed["data"])
    finally:
        browser.quit()


def joined(pages: list[tuple[Path, str, bytes]]) -> bytes:
    """Return one PDF of several; a link to one of their files leads to its first page."""
    from pypdf import PdfReader, PdfWriter
    from pypdf.generic import ArrayObject, NameObject, NumberObject

    writer = PdfWriter()
    first: dict[Path, int] = {}
    places: list[dict[str, Any]] = []
    for file, title, data in pages:
        reader = PdfReader(io.BytesIO(data))
        begin = first[file.resolve()] = len(writer.pages)
        # The name of a place, as every chapter has them, means the place in its own chapter.
        named = {}
        for name, place in reader.named_destinations.items():
            if (number := reader.get_destination_page_number(place)) is not None:
                named[name.lstrip("/")] = (begin + number, place.top)
        writer.append(reader, import_outline=False)
        writer.add_outline_item(title=title, page_number=begin)
        places += [named] * len(reader.pages)
    for page, named in zip(writer.pages, places, strict=True):
        kept = ArrayObject()
        for reference in page.get("/Annots") or []:
            link = reference.get_object()
            target = str(link.get("/A", {}).get("/URI", ""))
            found = None
            if "/Dest" in link:
                found = named.get(str(link["/Dest"]).lstrip("/"))
            elif target.startswith("file:"):
                path = Path(unquote(urlsplit(target).path)).resolve()
                found = (first[path], None) if path in first else None
            else:
                kept.append(reference)
                continue
            if found is None:
                # A page that is not in this file.
                continue
            number, top = found
            place = ArrayObject([writer.pages[number].indirect_reference, NameObject("/XYZ")])
            place.extend([NumberObject(0), NumberObject(round(top or 10_000)), NumberObject(0)])
            link.pop("/A", None)
            link[NameObject("/Dest")] = place
            kept.append(reference)
        page[NameObject("/Annots")] = kept
    writer.add_metadata({"/Title": "Transformers as spin systems"})
    writer.compress_identical_objects()
    stream = io.BytesIO()
    writer.write(stream)
    return stream.getvalue()

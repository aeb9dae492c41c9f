"""The built book, as a reader's browser shows it with the network unplugged."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from spinformer.chapters.source import chapters

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = [chapter.name for chapter in chapters(ROOT)]
ADDRESS = "https://github.com/owner/book"


def build(checkout: Path, out: Path, address: str) -> Path:
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", str(checkout)]
    options = ["-W", "-n", "--keep-going", "--all", "--path-output", str(out)]
    result = subprocess.run(
        command + options,
        env={**os.environ, "SPINFORMER_REPOSITORY": address},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return out / "_build" / "html"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The book as long as nobody decided where it lives (any warning fails the build)."""
    return build(ROOT, tmp_path_factory.mktemp("site"), "file:///nowhere")


@pytest.fixture(scope="module")
def public_site(executed_checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book of one chapter with a public address."""
    return build(executed_checkout, tmp_path_factory.mktemp("public"), ADDRESS)


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Headless Chromium that reaches no host at all."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip(
            "needs Chromium and its driver: `apt-get install chromium chromium-driver` on Debian "
            "and Ubuntu, `brew install --cask chromium chromedriver` on macOS"
        )
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--window-size=1300,1000",
        "--host-resolver-rules=MAP * ~NOTFOUND",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    running.set_page_load_timeout(60)
    yield running
    running.quit()


def wait_for(browser: object, script: str) -> object:
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 30).until(lambda b: b.execute_script(f"return {script}"))


class Links(HTMLParser):
    """Collects what a page points to and the anchors it has."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        for name in ("href", "src"):
            if values.get(name) and tag in ("a", "img", "link", "script"):
                self.targets.append(values[name] or "")
        self.anchors.update(v for n in ("id", "name") if (v := values.get(n)))


def read_links(page: Path) -> Links:
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


def test_no_internal_link_is_broken_and_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    pages = {page: read_links(page) for page in site.rglob("*.html") if "_static" not in page.parts}
    for page, links in pages.items():
        for target in links.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                # Links a reader may follow; never a script, style or image the page needs.
                assert f'src="{target}"' not in page.read_text(encoding="utf-8"), target
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            assert file.exists(), f"{page.name}: {target}"
            if parts.fragment and file in pages:
                assert unquote(parts.fragment) in pages[file].anchors, f"{page.name}: {target}"


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_in_the_browser(browser: object, site: Path, name: str) -> None:
    browser.get(f"file://{site}/notebooks/{name}.html")
    wait_for(browser, "window.MathJax && MathJax.startup && !!MathJax.startup.promise")
    browser.execute_async_script("MathJax.startup.promise.then(arguments[arguments.length - 1])")
    sources = browser.execute_script(
        "return document.querySelectorAll('.math.notranslate:not(:has(mjx-container))').length"
    )
    typeset = browser.execute_script("return document.querySelectorAll('mjx-container').length")
    errors = browser.execute_script(
        "return [...document.querySelectorAll('mjx-merror')].map(e => e.textContent)"
    )
    assert (sources, errors) == (0, [])
    assert typeset > 0
    # A label or role that the book did not resolve stays in the text as it was typed.
    body = browser.execute_script("return document.querySelector('article').innerText")
    prose = browser.execute_script(
        "return [...document.querySelectorAll('article p')].map(p => p.innerText).join('\\n')"
    )
    assert "\\eqref" not in body
    assert "{cite}" not in prose
    assert "$$" not in prose
    images = browser.execute_script(
        "return [...document.querySelectorAll('article figure img, article .cell_output img')]"
        ".map(i => [i.complete && i.naturalWidth > 0, i.alt])"
    )
    assert images
    assert all(loaded and len(alt) > 20 for loaded, alt in images)
    overflow = browser.execute_script(
        "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overflow <= 0
    download = browser.execute_script(
        "return [...document.querySelectorAll('a.btn-download-source-button')].map(a => a.href)"
    )
    assert download
    assert all(
        (site / "_sources" / "notebooks" / f"{name}.ipynb").samefile(d[7:]) for d in download
    )
    complaints = [e for e in browser.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]
    assert complaints == []


def test_search_finds_a_word(browser: object, site: Path) -> None:
    browser.get(f"file://{site}/search.html?q=magnetisation")
    assert wait_for(browser, "document.querySelectorAll('#search-results li a').length") > 0


def test_front_page_redirects_to_the_welcome(browser: object, site: Path) -> None:
    browser.get(f"file://{site}/index.html")
    assert wait_for(browser, "location.pathname.endsWith('/book/welcome.html')")


def test_no_dead_badge_without_an_address(site: Path) -> None:
    for name in CHAPTERS:
        text = (site / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        assert "colab" not in text.split("<article")[0].lower()
        assert "colab-badge" not in text


def test_buttons_point_to_the_notebook_with_an_address(public_site: Path) -> None:
    targets = read_links(public_site / "notebooks" / "01_small.html").targets
    colab = [t for t in targets if t.startswith("https://colab.research.google.com/")]
    wanted = (
        "https://colab.research.google.com/github/owner/book/blob/main/notebooks/01_small.ipynb"
    )
    assert len(colab) >= 2
    assert set(colab) == {wanted}
    assert any(t.startswith("https://mybinder.org/v2/gh/owner/book/main") for t in targets)

"""The built book, as a reader's browser shows it with the network unplugged."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from importlib.util import find_spec
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
                # Behind the name, a link to a live figure carries its setting.
                name = unquote(parts.fragment).split("&")[0]
                assert name in pages[file].anchors, f"{page.name}: {target}"


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


# ---- live figures


def open_map(browser: object, site: Path, setting: str = "") -> None:
    # Another address of the same page would not load it anew.
    browser.get("about:blank")
    browser.get(f"file://{site}/book/explorables.html#map{setting}")
    wait_for(browser, "document.querySelectorAll('[data-explorable=map] canvas').length === 6")


def tokens_shown(browser: object) -> int:
    text = browser.execute_script(
        "return document.querySelector('.explorable-counter').textContent"
    )
    return int(text.split()[0].replace(",", ""))


def test_the_map_takes_its_setting_from_the_address_and_runs(browser: object, site: Path) -> None:
    open_map(browser, site, "&beta=1.2646&epsilon=0.02&start=random%202&beta_wrong=1")
    assert browser.execute_script("return document.querySelector('[name=start]').value") == (
        "random 2"
    )
    assert float(
        browser.execute_script("return document.querySelector('input[name=beta]').value")
    ) == (pytest.approx(1.2646))
    before = tokens_shown(browser)
    wait_for(browser, f"parseInt(document.querySelector('.explorable-counter').textContent"
                      f".replaceAll(',', '')) > {before + 1000}")  # fmt: skip
    told = browser.execute_script("return document.querySelector('.explorable-told').textContent")
    assert "β = 1.26460" in told


def test_the_map_is_driven_by_mouse_and_by_keyboard(browser: object, site: Path) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    open_map(browser, site)
    browser.find_element(By.XPATH, "//button[text()='Pause']").send_keys(Keys.SPACE)
    browser.find_element(By.XPATH, "//button[text()='One token']").click()
    still = tokens_shown(browser)
    browser.find_element(By.XPATH, "//button[text()='One token']").click()
    assert tokens_shown(browser) == still + 1
    sheet = browser.find_element(By.CSS_SELECTOR, "canvas.explorable-press")
    ActionChains(browser).move_to_element(sheet).click().perform()
    pressed = float(browser.find_element(By.NAME, "beta").get_attribute("value"))
    assert 1.24 < pressed < 1.26
    browser.find_element(By.NAME, "beta").send_keys(Keys.ARROW_RIGHT)
    moved = float(browser.find_element(By.NAME, "beta").get_attribute("value"))
    assert moved == pytest.approx(pressed + 1e-5)
    wait_for(browser, f"location.hash.includes('beta={moved:.5f}'.replace(/0+$/, ''))")


def test_the_map_is_open_to_everyone(browser: object, site: Path) -> None:
    axe = Path(next(iter(find_spec("axe_core_python").submodule_search_locations))) / "axe.min.js"
    for theme, width in (("light", 1300), ("dark", 420)):
        browser.set_window_size(width, 1000)
        open_map(browser, site)
        browser.execute_script(f"document.documentElement.dataset.theme = '{theme}'")
        browser.execute_script(axe.read_text(encoding="utf-8"))
        serious = browser.execute_async_script(
            "axe.run(document.querySelector('[data-explorable]')).then(found => arguments[0]("
            "found.violations.filter(v => ['serious', 'critical'].includes(v.impact))"
            ".map(v => [v.id, v.nodes.map(n => n.html)])))"
        )
        assert serious == []
        assert browser.execute_script(
            "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
    browser.set_window_size(1300, 1000)

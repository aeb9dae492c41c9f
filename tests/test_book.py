"""The built book, as a reader's browser shows it with the network unplugged."""

import itertools
import re
import shutil
from collections import Counter
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pages import press, until, wait_for
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from test_book_of_one_chapter import build, read_links

from bookmaker import welcome
from bookmaker.base import repository_address
from bookmaker.claims import VERDICTS, read_rows
from bookmaker.source import chapters

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = [chapter.name for chapter in chapters(ROOT)]
# All pages are built once for all of these; a book of one chapter is built in every test run.
pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The book as long as nobody decided where it lives (any warning fails the build)."""
    return build(ROOT, tmp_path_factory.mktemp("site"))


def resize(browser, width):
    """Show a page as wide as that: a window of its own has a least width."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False},
    )


def test_no_internal_link_is_broken_and_nothing_is_loaded_from_elsewhere(site):
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


# What a chapter's page holds that it should not, by name: all must be empty.
LEFT = """return {
    formulas: all('.math.notranslate:not(:has(mjx-container))').length,
    errors: all('mjx-merror').map(e => e.textContent),
    untold: all('article figure svg.figure, article figure img').filter(
        i => i.getBoundingClientRect().height < 20
        || (i.alt || i.getAttribute('aria-label')).length < 20).length,
    // A label or role that the book did not resolve stays in the text as it was typed.
    typed: all('article p').map(p => p.innerText).filter(t => /\\\\eqref|\\{cite|\\$\\$/.test(t)),
    // Terms are linked where running prose first uses them.
    terms: all('a.term').filter(
        a => !a.closest('p') || a.closest('code, pre, figcaption, table, h1, h2, h3, h4')
        || all(`a.term[href="${a.getAttribute('href')}"]`).length > 1).map(a => a.href),
}; function all(chosen) { return [...document.querySelectorAll(chosen)]; }"""
# What is wider than its place, in which a pixel is rounding. Figures and tables that are too wide
# for a telephone scroll and show it; formulas and code go on below.
WIDE = """return [
    ...[document.documentElement].filter(e => e.scrollWidth > e.clientWidth),
    ...all('.math, article pre, article dt.sig').filter(
        e => e.checkVisibility() && e.scrollWidth > e.clientWidth + 3
        && getComputedStyle(e).display !== 'inline'),
    ...all('article mjx-container').filter(e => e.checkVisibility() && !e.closest('table')
        && e.getBoundingClientRect().right > document.documentElement.clientWidth),
    ...all('.claim, .claim *, table.claims-counts').filter(
        e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0
        && getComputedStyle(e).display !== 'inline')].map(e => e.textContent);
    function all(chosen) { return [...document.querySelectorAll(chosen)]; }"""
# What does not begin where the title does, or is text in lines that are too long to read.
EDGES = """const left = edge(document.querySelector('article h1'));
    const parts = ['p', 'div.math', 'figure', 'figure > svg', 'figure > figcaption', 'div.cell',
        'div.cell_input', 'div.shown', 'table', 'h2', 'h3', 'div.admonition'].map(
        part => `:is(article section, div.cell, .cell_output, .output, article figure) > ${part}`);
    const seen = [...document.querySelectorAll(parts.join())].filter(e => e.checkVisibility()
        && !e.closest('[data-explorable], .admonition, .book-cards, aside')
        || e.matches('section > div.admonition'));
    return seen.filter(e => Math.abs(edge(e) - left) > 1
        || e.matches('p, div.math, figcaption') && e.offsetWidth > 641).map(e => e.outerHTML);
    function edge(e) { return e.getBoundingClientRect().left; }"""


def typeset(browser):
    wait_for(browser, "window.MathJax && MathJax.startup && !!MathJax.startup.promise")
    browser.execute_async_script("MathJax.startup.promise.then(arguments[arguments.length - 1])")


def assert_whole_on_every_width(browser):
    for width in (1400, 800, 390):
        resize(browser, width)
        until(browser, lambda: browser.execute_script(WIDE) == [])
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapter_in_the_browser(browser, site, name):
    browser.get(f"file://{site}/notebooks/{name}.html")
    typeset(browser)
    assert not {key: found for key, found in browser.execute_script(LEFT).items() if found}
    for chosen, fewest in (("mjx-container", 1), ("article figure svg.figure", 1), ("a.term", 4)):
        assert len(browser.find_elements("css selector", chosen)) >= fewest, chosen
    assert browser.execute_script(EDGES) == []
    assert_whole_on_every_width(browser)
    (download,) = browser.find_elements("css selector", "a.btn-download-source-button")
    source = site / "_sources" / "notebooks" / f"{name}.ipynb"
    assert source.samefile(download.get_attribute("href")[7:])
    complaints = [e for e in browser.get_log("browser") if e["level"] in ("SEVERE", "WARNING")]
    assert complaints == []


def test_chapters_claims_and_tests_link_to_one_another(site):
    rows = read_rows(ROOT)
    claims = read_links(site / "book" / "claims.html").targets
    tests = read_links(site / "book" / "claim_tests.html").targets
    page = (site / "book" / "claims.html").read_text(encoding="utf-8")
    for table in (Path(row["settings"]) for row in rows if row["settings"]):
        assert f"{table.parent}-{table.stem}.svg" in page
    for name in CHAPTERS:
        mine = {f"claim-{row['id'].lower()}" for row in rows if name in row["chapters"]}
        targets = read_links(site / "notebooks" / f"{name}.html").targets
        assert {t.partition("#")[2] for t in targets if "claims.html#claim-" in t} >= mine
        assert not mine or f"../notebooks/{name}.html" in claims
    for row in rows:
        file, _, test = row["test"].partition("::")
        anchor = f"{Path(file).stem}-{test}".replace("_", "-")
        assert f"claim_tests.html#{anchor}" in claims
        assert f"claims.html#claim-{row['id'].lower()}" in tests


@pytest.mark.parametrize(
    ("part", "letter"), [("part1_end", "A"), ("part2_end", "B"), ("part3_end", "C")]
)
def test_a_part_ends_with_the_verdicts_of_its_document(site, part, letter):
    text = (site / "book" / f"{part}.html").read_text(encoding="utf-8")
    mine = [row for row in read_rows(ROOT) if row["document"] == letter]
    assert re.findall(r"<li><p><strong>(\w+)</strong>", text) == [
        row["id"] for verdict in VERDICTS for row in mine if row["verdict"] == verdict
    ]
    # Identities are listed and take part in no count.
    counts = Counter(row["verdict"] for row in mine if row["verdict"] != "identity")
    assert re.findall(r"</strong> \((\d+) of (\d+)\)", text) == [
        (str(counts[verdict]), str(counts.total())) for verdict in VERDICTS if counts[verdict]
    ]


def test_claims_can_be_filtered_and_are_whole_on_every_width(browser, site):
    shown = "[...document.querySelectorAll('div.claim')].filter(c => c.offsetHeight > 0).length"
    rows = read_rows(ROOT)
    browser.get(f"file://{site}/book/claims.html?verdict=fails")
    assert wait_for(browser, shown) == sum(row["verdict"] == "fails" for row in rows)
    browser.execute_script("document.querySelector('.claims-filter [data-key=verdict]').click()")
    assert wait_for(browser, shown) == len(rows)
    # What is chosen stands in the address, and a reload keeps it.
    browser.execute_script("document.querySelector('.claims-filter [data-name=holds]').click()")
    assert browser.execute_script("return location.search") == "?verdict=holds"
    browser.refresh()
    assert wait_for(browser, shown) == sum(row["verdict"] == "holds" for row in rows)
    browser.execute_script("document.querySelector('.claims-filter [data-key=verdict]').click()")
    assert browser.execute_script("return location.search") == ""
    # The buttons of a kind share out all claims, as the table above them does.
    for kind in ("part", "verdict"):
        spans = browser.find_elements("css selector", f".claims-filter [data-key={kind}] span")
        counts = [int(span.get_attribute("textContent")) for span in spans]
        assert sum(counts[1:]) == counts[0] == len(rows)
    assert_whole_on_every_width(browser)


def test_the_claims_page_says_verdict_and_reason_and_folds_the_rest(browser, site):
    """Before the filter come the surprises, before the fold what a visitor asks."""
    browser.get(f"file://{site}/book/claims.html")
    page = (ROOT / "book" / "claims.md").read_text(encoding="utf-8")
    named = page.partition("```{claims}\n")[2].split("\n```")[0].split()
    order = """return [...document.querySelectorAll('div.surprise, .claims-filter, div.claim')]
        .map(e => e.className.split(' ')[0] === 'claims-filter' ? '' : e.querySelector('a').text)"""
    shown = browser.execute_script(order)
    assert shown[: shown.index("")] == named
    assert len(named) == 5
    rows = {row["id"]: row for row in read_rows(ROOT)}
    for card in browser.find_elements("css selector", "div.claim"):
        row = rows[card.find_element("css selector", "a").text]
        assert card.find_element("css selector", "strong").text
        # Without the quotes and dashes that the page sets in its own way.
        seen, sure = (re.sub(r"\W+", " ", text) for text in (card.text, row["sure"]))
        assert row["verdict"] in seen
        assert sure[:30].strip() in seen
        assert "Criterion" not in seen
    # A row took 360 pixels of the page when all of this was open.
    resize(browser, 1300)
    height = browser.execute_script("return document.documentElement.scrollHeight")
    assert height < 240 * len(rows)
    browser.get(f"file://{site}/book/claims.html#claim-c9")
    assert wait_for(browser, "document.querySelector('#claim-c9 details').open")
    assert "Criterion" in browser.find_element("css selector", "#claim-c9").text


def test_search_finds_a_word_and_the_front_page_leads_to_the_welcome(browser, site):
    for word in ("magnetization", "Neimark-Sacker", "lyapunov_spectrum"):
        browser.get(f"file://{site}/search.html?q={word}")
        assert wait_for(browser, "document.querySelectorAll('#search-results li a').length") > 0
    browser.get(f"file://{site}/index.html")
    assert wait_for(browser, "location.pathname.endsWith('/book/welcome.html')")


def test_chapters_and_the_functions_they_use_link_to_one_another(site, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book" / "_ext")
    reference = import_module("site_pages")
    folder = site / "book" / "reference"
    pages = {page.name: page.read_text(encoding="utf-8") for page in folder.glob("*.html")}
    anchors = set().union(*(read_links(folder / page).anchors for page in pages))
    rooms = ("hopfield", "spins", "dmft", "language", "core", "bookmaker.sweeps")
    found = [item for room in rooms for item in reference.modules(ROOT / "src", room)]
    assert {f"{name}.{last}" for name, _, names in found for last in names} <= anchors
    uses = 0
    for name in CHAPTERS:
        targets = read_links(site / "notebooks" / f"{name}.html").targets
        linked = {target.partition("#")[2]: target for target in targets}
        known = [full for full in reference.used(ROOT)[name] if full in anchors]
        uses += len(known)
        for full in known:
            page = pages[Path(linked[full].partition("#")[0]).name]
            entry = page[page.index(f'id="{full}"') :]
            # Up to the next entry, which may be a method of this one.
            assert f"notebooks/{name}.html" in entry.partition('<dl class="py')[0], full
    assert uses > 4 * len(CHAPTERS)
    entry = pages["dynamics.html"].partition('id="spinformer.dmft.network.Network"')[2]
    assert "gamma" in re.sub(r"<[^>]+>", "", entry.partition("</dt>")[0])
    # What a class inherits stands with it.
    assert "spinformer.dmft.network.Network.with_parameters" in anchors


@pytest.mark.parametrize("name", CHAPTERS)
def test_chapters_are_numbered_as_their_files(site, name):
    text = (site / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
    number = name.partition("_")[0]
    headings = re.findall(r'<h([1-6])><span class="section-number">([\w.]+)\. </span>', text)
    sections = [("2", f"{number}.{n}") for n in range(1, len(headings))]
    assert headings == [("1", number), *sections]
    source = (ROOT / "notebooks" / f"{name}.md").read_text(encoding="utf-8")
    for label, kind in (
        ("name: fig-", r'"caption-number">Fig\. ([\w.]+)'),
        ("$$ (eq-", r'class="eqno">\(([\w.]+)\)'),
    ):
        counted = range(1, source.count(label) + 1)
        assert re.findall(kind, text) == [f"{number}.{n}" for n in counted]


def test_pages_are_light_still_and_say_what_they_are(site):
    for page in site.rglob("*.html"):
        if "_static" in page.parts or page.name in ("index.html", "search.html", "genindex.html"):
            continue
        text = page.read_text(encoding="utf-8")
        # Those on cards come as they are reached.
        images = [i for i in re.findall(r"<img [^>]+>", text) if 'loading="lazy"' not in i]
        loaded = {page.parent / re.search(r'src="([^"]+)"', image)[1] for image in images}
        files = sum(file.stat().st_size for file in loaded if file.is_file())
        # The reference lists every function there is.
        limit = 3_000_000 if page.parent.name == "reference" else 2_000_000
        assert len(text.encode()) + files < limit, page.name
        article = text[text.index("<article") : text.index("</article")]
        for image in re.findall(r"<img [^>]+>", article):
            # Space is kept for a picture before it is there.
            assert re.search(r' width="\d+" height="\d+"', image), f"{page.name}: {image}"
        assert "Executed with the libraries" in text
        assert 'class="skip-link' in text


def test_live_figures_leave_a_picture_where_scripts_are_off(site):
    text = (site / "book" / "explorables.html").read_text(encoding="utf-8")
    pictures = "".join(re.findall(r"<noscript><figure.*?</noscript>", text, flags=re.DOTALL))
    told = r'<svg class="figure" role="img" aria-label="[^"]{20,}".*?<figcaption>'
    assert len(re.findall(told, pictures, flags=re.DOTALL)) == len(CANVASES)


def test_no_dead_badge_without_an_address(site):
    text = (site / "notebooks" / "12_continuous_memory.html").read_text(encoding="utf-8")
    assert ("colab" in text.split("<article")[0].lower()) == bool(repository_address(ROOT))


# ---- live figures


CANVASES = {"landscape": 3, "spins": 3, "module": 4, "map": 6, "recall": 6, "twelve": 3}


def open_figure(browser, site, name, setting="", page="book/explorables"):
    # Another address of the same page would not load it anew.
    browser.get("about:blank")
    browser.get(f"file://{site}/{page}.html#{name}{setting}")
    place = f"document.querySelectorAll('[data-explorable={name}] canvas').length"
    wait_for(browser, f"{place} === {CANVASES[name]}")


def told(browser, name):
    return within(browser, name, ".explorable-told").get_attribute("textContent")


def within(browser, name, selector):
    """The element of a live figure that a selector names."""
    return browser.find_element("css selector", f"[data-explorable={name}] {selector}")


def tokens_shown(browser):
    text = within(browser, "map", ".explorable-counter").get_attribute("textContent")
    return int(text.split()[0].replace(",", ""))


def setting(browser):
    pairs = browser.execute_script("return location.hash").split("&")[1:]
    return dict(unquote(pair).split("=") for pair in pairs)


def test_the_map_is_driven_by_mouse_and_by_keyboard(browser, site):
    open_figure(browser, site, "map")
    browser.find_element(By.XPATH, "//button[text()='Pause']").send_keys(Keys.SPACE)
    one = browser.find_element(By.XPATH, "//button[text()='One token']")
    press(browser, one)
    still = tokens_shown(browser)
    one.click()
    assert tokens_shown(browser) == still + 1
    press(browser, within(browser, "map", "canvas.explorable-press"))
    pressed = float(within(browser, "map", "[name=beta]").get_attribute("value"))
    assert 1.24 < pressed < 1.26
    within(browser, "map", "[name=beta]").send_keys(Keys.ARROW_RIGHT)
    moved = float(within(browser, "map", "[name=beta]").get_attribute("value"))
    assert moved == pytest.approx(pressed + 1e-5)
    until(browser, lambda: float(setting(browser).get("beta", 0)) == pytest.approx(moved))


def test_the_landscape_is_driven_by_address_mouse_and_keyboard(browser, site):
    open_figure(browser, site, "landscape", "&beta=8&points=1,0;-1,0&query=0.5,1")
    assert "at pattern 1 with weight 1.00; 0 of its steps climb" in told(browser, "landscape")
    sheet = within(browser, "landscape", ".explorable-press")
    press(browser, sheet, (-120, 30))
    until(browser, lambda: setting(browser)["query"] != "0.5,1")
    x, y = map(float, setting(browser)["query"].split(","))
    assert x < -0.3
    sheet.send_keys("q", Keys.ARROW_UP)
    until(browser, lambda: setting(browser)["query"] != f"{x:g},{y:g}")
    assert float(setting(browser)["query"].split(",")[1]) == pytest.approx(y + 0.05)


def test_the_three_spins_are_driven_by_address_mouse_and_keyboard(browser, site):
    open_figure(browser, site, "spins", "&beta=0.8&j12=1&j13=1&j23=1&h1=0&h2=0&h3=0")
    # Three spins that agree have no magnetization, but two in the naive theory.
    # The curves are computed piece by piece between pictures.
    until(browser, lambda: "exact 0.000, naive" in told(browser, "spins"))
    assert told(browser, "spins").count("one of two solutions") >= 1
    sheet = within(browser, "spins", ".explorable-press")
    press(browser, sheet, (0, -sheet.size["height"] // 2 + 55), (0, -30))
    until(browser, lambda: float(setting(browser).get("h1", 0)) == pytest.approx(0.5))
    within(browser, "spins", "[name=beta]").send_keys(Keys.ARROW_LEFT)
    until(browser, lambda: float(setting(browser)["beta"]) == pytest.approx(0.78))


def test_the_module_is_driven_by_address_mouse_and_keyboard(browser, site):
    open_figure(browser, site, "module", "&strength=1.5&tokens=0.9,0.5;-1,0.3;0.2,-0.9")
    assert "are impossible for spins" in told(browser, "module")
    open_figure(browser, site, "module", "&strength=1.5&solver=saddle&token=2")
    assert "token 2: residual" in told(browser, "module")
    assert "are possible for spins" in told(browser, "module")
    sheet = within(browser, "module", ".explorable-press")
    # The plane reaches to 1.7 in each direction; token 1 stands at (0.9, 0.5).
    unit = (min(sheet.size["width"], sheet.size["height"]) / 2 - 4) / 1.7
    press(browser, sheet, (round(0.9 * unit), round(-0.5 * unit)), (0, round(-unit)))
    until(browser, lambda: setting(browser).get("token") == "1")
    x, y = map(float, setting(browser)["tokens"].split(";")[0].split(","))
    assert (x, y) == (pytest.approx(0.9, abs=0.05), pytest.approx(1.5, abs=0.05))
    sheet.send_keys("3", Keys.ARROW_LEFT)
    until(browser, lambda: setting(browser)["tokens"].endswith(";0.15,-0.9"))
    within(browser, "module", "[name=strength]").send_keys(Keys.ARROW_LEFT)
    until(browser, lambda: float(setting(browser)["strength"]) == pytest.approx(1.48))


@pytest.mark.parametrize(
    ("chapter", "name"),
    [
        ("12_continuous_memory", "landscape"),
        ("21a_cheap_free_energies", "spins"),
        ("23b_module", "module"),
        ("33_phase_transitions", "map"),
    ],
)
def test_a_live_figure_stands_in_its_chapter(browser, site, chapter, name):
    open_figure(browser, site, name, "&beta=1.25", page=f"notebooks/{chapter}")
    assert float(within(browser, name, "[name=beta]").get_attribute("aria-valuetext")) == 1.25
    # A page without one is not burdened with its scripts.
    other = (site / "book" / "notation.html").read_text(encoding="utf-8")
    assert "explorables" not in other.split("</head>")[0]


AXE = Path(next(iter(find_spec("axe_core_python").submodule_search_locations))) / "axe.min.js"
# The page of claims with a few of them: the others are alike.
KINDS = (
    "book/welcome.html",
    "book/references.html",
    "book/notation.html",
    "book/claims.html?verdict=fails",
    "book/reference/sweeps.html",
    "notebooks/33b_lifetimes.html",
)


def serious_faults(browser, place, theme):
    """What axe finds in a part of the page that is open."""
    # Colors that are still on their way to those of another theme would be measured.
    browser.execute_script(
        "const style = document.createElement('style');"
        "style.textContent = '* { transition: none !important; }';"
        "document.head.append(style); document.documentElement.dataset.theme = arguments[0]",
        theme,
    )
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    return browser.execute_async_script(
        f"axe.run({place}, {{resultTypes: ['violations']}}).then(f => arguments[0]("
        "f.violations.filter(v => ['serious', 'critical'].includes(v.impact))"
        ".map(v => [v.id, v.nodes.map(n => n.html)])))"
    )


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("page", KINDS)
def test_a_page_is_open_to_everyone(browser, site, page, theme):
    browser.set_script_timeout(120)
    browser.get(f"file://{site}/{page}")
    assert serious_faults(browser, "document", theme) == []


def test_figures_have_no_ground_turn_light_on_dark_and_open_when_pressed(browser, site):
    browser.get(f"file://{site}/notebooks/12_continuous_memory.html")
    fills = (
        "document.documentElement.dataset.theme = arguments[0];"
        "return ['', ' .as-drawn', ' .as-drawn .ink'].map("
        "n => getComputedStyle(document.querySelector('svg.figure' + n)).fill)"
    )
    ink = "rgb(232, 232, 232)"
    black = "rgb(0, 0, 0)"
    assert browser.execute_script(fills, "light") == [black] * 3
    assert browser.execute_script(fills, "dark") == [ink, black, ink]
    assert browser.execute_script("return document.querySelectorAll('svg path').length") > 100
    # What is cut at the edge of the axes, white arrows say, is drawn on the ground.
    ground = "path[style='fill: #ffffff']:not([clip-path])"
    assert browser.execute_script(f'return document.querySelectorAll("{ground}").length') == 0
    press(browser, browser.find_element("css selector", "figure svg.figure"))
    opened = "return document.querySelectorAll('dialog[open] svg.figure').length"
    assert browser.execute_script(opened) == 1


def test_columns_of_a_figure_stand_below_one_another_on_a_telephone(browser, site):
    shown = (
        "return [...document.querySelectorAll('svg.figure[data-columns]')].map(s => {"
        "const b = s.getBoundingClientRect(); const [x, , w] ="
        " s.getAttribute('viewBox').split(' ').map(Number); return [b.x, b.y, x, w, b.width]; })"
    )
    browser.get(f"file://{site}/notebooks/12_continuous_memory.html")
    until(browser, lambda: browser.execute_script(shown))
    whole = browser.execute_script(shown)
    resize(browser, 400)
    until(browser, lambda: len(browser.execute_script(shown)) > len(whole))
    views = browser.execute_script(shown)
    for one, after in itertools.pairwise(views):
        if after[2] > 0:
            # The next window on the same drawing begins where this one ends, and lies below it
            # or, if it is small, beside it.
            assert after[2] == pytest.approx(one[2] + one[3])
            assert after[1] > one[1] or after[0] >= one[0] + one[4]
    assert sum(view[3] for view in views) == pytest.approx(sum(view[3] for view in whole))
    # Letters are as large as there is room for, and the page is as wide as the window.
    sizes = (
        "return [...document.querySelectorAll('article svg.figure')].map(s => {"
        "const found = [...s.querySelectorAll('text')].filter(t => t.textContent.trim()).map(t => {"
        "const m = t.getScreenCTM(), one = t.firstElementChild ?? t;"
        "return parseFloat(getComputedStyle(one).fontSize) * Math.hypot(m.a, m.b); });"
        "return found.sort((a, b) => a - b)[found.length >> 1]; })"
    )
    assert min(browser.execute_script(sizes)) > 8
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 400
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    until(browser, lambda: len(browser.execute_script(shown)) == len(whole))


def test_code_is_a_line_below_what_it_made_and_one_switch_opens_all(browser, site):
    browser.get(f"file://{site}/notebooks/33b_lifetimes.html")
    wait_for(browser, "document.querySelector('.code-switch') !== null")
    found = browser.execute_script(
        "const all = [...document.querySelectorAll('div.cell')]"
        ".filter(c => c.querySelector('.cell_input'));"
        "const seen = all.filter(c => c.querySelector('.cell_input').checkVisibility());"
        "return [all.length, seen.map(c => [...c.classList].filter(n => n.startsWith('tag_')))]"
    )
    assert found[0] > 5
    opened = {"tag_parameters", "tag_standalone", "tag_show-input"}
    assert all(opened & set(tags) for tags in found[1])
    # A thin line, below the figure or the table that the code made.
    lines = browser.execute_script(
        "const box = e => e.getBoundingClientRect();"
        "return [...document.querySelectorAll('div.cell:has(> .cell_output) > details.hide')].map("
        "d => [box(d).height, box(d).top - box("
        "d.parentElement.querySelector('.cell_output')).bottom])"
    )
    assert len(lines) > 5
    assert all(height < 30 and below >= 0 for height, below in lines)
    folds = "[...document.querySelectorAll('div.cell:not([hidden]) > details.hide')]"
    press(browser, browser.find_element("css selector", "div.cell details.hide summary"))
    assert browser.execute_script(f"return {folds}.filter(d => d.open).length") == 1
    switch = browser.find_element("css selector", ".code-switch")
    for told in ("Hide all code", "Show all code"):
        press(browser, switch)
        wanted = "true" if told.startswith("Hide") else "false"
        assert browser.execute_script(f"return {folds}.every(d => d.open === {wanted})")
        assert switch.text == told
    # No cell's code is lost where several are one fold.
    inputs = "document.querySelectorAll('div.cell .cell_input').length"
    text = (site / "notebooks" / "33b_lifetimes.html").read_text(encoding="utf-8")
    assert browser.execute_script(f"return {inputs}") == text.count('class="cell_input')


def test_pages_say_what_they_are_where_they_are_shared(site):
    pages = [p for p in site.rglob("*.html") if "_static" not in p.parts]
    texts = {p: p.read_text(encoding="utf-8") for p in pages}
    titles = Counter(re.search("<title>(.*?)</title>", text)[1] for text in texts.values())
    assert [title for title, count in titles.items() if count > 1] == []
    for name in CHAPTERS:
        head = texts[site / "notebooks" / f"{name}.html"].partition("</head>")[0]
        (told,) = re.findall('<meta name="description" content="(.*?)">', head)
        assert 60 < len(told) < 700, name
        assert f'<meta property="og:description" content="{told}">' in head
        # No formula in TeX, no codes of the source.
        assert not re.search(r"[\\{}`]|\$", told), told
        assert 'rel="icon"' in head
        # As long as nobody decided where the book lives, nothing names an address.
        assert bool(repository_address(ROOT)) == ("og:image" in head) == ("canonical" in head)


@pytest.mark.parametrize("name", ["dynamics", "spins", "tools"])
def test_the_reference_has_sections_short_names_and_typeset_formulas(browser, site, name):
    browser.get(f"file://{site}/book/reference/{name}.html")
    typeset(browser)
    found = browser.execute_script(
        "const all = chosen => [...document.querySelectorAll(chosen)];"
        "return [all('article dl.py .sig-prename').map(e => e.textContent),"
        " all('article mjx-merror').map(e => e.textContent),"
        " all('article dl.py p').map(e => e.innerText).filter(t => /\\^\\{|:math:/.test(t)),"
        " [...new Set(all('article dl.field-list > dt').map(e => e.textContent.replace(':', '')))]]"
    )
    names, errors, typed, sections = found
    assert [one for one in names if one.startswith("spinformer")] == []
    assert errors == []
    assert typed == []
    assert {"Parameters", "Returns", "Raises", "Attributes"} <= set(sections)
    assert "Variables" not in sections
    # The list beside the page is not cut off, and an enumeration does not show how it is made.
    assert (
        browser.execute_script(
            "return [...document.querySelectorAll('.bd-sidebar-secondary .nav-link')].filter("
            "e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"
        )
        == []
    )
    if name == "tools":
        status = browser.find_element("id", "spinformer.core.solve.Status").text
        assert status.split("#")[0].strip() == "class Status"
    assert_whole_on_every_width(browser)


def test_cards_show_one_panel_large_enough_to_read(browser, site):
    resize(browser, 1400)
    browser.get(f"file://{site}/book/results.html")
    letters = browser.execute_async_script(
        "const done = arguments[0], root = document.documentElement; root.dataset.theme = 'light';"
        "const seen = [...document.querySelectorAll('.book-card img')].filter(e => e.offsetWidth);"
        "for (const e of seen) e.loading = 'eager';"
        "Promise.all(seen.map(e => e.decode())).then(() => done(seen.map(e =>"
        " Math.min(e.clientWidth / e.naturalWidth, e.clientHeight / e.naturalHeight))))"
    )
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert len(letters) == len(CHAPTERS)
    # One is the size in which a figure is drawn; three panels on a card were at a quarter of it.
    assert min(letters) > 0.35
    assert sorted(letters)[len(letters) // 2] > 0.6


def test_formulas_are_legible_without_scripts(site):
    for name in ("12_continuous_memory", "51_synthesis"):
        text = (site / "notebooks" / f"{name}.html").read_text(encoding="utf-8")
        assert text.count("<noscript><math") == text.count('class="tex"') > 50
        assert "<noscript><style>.tex{display:none}</style></noscript>" in text
        # What the converter does not know it leaves as it is typed.
        assert re.findall(r"<mi>\\\w+</mi>", text) == []


def test_pages_are_printed_on_white(browser, site):
    browser.get(f"file://{site}/notebooks/33b_lifetimes.html")
    wait_for(browser, "document.readyState === 'complete'")
    told = browser.execute_script(
        "const root = document.documentElement; root.dataset.theme = 'dark';"
        "const shown = [];"
        "for (const name of ['beforeprint', 'afterprint']) {"
        " dispatchEvent(new Event(name)); shown.push(root.dataset.theme); } return shown"
    )
    assert told == ["light", "dark"]


def test_figures_of_the_front_page_are_counted_from_one(browser, site):
    browser.get(f"file://{site}/book/welcome.html")
    wait_for(browser, "document.querySelector('[data-small] canvas') !== null")
    numbers = browser.find_elements("css selector", "article .caption-number")
    shown = [one.text.strip() for one in numbers if one.is_displayed()]
    assert shown == [f"Fig. {n}" for n in range(1, len(shown) + 1)]
    assert len(shown) > 4


@pytest.mark.parametrize("name", ["22_vector_spins", "32_paths_to_mean_fields", "51_synthesis"])
def test_nothing_is_cut_off_on_paper(browser, site, name):
    resize(browser, 1400)
    browser.get(f"file://{site}/notebooks/{name}.html")
    typeset(browser)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    # As wide as the sheet of the PDF between its margins, which is set at three quarters.
    resize(browser, 885)
    until(browser, lambda: browser.execute_script(WIDE) == [])
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_the_pdf_begins_with_a_cover_and_with_contents_that_know_the_pages(site, monkeypatch):
    if not shutil.which("chromium"):
        pytest.skip("needs Chromium")
    front = welcome.cover_page(ROOT)
    for told in ("Transformers as spin systems", "The Spinformer authors", "<svg", "20"):
        assert told in front
    monkeypatch.setattr(welcome, "main_path", lambda _: ["book/part1", "book/part2"])
    printed = []
    numbered = welcome.first_pages
    monkeypatch.setattr(
        welcome, "first_pages", lambda pdf: printed.append(numbered(pdf)) or printed[-1]
    )
    welcome.write_pdf(ROOT, site)
    # Cover and contents, then the pages in their order; the numbers do not move those they number.
    assert printed[0] == printed[1]
    assert printed[0]["part1--"] == 3
    assert printed[0]["part2--"] > 3
    titles = welcome.titles([site / "book" / f"{name}.html" for name in ("part1", "part2")])
    contents = welcome.contents_page(ROOT, titles, printed[0])
    for name in ("part1", "part2"):
        number = printed[0][f"{name}--"]
        assert f'<li data-page="{number}"><a href="#{name}--">Part I' in contents


@pytest.mark.parametrize("name", CANVASES)
def test_a_live_figure_is_open_to_everyone(browser, site, name):
    for theme, width in (("light", 1300), ("dark", 420)):
        browser.set_window_size(width, 1000)
        open_figure(browser, site, name)
        place = f"document.querySelector('[data-explorable={name}]')"
        assert serious_faults(browser, place, theme) == []
        assert browser.execute_script(
            "return document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
    browser.set_window_size(1300, 1000)

"""What the site makes of drawings, without building it."""

import base64
import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.image import imsave
from pages import until

from spinformer.plot.style import COLORS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))
import site_drawings as DRAWINGS
import site_links as LINKS
import site_pages as PAGES

ROOT = Path(__file__).resolve().parents[1]


def test_a_colour_keeps_its_name_on_the_dark_ground_and_ink_turns():
    for name, color in COLORS.items():
        value = np.round(255 * np.array(to_rgb(color)))
        dark = DRAWINGS.on_dark(value)
        assert dark.min() > 200 if name == "black" else np.abs(dark - value).max() < 15, name
    assert DRAWINGS.on_dark(np.array([255, 255, 255])).max() < 40
    # The colours of a scale keep the order of their lightness.
    scale = 255 * colormaps["cividis"](np.linspace(0, 1, 12))[:, :3]
    assert (np.diff(DRAWINGS.on_dark(scale)[[0, 3, 9, 11]] @ [0.2, 0.7, 0.1]) > 0).all()


def test_what_lies_on_a_picture_keeps_its_colours():
    picture = '<g class="as-drawn"><path style="fill: #000000"/><g class="ink"/></g>'
    text, changed = DRAWINGS.two_grounds(f'<svg>{picture}<path style="stroke: #e69f00"/></svg>')
    assert changed == {"#000000"}
    assert 'style="fill: var(--on000000,#000000)"' in text
    assert 'style="stroke: #e69f00"' in text
    rule = DRAWINGS.dark_rule(changed)
    assert "svg.figure .ink{--on000000:#e8e8e8;}" in rule
    assert "svg.figure .as-drawn{--on000000:initial;}" in rule


def test_dots_on_paper_get_a_copy_for_the_dark_ground_and_a_picture_does_not():
    def picture(share):
        pixels = np.full((10, 10, 4), 255, dtype=np.uint8)
        pixels[: round(10 * share), :, :3] = 0
        stream = io.BytesIO()
        imsave(stream, pixels, format="png")
        data = base64.b64encode(stream.getvalue()).decode()
        return DRAWINGS.two_grounds(f'<svg><image href="data:image/png;base64,{data}"/></svg>')[0]

    assert picture(0.3).count('<image class="on-dark"') == 1
    assert picture(0.5).count("<image") == 1


def test_a_card_shows_a_drawing_made_for_each_ground(tmp_path):
    (tmp_path / "a.svg").write_text('<svg><path style="stroke: #000000"/></svg>')
    images = SimpleNamespace(images={"a.svg": "b.svg"})
    app = SimpleNamespace(srcdir=tmp_path, outdir=tmp_path, builder=images)
    context = {"body": '<img class="card-picture" src="../_images/b.svg">'}
    DRAWINGS.set_drawings(app, "book/results", "", context, None)
    shown = re.findall(r'dark-light ([\w-]+)" src="../_images/([^"]+)"', context["body"])
    assert shown == [("on-light", "b.svg"), ("on-dark", "dark-b.svg")]
    assert "svg .ink{--on000000:#e8e8e8;}" in (tmp_path / "_images" / "dark-b.svg").read_text()


def test_words_of_a_caption_follow_the_theme_but_not_within_a_tag():
    told = DRAWINGS.two_words('<a class="black">light green, pale</a> in light')
    assert re.sub("<span.*?</span>", "|", told) == '<a class="black">|| green, ||</a> in light'


@pytest.mark.parametrize("key", ["vaswani2017attention", "benallal2025smollm2"])
def test_a_source_that_a_docstring_names_becomes_a_citation(key):
    assert LINKS._words(f"as in [{key}]") == f"as in (:cite:t:`{key}`)"


def test_no_task_of_a_file_shows_the_key_of_a_source():
    tasks = " ".join(task for _, task, _ in PAGES.modules(ROOT / "src", "compendium"))
    assert "vanilla form ({cite:t}`vaswani2017attention`)" in tasks
    assert not re.search(r"\[[a-z]+\d{4}", tasks)


WIDE_FIGURE = """<!doctype html><meta charset="utf-8">
<link rel="stylesheet" href="{folder}/style.css"><script src="{folder}/figures.js"></script>
<article class="bd-article"><section><figure>
<svg class="figure" viewBox="0 0 600 100" width="800" height="133">
<g><text x="10" y="50" font-size="7">small letters</text></g></svg>
<figcaption>What is drawn, in a sentence that is longer than a telephone is wide.</figcaption>
</figure></section></article>"""


def test_a_wide_figure_is_pushed_aside_without_its_caption(browser, tmp_path):
    page = tmp_path / "page.html"
    page.write_text(WIDE_FIGURE.format(folder=(ROOT / "book" / "_static").as_uri()), "utf-8")
    scrolls = """return [...document.querySelectorAll('figure, figure *')]
        .filter(e => e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX === 'auto')
        .map(e => [e.className, e.querySelectorAll('svg, figcaption').length, e.tabIndex])"""
    size = "Emulation.setDeviceMetricsOverride"
    phone = {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd(size, phone)
    browser.get(page.as_uri())
    until(browser, lambda: browser.execute_script(scrolls) == [["figure-wide", 1, -1]])
    browser.execute_cdp_cmd(size, phone | {"width": 1400})
    until(browser, lambda: browser.execute_script(scrolls) == [])
    assert browser.execute_script("return !document.querySelector('.figure-wide')")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


FORMULA = r"""<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="{folder}/style.css">
<script>window.MathJax = {config}</script><script defer src="{folder}/formulas.js"></script>
<script defer src="{folder}/mathjax/startup.js"></script><article class="bd-article">
<div class="math" style="width: 20rem">\[u = \tanh(x + y + z), \qquad C(t + 1) = f(x) + f(y)\]</div>
</article>"""


def test_the_second_of_two_equations_begins_a_line_where_there_is_no_room(browser, tmp_path):
    settings = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    # Jupyter Book adds options of its own.
    config = json.dumps(settings["sphinx"]["config"]["mathjax3_config"] | {"options": {}})
    page = tmp_path / "page.html"
    folder = (ROOT / "book" / "_static").as_uri()
    page.write_text(FORMULA.format(folder=folder, config=config), "utf-8")
    browser.get(page.as_uri())
    lines = "return [...document.querySelectorAll('mjx-linebox')].map(e => e.textContent)"
    # Else the first line is filled with the left side of the second equation.
    until(browser, lambda: any(re.match("C|𝐶", line) for line in browser.execute_script(lines)))

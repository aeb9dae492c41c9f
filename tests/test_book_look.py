"""What the site makes of printed lines and of drawings, without building it."""

import base64
import io
import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib import colormaps
from matplotlib.colors import to_rgb
from matplotlib.image import imsave

from spinformer.plot.style import COLORS

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))
import site_drawings as DRAWINGS
import site_printed as PRINTED


def rows(html):
    """The cells of all tables."""
    found = re.findall(r"<tr>(.*?)</tr>", html)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in found]


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        # The same words around other numbers.
        (
            "d =  500: lost 0.22 +- 0.01, theory -1\nd = 1000: lost 0.39 +- 0.02, theory 0\n",
            "d|lost|theory\n500|0.22 ± 0.01|−1\n1000|0.39 ± 0.02|0",
        ),
        # Words behind a number.
        (
            "T = 4, beta 0.5: 0 of 16 come back\nT = 8, beta 0.6: 3 of 16 come back\n",
            "T|β|come back\n4|0.5|0 of 16\n8|0.6|3 of 16",
        ),
        # Columns with a gap.
        (
            " N   states  factor  one step\n 6       64            36\n 8      256  4.13      64\n",
            "N|states|factor|one step\n6|64||36\n8|256|4.13|64",
        ),
        # Columns without a gap.
        (
            "  hidden:  lower  upper\nas it is:     57     71\n  scaled:     59     72\n",
            "hidden:|lower|upper\nas it is:|57|71\nscaled:|59|72",
        ),
        # A phrase is not cut at its numbers.
        (
            "cubic: 0 rises in 10 flips; left: 0\nsquare: 0 rises in 10 flips; left: 2\n",
            "|0 rises in 10 flips; left\ncubic|0\nsquare|2",
        ),
    ],
)
def test_printed_lines_are_a_table(text, cells):
    assert "\n".join(map("|".join, rows(PRINTED.printed(text)))) == cells


@pytest.mark.parametrize(
    "text",
    [
        # One line, lines of different kinds, and numbers of which no word says what they are.
        "largest deviation: 0.25",
        "mean 0.5\nat most 3 of 10, at least 0.1",
        "random: share at 1, 8 times: 0.0, 0.1\nopposed: share at 1, 8 times: 0.0, 0.9",
    ],
)
def test_other_printed_lines_are_sentences(text):
    html = PRINTED.printed(text)
    assert re.findall(r"<p>(.*?)</p>", html) == text.splitlines()
    assert "<table" not in html


def test_no_number_is_lost_on_a_page(root):
    number = re.compile(r"\d+(?:\.\d+)?")
    count = 0
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            tags = cell["metadata"].get("tags", [])
            if cell["cell_type"] != "code" or {"remove-cell", "results"} & set(tags):
                continue
            text = "".join("".join(o["text"]) for o in cell["outputs"] if o.get("name") == "stdout")
            html = PRINTED.take_printed(cell)
            shown = set(number.findall(re.sub(r"<[^>]*>|&#x27;", " ", html)))
            assert set(number.findall(text)) <= shown, f"{path.name}: {text}"
            assert "\n\n" not in html
            count += bool(html)
    assert count > 200


def test_numbers_of_a_figure_and_long_tables_are_folded():
    assert PRINTED.printed("at rest: 3\n", folded=True).count("<details>") == 1
    assert "<details>" not in PRINTED.printed("at rest: 3\n" * 12)
    assert "<details>" in PRINTED.printed("at rest: 3\n" * 13)


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

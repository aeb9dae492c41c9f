"""Figures as SVG: what a page can do with them, and that they are small and the same again."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

from spinformer.plot.style import label_panels
from spinformer.plot.vector import _DENSE, figure_svg


def draw(points=20, *, label="field $\\beta h$"):
    """A line with a label beside a picture with words on it."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(6, 3), layout="constrained")
    left.plot(np.arange(points), np.sin(np.arange(points)), "o", label="sine")
    left.set_xlabel(label)
    left.legend(loc="upper right")
    right.imshow(np.eye(3))
    right.text(1, 1, "on it", color="white")
    right.set_title("above it")
    text = figure_svg(figure)
    plt.close(figure)
    return text


def test_words_are_words_in_the_font_of_the_page():
    text = draw()
    assert "DejaVu" not in text
    assert re.search(r">field\s</tspan><tspan [^>]*oblique[^>]*>βh</tspan>", text)
    # No two figures of a page share a name for different things.
    other = draw(label="another")
    names = [set(re.findall(r'id="([^"]+)"', one)) for one in (text, other)]
    assert names[0]
    assert not names[0] & names[1]
    assert set(re.findall(r"#(f[0-9a-f]{8}-\d+)", text)) == names[0]


def test_what_is_dense_is_a_picture_and_little_else_is():
    sparse = draw(_DENSE)
    dense = draw(4 * _DENSE)
    assert sparse.count("<image") == 1
    assert dense.count("<image") == 2
    assert len(dense) < 150_000
    assert draw() == draw()


def test_only_what_lies_on_a_picture_keeps_its_colours():
    text = draw()
    (begin,) = (match.start() for match in re.finditer('class="as-drawn"', text))
    assert text.index(">sine<") < begin < text.index(">on it<")
    ink = [text.rindex("<g", 0, text.index(words)) for words in (">above it<", ">on it<")]
    kinds = [text[place : text.index(">", place)] for place in ink]
    assert ['class="ink"' in kind for kind in kinds] == [True, False]


def test_dots_on_white_turn_light_with_the_page():
    figure = Figure()
    paper = np.ones((9, 9, 3))
    paper[4] = 0.0
    figure.add_subplot().imshow(paper)
    assert "as-drawn" not in figure_svg(figure)


def test_a_figure_can_be_cut_between_its_columns_and_nowhere_else():
    text = draw()
    (cut,) = map(float, re.search(r'data-columns="([^"]+)"', text)[1].split())
    width = float(re.search(r'viewBox="0 0 ([\d.]+)', text)[1])
    rooms = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', text)
    left, right = sorted((float(x), float(x) + float(w)) for x, w in rooms)
    # The labels of the second are on its side.
    assert left[1] < cut * width < right[0] - 10
    figure, axes = plt.subplots(1, 2, figsize=(6, 3), layout="constrained")
    figure.suptitle("over both columns, over both columns")
    axes[0].plot([0, 1])
    assert "data-columns" not in figure_svg(figure)
    plt.close(figure)


@pytest.mark.parametrize("label", ["x", r"$\sqrt{x}$"])
def test_numbers_are_rounded_to_a_hundredth(label):
    text = draw(label=label)
    paths = re.findall(r' d="([^"]+)"', text)
    assert paths
    assert not re.search(r"\.\d{3}", " ".join(paths))
    assert "STIX" not in text


def test_panels_are_lettered_and_words_beside_a_picture_are_ink():
    figure, axes = plt.subplots(1, 2, figsize=(9, 2))
    label_panels(list(axes))
    assert [axis.get_title(loc="left") for axis in axes] == ["a", "b"]
    # The picture is a square in the middle once it is laid out, and the words no longer lie on it.
    axes[1].imshow(np.eye(3))
    axes[1].text(0.555, 0.5, "by it", transform=figure.transFigure)
    axes[1].text(0.72, 0.5, "on it", transform=figure.transFigure)
    text = figure_svg(figure)
    plt.close(figure)
    for words, ink in (("by it", True), ("on it", False)):
        place = text.rindex("<g", 0, text.index(f">{words}<"))
        assert ('class="ink"' in text[place : text.index(">", place)]) is ink

"""A book of one chapter is built without a warning, and links to where it lives."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.image import imread


def build(checkout, out):
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", str(checkout)]
    options = ["-W", "-n", "--keep-going", "--all", "--path-output", str(out)]
    result = subprocess.run(command + options, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    return out / "_build" / "html"


class Links(HTMLParser):
    """Collects what a page points to and the anchors it has."""

    def __init__(self):
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        for name in ("href", "src"):
            if values.get(name) and tag in ("a", "img", "link", "script"):
                self.targets.append(values[name] or "")
        self.anchors.update(v for n in ("id", "name") if (v := values.get(n)))


def read_links(page):
    links = Links()
    links.feed(page.read_text(encoding="utf-8"))
    return links


@pytest.mark.nightly
def test_with_an_address_pages_have_buttons_and_a_card(tmp_path, built_checkout):
    with (built_checkout / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('\n[project.urls]\nRepository = "https://github.com/Owner/book"\n')
    site = build(built_checkout, tmp_path)
    page = site / "notebooks" / "01_small.html"
    targets = read_links(page).targets
    wanted = (
        "https://colab.research.google.com/github/Owner/book/blob/main/notebooks/01_small.ipynb"
    )
    assert [t for t in targets if t.startswith("https://colab.research.google.com/")] == [wanted]
    assert any(t.startswith("https://mybinder.org/v2/gh/Owner/book/main") for t in targets)
    address = "https://owner.github.io/book/"
    head = page.read_text(encoding="utf-8").partition("</head>")[0]
    assert f'<link rel="canonical" href="{address}notebooks/01_small.html"' in head
    shown = dict(re.findall('<meta (?:name|property)="(.*?)" content="(.*?)">', head))
    assert shown["og:url"] == f"{address}notebooks/01_small.html"
    assert shown["og:description"] == "Is it small? It is small."
    assert shown["twitter:card"] == "summary_large_image"
    picture = imread(site / shown["og:image"].removeprefix(address))
    assert picture.shape[:2] == (630, 1200)
    # The title stands above, the drawing below; the ground is white.
    dark = picture[..., :3].min(axis=-1) < 0.7
    assert dark[60:120].any()
    assert dark[200:].mean() > 0.01
    assert picture[0, 0, :3].min() == 1
    # The address that one types leads on, with the same words.
    index = (site / "index.html").read_text(encoding="utf-8")
    assert f'<link rel="canonical" href="{address}book/welcome.html">' in index

"""A book of one chapter is built without a warning, and links to where it lives."""

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest


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
def test_buttons_point_to_the_notebook_with_an_address(tmp_path, built_checkout):
    with (built_checkout / "pyproject.toml").open("a", encoding="utf-8") as file:
        file.write('\n[project.urls]\nRepository = "https://github.com/owner/book"\n')
    targets = read_links(build(built_checkout, tmp_path) / "notebooks" / "01_small.html").targets
    wanted = (
        "https://colab.research.google.com/github/owner/book/blob/main/notebooks/01_small.ipynb"
    )
    assert [t for t in targets if t.startswith("https://colab.research.google.com/")] == [wanted]
    assert any(t.startswith("https://mybinder.org/v2/gh/owner/book/main") for t in targets)

"""A book of one chapter is built without a warning, and links to where it lives."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ADDRESS = "https://github.com/owner/book"


def build(checkout, out, address):
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
def test_buttons_point_to_the_notebook_with_an_address(tmp_path, executed_checkout):
    site = build(executed_checkout, tmp_path, ADDRESS)
    targets = read_links(site / "notebooks" / "01_small.html").targets
    colab = [t for t in targets if t.startswith("https://colab.research.google.com/")]
    wanted = (
        "https://colab.research.google.com/github/owner/book/blob/main/notebooks/01_small.ipynb"
    )
    assert colab == [wanted]
    assert any(t.startswith("https://mybinder.org/v2/gh/owner/book/main") for t in targets)

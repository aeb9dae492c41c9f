"""Fixtures for tests of the whole book: the checkout, a one-chapter copy, a browser, figures."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Before numpy, torch and numba start their pools: as many processes as cores run the tests, one
# thread each, whoever starts them.
for _name in ("OMP", "NUMBA"):
    os.environ.setdefault(f"{_name}_NUM_THREADS", "1")

import pytest  # noqa: E402
from click.testing import CliRunner, Result  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]

NO_BROWSER = (
    "They need Chromium and its driver: `apt-get install chromium chromium-driver` on Debian and "
    "Ubuntu, `brew install --cask chromium chromedriver` on macOS"
)

# Looked through for examples, too (--doctest-modules): these are no tests.
collect_ignore = ["conftest.py", "data"]

# Imports something of the package that needs no large library: its kernel starts in a second.
SMALL_CHAPTER = """\
---
book: {rank: main, card: {sentence: 1}, evening: How small a chapter can be}
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A small chapter

:::{admonition} Summary
Is it small? It is small.
:::

**Builds on** nothing. **Leads to** nothing.

```{code-cell} ipython3
:tags: [remove-cell, nbval-ignore-output, install]

# replaced by the generator; leave exactly this cell with this comment
```

```{code-cell} ipython3
:tags: [parameters]

beta: float = 1.5  # inverse temperature, in [0, 10]
count: int = 2  # how often, in [1, 100]; tests use 1
kind: str = "flat"  # which landscape, one of {flat | steep}
# require: kind == "flat" or count < 10  # steep is slow
```

```{code-cell} ipython3
from bookmaker.base import Fault

for _ in range(count):
    print(Fault(kind, 1, f"{kind} {beta:.2f}").message)
```
"""

SMALL_CONTENTS = """\
format: jb-book
root: book/welcome
chapters:
  - file: notebooks/01_small
"""


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


def write_checkout(folder: Path) -> Path:
    """Write a checkout that holds one small chapter, `01_small`, and nothing executed."""
    files = {
        "notebooks/01_small.md": SMALL_CHAPTER,
        "tests/chapters/test_01_small.py": "",
        "_toc.yml": SMALL_CONTENTS,
        "book/welcome.md": "# Welcome\n\n```{evening}\n```\n\n```{course}\n```\n",
        "book/claims/01_small.yml": "[]\n",
        "book/results.md": "# Results\n\n```{cards}\n```\n",
        # As long as nobody decided where the book lives.
        "pyproject.toml": '[project]\nname = "small"\n',
        "README.md": "# Small\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")
    shutil.copy(ROOT / "_config.yml", folder / "_config.yml")
    for name in ("_static", "_ext", "references.bib"):
        (folder / "book" / name).symlink_to(ROOT / "book" / name)
    return folder


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`call(folder, "run", …)`: the command line in a folder, in this process, which is faster."""
    from bookmaker.command import main

    def call(folder: Path, *arguments: str) -> Result:
        monkeypatch.chdir(folder)
        result = CliRunner().invoke(main, arguments)
        assert isinstance(result.exception, SystemExit | None), result.exception
        return result

    return call


@pytest.fixture
def small_checkout(tmp_path: Path) -> Path:
    """See `write_checkout`."""
    return write_checkout(tmp_path / "checkout")


@pytest.fixture(scope="session")
def executed_checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with its chapter executed; copy it before you change anything."""
    from bookmaker.execution import rebuild

    folder = write_checkout(tmp_path_factory.mktemp("executed") / "checkout")
    assert rebuild(folder, "01_small") == ""
    return folder


@pytest.fixture
def built_checkout(executed_checkout: Path, tmp_path: Path) -> Path:
    """A copy of the executed checkout for one test."""
    shutil.copytree(executed_checkout, tmp_path / "built", symlinks=True)
    return tmp_path / "built"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what was left out for want of a browser: a green run without it is half a run."""
    skipped = terminalreporter.stats.get("skipped", [])
    if left_out := sum(NO_BROWSER in str(report.longrepr) for report in skipped):
        terminalreporter.section("no browser", yellow=True)
        terminalreporter.write_line(
            f"{left_out} tests of the built pages were left out. {NO_BROWSER}"
        )


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """Headless Chromium that reaches no host at all."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    # The variable makes a machine with a browser stand for one without.
    if not chromium or not driver or os.environ.get("WITHOUT_BROWSER"):
        pytest.skip(NO_BROWSER)
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    flags += ["--window-size=1300,1000", "--host-resolver-rules=MAP * ~NOTFOUND"]
    for flag in flags:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    running.set_page_load_timeout(300)
    yield running
    running.quit()


@pytest.fixture
def run(browser: object) -> Callable[..., Any]:
    """`run(function, …)`: call a function after the mathematics of all live figures was loaded."""
    import numpy as np
    from pages import FIGURES, LIVE_FIGURES

    browser.get("about:blank")
    for name in ("data.js", *(f"{figure}.math.js" for figure in FIGURES)):
        # Strict scripts keep their names to themselves but for what they add to `globalThis`.
        browser.execute_script((LIVE_FIGURES / name).read_text(encoding="utf-8"))

    def call(function: str, *values: Any) -> Any:
        plain = json.loads(json.dumps(values, default=np.ndarray.tolist))
        return browser.execute_script(f"return ({function})(...arguments)", *plain)

    return call


@pytest.fixture
def page(browser: object, tmp_path: Path) -> Callable[..., None]:
    """`page(name, setting)`: open a page that holds nothing but one live figure.

    `small` as on the front page; `first` is a script that runs before those of the book.
    """
    from pages import LIVE_FIGURES, until, words

    def open_page(name: str, setting: str = "", *, small: bool = False, first: str = "") -> None:
        files = ["uPlot.iife.min.js", "data.js", "frame.js", "spins.math.js"]
        files += [f"{name}.math.js", f"{name}.draw.js"]
        scripts = [f'<script src="{(LIVE_FIGURES / file).as_uri()}"></script>' for file in files]
        styles = [
            f'<link rel="stylesheet" href="{(LIVE_FIGURES / file).as_uri()}">'
            for file in ("uPlot.min.css", "explorables.css")
        ]
        place = f'<div id="{name}" data-explorable="{name}"{" data-small" * small}></div>'
        view = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        # As on a page of the book, there is text above and below.
        body = f'<body style="padding: 40vh 0 200vh">{place}<script>{first}</script>'
        text = f"<!doctype html>{view}{''.join(styles)}{body}{''.join(scripts)}</body>"
        (tmp_path / "page.html").write_text(text, encoding="utf-8")
        browser.get("about:blank")
        browser.get(f"{(tmp_path / 'page.html').as_uri()}#{name}{setting}")
        until(browser, lambda: words(browser))

    return open_page

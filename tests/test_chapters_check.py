"""`check` names every fault by file and line; a `new` chapter lacks only its text."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bookmaker import places
from bookmaker.base import Fault, SourceError
from bookmaker.figures import FIGURES

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "notebooks/01_small.md"


def change(old, new):
    def changed(data):
        assert old.encode() in data
        return data.replace(old.encode(), new.encode())

    return changed


def edit(path, old, new):
    path.write_bytes(change(old, new)(path.read_bytes()))


HEADING = "# A small chapter"
BOOK = "book: {rank: main, card: {sentence: 1}, evening: How small a chapter can be}"
CLAIMS = "book/claims/01_small.yml"
TESTS = "tests/chapters/test_01_small.py"
COUNT = "in [1, 100]; tests use 1"
OPEN_CELL = "```{code-cell} ipython3\nn = 1\n```\n\n"
MARKED = """\
import pytest


@pytest.mark.claim("A1")
def test_small():
    pass
"""

ROW = """\
- id: A1
  statement: It is small.
  passage: Section 1
  verdict: identity
  test: tests/chapters/test_01_small.py::test_small
  figures: {beta: hot}
  criterion: beta < 1
  shown: 'β = {beta}'
  identity: nothing was chosen
"""


@pytest.mark.parametrize(
    ("file", "damage", "line"),
    [
        (SOURCE, lambda data: data.replace(b"small", b"sm\xe4ll"), "1: the file cannot be read"),
        (SOURCE, lambda data: b"", "1: the text must begin with a heading"),
        (SOURCE, change(HEADING, "No heading."), "13: the text must begin with a heading"),
        (SOURCE, change("  language: python", "  language: [python"), "1: the file cannot be read"),
        (SOURCE, change("tags: [parameters]", "tags: [parameters"), "27: the file cannot be read"),
        (SOURCE, change("in [1, 100]", "in [1, 100"), "31: count has a range that cannot be read"),
        (SOURCE, change("= 1.5", "= pi"), "30: beta: "),
        (SOURCE, change("= 1.5 ", "= (1.5 "), "not Python"),
        (SOURCE, change("count < 10", "counts < 10"), "33: no parameter named counts"),
        (SOURCE, change('"flat" or count <', '"steep" or count >'), "33: the chapter requires"),
        (SOURCE, change("for _ in", "for in"), "39: not Python"),
        (SOURCE, change("[parameters]", "[params]"), "1: expected one cell tagged `parameters`"),
        (SOURCE, change(", install]", "]"), "1: expected one cell tagged `install`"),
        (SOURCE, change("**Builds", f"{OPEN_CELL}**Builds"), "20: the cell tagged `install` must"),
        (SOURCE, change(HEADING, f"{HEADING}\n\nTODO more"), "15: still to do: TODO more"),
        (SOURCE, change("range(count)", "range(count + 1)"), "1: the notebook is stale, its code"),
        (SOURCE, change(HEADING, "# Other"), "1: the notebook is stale, its text"),
        ("_toc.yml", change("01_small", "01_smal"), "1: does not list notebooks/01_small"),
        ("_toc.yml", change("01_small", "01_smal"), "4: expected `- file: notebooks/01_small`"),
        (SOURCE, change(COUNT, "in [1, 100]"), "30: no parameter has a value for the test run"),
        (SOURCE, change(COUNT, "in [1, 100]; tests use 2"), "31: the tests use the default"),
        (SOURCE, change(COUNT, "in [1, 100]; tests use 0"), "31: count must be int in [1, 100]"),
        (SOURCE, change(COUNT, "in [1, 100]; tests use"), "31: count has a range that cannot be"),
        (SOURCE, change(BOOK, ""), "1: the front matter: needs `book: {rank: main | further"),
        (SOURCE, change("rank: main", "rank: first"), "2: the front matter: rank must be one of"),
        (SOURCE, change("sentence: 1", "sentence: 2"), "the box `Summary` has 1 that are no"),
        (SOURCE, change("sentence: 1", "sentence: one"), "2: the front matter: the card shows"),
        (SOURCE, change("{sentence: 1}", "{sentence: 1, figure: fig-x}"), "2: the front matter: "),
        (SOURCE, change("evening:", "morning:"), "2: the front matter: book has no entry morning"),
        (SOURCE, change("How small a chapter can be", "[3]"), "2: the front matter: evening must"),
        (CLAIMS, lambda data: b"- id: A1\n  verdit: holds\n", "1: A1: has no entry verdit"),
        (CLAIMS, lambda data: ROW.encode(), "1: A1: tests/chapters/test_01_small.py::test_small"),
        (CLAIMS, lambda data: ROW.encode(), "1: A1: no cell of 01_small is tagged claim-A1"),
        (CLAIMS, lambda data: b"[]  # TODO rows\n", "1: still to do: []  # TODO rows"),
        (TESTS, lambda data: MARKED.encode(), "4: marked for A1, but the row of A1 names no such"),
        (TESTS, lambda data: b"# TODO tests\n", "1: still to do: # TODO tests"),
    ],
)
def test_every_fault_names_file_and_line(built_checkout, call, file, damage, line):
    path = built_checkout / file
    path.write_bytes(damage(path.read_bytes()))
    result = call(built_checkout, "check")
    assert result.exit_code == 1
    found = [text for text in result.output.splitlines() if text.startswith(f"{file}:")]
    assert any(line in text for text in found), result.output


NOT_YAML = ["- id: [A1", "", "7", "\tx: 1", "a: 2026-99-99", "\x07", "[" * 3000]
BAD_ROWS = ["[A1]", "{}", "null", "text"]
BAD_ENTRIES = {
    "id: A1": "id: 3",
    "verdict: identity": "verdict: [holds]",
    "{beta: hot}": "{beta: {figure: hot}}",
    "passage: Section 1": "passage: 1",
    "criterion: beta < 1": "criterion: 9",
    "beta < 1": "beta <",
    "statement: It is small.": "chapter: 01_small",
    "{beta}": "{beta.x}",
}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        *((CLAIMS, text) for text in [*NOT_YAML, "{}", *BAD_ROWS[2:]]),
        *((CLAIMS, f"- {row}") for row in BAD_ROWS),
        *((CLAIMS, entry) for entry in BAD_ENTRIES),
        *(("_toc.yml", text) for text in [*NOT_YAML, "[]", "parts: 3", "chapters: [3]"]),
        ("pyproject.toml", "[project"),
    ],
)
def test_a_damaged_file_is_named_by_every_command_and_nothing_is_written(
    built_checkout, call, file, text
):
    """Never a traceback, which `call` would show."""
    path = built_checkout / file
    path.write_text(ROW.replace(text, BAD_ENTRIES[text]) if text in BAD_ENTRIES else text)
    before = sorted(built_checkout.rglob("*"))
    checked = call(built_checkout, "check")
    assert checked.exit_code == 1
    assert any(line.startswith(f"{file}:") for line in checked.stderr.splitlines()), checked.stderr
    if file in ("_toc.yml", CLAIMS):
        command = {"_toc.yml": ("new", "02_x"), CLAIMS: ("sweep", "01_small", "-o", "o")}
        refused = call(built_checkout, *command[file])
        assert refused.exit_code == 2
        assert f"Error: {file}:" in refused.stderr
        assert sorted(built_checkout.rglob("*")) == before


def test_a_row_is_named_by_its_own_line(built_checkout, call):
    rows = ROW + ROW.replace("A1", "A2").replace("criterion: beta", "criterion: gamma")
    (built_checkout / CLAIMS).write_text(rows, encoding="utf-8")
    told = call(built_checkout, "check").stderr
    assert f"{CLAIMS}:{len(ROW.splitlines()) + 1}: A2: gamma is not among" in told


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        (SOURCE, "**Builds on** nothing", "Builds on nothing", "must end with a paragraph"),
        (SOURCE, "on** nothing", "on** [x](02_x.md)", "02_x does not say that it leads to 01_sm"),
        (SOURCE, "to** nothing", "to** [x](02_x.md)", "02_x does not say that it builds on 01_sm"),
    ],
)
def test_how_a_chapter_ends_is_told(built_checkout, call, file, old, new, message):
    path = built_checkout / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    assert message in call(built_checkout, "check").stderr


def test_links_between_chapters_go_both_ways(built_checkout, call):
    path = built_checkout / SOURCE
    text = path.read_text(encoding="utf-8")
    links = "**Builds on** nothing. **Leads to** nothing."
    assert links in text
    path.write_text(text.replace("to** nothing", "to** [x](02_x.md)"), encoding="utf-8")
    told = "notebooks/01_small.md:1: 02_x does not say that it builds on 01_small"
    back = links.replace("on** nothing", "on** [it](01_small.md)")
    for other, missing in ((links, True), (back, False)):
        path.with_name("02_x.md").write_text(text.replace(links, other), encoding="utf-8")
        assert (told in call(built_checkout, "check").stderr) == missing


def test_no_fault_is_said_and_several_are_named_together(built_checkout, call):
    assert call(built_checkout, "check").output == "checked all chapters and claims: no fault\n"
    (built_checkout / CLAIMS).unlink()
    (built_checkout / TESTS).unlink()
    (built_checkout / "book/claims/02_other.yml").write_text("[]\n", encoding="utf-8")
    (built_checkout / "_toc.yml").write_text("format: jb-book\nroot: book/welcome\n")
    assert call(built_checkout, "check").output.splitlines() == [
        "_toc.yml:1: no line `- file: NAME` that a chapter could stand behind",
        f"{CLAIMS}:1: is missing (`[]` are no claims)",
        "book/claims/02_other.yml:1: there is no chapter 02_other",
        f"{TESTS}:1: is missing",
    ]


def test_what_a_cell_drew_needs_words_and_is_one_drawing(built_checkout, call):
    path = built_checkout / SOURCE
    cell = "from bookmaker.base import Fault"
    figure = "---\nmystnb:\n  figure:\n    name: fig-x\n    caption: What this figure says.\n"
    figure += "  image:\n    alt: What is seen of this figure.\n---\n"
    draw = "from IPython.display import SVG\n" + "display(SVG('<svg/>'))\n"
    text = path.read_text(encoding="utf-8")
    for head, count, problem in (
        ("", 1, "the figure needs a name"),
        (figure, 2, "a cell draws one figure"),
        (figure, 1, ""),
        (":tags: [results]\n\n", 0, "the cell is tagged results and hands over no number"),
    ):
        path.write_text(text.replace(cell, head + count * draw + cell), encoding="utf-8")
        assert call(built_checkout, "build").exit_code == 0
        lines = call(built_checkout, "check").output
        # At the first line of the cell's code.
        whole = path.read_text(encoding="utf-8")
        start = whole.index(head + count * draw + cell) + len(head)
        first = whole.count("\n", 0, start) + 1
        assert f"{SOURCE}:{first}: {problem}" in lines or not problem, lines
        assert problem or "no fault" in lines


def test_a_verdict_that_its_figures_deny_and_cells_without_a_row(built_checkout, call):
    source = built_checkout / SOURCE
    claims = built_checkout / CLAIMS
    claims.write_text(ROW, encoding="utf-8")
    (built_checkout / TESTS).write_text(MARKED, encoding="utf-8")
    cell = "```{code-cell} ipython3\nfrom"
    text = source.read_text(encoding="utf-8")
    hot = f'display({{"{FIGURES}": {{"hot": beta}}}}, raw=True)\n'
    tagged = text.replace(
        cell, f"```{{code-cell}} ipython3\n:tags: [claim-A1, claim-Z9]\n\n{hot}from"
    )
    source.write_text(tagged, encoding="utf-8")
    assert call(built_checkout, "build").exit_code == 0
    assert call(built_checkout, "check").output.splitlines() == [
        f"{CLAIMS}:1: A1: verdict 'identity', but `beta < 1` is not met by beta = 1.5",
        f"{SOURCE}:37: a cell is tagged claim-Z9, but there is no row Z9",
    ]
    row = ROW.replace("beta < 1", "beta < 2").replace("identity: nothing", "settings: none.csv")
    row = row.replace("verdict: identity", "verdict: holds").replace(" was chosen", "")
    claims.write_text(row, encoding="utf-8")
    problems = call(built_checkout, "check").output.splitlines()
    assert ["none.csv" in line for line in problems] == [True, False]


def test_the_page_of_claims_shows_rows_that_there_are(built_checkout, call):
    (built_checkout / CLAIMS).write_text(ROW, encoding="utf-8")
    page = built_checkout / "book" / "claims.md"
    page.write_text("# Claims\n\n```{claims}\nA1\nA2\n```\n\nA3\n", encoding="utf-8")
    output = call(built_checkout, "check").output
    assert "book/claims.md:5: there is no row A2" in output
    assert output.count("book/claims.md") == 1


def test_a_new_chapter_runs_and_lacks_only_its_text(small_checkout, call):
    result = call(small_checkout, "new", "02_lattice", "Does it melt?")
    places = "notebooks/02_lattice.md", "book/claims/02_lattice.yml", "_toc.yml"
    places += "tests/chapters/test_02_lattice.py", "src/compendium/c02_lattice/__init__.py"
    *told, next_step = result.stdout.splitlines()
    assert {str(small_checkout / place) for place in places} == set(told)
    assert "TODO" in next_step
    text = (small_checkout / "notebooks" / "02_lattice.md").read_text(encoding="utf-8")
    assert "# Does it melt?" in text
    assert "LABEL" not in text
    contents = (small_checkout / "_toc.yml").read_text(encoding="utf-8")
    assert contents.endswith("  - file: notebooks/01_small\n  - file: notebooks/02_lattice\n")
    assert "  card: {figure: fig-lattice, sentence: 1}\n" in text
    assert call(small_checkout, "build", "02_lattice").exit_code == 0
    left = call(small_checkout, "check", "02_lattice").output.splitlines()
    assert all(": still to do: " in line for line in left), left
    assert {line.partition(":")[0] for line in left} == {*places} - {"_toc.yml"}


def test_who_follows_the_guide_until_check_is_clean_is_green_in_the_tests(built_checkout, call):
    """The files of a new chapter with every TODO written; then what the tests ask of a chapter."""
    found = call(built_checkout, "new", "02_lattice", "Does it melt?").stdout.splitlines()[:5]
    for path in map(Path, found):
        text = path.read_text(encoding="utf-8")
        text = text.replace("TODO links to the chapters that it needs", "[it](01_small.md)")
        text = text.replace("TODO links to those that need it", "nothing")
        for place in ("claim-TODO", "id: TODO", '"TODO"'):
            text = text.replace(place, place.replace("TODO", "R1"))
        path.write_text(re.sub(r"\bTODO\b", "Here", text), encoding="utf-8")
    edit(built_checkout / SOURCE, "to** nothing", "to** [it](02_lattice.md)")
    assert call(built_checkout, "build").exit_code == 0
    assert call(built_checkout, "check").output == "checked all chapters and claims: no fault\n"
    files = ("conftest.py", "open_cells.py", "small_runs.py", "test_notebooks.py", "nbval.cfg")
    for file in (*files, "../notebooks/conftest.py"):
        shutil.copy(ROOT / "tests" / file, built_checkout / "tests" / file)
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", ".", "-p", "no:cacheprovider"]
    tests = ["pytest", *settings, "-v", "--nbval", "--doctest-modules", "tests", "notebooks", "src"]
    style = ["--config", str(ROOT / "pyproject.toml"), "src", "tests/chapters"]
    for command in (tests, ["ruff", "check", *style], ["ruff", "format", "--check", *style]):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=built_checkout,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if command is tests:
            ran = done.stdout
    for name in (
        "notebooks/02_lattice::ipynb::Cell 5 PASSED",
        "test_runs_with_other_parameters[02_lattice] PASSED",
        "test_the_magnetization_rises_by_its_slope PASSED",
    ):
        assert name in ran


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lattice", "a chapter is called NN_words"),
        ("../02_x", "a chapter is called NN_words"),
        ("01_other", "the number 01 is taken: notebooks/01_small.md"),
    ],
)
def test_new_refuses_a_name_that_does_not_fit_and_writes_nothing(
    small_checkout, call, name, message
):
    before = sorted(small_checkout.rglob("*"))
    result = call(small_checkout, "new", name)
    assert result.exit_code == 2
    assert message in result.output
    assert sorted(small_checkout.rglob("*")) == before


def test_every_chapter_without_a_place_is_named(monkeypatch):
    def refuse(chapter):
        raise SourceError([Fault(chapter, 1, "has no card")])

    monkeypatch.setattr(places, "chapters", lambda root: ["one.md", "two.md"])
    monkeypatch.setattr(places, "read_place", refuse)
    with pytest.raises(SourceError) as refused:
        places.all_places(None)
    assert [fault.path for fault in refused.value.faults] == ["one.md", "two.md"]

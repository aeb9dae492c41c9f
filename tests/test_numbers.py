"""Numbers by name: what cells hand over fills the text; what is typed or unread is named."""

import json
import math
import re
import shutil
import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest
import torch
from test_book_of_one_chapter import build

from bookmaker import checking, execution, figures, measured, values
from bookmaker.claims import read_rows, results
from bookmaker.execution import rebuild
from bookmaker.figures import plain, written
from bookmaker.measured import write_results
from bookmaker.numbers import page_text, write_readme
from bookmaker.source import chapter_figures, read_notebook
from bookmaker.tables import Table
from compendium.common.report import show_table
from spinformer.core.statistics import Estimate

SOURCE = "notebooks/01_small.md"
NOTEBOOK = "notebooks/01_small.ipynb"
CELL = """\
---
mystnb:
  figure:
    name: fig-small
    caption: |
      A line that rises by {value}`slope:.2f` at each step.
  image:
    alt: A line through {value}`edges[1]:.1f` that ends at {value}`edges[0]:.1f`.
---
from compendium.common.report import report_figures, show_table

share = {"value": 0.512 * beta, "error": 0.034}
report_figures(slope=0.0834 * beta, edges=[1.5, -2.25], share=share, found=count)
kinds = {"kind": ["flat", "steep"], "n": [64, 256], "rate": [0.25 * beta, 1e-14]}
"""
TEXT = """
The slope is {value}`slope:.3f`, in mathematics $\\lambda={value}`edges[1]:.2f`$, and
{value}`found:words` of {setting}`64` runs.
At $\\beta={value}`beta`$ the share is {value}`share:.2f`.

| kind | rate |
|---|---|
| flat | {value}`rates[0].rate:.2f` |
| steep | {value}`rates[n=256].rate:equality` |

:::{admonition} By hand
Its logarithm is {hand}`-0.69 = log(1/2)`, that of the literature {cited}`0.7`.
:::
"""
TABLE = 'show_table(kinds, name="rates", units={"rate": "nats"}, formats={"rate": ".2f"})'
MARKED = """import pytest


@pytest.mark.claim("A1")
def test_small():
    pass
"""


def cell(code, tags=""):
    return f"\n```{{code-cell}} ipython3\n{tags}{code}\n```\n"


def source(text):
    """The small chapter with its numbers by name."""
    start = text.index("```{code-cell} ipython3\nfrom bookmaker")
    text = text[:start].replace(
        "  name: python3\n---", "  name: python3\ncited: {a2020b: [0.7]}\n---"
    )
    text = text.replace("# A small chapter", "# A small chapter of slope {value}`slope:.2f`")
    return text + cell(CELL) + cell(TABLE) + TEXT


@pytest.fixture(scope="module")
def numbered(executed_checkout, tmp_path_factory):
    """A checkout whose chapter hands over its numbers, executed; copy it before you change it."""
    folder = tmp_path_factory.mktemp("numbered") / "checkout"
    shutil.copytree(executed_checkout, folder, symlinks=True)
    path = folder / SOURCE
    path.write_text(source(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert rebuild(folder, "01_small") == ""
    return folder


@pytest.fixture
def book(numbered, tmp_path):
    shutil.copytree(numbered, tmp_path / "book", symlinks=True)
    return tmp_path / "book"


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def words(notebook):
    """All text of a notebook, captions and alt texts included."""
    told = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    for one in notebook.cells:
        settings = one.metadata.get("mystnb", {})
        told += [settings["figure"]["caption"], settings["image"]["alt"]] if settings else []
    return "\n".join(told)


def test_text_captions_and_tables_show_the_numbers(book, call):
    told = words(read_notebook(book / NOTEBOOK))
    assert "{" not in told.replace(":::{admonition}", "")
    assert "chapter of slope 0.13" in told
    assert "The slope is 0.125, in mathematics $\\lambda=-2.25$, and\ntwo of 64 runs." in told
    assert "At $\\beta=1.5$ the share is 0.77 ± 0.03." in told
    assert "| flat | 0.38 |\n| steep | below 10⁻¹² |" in told
    assert "logarithm is −0.69, that of the literature 0.7." in told
    assert "rises by 0.13 at" in told
    assert "A line through −2.2 that ends at 1.5." in told
    assert call(book, "check").output == "checked all chapters and claims: no fault\n"
    assert call(book, "list").output.startswith("01_small: A small chapter of slope 0.13\n")


def test_other_parameters_fill_their_own_numbers(book, tmp_path, call):
    # Read as a stored table is; the mark stands below it, and nowhere else.
    stored = cell("import io\n\nio.StringIO('kept').read()")
    path = book / SOURCE
    path.write_text(path.read_text("utf-8") + stored, encoding="utf-8")
    arguments = ["-p", "beta", "2", "-o", str(tmp_path / "out"), "--html"]
    assert call(book, "run", "01_small", *arguments).exit_code == 0
    cells = read_notebook(tmp_path / "out" / "01_small.ipynb").cells
    assert [one.source for one in cells].count(execution.STORED) == 1
    assert cells[-1].source == execution.STORED
    told = words(read_notebook(tmp_path / "out" / "01_small.ipynb"))
    assert "The slope is 0.167" in told
    assert "At $\\beta=2$ the share is 1.02 ± 0.03." in told
    # The top says what is this run's and what is not, once.
    assert told.count("Run with") == 1
    assert "parameters:** `beta` = `2.0` (default `1.5`). Figures, tables and the numbers" in told
    assert "rises by 0.17 at" in told
    page = (tmp_path / "out" / "01_small.html").read_text(encoding="utf-8")
    assert "The slope is 0.167" in page
    assert re.search(r"<td[^>]*>0.50</td>", page)


def test_changed_roles_are_taken_over_without_execution(book, call, monkeypatch):
    edit(book / SOURCE, "{value}`slope:.3f`", "{value}`slope:.1f`")
    monkeypatch.setattr(execution, "execute", lambda *a, **k: pytest.fail("executed"))
    assert "the notebook is stale, its text" in call(book, "check").output
    assert call(book, "build").exit_code == 0
    assert "The slope is 0.1, in" in words(read_notebook(book / NOTEBOOK))


TYPED = "is typed: read it as"
VERDICTS = ["identity", "holds if", "holds", "fails", "open"]
SPOILT = "what is typed against it"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("The slope is {value}`slope:.3f`", "The slope is 0.126", f"0.126 {TYPED}"),
        ("\\lambda={value}`edges[1]:.2f`", "\\lambda=2.25", f"2.25 {TYPED}"),
        ("\\lambda={value}`edges[1]:.2f`", "\\lambda=64", f"64 {TYPED}"),
        ("\\lambda={value}`edges[1]:.2f`", "\\lambda\\approx2.25", f"2.25 {TYPED}"),
        ("\\lambda={value}`edges[1]:.2f`", "\\lambda\\le64", f"64 {TYPED}"),
        ("{setting}`64` runs", "64 runs", f"64 {TYPED}"),
        ("{setting}`64` runs", "7 % of the runs", f"7 {TYPED}"),
        ("{setting}`64` runs", "2 times the runs", f"2 {TYPED}"),
        ("{setting}`64` runs", "8 of 10 runs", f"8 {TYPED}"),
        ("{setting}`64` runs", "1e-3 of all runs", f"1 {TYPED}"),
        # What is typed against a figure shows another number.
        ("slope is {value}`slope:.3f`", "slope is −{value}`slope:.3f`", SPOILT),
        ("slope is {value}`slope:.3f`", "slope is 1{value}`slope:.3f`", SPOILT),
        ("{value}`slope:.3f`, in", "{value}`slope:.3f`0, in", SPOILT),
        ("{value}`slope:.3f`, in", "{value}`slope:.3f` %, in", SPOILT),
        ("{value}`slope:.3f`, in", "{value}`slope:.3f` thousand, in", SPOILT),
        ("{value}`edges[1]:.2f`$", "{value}`edges[1]:.2f`\\times10^3$", SPOILT),
        ("-0.69 = log(1/2)", "-0.69 = -0.69", "repeats the number"),
        ("a chapter can be}", "0.31 is}", "0.31 is typed: the front matter"),
        ("The slope is {value}`slope:.3f`", "The slope is {value}`slope:.0f`", "slope:.0f hides"),
        ("rises by {value}`slope:.2f`", "rises by 0.31", f"0.31 {TYPED}"),
        ("through {value}`edges[1]:.1f`", "through -2.2", f"2.2 {TYPED}"),
        ("| flat | {value}`rates[0].rate:.2f`", "| flat | 0.83", f"0.83 {TYPED}"),
        ("of slope {value}`slope:.2f`", "of slope 0.31", f"0.31 {TYPED}"),
        ("the literature {cited}`0.7`", "the literature 0.7", f"0.7 {TYPED}"),
        ("-0.69 =", "-0.96 =", "-0.96 = log(1/2): gives -0.693147"),
        ("log(1/2)", "lg(1/2)", "cannot be computed"),
        ("-0.69 = log(1/2)", "-0.69", "-0.69: must read `number = expression`"),
        ("{cited}`0.7`", "{cited}`0.9`", "cited 0.9: the front matter has it under no source"),
        ("{setting}`64`", "{setting}`46`", "setting 46: no such number"),
        ("`slope:.3f`", "`slop:.3f`", "no figure named 'slop' is handed over (slope)"),
        ("`edges[1]:.2f`", "`edges[2]:.2f`", "edges[2] has no entry '2': 2 entries"),
        ("`rates[n=256]", "`rates[n=255]", "0 rows have n=255"),
        ("`rates[0].rate:", "`rates[0].rat:", "no entry 'rat': keys kind, n, rate"),
        ("`slope:.3f`", "`slope:.3z`", "slope:.3z: "),
        ("`slope:.3f`", "`07:slope`", "no chapter 07 has a notebook"),
        ("`share:.2f`", "`edges`", "is several figures"),
        ("{value}`found:words` of", "some of", "figure found is handed over, but no text"),
    ],
)
def test_a_number_without_its_source_is_named_by_file_and_line(book, call, old, new, problem):
    edit(book / SOURCE, old, new)
    line = (book / SOURCE).read_text(encoding="utf-8").split(new)[0].count("\n") + 1
    built = call(book, "build")
    said = call(book, "check").output
    found = [text for text in said.splitlines() if problem in text]
    assert found, said
    if "handed over, but" not in problem:
        assert found[0].startswith(f"{SOURCE}:{line}: ")
    # What cannot be filled fails the build, too, and keeps the notebook that is there.
    fails = new.startswith("`")
    assert built.exit_code == (1 if fails else 0)
    if fails:
        assert f"{SOURCE}:{line}: " in built.stderr


@pytest.mark.parametrize("fence", ["```", "````", ":::"])
def test_numbers_behind_a_directive_are_read_as_well(fence):
    """Its closing fence opens no code, and its backticks pair with no later ones."""
    text = f"{fence}{{note}} A box of 0.4\nof {{cite}}`a2020b`.\n{fence}\n"
    text += "It is 0.126 in {cite}`a2020b`, {value}`slope`.\n```text\n0.7\n```\nIt is 64.\n"
    assert list(values.typed_numbers(text)) == [(1, "0.4"), (4, "0.126"), (8, "64")]
    assert [(role.content, role.line) for role in values.roles(text)] == [("slope", 4)]


def test_a_small_integer_before_a_unit_is_a_result():
    text = "In 8 tokens and 3 networks, in 2 of 5 cases, 1 nat and 0.5 a step, not 4 tokenizers."
    found = [number for _, number in values.typed_numbers(text)]
    assert found == ["8", "3", "2", "1", "0.5"]


def test_numbers_in_letters_are_found_from_thirteen_on():
    text = "Twenty-one\nof sixty, seven of `forty`, {value}`n:words`, ninety-odd, Thirteen"
    assert list(values.spelled_numbers(text)) == [
        (1, "Twenty-one", 21),
        (2, "sixty", 60),
        (2, "Thirteen", 13),
    ]
    text = "A hundred, seven hundred, a thousand, thirty million and three hundred\nthousand of one"
    assert list(values.spelled_numbers(text)) == [
        (1, "seven hundred", 700),
        (1, "a thousand", 1000),
        (1, "thirty million", 30_000_000),
        (1, "three hundred thousand", 300_000),
    ]


def test_a_number_in_letters_stands_in_the_code_or_is_a_figure(book, call):
    path = book / SOURCE
    extra = cell("report_figures(counts=[[8 + 9], {'a': 2 * 9}], flag=True, share_of=19.5)")
    extra += "\nOf seventeen, {value}`counts[0][0]`, {value}`share_of`, {value}`flag`, "
    path.write_text(path.read_text("utf-8") + extra + "forty are eighteen.\n", "utf-8")
    assert call(book, "build").exit_code == 0
    line = path.read_text("utf-8").count("\n")
    assert call(book, "check").output == (
        f"{SOURCE}:{line}: forty: neither code nor figure of the chapter is 40: read one, "
        "{value}`name`\n"
    )


def test_a_year_has_no_comma():
    text = "In 1950 there were 1,950 runs, of 2021 ones 2,021."
    assert [number for _, number in values.typed_numbers(text)] == ["1,950", "2,021"]


def test_an_execution_is_kept_when_a_name_is_wrong(book, call, monkeypatch):
    edit(book / SOURCE, "0.0834 * beta", "0.0934 * beta")
    edit(book / SOURCE, "`slope:.3f`", "`slop:.3f`")
    assert "no figure named 'slop'" in call(book, "build").stderr
    edit(book / SOURCE, "`slop:.3f`", "`slope:.3f`")
    monkeypatch.setattr(execution, "execute", lambda *a, **k: pytest.fail("executed"))
    assert call(book, "build").exit_code == 0
    assert "The slope is 0.140" in words(read_notebook(book / NOTEBOOK))


def test_a_typed_number_is_named_before_the_chapter_is_executed(book, call):
    edit(book / SOURCE, "{value}`slope:.3f`", "0.126")
    assert call(book, "check").output.splitlines()[1:] == [
        f"{SOURCE}:{number_of_line(book, '0.126')}: 0.126 {TYPED} {{value}}`name`, or mark it as "
        "{setting}, {cited} or {hand}"
    ]


def number_of_line(book, text):
    lines = (book / SOURCE).read_text("utf-8").split("\n")
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_a_figure_that_comes_twice_is_named(book, call):
    path = book / SOURCE
    path.write_text(path.read_text("utf-8") + cell("report_figures(slope=1)"), encoding="utf-8")
    assert call(book, "build").exit_code == 0
    assert "figure slope is handed over twice" in call(book, "check").output


def test_a_result_needs_no_reader(book, call):
    path = book / SOURCE
    extra = cell("report_figures(extra=1.5)", ":tags: [results]\n\n")
    extra += cell("report_figures(other=2.5)")
    path.write_text(path.read_text("utf-8") + extra, encoding="utf-8")
    assert call(book, "build").exit_code == 0
    said = call(book, "check").output
    assert "figure other is handed over, but no text" in said
    assert "figure extra" not in said


def test_numbers_of_another_chapter_follow_it(book, call):
    other = (book / SOURCE).read_text(encoding="utf-8")
    start = other.index("```{code-cell} ipython3\n---")
    other = other[:start].replace("{value}`slope:.2f`", "{value}`01:slope:.2f`")
    (book / "notebooks" / "02_other.md").write_text(
        other + cell("print(1)") + "\nThere the share is {value}`01:share.value:.3f`.\n",
        encoding="utf-8",
    )
    (book / "book/claims/02_other.yml").write_text("[]\n")
    (book / "tests/chapters/test_02_other.py").write_text("")
    edit(
        book / "_toc.yml", "notebooks/01_small", "notebooks/01_small\n  - file: notebooks/02_other"
    )
    assert call(book, "build").exit_code == 0
    assert (told := call(book, "check")).exit_code == 0, told.output
    assert "share is 0.768." in words(read_notebook(book / "notebooks/02_other.ipynb"))
    edit(book / SOURCE, "0.512 * beta", "0.522 * beta")
    assert "02_other: text taken over" in call(book, "build", "01_small").output
    assert "share is 0.783." in words(read_notebook(book / "notebooks/02_other.ipynb"))
    # It reads the figure as the chapter itself does.
    edit(book / SOURCE, "the share is {value}`share:.2f`", "the share is large")
    assert call(book, "build").exit_code == 0
    assert (told := call(book, "check")).exit_code == 0, told.output


def test_a_setting_may_stand_in_what_a_chapter_shares_with_others(book, call):
    edit(book / SOURCE, "{setting}`64`", "{setting}`4,321`")
    said = call(book, "build").output + call(book, "check").output
    assert "setting 4321: no such number in its code" in said
    package = book / "src" / "compendium"
    for name, text in {
        "c01_small/study.py": "from compendium.common.ranges import COUNT\n",
        "common/ranges.py": "COUNT = 4321\n",
        "common/other.py": "COUNT = 1234\n",
    }.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert call(book, "build").exit_code == 0
    assert call(book, "check").exit_code == 0
    edit(book / SOURCE, "{setting}`4,321`", "{setting}`1,234`")
    said = call(book, "build").output + call(book, "check").output
    assert "setting 1234: no such number in its code" in said


def test_pages_and_readme_read_the_notebooks(book, call):
    readme = book / "README.md"
    readme.write_text("# Small\n\nSlope <!--value 01:slope:.2f-->0.99<!--/-->.\n", encoding="utf-8")
    said = call(book, "check").output
    assert (
        said
        == "README.md:1: has other numbers than the notebooks: run python -m bookmaker welcome\n"
    )
    assert write_readme(book) == [readme]
    assert write_readme(book) == []
    assert readme.read_text("utf-8").endswith("Slope <!--value 01:slope:.2f-->0.13<!--/-->.\n")
    assert (told := call(book, "check")).exit_code == 0, told.output
    (book / "book" / "welcome.md").write_text(
        "# Welcome\n\nIt is {value}`01:slop` or 0.13, {setting}`40` and, in `run 80`, "
        "{setting}`80`.\n\n```{figure} a.svg\n:width: 75%\n:alt: Bars of 57.\n```\n"
    )
    assert call(book, "check").output.splitlines() == [
        f"book/welcome.md:3: 0.13 {TYPED} {{value}}`name`, or mark it as {{setting}}, {{cited}} or "
        "{hand}",
        "book/welcome.md:3: no figure named 'slop' is handed over (slope)",
        "book/welcome.md:3: setting 40: no such number in its code",
        f"book/welcome.md:7: 57 {TYPED} {{value}}`name`, or mark it as {{setting}}, {{cited}} or "
        "{hand}",
    ]
    for old, new in (("Slope <", "Slope -<"), ("<!--/-->", "<!--/-->0")):
        edit(readme, old, new)
        assert f"README.md:3: 01:slope:.2f: {SPOILT}" in call(book, "check").output
        edit(readme, new, old)
    edit(readme, "01:slope", "01:slop")
    assert "README.md:3: no figure named 'slop'" in call(book, "check").output


def test_what_benchmarks_measured_is_read_from_their_file(book, call):
    (book / "benchmarks").mkdir()
    script = book / "benchmarks" / "speed.py"
    script.write_text("STEPS = 120_000\n", encoding="utf-8")
    path = write_results(str(script), {"ratio": {"low": 1 / 3, "high": 2.5}, "steps": 120_000})
    assert path == book / "benchmarks" / "results" / "speed.json"
    (book / "book" / "times.yml").write_text("test: {minutes: 5.5}\n", encoding="utf-8")
    text = "# Use\n\nAs {value}`benchmarks:speed.ratio.low:.2f` in {setting}`120,000` steps, "
    page = book / "book" / "welcome.md"
    page.write_text(text + "{value}`times:test.minutes` min.\n", encoding="utf-8")
    readme = book / "README.md"
    readme.write_text("# Small\n\n<!--value benchmarks:speed.steps:,--><!--/--> steps\n")
    assert write_readme(book) == [readme]
    assert ":,-->120,000<!--/--> steps" in readme.read_text(encoding="utf-8")
    assert (told := call(book, "check")).exit_code == 0, told.output
    shown = page_text(book, "book/welcome.md", page.read_text(encoding="utf-8"))
    assert "As 0.33 in 120,000 steps, 5.5 min." in shown
    # A typed number and an unknown name are faults; one in a block of code is not.
    edit(readme, "steps\n", "steps, 2.5 times as fast\n\n```bash\nrun 0.7 # 2.5 min\n```\n")
    edit(page, "speed.ratio.low", "speed.ratio.lowest")
    edit(page, "times:test", "times:tests")
    assert call(book, "check").output.splitlines() == [
        "README.md:3: 2.5 is typed: write <!--value CHAPTER:NAME--><!--/--> in its place",
        "book/welcome.md:3: no figure named 'tests' is handed over (test)",
        "book/welcome.md:3: speed.ratio.lowest has no entry 'lowest': keys low, high",
    ]
    edit(page, "times:tests", "times:test")
    edit(page, "speed.ratio.lowest", "speed.ratio.low")
    edit(path, "0.333333", "0.433333")
    said = call(book, "check").output
    assert "benchmarks/results/speed.json cannot be read: it was changed by hand; write it" in said
    path.write_text("{", encoding="utf-8")
    assert "benchmarks/results/speed.json cannot be read" in call(book, "check").output


def test_what_is_typed_against_a_name_in_a_claim_is_found():
    text = "{slope:.2f} of {count}, -{low} to 3{high:,}, {share:.0%}, {rate} %, {value}`n:.1f`"
    assert list(values.claim_spoilt(text)) == ["{low}", "{high:,}", "{rate}"]


def test_a_sentence_says_the_verdict_of_the_row(book):
    rows = [types.SimpleNamespace(id=f"A{n}", verdict=v) for n, v in enumerate(VERDICTS)]
    page = book / "book" / "welcome.md"
    said = "# Welcome\n\n([A0](claims.md)) holds, **Claim A1 holds if** cold, A2 therefore\nholds; "
    page.write_text(said + "A3 **fails**, A4 is open. A9 fails, of another book.\n", "utf-8")
    assert list(checking._verdict_faults(book, rows)) == []
    for old, new in (("holds, ", "fails, "), ("A3 **fails", "A3 **holds"), ("A4 is", "A3 is")):
        edit(page, old, new)
        (fault,) = checking._verdict_faults(book, rows)
        assert (fault.path, "but its row has the verdict" in fault.message) == (
            "book/welcome.md",
            True,
        )
        edit(page, new, old)


def test_a_stored_table_is_what_was_recorded_when_it_was_made(tmp_path):
    folder = tmp_path / "src" / "compendium" / "c01_small"
    folder.mkdir(parents=True)
    tables = [
        Table(path=folder / name, units=[{"x": 3}], rows=lambda x: [{"y": x / 7}], seconds=0.1)
        for name in ("sevenths.csv", "sevenths.small.csv")
    ]
    for table in tables:
        table.make()
        (fault,) = measured.table_faults(tmp_path)
        assert fault.path == f"src/compendium/c01_small/{table.path.name}"
        assert "nothing is recorded" in fault.message
        measured.record_table(tmp_path, table.path)
        assert list(measured.table_faults(tmp_path)) == []
    edit(tables[1].path, "0.428571", "0.482571")
    (fault,) = measured.table_faults(tmp_path)
    assert "changed by hand; make it by `python -m bookmaker table 01_small sevenths --small`" in (
        fault.message
    )
    # Another table that is made takes nothing of this one over.
    measured.record_table(tmp_path, tables[0].path)
    assert list(measured.table_faults(tmp_path)) == [fault]
    tables[1].path.unlink()
    (fault,) = measured.table_faults(tmp_path)
    assert fault.path == measured.DIGESTS_FILE
    measured.record_table(tmp_path, tables[0].path)
    assert list(measured.table_faults(tmp_path)) == []
    # What a sweep over the chapter wrote is computed by the chapter's own tests.
    (folder / "swept.csv").write_text("# python -m bookmaker sweep 01_small -o a\nx\n1\n", "utf-8")
    assert list(measured.table_faults(tmp_path)) == []


@pytest.mark.nightly
def test_the_built_page_shows_the_numbers_and_the_table(book, tmp_path):
    head = "---\ncited: {a2020b: [0.7]}\n---\n\n# Welcome\n\n"
    (book / "book" / "welcome.md").write_text(head + "Slope {value}`01:slope:.2f`, {cited}`0.7`.\n")
    pages = build(book, tmp_path / "pages")
    assert "Slope 0.13, 0.7." in (pages / "book" / "welcome.html").read_text(encoding="utf-8")
    page = (pages / "notebooks" / "01_small.html").read_text(encoding="utf-8")
    assert "The slope is 0.125" in page
    assert '<td style="text-align: right">0.38</td>' in page


def test_nbval_compares_a_shown_table(book):
    def compare():
        command = [sys.executable, "-m", "pytest", "-q", "--nbval", NOTEBOOK, "-c", "/dev/null"]
        return subprocess.run(command, cwd=book, capture_output=True, text=True, check=False)

    assert compare().returncode == 0
    # In what is shown alone: the figure handed over is another output.
    edit(book / NOTEBOOK, ">0.38</td>", ">0.83</td>")
    result = compare()
    assert result.returncode == 1
    assert "0.83" in result.stdout


def test_a_claim_names_a_figure_and_formats_it(book, call):
    row = textwrap.dedent(
        """\
        - id: A1
          statement: It rises.
          passage: Section 1
          verdict: identity
          test: tests/chapters/test_01_small.py::test_small
          figures:
            slope: slope
            error: share.error
            rate: rates[kind=flat].rate
          criterion: slope > 0.1 and error < 0.1 and rate < 0.4
          shown: 'slope {slope:.2f}, rate {rate:.1f} ± {error}'
          identity: nothing was chosen
        """
    )
    rows = book / "book" / "claims" / "01_small.yml"
    rows.write_text(row, encoding="utf-8")
    (book / "tests/chapters/test_01_small.py").write_text(MARKED, encoding="utf-8")
    edit(book / SOURCE, f"ipython3\n{TABLE}", f"ipython3\n:tags: [claim-A1]\n\n{TABLE}")
    assert call(book, "build").exit_code == 0
    assert (told := call(book, "check")).exit_code == 0, told.output
    assert [one["evidence"] for one in read_rows(book)] == ["slope 0.13, rate 0.4 ± 0.034"]
    rows.write_text(row.replace("rate < 0.4", "rate < 0.3"))
    assert "`slope > 0.1 and error < 0.1 and rate < 0.3` is not met" in call(book, "check").output
    # Its words read figures, too; what is typed there is a setting or a fault.
    words = row.replace("rate {rate", "in {value}`edges[1]:.2f` of 64 {setting}`64` rate {rate")
    words = words.replace("  test:", "  condition: it has {value}`found:words` of 2.5\n  test:")
    rows.write_text(words.replace("of 2.5", "of two"))
    assert (told := call(book, "check")).exit_code == 0, told.output
    (told,) = read_rows(book)
    assert told["evidence"] == "slope 0.13, in −2.25 of 64 64 rate 0.4 ± 0.034"
    assert told["condition"] == "it has two of two"
    rows.write_text(words.replace("of 64", "of 46"))
    assert call(book, "check").output.splitlines() == [
        "book/claims/01_small.yml:1: A1: 2.5 is typed: read it, {name} or {value}`name`",
        "book/claims/01_small.yml:1: A1: 46 is typed: read it, {name} or {value}`name`",
    ]
    rows.write_text(words.replace("of 2.5", "of {hand}`3 = 1 + 1`"))
    assert call(book, "check").output.splitlines() == [
        "book/claims/01_small.yml:1: A1: 3 = 1 + 1: gives 2",
    ]
    rows.write_text(words.replace("`edges", "`edge").replace("2.5", "2"))
    assert "book/claims/01_small.yml:1: A1: no figure named 'edge'" in call(book, "check").output
    rows.write_text(words.replace("`found", "`fond").replace("2.5", "2"))
    assert "book/claims/01_small.yml:1: A1: no figure named 'fond'" in call(book, "check").output
    rows.write_text(row.replace("rate < 0.4", "rate < 0.3"))
    # A claim is a reader.
    edit(book / SOURCE, "the share is {value}`share:.2f`", "the share is large")
    assert call(book, "build").exit_code == 0
    assert "share is handed over, but" not in call(book, "check").output


def test_results_of_a_sweep_are_handed_over(book, call):
    edit(book / SOURCE, "ipython3\n---\nmystnb:", "ipython3\n---\ntags: [results]\nmystnb:")
    assert call(book, "build").exit_code == 0
    assert results(read_notebook(book / NOTEBOOK)) == {
        "slope": "0.1251",
        "share": "0.768",
        "found": "2",
    }


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (2 / 3, 0.666667),
        (np.float32(0.1), 0.1),
        (np.int64(3), 3),
        (torch.tensor(0.25, requires_grad=True), 0.25),
        (-1e-15, 0.0),
        (True, True),
        ("short", "short"),
        (np.array([[1.0, 2.0]]), [[1.0, 2.0]]),
        ({"a": (1, 2.5)}, {"a": [1, 2.5]}),
        (Estimate(value=0.1234567, error=0.01), {"value": 0.123457, "error": 0.01}),
        (
            Estimate(value=np.array([1.0, 2.0]), error=np.array([0.1, 0.2])),
            [{"value": 1.0, "error": 0.1}, {"value": 2.0, "error": 0.2}],
        ),
    ],
)
def test_figures_are_kept_in_plain_form(given, kept):
    assert plain("slope", given) == kept
    assert type(plain("slope", given)) is type(kept)


def test_no_figure_is_an_infinity_in_disguise(root):
    """The largest float is what nan_to_num makes of infinity."""

    def numbers(value):
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            return [number for one in value for number in numbers(one)]
        return [value] if isinstance(value, float) else []

    for path in sorted(root.glob("notebooks/*.ipynb")):
        found = numbers(chapter_figures(root, path.name.split("_")[0]))
        assert max(map(abs, found), default=0.0) < 1e300, path.name


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (float("nan"), ValueError, "figure slope must be finite, got nan"),
        ([1.0, np.inf], ValueError, r"figure slope\[1\] must be finite, got inf"),
        ({"a": None}, TypeError, r"figure slope\[a\] must be a number, .*, got NoneType"),
        (Estimate(value=1.0, error=np.nan), ValueError, "slope.error must be finite"),
    ],
)
def test_what_is_no_figure_is_refused(given, error, message):
    with pytest.raises(error, match=message):
        plain("slope", given)


@pytest.mark.parametrize(
    ("figure", "form", "prose", "formula"),
    [
        (-0.0614, ".2f", "−0.06", "-0.06"),
        (-0.001, ".2f", "0.00", "0.00"),
        (0.256, ".0%", "26 %", r"26\,\%"),
        (1340, ",", "1,340", "1,340"),
        (1.5e-5, ".1e", "1.5 × 10⁻⁵", r"1.5\times 10^{-5}"),
        (2.5e12, ".1e", "2.5 × 10¹²", r"2.5\times 10^{12}"),
        (3e-13, "equality", "below 10⁻¹²", r"\text{below }10^{-12}"),
        (3e-9, "equality", "3.0 × 10⁻⁹", r"3.0\times 10^{-9}"),
        (12, "Words", "Twelve", "Twelve"),
        (13, "words", "13", "13"),
        ("non-chaotic", "", "non-chaotic", "non-chaotic"),
        ("none", ".2f", "none", "none"),
        ("-0.0800", ".2f", "−0.08", "-0.08"),
        ({"error": 0.2, "value": 41.0}, "", "41.00 ± 0.20", r"41.00 \pm 0.20"),
        ({"error": 30.0, "value": -411.0}, "", "−411 ± 30", r"-411 \pm 30"),
        (1.0, "", "1", "1"),
        (True, "", "yes", "yes"),
    ],
)
def test_figures_in_prose_and_in_mathematics(figure, form, prose, formula):
    assert written(figure, form) == prose
    assert written(figure, form, formula=True) == formula


def test_a_percentage_by_hand_is_no_comment_of_mathematics():
    own = {}
    shown = {
        role.formula: values.shown(role, own, lambda number: {})
        for role in values.roles("Of {hand}`25 % = 1/4`, $p={hand}`25 % = 1/4`$.")
    }
    assert shown == {False: "25 %", True: r"25\,\%"}


@pytest.mark.parametrize(
    "text",
    [
        "In 2024 twelve of 12 runs, $N=12$, chapter 33 and section 3.2; see Eq. 4.15.",
        "Of $2^{64}$ states, $x^{128}+1$, `0.38`, [33](33_x.md), https://a.org/0.5.",
        "See {cite}`b2020c` and `x = 0.25`.",
        r"A quarter, $\frac14$, $\tfrac{3}{4}$, $\dfrac34$, $\sqrt2$.",
        "Means with 95 % intervals, and a 95 % confidence level.",
        "A 256-dimensional vector; model-12.5b is a name.",
        "```bash\nrun -p beta 0.25\n```",
        "1. one\n\n13. thirteen",
        "<!-- 0.25 -->",
        "It needs Python 3.11, chapters 33c, 33, 32 and 35; CC BY 4.0.",
    ],
)
def test_what_is_no_typed_result(text):
    assert list(values.typed_numbers(f"# T\n\n{text}\n")) == []


def test_what_stands_in_and_after_a_directive_is_prose():
    text = "# T\n\n```{note} Of 0.1\nIt is 0.2.\n```\n\nIt is 0.3 `x = 0.4`.\n\n"
    text += "```bash\nrun 0.5\n```\n\n````{note}\n```\n0.6\n```\n{setting}`0.7`, 0.8\n````\n\n"
    text += "```{code-cell}\n0.9\n```\n0.11\n"
    typed = [number for _, number in values.typed_numbers(text)]
    assert typed == ["0.1", "0.2", "0.3", "0.8", "0.11"]
    assert [role.content for role in values.roles(text)] == ["0.7"]


def test_a_shown_table_is_aligned_and_refuses_what_does_not_fit():
    rows = [{"kind": "flat", "rate": 0.5}, {"kind": "<b>", "rate": "none"}]
    table = show_table(rows, formats={"rate": ".3f"}, caption="Rates", notes="Of two.")
    assert repr(table) == "Rates\nkind   rate\nflat  0.500\n<b>    none\nOf two."
    html = table._repr_html_()
    assert '<th style="text-align: left">kind</th><th style="text-align: right">rate</th>' in html
    assert "&lt;b&gt;" in html
    with pytest.raises(ValueError, match=r"formats must name columns \(kind, rate\), got rat"):
        show_table(rows, formats={"rat": ".3f"})
    with pytest.raises(ValueError, match=r"columns of one length, got \{'a': 1, 'b': 2\}"):
        show_table({"a": [1], "b": [1, 2]})
    with pytest.raises(ValueError, match="rows must all have the same names"):
        show_table([{"a": 1}, {"b": 1}])
    with pytest.raises(ValueError, match="must be finite, got nan"):
        show_table({"a": [float("nan")]})


def test_one_bound_is_called_equality():
    assert figures.ROUNDING == 1e-12


def test_no_chapter_prints_what_it_could_hand_over(root):
    """A printed line has no name: text cannot read it, and a page cannot set it as a table.

    Open cells may print, since a reader runs them without the helpers of this project.
    """
    printed = []
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            if "standalone" in cell["metadata"].get("tags", []):
                continue
            for output in cell.get("outputs", []):
                if output.get("name") == "stdout":
                    printed.append(f"{path.name}: {''.join(output['text'])}")
    assert printed == []


# Results that stand in words, which no name can fill: the sentence, the figures it tells of, and
# from where to where they may lie.
IN_WORDS = [
    (
        "book/part3_end.md",
        "chaos ends after a hundred thousand tokens",
        ["33b:law.common"],
        7e4,
        2e5,
    ),
    (
        "12b",
        "three to five times as large as $1/\\sqrt d$",
        ["glass[0].begins", "glass[2].begins"],
        2.9,
        5.1,
    ),
    (
        "15",
        "of the query two thirds of it remain",
        ["kicked[0].eight.value", "kicked[1].eight.value"],
        0.6,
        0.72,
    ),
    ("15", "but less than half remain in networks", ["fast[2].left", "fast[3].left"], 0.0, 0.5),
    (
        "33b",
        "it lasts for more than a hundred million steps",
        ["lifetimes[beta=1.266].lifetime"],
        1e8,
        math.inf,
    ),
    (
        "33",
        "ends or weakens in nearly one in five of the close view",
        [f"33b:transients[diagram=close view].{end}" for end in ("ended", "calmed")],
        0.08,
        0.1,
    ),
    ("33d", "changes one label in twenty", ["steadiness[0].changed_low"], 0.0, 0.05),
    ("33d", "changes one label in twenty", ["steadiness[0].changed_high"], 0.05, 0.1),
    (
        "33e",
        "one in six shows all its regimes",
        ["shown[kind=all three regimes].first"],
        0.15,
        0.18,
    ),
    ("33e", "About one in three shows all its", ["finer[values=2048].all_number"], 29, 38),
    ("33e", "About one in three shows all its", ["finer[values=2048].networks"], 100, 100),
    ("14", "own energy in about half of the heads", ["parts[part=whole].lower"], 34, 40),
    ("14", "own energy in about half of the heads", ["head_count"], 72, 72),
]


@pytest.mark.parametrize(("place", "words_told", "names", "low", "high"), IN_WORDS)
def test_results_in_words_are_what_the_figures_say(root, place, words_told, names, low, high):
    page = place.endswith(".md")
    path = root / place if page else next(root.glob(f"notebooks/{place}_*.md"))
    assert words_told in " ".join(path.read_text(encoding="utf-8").split())
    for name in names:
        number, _, entry = name.rpartition(":")
        assert low <= values.resolve(chapter_figures(root, number or place), entry) <= high

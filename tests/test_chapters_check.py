"""`check` names every fault by file and line; a `new` chapter lacks only its text."""

import pytest

SOURCE = "notebooks/01_small.md"


def change(old, new):
    def changed(data):
        assert old.encode() in data
        return data.replace(old.encode(), new.encode())

    return changed


HEADING = "# A small chapter"
DEFAULTS = b'{"beta": 1.5, "count": 2, "kind": "flat"}'
BETA = "beta: float = 1.5  # inverse temperature, in [0, 10]"


ROW = """\
- id: A1
  statement: It is small.
  verdict: holds
  chapter: 01_small
  test: tests/test_small.py::test_small
  figures:
    beta: 'flat ([.0-9]+)'
  criterion: beta < 1
  shown: 'β = {beta}'
  no_settings: nothing was chosen
"""


@pytest.mark.parametrize(
    ("file", "damage", "line"),
    [
        (SOURCE, lambda data: data.replace(b"small", b"sm\xe4ll"), "1: the file cannot be read"),
        (SOURCE, lambda data: b"", "1: the text must begin with a heading"),
        (SOURCE, change(HEADING, "No heading."), "12: the text must begin with a heading"),
        (SOURCE, change("  language: python", "  language: [python"), "1: the file cannot be read"),
        (SOURCE, change("tags: [parameters]", "tags: [parameters"), "22: the file cannot be read"),
        (SOURCE, change("in [1, 100]", "in [1, 100"), "26: count has a range that cannot be read"),
        (SOURCE, change("= 1.5", "= pi"), "25: beta: "),
        (SOURCE, change("= 1.5 ", "= (1.5 "), "not Python"),
        (SOURCE, change("count < 10", "counts < 10"), "28: no parameter named counts"),
        (SOURCE, change('"flat" or count <', '"steep" or count >'), "28: the chapter requires"),
        (SOURCE, change("for _ in", "for in"), "34: not Python"),
        (SOURCE, change("[parameters]", "[params]"), "1: expected one cell tagged `parameters`"),
        (SOURCE, change(", install]", "]"), "1: expected one cell tagged `install`"),
        (SOURCE, change(HEADING, f"{HEADING}\n\nTODO more"), "14: still to do: TODO more"),
        (SOURCE, change("range(count)", "range(count + 1)"), "1: the notebook is stale, its code"),
        (SOURCE, change(HEADING, "# Other"), "1: the notebook is stale, its text"),
        ("_toc.yml", change("01_small", "01_smal"), "1: does not list notebooks/01_small"),
        ("tests/papermill/01_small.json", lambda data: b'{"count": }', "1: small values"),
        ("tests/papermill/01_small.json", lambda data: b'{"cout": 1}', "no parameter named cout"),
        ("tests/papermill/01_small.json", lambda data: DEFAULTS, "changes no parameter"),
        ("tests/papermill/01_small.json", lambda data: b'{"count": 2}', "changes no parameter"),
        ("tests/papermill/01_small.json", lambda data: b'{"kind": "steep", "count": 10}', "1: "),
        (
            "book/claims.yml",
            lambda data: b"- id: A1\n  verdit: holds\n",
            "1: A1: has no entry verdit",
        ),
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
    "verdict: holds": "verdict: [holds]",
    "([.0-9]+)": "([.0-9]+",
    "flat ([.0-9]+)": "flat",
    "criterion: beta < 1": "criterion: 9",
    "beta < 1": "beta <",
    "chapter: 01_small": "chapter:",
    "{beta}": "{beta.x}",
}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        *(("book/claims.yml", text) for text in [*NOT_YAML, "{}", *BAD_ROWS[2:]]),
        *(("book/claims.yml", f"- {row}") for row in BAD_ROWS),
        *(("book/claims.yml", entry) for entry in BAD_ENTRIES),
        *(("_toc.yml", text) for text in [*NOT_YAML, "[]", "parts: 3", "chapters: [3]"]),
        ("book/passages.yml", "[]"),
        ("pyproject.toml", "[project"),
        ("tests/papermill/01_small.json", "[]"),
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
    if file in ("_toc.yml", "book/claims.yml"):
        command = {"_toc.yml": ("new", "02_x"), "book/claims.yml": ("sweep", "01_small", "-o", "o")}
        refused = call(built_checkout, *command[file])
        assert refused.exit_code == 2
        assert f"Error: {file}:" in refused.stderr
        assert sorted(built_checkout.rglob("*")) == before


def test_a_row_is_named_by_its_own_line(built_checkout, call):
    rows = ROW + ROW.replace("A1", "A2").replace("criterion: beta", "criterion: gamma")
    (built_checkout / "book" / "claims.yml").write_text(rows, encoding="utf-8")
    told = call(built_checkout, "check").stderr
    assert f"book/claims.yml:{len(ROW.splitlines()) + 1}: A2: gamma is not among" in told


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("book/results.md", "01_small: 1", "02_other: 1", "results.md:1: has no card for 01_small"),
        ("book/results.md", "small: 1", "small: 1 fig-none", "results.md:1: the card of 01_small"),
        ("book/welcome.md", "# Welcome", "**A course.** None.", "welcome.md:1: the course leaves"),
        (SOURCE, "**Builds on** nothing", "Builds on nothing", "must end with a paragraph"),
        (SOURCE, "on** nothing", "on** [x](02_x.md)", "02_x does not say that it leads to 01_sm"),
        (SOURCE, "to** nothing", "to** [x](02_x.md)", "02_x does not say that it builds on 01_sm"),
        ("book/passages.yml", "{}", "A9: Section 1", "passages.yml:1: A9: there is no row"),
        ("book/claims.yml", "[]", ROW, "passages.yml:1: A1 has no line that says where"),
    ],
)
def test_what_else_a_chapter_or_a_row_needs_in_the_book_is_told(
    built_checkout, call, file, old, new, message
):
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
    (built_checkout / "tests/papermill/01_small.json").unlink()
    (built_checkout / "_toc.yml").write_text("format: jb-book\nroot: book/welcome\n")
    lines = call(built_checkout, "check", "01_small").output.splitlines()
    assert [line[:10] for line in lines] == ["_toc.yml:1", "tests/pape"]


def test_what_a_cell_drew_needs_words_and_is_one_drawing(built_checkout, call):
    path, cell = built_checkout / SOURCE, "from bookmaker.base import Fault"
    figure = "---\nmystnb:\n  figure:\n    name: fig-x\n    caption: What this figure says.\n"
    figure += "  image:\n    alt: What is seen of this figure.\n---\n"
    draw = "from IPython.display import SVG\n" + "display(SVG('<svg/>'))\n"
    text = path.read_text(encoding="utf-8")
    for head, count, problem in (
        ("", 1, "the figure needs a name"),
        (figure, 2, "a cell draws one figure"),
        (figure, 1, ""),
        (":tags: [results]\n\n", 0, "has no figure and no line `name = number`"),
    ):
        path.write_text(text.replace(cell, head + count * draw + cell), encoding="utf-8")
        assert call(built_checkout, "build").exit_code == 0
        lines = call(built_checkout, "check").output
        assert problem in lines
        assert problem or "no fault" in lines


def test_a_verdict_that_its_figures_deny_and_cells_without_a_row(built_checkout, call):
    source, claims = built_checkout / SOURCE, built_checkout / "book" / "claims.yml"
    claims.write_text(ROW, encoding="utf-8")
    assert "A1: no cell of 01_small is tagged claim-A1" in call(built_checkout, "check").output
    cell = "```{code-cell} ipython3\nfrom"
    text = source.read_text(encoding="utf-8")
    tagged = text.replace(cell, "```{code-cell} ipython3\n:tags: [claim-A1, claim-Z9]\n\nfrom")
    source.write_text(tagged, encoding="utf-8")
    assert call(built_checkout, "build").exit_code == 0
    (built_checkout / "book" / "passages.yml").write_text("A1: Section 1\n", encoding="utf-8")
    assert call(built_checkout, "check").output.splitlines() == [
        "book/claims.yml:1: A1: verdict 'holds', but `beta < 1` is not met by beta = 1.50",
        "book/claims.yml:1: Z9: cells are tagged claim-Z9, but there is no row",
    ]
    row = ROW.replace("beta < 1", "beta < 2").replace("no_settings: nothing", "settings: none.csv")
    claims.write_text(row.replace(" was chosen", ""), encoding="utf-8")
    problems = call(built_checkout, "check").output.splitlines()
    assert ["none.csv" in line for line in problems] == [True, False]


def test_a_new_chapter_runs_and_lacks_only_its_text(small_checkout, call):
    result = call(small_checkout, "new", "02_lattice", "--title", "Does it melt?")
    assert "notebooks/02_lattice.md\n" in result.stdout
    text = (small_checkout / "notebooks" / "02_lattice.md").read_text(encoding="utf-8")
    assert "# Does it melt?" in text
    assert "LABEL" not in text
    contents = (small_checkout / "_toc.yml").read_text(encoding="utf-8")
    assert contents.endswith("  - file: notebooks/01_small\n  - file: notebooks/02_lattice\n")
    cards = (small_checkout / "book" / "results.md").read_text(encoding="utf-8")
    assert "01_small: 1\n02_lattice: 1 fig-lattice\n" in cards
    assert call(small_checkout, "build", "02_lattice").exit_code == 0
    left = call(small_checkout, "check", "02_lattice").output.splitlines()
    assert left
    assert all("02_lattice.md:" in line and "still to do" in line for line in left), left


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

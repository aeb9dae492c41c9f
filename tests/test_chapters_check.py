"""`check` names every fault by file and line; a `new` chapter lacks only its text."""

import pytest

from bookmaker.claims import parse_claims, read_claims
from bookmaker.claims_page import claims_markdown
from bookmaker.errors import SourceError

SOURCE = "notebooks/01_small.md"


def change(old, new):
    def changed(data):
        assert old.encode() in data
        return data.replace(old.encode(), new.encode())

    return changed


def test_a_sound_chapter_has_no_fault(built_checkout, call):
    result = call(built_checkout, "check")
    assert (result.exit_code, result.output) == (
        0,
        "checked 1 chapters, contents, claims, bibliography: no fault\n",
    )


NEIGHBORS = "**Builds on** [one]({}.md). **Leads to** [another]({}.md)."


def test_neighbors_name_each_other(built_checkout, call):
    first = built_checkout / SOURCE
    text = first.read_text(encoding="utf-8")
    first.write_text(f"{text}\n{NEIGHBORS.format('00_none', '02_more')}\n", encoding="utf-8")
    for back, faults in (("00_none", 2), ("01_small", 0)):
        more = text + f"\n{NEIGHBORS.format(back, '03_none')}\n"
        (first.parent / "02_more.md").write_text(more, encoding="utf-8")
        lines = call(built_checkout, "check").output.splitlines()
        told = [
            line for line in lines if "01_small says Leads to 02_more, 02_more does not say" in line
        ]
        assert len(told) == faults, lines


HEADING = "# A small chapter"
BETA = "beta: float = 1.5  # inverse temperature, in [0, 10]"


@pytest.mark.parametrize(
    ("file", "damage", "line"),
    [
        (SOURCE, lambda data: b"\xef\xbb\xbf" + data, "1: begins with a byte-order mark"),
        (SOURCE, lambda data: data.replace(b"small", b"sm\xe4ll"), "12: not UTF-8: byte 0xe4"),
        (SOURCE, lambda data: b"", "1: the text must begin with a heading"),
        (SOURCE, change(HEADING, "No heading."), "12: the text must begin with a heading"),
        (SOURCE, change("  language: python", "  language: [python"), "8: Notebook metadata"),
        (SOURCE, change("tags: [parameters]", "tags: [parameters"), "21: "),
        (SOURCE, change("tags: [parameters]", "tags: 7"), "1: the file cannot be read: 7 is not"),
        (SOURCE, change(":tags: [param", ":mystnb: 3\n:tags: [param"), "21: mystnb must hold"),
        (SOURCE, change("in [1, 100]", "in [1, 100"), "24: count has a range that cannot be read"),
        (SOURCE, change("in [0, 10]", "in [10, 0]"), "23: the range of beta is empty"),
        (SOURCE, change(BETA, f"{BETA}\n{BETA}"), "24: beta stands in line 1 of the cell already"),
        (SOURCE, change("= 1.5", "= pi"), "23: the default of beta must be a plain value"),
        (SOURCE, change("= 1.5", "= 11.0"), "23: the default is not allowed: beta must be float"),
        (SOURCE, change("= 1.5 ", "= (1.5 "), "not Python"),
        (SOURCE, change("count < 10", "counts < 10"), "26: 'kind == \"flat\" or counts < 10'"),
        (SOURCE, change("count < 10", "exit()"), "26: 'exit()' is not allowed in a condition"),
        (SOURCE, change("# require: kind", "# requires kind"), "26: write `# require: condition`"),
        (SOURCE, change('kind: str = "flat"', 'kind: str = "steep"\n'), "25: "),
        (SOURCE, change("for _ in", "for in"), "32: not Python"),
        (SOURCE, change("[parameters]", "[params]"), "1: there is no code cell tagged"),
        (SOURCE, change(", install]", "]"), "1: expected one cell tagged `install`, found 0"),
        (SOURCE, change(HEADING, f"{HEADING}\n\nSee {{cite}}`nobody1900`."), "14: no entry nobody"),
        (SOURCE, change(HEADING, f"{HEADING}\n\nTODO more"), "14: still to do: TODO more"),
        (SOURCE, change("range(count)", "range(count + 1)"), "1: the notebook is stale, its code"),
        (SOURCE, change(HEADING, "# Other"), "1: the notebook is stale, its text"),
        (SOURCE, change(":tags: [param", ":tags: [claim-Z9, param"), "no Z9"),
        ("_toc.yml", change("01_small", "01_smal"), "4: lists notebooks/01_smal, which does not"),
        ("tests/papermill/01_small.json", lambda data: b'{"count": }', "1: not JSON"),
        ("tests/papermill/01_small.json", lambda data: b'{"cout": 1}', "1: 01_small: no parameter"),
        ("tests/papermill/01_small.json", lambda data: b'{"count": 2}', "1: must change at least"),
        ("tests/papermill/01_small.json", lambda data: b'{"kind": "steep", "count": 10}', "1: "),
        ("book/claims.yml", lambda data: b"- id: A1\n  verdit: holds\n", "1: A1: unknown key"),
        ("book/welcome.md", lambda data: b"# W\n\n{cite}`nobody1900`\n", "3: no entry nobody1900"),
    ],
)
def test_every_fault_names_file_and_line(built_checkout, call, file, damage, line):
    path = built_checkout / file
    path.write_bytes(damage(path.read_bytes()))
    result = call(built_checkout, "check")
    assert result.exit_code == 1
    found = [text for text in result.output.splitlines() if text.startswith(f"{file}:")]
    assert any(line in text for text in found), result.output


def test_a_missing_parameter_file_is_a_fault_like_any_other(built_checkout, call):
    (built_checkout / "tests/papermill/01_small.json").unlink()
    (built_checkout / "_toc.yml").write_text("format: jb-book\nroot: book/welcome\n")
    lines = call(built_checkout, "check", "01_small").output.splitlines()
    assert [text.split(": ")[0] for text in lines] == [
        "_toc.yml:1",
        "tests/papermill/01_small.json:1",
    ]


ROWS = """\
- id: A1
  statement: One.
  verdict: open
  no_settings: nothing is computed
  chapter: 09_gone
- id: A4
  statement: Four.
  verdikt: open
- statement: Five.
- id: A1
  statement: Again.
  verdict: open
  no_settings: nothing is computed
"""


def test_every_row_of_the_claims_with_a_fault_is_named(small_checkout):
    (small_checkout / "book" / "claims.yml").write_text(ROWS, encoding="utf-8")
    with pytest.raises(SourceError) as caught:
        read_claims(small_checkout)
    lines = str(caught.value).splitlines()
    for start in (
        "book/claims.yml:1: A1: there is no chapter 09_gone",
        "book/claims.yml:6: A4: unknown key 'verdikt'",
        "book/claims.yml:9: id is missing",
        "book/claims.yml:10: A1: there is a row in line 1 already",
    ):
        assert any(line.startswith(start) for line in lines), (start, lines)
    assert len(lines) == 4
    assert parse_claims("- id: [\n")[1][0].line >= 1


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


def test_a_verdict_that_its_figures_deny_and_a_test_that_does_not_know_its_row(
    built_checkout, call
):
    source, claims = built_checkout / SOURCE, built_checkout / "book" / "claims.yml"
    test = built_checkout / "tests" / "test_small.py"
    cell = "```{code-cell} ipython3\nfrom"
    text = source.read_text(encoding="utf-8")
    assert text.count(cell) == 1
    tagged = text.replace(cell, "```{code-cell} ipython3\n:tags: [claim-A1]\n\nfrom")
    source.write_text(tagged, encoding="utf-8")
    test.write_text("def test_small():\n    pass\n", encoding="utf-8")
    claims.write_text(ROW, encoding="utf-8")
    assert call(built_checkout, "build", "--no-progress").exit_code == 0
    lines = call(built_checkout, "check").output.splitlines()
    assert lines == [
        'book/claims.yml:1: A1: the test test_small is not marked `@pytest.mark.claim("A1")`',
        "book/claims.yml:1: A1: verdict 'holds', but `beta < 1` is not met by beta = 1.50",
    ]
    with pytest.raises(SourceError, match=r"is not met by beta = 1\.50"):
        claims_markdown(built_checkout)
    test.write_text('@pytest.mark.claim("A1")\ndef test_small():\n    pass\n', encoding="utf-8")
    claims.write_text(ROW.replace("beta < 1", "beta < 2"), encoding="utf-8")
    assert call(built_checkout, "check").exit_code == 0
    assert "β = 1.50" in claims_markdown(built_checkout)


def test_a_new_chapter_runs_and_lacks_only_its_text(small_checkout, call):
    result = call(small_checkout, "new", "02_lattice", "--title", "Does it melt?")
    assert result.exit_code == 0
    assert "notebooks/02_lattice.md" in result.output
    assert "check 02_lattice" in result.output
    text = (small_checkout / "notebooks" / "02_lattice.md").read_text(encoding="utf-8")
    assert "# Does it melt?" in text
    assert "LABEL" not in text
    contents = (small_checkout / "_toc.yml").read_text(encoding="utf-8")
    assert contents.endswith("  - file: notebooks/01_small\n  - file: notebooks/02_lattice\n")
    assert call(small_checkout, "build", "02_lattice", "--no-progress").exit_code == 0
    left = call(small_checkout, "check", "02_lattice").output.splitlines()
    assert left
    assert all("02_lattice.md:" in line and "still to do" in line for line in left), left


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lattice", "a chapter is called NN_words"),
        ("../02_x", "a chapter is called NN_words"),
        ("01_small", "notebooks/01_small.md exists"),
        ("01_other", "the number 01 is taken: notebooks/01_small.md"),
        ("02_values", "tests/papermill/02_values.json exists"),
        ("02_listed", "_toc.yml lists notebooks/02_listed already"),
    ],
)
def test_new_refuses_a_name_that_does_not_fit_and_writes_nothing(
    small_checkout, call, name, message
):
    (small_checkout / "tests/papermill/02_values.json").touch()
    with (small_checkout / "_toc.yml").open("a") as file:
        file.write("  - file: notebooks/02_listed\n")
    before = sorted(small_checkout.rglob("*"))
    result = call(small_checkout, "new", name)
    assert result.exit_code == 2
    assert message in result.output
    assert sorted(small_checkout.rglob("*")) == before

"""The rule for verdicts: robustness tables, regions, and the fresh runs that confirm a region."""

import re
from dataclasses import replace

import pytest

from bookmaker import checking, claims, robustness
from bookmaker.base import SourceError
from bookmaker.tables import Table, recorded_region

FOLDER = "c01_small"
REGION = "rate < 0.025"
ROW = """\
- id: A1
  statement: It falls.
  passage: Section 1
  verdict: {verdict}
  condition: for small numbers
  test: tests/test_small.py::test_small
"""
DECIDED = """\
  figures: [slope]
  criterion: slope > 0
  shown: 'slope {slope}'
"""
SETTINGS = f"  settings: {FOLDER}/settings_A1.csv\n"
REGIONAL = f"{SETTINGS}  region: {REGION}\n"
CONFIRMED = f"{REGIONAL}  confirmed: {FOLDER}/confirm_A1.csv\n"


def line(number, value, **choices):
    """A line of a table with an interval of ± 0.1, and runs of its own."""
    row = {"data": f"seed {number}", "rate": (0.01, 0.02, 0.03)[number % 3], "start": "cold"}
    outcome = {"value": value, "low": value - 0.1, "high": value + 0.1, "runs": 5}
    return row | choices | outcome | {"loss": 0.1 * number}


def lines(values, *, first=0, **choices):
    return [line(first + place, value, **choices) for place, value in enumerate(values)]


def fresh(values, **choices):
    """Lines of a confirming table: other runs, inside the region."""
    rows = lines(values, first=100, **choices)
    return [row | {"rate": 0.01 + 0.01 * (place % 2)} for place, row in enumerate(rows)]


@pytest.fixture
def book(tmp_path):
    """Write the row and its tables; return the faults of the row."""

    def write(name, rows, region=""):
        path = tmp_path / "src" / "compendium" / FOLDER / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        units = [{"place": place} for place in range(len(rows))]
        table = Table(path=path, units=units, rows=lambda place: [rows[place]], seconds=1)
        table.make(region=region)
        text = path.read_text("utf-8").splitlines()
        # Without the column of the units, which no table of settings has to have.
        bare = [row.partition(",")[2] for row in text[1:]]
        path.write_text("\n".join([text[0], *bare, ""]), "utf-8")

    def faults(verdict="holds", entries=SETTINGS, *, settings=(), confirm=(), drawn_for=REGION):
        text = row(verdict, entries)
        path = tmp_path / "book" / "claims" / "01_small.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for name, rows, region in (
            ("settings_A1", settings, ""),
            ("confirm_A1", confirm, drawn_for),
        ):
            if rows:
                write(name, rows, region)
        (claim,) = claims.read_claims(tmp_path)
        return [claim.fault(problem) for problem in claim.settings_faults(tmp_path)]

    return faults


def row(verdict, entries):
    """The row with these entries; what is open has no figures."""
    return ROW.format(verdict=verdict) + ("" if verdict == "open" else DECIDED) + entries


def told(faults):
    return "\n".join(map(str, faults))


TWELVE = [0.2] * 12


@pytest.mark.parametrize(
    ("verdict", "settings", "message"),
    [
        ("holds", lines(TWELVE), ""),
        # Undecided is not against: one interval includes zero, and the value has the sign.
        ("holds", lines([0.2] * 11 + [0.05]), ""),
        ("holds", lines([0.2] * 11 + [-0.05]), "'holds', but 1 of 12 settings say otherwise"),
        ("holds", lines([0.2] * 11 + [0.0]), "'holds', but 1 of 12 settings say otherwise"),
        ("fails", lines([-0.2] * 11 + [-0.05]), ""),
        ("fails", lines([-0.2] * 11 + [0.05]), "'fails', but 1 of 12 settings say otherwise"),
        ("holds", lines([0.2] * 11), "made from 11 sets of runs (its column data): the verdict"),
        (
            "holds",
            [row | {"data": "one"} for row in lines(TWELVE)],
            "is made from 1 sets of runs (its column data): the verdict 'holds' needs at least 12",
        ),
        ("open", lines([0.2, -0.2]), ""),
        (
            "holds",
            [{k: v for k, v in row.items() if k != "data"} for row in lines(TWELVE)],
            "settings_A1.csv has no column data",
        ),
        ("open", lines([0.2] * 11 + [float("nan")]), "has a value outside its interval"),
        (
            "open",
            [
                line(number, 0.2 + 0.01 * number - bound, bound=bound)
                for number in range(12)
                for bound in (0.01, 0.05)
            ],
            "the column bound of settings_A1.csv only moves a threshold",
        ),
        # A choice that changes nothing, or now this and now that, is one all the same.
        (
            "holds",
            [
                line(number, 0.2 + 0.01 * number * scale, scale=scale)
                for number in range(12)
                for scale in (1, 2)
            ],
            "",
        ),
        ("holds", [line(n, 0.2, start=s) for n in range(12) for s in ("cold", "warm")], ""),
    ],
)
def test_a_verdict_of_all_settings(book, verdict, settings, message):
    problems = told(book(verdict, settings=settings))
    assert message in problems
    assert bool(message) == bool(problems)


ASKED = lines([0.2, 0.2, -0.2] * 4)


@pytest.mark.parametrize(
    ("confirm", "drawn_for", "message"),
    [
        (fresh(TWELVE), REGION, ""),
        # One against in twenty, and half of them undecided.
        (fresh([0.2] * 10 + [0.05] * 5 + [-0.05] * 4 + [-0.2]), REGION, ""),
        (fresh([0.2] * 11 + [-0.2]), REGION, "1 of 12 settings of confirm_A1.csv are against"),
        (fresh([0.2] * 5 + [0.05] * 7), REGION, "5 of 12 settings of confirm_A1.csv stand: at"),
        (fresh([0.2] * 11), REGION, "confirm_A1.csv is made from 11 sets of runs: at least 12"),
        (
            [row | {"data": "one"} for row in fresh(TWELVE)],
            REGION,
            "confirm_A1.csv is made from 1 sets of runs",
        ),
        (
            [*fresh(TWELVE)[:-1], fresh(TWELVE)[-1] | {"data": "seed 3"}],
            REGION,
            "confirm_A1.csv is not from fresh runs: settings_A1.csv has seed 3, too",
        ),
        (
            [*fresh(TWELVE)[:-1], fresh(TWELVE)[-1] | {"rate": 0.03}],
            REGION,
            "1 of 12 lines of confirm_A1.csv lie outside of `rate < 0.025`",
        ),
        (fresh(TWELVE, law="flat"), REGION, "confirm_A1.csv has the columns data, rate, start"),
        (
            fresh(TWELVE),
            "rate < 0.03",
            "confirm_A1.csv was made for the region `rate < 0.03`, the row has `rate < 0.025`",
        ),
        (fresh(TWELVE), "", "confirm_A1.csv was made without a region"),
        (fresh([0.2] * 11 + [float("nan")]), REGION, "confirm_A1.csv has a value outside its"),
    ],
)
def test_a_region_is_confirmed_by_fresh_runs(book, confirm, drawn_for, message):
    problems = book("holds if", CONFIRMED, settings=ASKED, confirm=confirm, drawn_for=drawn_for)
    assert message in told(problems)
    assert bool(message) == bool(problems)
    assert all(str(fault).startswith("book/claims/01_small.yml:1: A1: ") for fault in problems)


@pytest.mark.parametrize(
    ("verdict", "region", "message"),
    [
        ("holds if", "rate < 0.015", "the region `rate < 0.015` covers 4 of 12 settings"),
        ("holds if", "rate < 0.025 or split == 1", "names split, which is a draw and no choice"),
        ("holds if", "rate < 0.025 and data != 'seed 0'", "names data, which is a draw"),
        ("held in", "loss < 0.75", "names loss, which is a result and no choice"),
        # What only a region found afterwards has to show by itself; a row never confirms itself.
        ("held in", "rate < 0.025", ""),
        ("held in", "rate < 0.035", "4 of 12 settings in the region `rate < 0.035` of settings_"),
        ("held in", "rate < 0.015", "covers 4 of 12 settings: at least half needed"),
    ],
)
def test_a_region_covers_half_of_what_was_asked_and_names_no_draw(book, verdict, region, message):
    asked = [row | {"split": place} for place, row in enumerate(ASKED)]
    confirm = [row | {"split": 20 + place} for place, row in enumerate(fresh(TWELVE))]
    entries = CONFIRMED if verdict == "holds if" else REGIONAL
    entries = entries.replace(f"region: {REGION}", f'region: "{region}"')
    problems = told(
        book(
            verdict,
            entries,
            settings=asked,
            confirm=confirm if verdict == "holds if" else (),
            drawn_for=region,
        )
    )
    assert message in problems
    if not message:
        assert problems == ""


@pytest.mark.parametrize(
    ("verdict", "entries", "message"),
    [
        ("holds", "", "needs the entry settings"),
        ("maybe", "", "verdict must be one of holds"),
        ("holds", "  no_settings: a theorem\n", "has no entry no_settings; there are: "),
        ("holds", REGIONAL, "the verdict 'holds' has no entry region"),
        ("fails", CONFIRMED, "the verdict 'fails' has no entry confirmed"),
        ("holds if", SETTINGS, "needs the entry region"),
        ("holds if", REGIONAL, "needs the entry confirmed"),
        ("held in", CONFIRMED, "has no entry confirmed"),
        ("held in", SETTINGS, "needs the entry region"),
        ("holds if", CONFIRMED.replace("confirm_A1", "confirm_A2"), "called confirm_A1.csv"),
        ("identity", "", "the verdict 'identity' needs the entry identity"),
        ("identity", f"{SETTINGS}  identity: a theorem\n", "has no entry settings"),
        ("holds", f"{SETTINGS}  identity: a theorem\n", "has no entry identity"),
        ("holds", f"{SETTINGS}  before: 3\n", "before must be a text or a list of texts"),
        ("holds", f"{SETTINGS}  before: [3]\n", "before must be a text or a list of texts"),
    ],
)
def test_entries_that_do_not_fit_the_verdict_are_named(book, verdict, entries, message):
    with pytest.raises(SourceError, match=re.escape(message)):
        book(verdict, entries)


def test_an_identity_needs_its_reason_and_no_table(book):
    assert book("identity", "  identity: a theorem\n") == []


@pytest.mark.parametrize(
    ("given", "kept"),
    [("", []), ("  before: slope > 1\n", ["slope > 1"]), ("  before: [a, b]\n", ["a", "b"])],
)
def test_what_stood_before_is_a_list_in_words(book, tmp_path, given, kept):
    book(entries=SETTINGS + given, settings=lines(TWELVE))
    assert list(claims.read_claims(tmp_path)[0].before) == kept


def test_a_confirming_table_is_drawn_for_the_region_of_its_row(book, tmp_path):
    path = tmp_path / "src" / "compendium" / FOLDER / "confirm_A1.csv"
    book("holds", SETTINGS, settings=lines(TWELVE))
    table = Table(path=path, units=[{"data": 1}], rows=lambda data: [{"value": 1}], seconds=1)
    with pytest.raises(claims.BookError, match="write its region first"):
        claims.region_to_confirm(tmp_path, table)
    (tmp_path / "book" / "claims" / "01_small.yml").write_text(
        row("holds if", CONFIRMED), encoding="utf-8"
    )
    region = claims.region_to_confirm(tmp_path, table)
    assert region == REGION
    table.make(region=region)
    assert path.read_text("utf-8").startswith(f"# {table.command}  # region: {REGION}\ndata,value")
    assert recorded_region(path) == REGION
    # Once the row has given its region up, the table says for which it was drawn.
    (tmp_path / "book" / "claims" / "01_small.yml").write_text(
        row("fails", SETTINGS), encoding="utf-8"
    )
    assert claims.region_to_confirm(tmp_path, table) == REGION
    settings = Table(**vars(table) | {"path": path.with_name("settings_A1.csv")})
    assert claims.region_to_confirm(tmp_path, settings) == ""


def test_units_drawn_for_one_region_are_not_gone_on_with_for_another(tmp_path):
    def rows(data):
        if data == 2:
            raise KeyboardInterrupt
        return [{"value": data}]

    units = [{"data": 1}, {"data": 2}]
    table = Table(path=tmp_path / "confirm_A1.csv", units=units, rows=rows, seconds=1)
    with pytest.raises(KeyboardInterrupt):
        table.make(region="rate < 1")
    with pytest.raises(claims.BookError, match="rate < 1"):
        table.make(region="rate < 2")


def test_counts_in_words_keep_undecided_settings_apart_from_contrary_ones(book, tmp_path):
    confirm = fresh([0.2] * 10 + [0.05] * 9 + [-0.2])
    assert book("holds if", CONFIRMED, settings=ASKED, confirm=confirm) == []
    claim = vars(claims.read_claims(tmp_path)[0])
    eight = "8 settings from 8 sets of runs: 8 for the statement, 0 undecided, 0 against it"
    twelve = "12 settings from 12 sets of runs: 8 for the statement, 0 undecided, 4 against it"
    twenty = "20 settings from 20 sets of runs: 10 for the statement, 9 undecided, 1 against it"
    assert claims.settings_words(tmp_path, claim) == (
        f"Of {twelve} (rate 0.01, 0.02, 0.03; start cold); −0.2 to 0.2; "
        f"with `rate < 0.025` {eight}. Fresh runs, drawn once this region was written: "
        f"of {twenty} (rate 0.01, 0.02; start cold); −0.2 to 0.2."
    )
    assert claims.how_sure(tmp_path, claim) == f"of {twenty}, all from fresh runs"
    # The third rate of the first table is outside of the region.
    tried = "the values that were tried: rate 0.01 to 0.02; start cold"
    assert claims.values_tried(tmp_path, claim) == tried
    assert claims.how_sure(tmp_path, claim | {"verdict": "held in", "confirmed": ""}) == (
        f"in a region that was found afterwards and that no fresh runs have confirmed, of {eight}"
    )
    everywhere = claim | {"verdict": "open", "confirmed": "", "region": ""}
    assert claims.how_sure(tmp_path, everywhere) == f"of {twelve}"
    assert claims.values_tried(tmp_path, everywhere) == ""
    proved = everywhere | {"settings": "", "identity": "a theorem"}
    assert claims.how_sure(tmp_path, proved) == "a theorem"
    assert claims.how_sure(tmp_path, proved | {"identity": ""}) == ""


def test_a_draw_is_known_by_the_words_of_its_name():
    drawn = "data group seed seeds first_seed split splits draw systems place first_text context"
    chosen = "sizes beta start start_law null gauge rate samples steps seen family of_the_line"
    assert all(map(robustness.is_draw, drawn.split()))
    assert not any(map(robustness.is_draw, chosen.split()))


def test_the_history_of_a_row_counts_the_settings_of_its_trials(tmp_path):
    """By row and label; a trial that no history names is a fault, and one that is not kept."""
    path = tmp_path / claims.TRIALS
    path.parent.mkdir(parents=True)
    outcomes = ["stands", "stands", "undecided", "against"]
    lines = [f"A1,two others,rate {place},{word}" for place, word in enumerate(outcomes)]
    head = "# settings\nrow,trial,setting,outcome\n"
    path.write_text(head + "\n".join([*lines, "A2,two others,cold,stands\n"]), "utf-8")
    trials = robustness.read_trials(path)
    claim = claims.Claim(
        id="A1",
        statement="It falls.",
        verdict="open",
        chapter="01_small",
        test="",
        before=["of {trial}`two others`, later"],
    )
    assert claim.history(trials) == [
        "of 4 settings: 2 for the statement, 1 undecided, 1 against it, later"
    ]
    found = told(checking._trial_faults(tmp_path, [claim]))
    assert "the history of A2 does not name the trial 'two others'" in found
    assert "A1" not in found
    unknown = replace(claim, before=["of {trial}`others`"])
    assert "names the trial 'others'" in told(checking._trial_faults(tmp_path, [unknown]))
    path.write_text(f"{head}A1,two others,cold,perhaps\n", "utf-8")
    assert "outcome must be one of" in told(checking._trial_faults(tmp_path, [claim]))
    path.unlink()
    assert robustness.read_trials(path) == {}

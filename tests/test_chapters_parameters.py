"""Parameters are checked against their source before a kernel starts."""

import re
import shlex
from pathlib import Path

import pytest

from bookmaker.base import ParameterError
from bookmaker.command import main
from bookmaker.parameters import parse_parameters
from bookmaker.source import chapters

ROOT = Path(__file__).resolve().parents[1]

LINES = """\
beta: float = 1.27  # inverse temperature of the output, in [0, 10]
gain: float = 2.0  # gain, in (0, inf)
share: float = 0.5  # share, in [0, 1)
steps: int = 2000  # steps kept, in [10, 100000]
network: str = "document"  # which network, one of {document | random}
text: str = ""  # any text
loose: float = 1.0  # any number"""


def read(source):
    cell = parse_parameters(source)
    if cell.faults:
        raise ParameterError("; ".join(message for _, message in cell.faults))
    return cell


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("beta", "0", 0.0),
        ("beta", "1e-3", 1e-3),
        ("share", "0", 0.0),
        ("steps", "100000", 100000),
        ("network", "random", "random"),
        ("text", "3", "3"),
    ],
)
def test_accepts_what_is_allowed(name, text, value):
    got = read(LINES).check({name: text})
    assert got == {name: value}
    assert type(got[name]) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("bet", "2", "no parameter named bet; there are: beta, gain"),
        ("beta", "-0.1", r"beta must be float in \[0, 10\], got -0.1"),
        ("beta", "nan", "beta must be float"),
        ("beta", "hot", "got hot"),
        ("gain", "0", r"gain must be float in \(0, inf\)"),
        ("gain", "inf", "got inf"),
        ("loose", "inf", "loose must be float, got inf"),
        ("share", "1", r"share must be float in \[0, 1\), got 1"),
        ("steps", "50.0", r"steps must be int in \[10, 100000\], got 50.0"),
        ("steps", "True", "got True"),
        ("network", "other", "network must be one of document | random, got other"),
    ],
)
def test_refuses_the_rest_with_one_clear_sentence(name, text, message):
    with pytest.raises(ParameterError, match=message.replace("|", r"\|")):
        read(LINES).check({name: text})


def test_a_path_is_absolute_and_leads_to_something(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cell = read(
        'text: str = ""  # text to read, path of {file}\n'
        'model: str = ""  # another model, path of {folder}'
    )
    assert cell.parameters["text"].help == "text to read"
    file = tmp_path / "essay.txt"
    file.touch()
    for good in ({"text": str(file), "model": str(tmp_path)}, {"text": "", "model": ""}):
        assert cell.check(good) == good
    for value in ("essay.txt", tmp_path, tmp_path / "missing.txt", "\0"):
        with pytest.raises(ParameterError, match="text must be the absolute path of a file or"):
            cell.check({"text": value})
    with pytest.raises(ParameterError, match="model must be the absolute path of a folder or"):
        cell.check({"model": file})


@pytest.mark.parametrize("text", ["٣", "1_0", "１", "1e", "0x3", "infinity", "nan", "3 3", ""])
def test_a_number_is_written_in_ascii_digits(text):
    """Python's own int and float take more than a reader means."""
    cell = read("count: int = 1  # a number\nbeta: float = 1.0  # a number\n")
    for name in ("count", "beta"):
        with pytest.raises(ParameterError, match=f"{name} must be"):
            cell.check({name: text})
    assert cell.check({"count": "+3", "beta": ".5e-1"}) == {"count": 3, "beta": 0.05}


@pytest.mark.parametrize(
    "line",
    [
        "beta = 1.0  # untyped, in [0, 1]",
        "beta: float | None = 1.0  # a type papermill drops",
        "beta: float = 1.0  # beta = 1/T",
        "beta: float = 1.0",
        "beta: float = 2.0  # a default out of range, in [0, 1]",
        "beta: list = []  # a type we do not check",
        "print(1)",
        "count: int = 0  # a number, path of {file}",
        'text: str = ""  # text to read, path of {files}',
        'text: str = ""  # text to read, path of [file]',
    ],
)
def test_refuses_lines_that_say_too_little_or_that_papermill_would_misread(line):
    with pytest.raises(ParameterError):
        read(line)


THREE = "".join(f"{name}: int = {n}  # a number\n" for n, name in enumerate(("low", "mid", "high")))


@pytest.mark.parametrize(
    ("condition", "met", "unmet"),
    [
        ("low < mid < high", (1, 2, 3), (1, 2, 2)),
        ("low <= mid != high", (0, 2, 3), (2, 2, 2)),
        ("high // (low + 1) == 2 and -mid < 0", (0, 1, 2), (0, -1, 2)),
        ("not (low > 0 and abs(mid) > 0)", (1, 0, 2), (1, -1, 2)),
    ],
)
def test_a_requirement_holds_exactly_where_it_says(condition, met, unmet):
    cell = read(f"{THREE}  # require: {condition}  # since so")
    names = ("low", "mid", "high")
    cell.check(dict(zip(names, met, strict=True)))
    with pytest.raises(ParameterError, match="since so"):
        cell.check(dict(zip(names, unmet, strict=True)))


@pytest.mark.parametrize("condition", ["", "low <", "exit(low) is None", "other > 1", "low < 'x'"])
def test_a_requirement_that_no_parameters_decide_is_refused(condition):
    with pytest.raises(ParameterError):
        read(f"{THREE}# require: {condition}")
    cell = read(f"{THREE}# require: high % (low - 1) == 0")
    with pytest.raises(ParameterError, match="cannot be decided"):
        cell.check({"low": 1})


def test_values_are_checked_with_the_defaults_of_the_others():
    lines = "low: int = 1  # low, in [0, 9]\nhigh: int = 2  # high, in [0, 9]\n"
    cell = read(f"{lines}# require: low < high")
    assert cell.check({"low": 3, "high": 4}) == {"low": 3, "high": 4}
    for values in ({"low": 2}, {"high": 1}, {"low": 5, "high": 4}):
        with pytest.raises(ParameterError, match="requires low < high, got low = "):
            cell.check(values)
    with pytest.raises(ParameterError, match="requires low > high"):
        read(f"{lines}# require: low > high")


def printed_commands():
    """Runs and sweeps that the chapters and pages tell a reader to start, as words."""
    for path in [*ROOT.glob("*.md"), *ROOT.glob("book/*.md"), *ROOT.glob("notebooks/*.md")]:
        text = path.read_text("utf-8").replace("\\\n", " ")
        for found in re.findall(r"-m bookmaker ((?:run|sweep) \d\w+[^`\n]*)", text):
            yield path.name, shlex.split(found)


def test_commands_that_the_book_prints_are_accepted():
    """Every chapter prints one, with its own parameters, within their ranges, and all it needs."""
    told = set()
    for place, (verb, name, *rest) in printed_commands():
        (chapter,) = chapters(ROOT, names=(name,))
        context = main.commands[verb].make_context(verb, [name, *rest])
        values = context.params["values"]
        if verb == "run":
            chapter.check_values(values)
            told.add((place, name))
        assert values.keys() <= chapter.parameter_cell.parameters.keys()
    assert {(f"{chapter.name}.md", chapter.name) for chapter in chapters(ROOT)} <= told

"""Docstrings of what is public are in NumPy's form, and say what the signature and the code say."""

import ast
import dataclasses
import enum
import importlib
import inspect
import math
import pkgutil
import re
import textwrap
from pathlib import Path

import pytest
import yaml
from sphinx.ext.napoleon import Config, NumpyDocstring

import spinformer

ROOT = Path(__file__).resolve().parents[1]
# Rooms of the package whose public names are in this form.
ROOMS = ("core", "hopfield", "spins", "dmft", "language", "plot")

ORDER = (
    "Parameters",
    "Attributes",
    "Returns",
    "Yields",
    "Raises",
    "Warns",
    "See Also",
    "Notes",
    "References",
    "Examples",
)
ENTRIES = {"Parameters", "Attributes", "Returns", "Yields", "Raises", "Warns"}


def members(found):
    """Public functions and classes of a module, then public methods and properties of a class."""
    for own, value in vars(found).items():
        if own.startswith("_"):
            continue
        plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        shown = isinstance(plain, property) or inspect.isclass(plain)
        if shown or inspect.isfunction(inspect.unwrap(plain)):
            yield own, plain


def public(room):
    """By full name, everything public that is defined in a room."""
    path = importlib.import_module(f"spinformer.{room}").__path__
    for file in pkgutil.walk_packages(path, f"spinformer.{room}."):
        module = importlib.import_module(file.name)
        for own, found in members(module):
            if getattr(found, "__module__", "") != file.name:
                continue
            name = f"{file.name}.{own}"
            yield name, found
            if inspect.isclass(found):
                for method, inner in members(found):
                    yield f"{name}.{method}", inner


EVERY = dict(item for room in ROOMS for item in public(room))


def sections(docstring):
    """Of a docstring the text in front, and by title, in order, the lines of each section."""
    parts = re.split(r"^([A-Z][A-Za-z ]+)\n(-{3,})$", docstring, flags=re.MULTILINE)
    for title, line in zip(parts[1::3], parts[2::3], strict=True):
        assert len(title) == len(line), f"{title} is underlined by {len(line)} characters"
    titles = parts[1::3]
    assert len(set(titles)) == len(titles), "a section comes twice"
    return parts[0], dict(zip(titles, parts[3::3], strict=True))


def entries(text):
    """What a section explains: its lines at the margin, each with the lines that belong to it."""
    found = {}
    name = None
    for line in text.strip("\n").split("\n"):
        if line.startswith("    "):
            assert name, f"{line.strip()!r} explains nothing"
            found[name].append(line.strip())
        elif line:
            name = line
            found[name] = []
    return found


def arguments(found):
    """Names of the arguments that a docstring must explain; for a record, its fields."""
    if inspect.isclass(found):
        if issubclass(found, enum.Enum | Exception | dict):
            return []
        if dataclasses.is_dataclass(found):
            return [field.name for field in dataclasses.fields(found) if field.init]
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(found).parameters.values()
    own = ("self", "cls") if "." in found.__qualname__ else ()
    return [stars.get(p.kind, "") + p.name for p in parameters if p.name not in own]


def refuses(found):
    """Whether a function, or the construction of a class, raises or checks on its own lines."""
    if inspect.isclass(found):
        names = ("__init__", "__post_init__")
        own = [vars(found)[name] for name in names if name in vars(found)]
        # What a record is constructed by was made without a file.
        return any(refuses(inner) for inner in own if inner.__code__.co_filename != "<string>")
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(found)))
    nodes = list(ast.walk(ast.parse(source)))
    calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    checked = any(re.search(r"(^|\.)_?check(_|$)", call) for call in calls)
    return checked or any(isinstance(node, ast.Raise) for node in nodes)


def default_faults(found, named):
    """Where the default that a docstring states is not that of the signature, in words."""
    parameters = inspect.signature(found).parameters
    # A default is written as in Python, with the names of its module.
    scope = {"inf": math.inf, "nan": math.nan, **vars(inspect.getmodule(found))}
    for entry in named:
        name, _, kind = entry.partition(" : ")
        parameter = parameters.get(name.lstrip("*"))
        actual = parameter.default if parameter else inspect.Parameter.empty
        stated = re.search(r"\bdefault (.+)$", kind)
        if stated is None:
            if (
                actual is not inspect.Parameter.empty
                and "optional" not in kind
                and actual is not None
            ):
                yield f"the default of {name} must be stated, it is {actual}"
            continue
        wanted = eval(stated[1], scope)
        if actual is inspect.Parameter.empty:
            yield f"the default of {name} is stated, {wanted}, and there is none"
        # A field of a record that a function makes anew for each.
        elif repr(actual) != "<factory>" and str(wanted) != str(actual) and wanted != actual:
            yield f"the default of {name} is {actual}, the docstring says {wanted}"


def faults(found):
    """What is wrong with the docstring of a public name, in words."""
    docstring = inspect.getdoc(found) or ""
    front, told = sections(docstring)
    summary, _, rest = front.partition("\n")
    if not re.fullmatch(r"[^a-z\s].*[.?]", summary):
        yield f"the summary must be one sentence on one line, got {summary!r}"
    if rest.strip() and not rest.startswith("\n"):
        yield "the summary must be followed by an empty line"
    if ">>>" in front:
        yield "examples must be in a section of their own"
    known = [title for title in ORDER if title in told]
    if list(told) != known:
        yield f"sections must be among {ORDER}, in this order, got {tuple(told)}"
    if isinstance(found, property):
        return
    for title in ENTRIES & told.keys():
        for name, lines in entries(told[title]).items():
            if not lines or not lines[-1].endswith((".", "?")):
                yield f"{title}: {name!r} must be explained in whole sentences"
    named = entries(told.get("Parameters", "") + told.get("Attributes", ""))
    explained = [name.partition(" : ")[0] for name in named]
    if explained != arguments(found):
        yield f"arguments must be explained in order, {arguments(found)}, got {explained}"
    if any(not name.partition(" : ")[2] for name in named):
        yield "each argument must have a type"
    elif explained == arguments(found) and explained:
        yield from default_faults(found, named)
    returned = None if inspect.isclass(found) else inspect.signature(found).return_annotation
    if (returned not in (None, "None")) != bool({"Returns", "Yields"} & told.keys()):
        yield f"Returns or Yields must be there for what returns something, here {returned}"
    if refuses(found) and "Raises" not in told:
        yield "Raises must say what the checks raise"


@pytest.mark.parametrize("name", EVERY)
def test_docstring_is_in_numpys_form(name):
    assert not list(faults(EVERY[name]))


def test_every_room_has_public_names_and_their_methods():
    for room in ROOMS:
        assert any(name.startswith(f"spinformer.{room}.") for name in EVERY), room
    assert spinformer.hopfield.layer.HopfieldLayer.forward in EVERY.values()
    assert isinstance(EVERY["spinformer.core.solve.Solution.converged"], property)


def example(states: list, *, beta: float = 1.0) -> float:
    """Energy of a state.

    Parameters
    ----------
    states : list, shape (N,)
        Spins.
    beta : float, default 1.0
        Inverse temperature.

    Returns
    -------
    float
        The energy.

    Raises
    ------
    ValueError
        If there are no states.

    Examples
    --------
    >>> example([1.0])
    1.0
    """
    if not states:
        raise ValueError("states must not be empty")
    return beta * sum(states)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Energy of a state.", "energy of a state", "summary"),
        ("beta : float, default 1.0", "gamma : float", "arguments must"),
        ("beta : float, default 1.0", "beta", "type"),
        ("beta : float, default 1.0", "beta : float, default 2.0", "default of beta is"),
        ("beta : float, default 1.0", "beta : float", "must be stated"),
        ("shape (N,)", "default ()", "there is none"),
        ("    Spins.\n", "", "whole sentences"),
        ("    Spins.\n", "    Spins\n", "whole sentences"),
        ("Returns\n-------\nfloat\n    The energy.\n\n", "", "Returns"),
        ("Raises\n------\nValueError\n    If there are no states.\n\n", "", "Raises"),
        ("Examples\n--------\n", "", "nothing"),
        ("Examples\n--------\n>>> example([1.0])\n1.0", "Example\n-------\nx", "sections"),
    ],
)
def test_what_is_not_in_the_form_is_seen(old, new, words):
    assert not list(faults(example))
    whole = inspect.getdoc(example)
    assert old in whole

    def spoilt(states: list, *, beta: float = 1.0) -> float:
        raise ValueError

    spoilt.__doc__ = whole.replace(old, new)
    if words == "nothing":
        spoilt.__doc__ = "Energy of a state.\n\n>>> example([1.0])\n1.0"
        words = "section of their own"
    assert any(words in fault for fault in faults(spoilt))


def test_a_page_shows_sections_formulas_as_typed_and_links_to_sources(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "book" / "_ext")
    links = importlib.import_module("site_links")
    settings = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["sphinx"]["config"]
    chosen = {name: value for name, value in settings.items() if name.startswith("napoleon_")}
    update = EVERY["spinformer.hopfield.continuous.update"]
    lines = inspect.getdoc(update).split("\n")
    formula = [line for line in lines if r"\operatorname" in line]
    assert formula
    links.plain_docstring(None, "function", "", update, None, lines)
    shown = str(NumpyDocstring("\n".join(lines), Config(**chosen))).split("\n")
    assert set(formula) <= set(shown)
    assert ".. rubric:: Notes" in shown
    assert any(line.startswith(":Parameters: * **patterns** (*Tensor") for line in shown)
    assert any(":cite:t:`bal2020energy`" in line for line in shown)
    assert ">>> update(torch.eye(2), states=torch.zeros(2))" in shown
    # A record lists its fields once, and not as entries of their own.
    found = EVERY["spinformer.core.statistics.Estimate"]
    lines = inspect.getdoc(found).split("\n")
    assert ".. attribute::" not in str(NumpyDocstring("\n".join(lines), Config(**chosen)))

"""What chapters call of the package refuses nonsense by the name of the argument, or computes.

The cases are made by machine: the example in the docstring of a function is run with one
argument after the other replaced.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spinformer
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.network import Context, Network

ROOT = Path(__file__).resolve().parents[1]
BAD: dict[str, Any] = {
    "a word": "x",
    "NaN": float("nan"),
    "infinity": float("inf"),
    "an object": object(),
    "nothing in it": np.zeros((0, 3)),
    "NaN in it": torch.full((2, 3), float("nan")),
    "four hundred digits": 10**400,
}
# An error is no function; a folder that is not there is an error of its own; a check names the
# argument it is told. The rest are parts that a chapter shows at work on arrays it has just made.
LEFT_OUT = (
    *("ModelUnavailable", "check_integer", "Solver", "hop", "rest", "response_attention"),
    *("driven_start", "driven_step", "entropy_rate"),
)
# A bar that is shown or not; what torch itself reads and refuses.
NOT_TRIED = ("progress", "device", "dtype")


# `from spinformer.x import a, b`, on one line or in parentheses.
IMPORT = re.compile(r"^from (spinformer\.(?!plot)[\w.]+) import (\([^)]*\)|.*)$", re.MULTILINE)


def offered():
    """The public door: functions and classes of the package that a chapter imports."""
    chapters = sorted((ROOT / "notebooks").glob("*.md"))
    for module, names in IMPORT.findall("".join(path.read_text("utf-8") for path in chapters)):
        for name in re.findall(r"\w+", re.sub(r" as \w+|#.*", "", names)):
            found = getattr(importlib.import_module(module), name, None)
            if callable(found) and name not in LEFT_OUT:
                yield f"{module}.{name}", found


def example(function):
    parsed = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
    return "".join(part.source for part in parsed)


def call_in(tree, name):
    """The first call of `name` in an example that stands outside of a loop of its own."""
    inner = (ast.GeneratorExp, ast.ListComp, ast.DictComp, ast.SetComp, ast.Lambda)
    loops = [node for node in ast.walk(tree) if isinstance(node, inner)]
    hidden = {id(node) for loop in loops for node in ast.walk(loop)}
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call) and id(n) not in hidden)
    return next((c for c in calls if isinstance(c.func, ast.Name) and c.func.id == name), None)


OFFERED = {
    name: function
    for name, function in offered()
    if call_in(ast.parse(example(function)), name.split(".")[-1])
}


def with_bad(source, name, place):
    """The example up to the call, and the call with the name `bad` for the argument at `place`."""
    tree = ast.parse(source)
    call = call_in(tree, name)
    assert call is not None
    bad = ast.Name("bad", ast.Load())
    if isinstance(place, int):
        call.args[place] = bad
    else:
        call.keywords = [word for word in call.keywords if word.arg != place]
        call.keywords.append(ast.keyword(place, bad))
    before = []
    for statement in tree.body:
        if any(node is call for node in ast.walk(statement)):
            break
        before.append(statement)
    told = ast.Assign([ast.Name("result", ast.Store())], call)
    first, last = (
        compile(ast.fix_missing_locations(ast.Module(part, [])), name, "exec")
        for part in (before, [told])
    )
    return first, last


def is_number(result):
    """Whether no part of a result is NaN."""
    if isinstance(result, tuple | list):
        return all(map(is_number, result))
    if isinstance(result, torch.Tensor):
        return not bool(torch.isnan(result).any())
    if isinstance(result, float | np.ndarray) and np.asarray(result).dtype.kind in "fc":
        return not bool(np.isnan(result).any())
    return True


@pytest.mark.parametrize("name", OFFERED)
def test_nonsense_is_refused_by_name(name):
    function = OFFERED[name]
    source, own = example(function), name.split(".")[-1]
    found = call_in(ast.parse(source), own)
    assert found is not None
    names = list(inspect.signature(function).parameters)
    places: dict[int | str, str] = {place: names[place] for place in range(len(found.args))}
    places |= {word.arg: word.arg for word in found.keywords if word.arg}
    # What an example leaves out is tried, too; words are true, so that a flag must refuse them.
    parameters = inspect.signature(function).parameters.values()
    given = {*places.values(), *NOT_TRIED}
    places |= {
        p.name: p.name for p in parameters if p.kind == p.KEYWORD_ONLY and p.name not in given
    }
    flags = {p.name for p in parameters if isinstance(p.default, bool)}
    unclear = []
    before = {"np": np, "torch": torch, **vars(inspect.getmodule(function))}
    for number, (place, argument) in enumerate(places.items()):
        first, code = with_bad(source, own, place)
        if not number:
            exec(first, before)
        for kind, bad in BAD.items():
            scope = {**before, "bad": bad}
            try:
                exec(code, scope)
            except (TypeError, ValueError) as error:
                # Two shapes that do not agree are told by either name.
                others = names if kind == "nothing in it" else []
                told = argument in str(error)
                if not told and not any(re.search(rf"\b{n}\b", str(error)) for n in others):
                    unclear.append(f"{argument} with {kind}: {error}")
            except Exception as error:
                unclear.append(f"{argument} with {kind}: {type(error).__name__} {error}")
            else:
                if not is_number(scope["result"]):
                    unclear.append(f"{argument} with {kind} gives NaN")
                if argument in flags and kind == "a word":
                    unclear.append(f"{argument} takes a word for a flag")
    assert unclear == []


# What no argument of such a name may be, in any function of the package with an example.
OUT_OF_RANGE: dict[str, Any] = {
    **dict.fromkeys(("beta", "gamma", "tolerance", "distance", "field_std", "radius"), -1.0),
    **dict.fromkeys(("load", "scale", "strength", "step_size", "damping"), -1.0),
    **dict.fromkeys(("steps", "count", "seed", "align", "transient", "burn", "draws"), -1),
    **dict.fromkeys(("exponents", "observed", "plane", "phase"), -1),
    **dict.fromkeys(("max_steps", "dim", "size", "heads", "length", "trials", "batches"), 0),
    **dict.fromkeys(("sweeps", "copies", "chains", "blocks", "replicas", "runs", "every"), 0),
    **dict.fromkeys(("kept", "bins", "threads", "stretches", "stretch", "cd_steps", "rate"), 0),
    **dict.fromkeys(("method", "solver", "theory", "schedule", "kernel"), "no such"),
    **{"epsilon": 1.5, "level": 1.5, "corruption": 0.6, "order": 3, "position": 0.5},
    **dict.fromkeys(("couplings", "ordered"), np.ones((2, 3))),
}
# They say that they check nothing: results, and inner steps of loops.
UNCHECKED = (
    *("Solution", "descend", "example_decoder", "free_energy", "rest", "softmax_weights"),
    *("response_attention", "driven_start", "driven_step", "entropy_rate"),
)


def everything():
    """Functions and classes of the package whose example calls them."""
    for module in pkgutil.walk_packages(spinformer.__path__, "spinformer."):
        if re.search(r"\.(kernels|checks|plot)", module.name):
            continue
        for own, found in vars(importlib.import_module(module.name)).items():
            here = getattr(found, "__module__", "") == module.name and callable(found)
            public = here and own[0] != "_" and own not in UNCHECKED
            if public and call_in(ast.parse(example(found)), own):
                yield f"{module.name}.{own}", found


EVERY = dict(everything())


@pytest.mark.parametrize("name", EVERY)
def test_what_is_out_of_range_is_refused_by_name(name):
    function, own = EVERY[name], name.split(".")[-1]
    source = example(function)
    found = call_in(ast.parse(source), own)
    assert found is not None
    # An exception has no signature of its own.
    error = isinstance(function, type) and issubclass(function, Exception)
    names = [] if error else list(inspect.signature(function).parameters)
    scope = {"np": np, "torch": torch, **vars(inspect.getmodule(function))}
    tried = [one for one in names if one in OUT_OF_RANGE]
    for number, argument in enumerate(tried):
        place = names.index(argument)
        by_name = place >= len(found.args)
        first, code = with_bad(source, own, argument if by_name else place)
        if not number:
            exec(first, scope)
        with pytest.raises((TypeError, ValueError), match=rf"\b{argument}\b"):
            exec(code, {**scope, "bad": OUT_OF_RANGE[argument]})


def test_a_flag_is_no_temperature():
    with pytest.raises(TypeError, match=r"^beta must be a real numeric array"):
        Ensemble(Network.document(), Context(np.zeros((4, 3)), 0), beta=True)

"""What chapters call of the package refuses nonsense by the name of the argument, or computes.

The cases are made by machine: the first call in the example of a docstring is made again with one
argument after the other replaced.
"""

from __future__ import annotations

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

BAD: dict[str, Any] = {
    "a word": "x",
    "NaN": float("nan"),
    "infinity": float("inf"),
    "an object": object(),
    "nothing in it": np.zeros((0, 3)),
    "NaN in it": torch.full((2, 3), float("nan")),
    "four hundred digits": 10**400,
}
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
# They say that they check nothing: results, and parts that a chapter shows at work.
UNCHECKED = {"Solution", "descend", "example_decoder", "free_energy", "rest", "Validity"}
UNCHECKED |= {
    "response_attention",
    "driven_start",
    "driven_step",
    "entropy_rate",
    "softmax_weights",
}
# An error is no function; the others are inner steps that a chapter shows at work.
NO_NONSENSE = UNCHECKED - {"free_energy"} | {"ModelUnavailable", "Solver", "hop"}
# A bar that is shown or not; what torch itself reads and refuses.
NOT_TRIED = {"progress", "device", "dtype"}

# `from spinformer.x import a, b`, on one line or in parentheses.
IMPORT = re.compile(r"^from (spinformer\.[\w.]+) import (\([^)]*\)|.*)$", re.MULTILINE)
NOTEBOOKS = (Path(__file__).resolve().parents[1] / "notebooks").glob("*.md")
IMPORTED = {
    f"{module}.{name}"
    for module, names in IMPORT.findall("".join(path.read_text("utf-8") for path in NOTEBOOKS))
    for name in re.findall(r"\w+", re.sub(r" as \w+|#.*", "", names))
}


def example(function):
    parsed = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
    return "".join(part.source for part in parsed)


def everything():
    """Functions and classes of the package whose example calls them."""
    for module in pkgutil.walk_packages(spinformer.__path__, "spinformer."):
        if re.search(r"\.(kernels|checks|plot)", module.name):
            continue
        for own, found in vars(importlib.import_module(module.name)).items():
            here = getattr(found, "__module__", "") == module.name and callable(found)
            if here and own[0] != "_" and re.search(rf"(?<!\.)\b{own}\(", example(found)):
                yield f"{module.name}.{own}", found


EVERY = dict(everything())


def named(names, left_out):
    return [name for name in names if name in EVERY and name.split(".")[-1] not in left_out]


class Called(BaseException):
    """The arguments of a call, in place of the call."""


def call_of(function):
    """By name, the arguments of the first call in the example of a function."""

    def stop(*args, **keywords):
        raise Called(args, keywords)

    scope = {"np": np, "torch": torch, **vars(inspect.getmodule(function))}
    with pytest.raises(Called) as call:
        exec(example(function), scope | {function.__name__: stop})
    args, keywords = call.value.args
    return dict(zip(inspect.signature(function).parameters, args, strict=False)) | keywords


def is_number(result):
    """Whether no part of a result is NaN."""
    if isinstance(result, tuple | list):
        return all(map(is_number, result))
    if isinstance(result, torch.Tensor):
        return not bool(torch.isnan(result).any())
    if isinstance(result, float | np.ndarray) and np.asarray(result).dtype.kind in "fc":
        return not bool(np.isnan(result).any())
    return True


@pytest.mark.parametrize("name", named(sorted(IMPORTED), NO_NONSENSE))
def test_nonsense_is_refused_by_name(name):
    function = EVERY[name]
    given, parameters = call_of(function), inspect.signature(function).parameters
    # What an example leaves out is tried, too; words are true, so that a flag must refuse them.
    left_out = {p.name for p in parameters.values() if p.kind == p.KEYWORD_ONLY} - NOT_TRIED
    flags = {p.name for p in parameters.values() if isinstance(p.default, bool)}
    unclear = []
    for argument in given.keys() | left_out:
        for kind, bad in BAD.items():
            try:
                result = function(**given | {argument: bad})
            except (TypeError, ValueError) as error:
                # Two shapes that do not agree are told by either name.
                others = parameters if kind == "nothing in it" else ()
                told = argument in str(error)
                if not told and not any(re.search(rf"\b{n}\b", str(error)) for n in others):
                    unclear.append(f"{argument} with {kind}: {error}")
            except Exception as error:
                unclear.append(f"{argument} with {kind}: {type(error).__name__} {error}")
            else:
                if not is_number(result):
                    unclear.append(f"{argument} with {kind} gives NaN")
                if argument in flags and kind == "a word":
                    unclear.append(f"{argument} takes a word for a flag")
    assert unclear == []


@pytest.mark.parametrize("name", named(EVERY, UNCHECKED | {"ModelUnavailable"}))
def test_what_is_out_of_range_is_refused_by_name(name):
    function, given = EVERY[name], call_of(EVERY[name])
    names = {*given, *inspect.signature(function).parameters}
    for argument in OUT_OF_RANGE.keys() & names:
        with pytest.raises((TypeError, ValueError), match=rf"\b{argument}\b"):
            function(**given | {argument: OUT_OF_RANGE[argument]})


def test_a_flag_is_no_temperature():
    with pytest.raises(TypeError, match=r"^beta must be a real numeric array"):
        Ensemble(Network.document(), Context(np.zeros((4, 3)), 0), beta=True)

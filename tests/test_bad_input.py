"""What the package offers refuses nonsense by the name of the argument, or computes.

The cases are made by machine: the first call in the example of a docstring is made again with one
argument after the other replaced.
"""

import doctest
import importlib
import inspect
import pkgutil
import re
from functools import partial
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch

import spinformer
from spinformer.core.implicit import implicit_root
from spinformer.dmft.attractors import Thresholds
from spinformer.dmft.corrections import finite_size_corrections
from spinformer.dmft.ensemble import Ensemble
from spinformer.dmft.network import Context, Network
from spinformer.hopfield.discrete import EXPONENTIAL, Separation

BAD: dict[str, Any] = {
    "a word": "x",
    "NaN": float("nan"),
    "infinity": float("inf"),
    "an object": object(),
    "nothing in it": np.zeros((0, 3)),
    "NaN in it": torch.full((2, 3), float("nan")),
    "four hundred digits": 10**400,
    "complex numbers": torch.ones((2, 3), dtype=torch.complex64),
    "no values, on the meta device": torch.ones((2, 3), device="meta"),
    "eight bits": torch.ones((2, 3)).to(torch.float8_e4m3fn),
}
# What no argument of such a name may be, in any function of the package with an example.
OUT_OF_RANGE: dict[str, Any] = {
    **dict.fromkeys(("beta", "gamma", "tolerance", "distance", "field_std", "radius"), -1.0),
    **dict.fromkeys(
        ("load", "scale", "strength", "coupling_strength", "step_size", "damping"), -1.0
    ),
    **dict.fromkeys(("steps", "count", "seed", "align", "transient", "burn_in", "draws"), -1),
    **dict.fromkeys(("exponents", "observed", "plane", "phase"), -1),
    **dict.fromkeys(("max_steps", "dim", "size", "heads", "length", "trials", "batches"), 0),
    **dict.fromkeys(("sweeps", "chains", "blocks", "replicas", "runs", "every"), 0),
    **dict.fromkeys(("kept", "bins", "threads", "stretches", "stretch", "cd_steps", "rate"), 0),
    **dict.fromkeys(("method", "solver", "theory", "schedule", "kernel"), "no such"),
    **{"epsilon": 1.5, "level": 1.5, "alpha": 2.5, "corruption": 0.6, "order": 3, "position": 0.5},
    **dict.fromkeys(("couplings", "ordered"), np.ones((2, 3))),
    **dict.fromkeys(("horizon", "dimension", "layers", "width", "inner", "positions"), 0),
    **{"vocabulary": 1, "number": -1, "period": -1, "start": -1},
}
# They say that they check nothing: results, and parts that a chapter shows at work.
UNCHECKED = {
    "Solution",
    "HeadRow",
    "asynchronous_dynamics",
    "fixed_point",
    "fixed_point_tolerance",
}
UNCHECKED |= {"fused_attention", "nan_factor", "unchecked_retrieval_step"}
UNCHECKED |= {
    "apply_blocks",
    "reaction_matrices",
    "response_attention",
    "driven_step",
    "entropy_rate",
    "softmax_weights",
}
# Inner steps that a chapter shows at work, and what only other functions call.
NO_NONSENSE = UNCHECKED | {"Solver", "retrieval_step", "attention_scores", "implicit_root"}
NO_NONSENSE |= {"is_causal_mask", "is_forward_mode", "status_of"}
# A bar that is shown or not; what torch itself reads and refuses.
NOT_TRIED = {"progress", "device", "dtype"}


def example(function):
    parsed = doctest.DocTestParser().get_examples(inspect.getdoc(function) or "")
    return "".join(part.source for part in parsed)


def everything():
    """Functions and classes of the package whose example calls them."""
    for module in pkgutil.walk_packages(spinformer.__path__, "spinformer."):
        if re.search(r"\.(kernel_inputs|\w*kernels|checks|plot)", module.name):
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


@pytest.mark.parametrize("name", named(EVERY, NO_NONSENSE))
def test_nonsense_is_refused_by_name(name):
    function = EVERY[name]
    given = call_of(function)
    parameters = inspect.signature(function).parameters
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


def other_shapes(value):
    """An array with an axis too few, one too many, and with an axis of another length."""
    if isinstance(value, list) and value and not isinstance(value[0], torch.Tensor | str):
        value = np.array(value)
    if isinstance(value, np.ndarray | torch.Tensor) and value.ndim:
        yield from (value[0], value[None], value[..., :-1], value[:1])


@pytest.mark.parametrize("name", named(EVERY, NO_NONSENSE))
def test_an_array_of_another_shape_is_refused_by_name_or_computed_with(name):
    function = EVERY[name]
    given = call_of(function)
    names = "|".join(inspect.signature(function).parameters)
    unclear = []
    for argument in given:
        for other in other_shapes(given[argument]):
            try:
                result = function(**given | {argument: other})
            except (TypeError, ValueError) as error:
                if not re.search(rf"\b({names})\b", str(error)):
                    unclear.append(f"{argument} of {tuple(other.shape)}: {error}")
            else:
                if not is_number(result):
                    unclear.append(f"{argument} of {tuple(other.shape)} gives NaN")
    assert unclear == []


@pytest.mark.parametrize("name", named(EVERY, UNCHECKED))
def test_what_is_out_of_range_is_refused_by_name(name):
    function = EVERY[name]
    given = call_of(EVERY[name])
    names = {*given, *inspect.signature(function).parameters}
    for argument in OUT_OF_RANGE.keys() & names:
        with pytest.raises((TypeError, ValueError), match=rf"\b{argument}\b"):
            function(**given | {argument: OUT_OF_RANGE[argument]})


ONES = torch.ones
WIDE = np.ones((1, 800))
STATES = ONES(1, 2, 8).double()
INPUTS = ONES(1, 6, 16).double()
COSH = Separation(name="cosh", function=np.cosh)
# What does not fit the other arguments of an example; the first of several is named.
MISFITS: dict[str, list[dict[str, Any]]] = {
    "core.anderson.anderson": [
        {"start": ONES(3)},
        {"start": np.ones((1, 1))},
        {"damping": 1.5},
        {"step": lambda x: x[..., :0]},
        {"step": lambda x: x.double()},
        {"step": lambda x: None},
        {"step": lambda x: 1j * x},
    ],
    "core.chaos.kaplan_yorke_dimension": [{"exponents": [0.0, 1.0]}, {"exponents": 1.0}],
    "core.lyapunov.lyapunov_exponents": [
        {"count": 4},
        {"push": lambda frame: frame * np.nan},
        {"push": lambda frame: frame[:1]},
    ],
    "core.special.alignment_over_kappa": [{"kappa": -1.0}],
    "core.special.gaussian_expectation": [{"steepness": 5e4}],
    "core.states.hebbian_couplings": [{"patterns": np.ones(3)}, {"other": np.ones((3, 3))}],
    "core.states.overlaps": [{"states": np.ones(3)}, {"states": 1.0}, {"patterns": np.ones(4)}],
    "core.states.spin_states": [{"count": 21}],
    "core.statistics.fit_power_law": [
        {"sizes": [1, 2], "values": [1, 1], "errors": [1, 1]},
        {"sizes": [2, 2, 2]},
        {"sizes": [0, 2, 3]},
        {"values": [1, 1]},
        {"errors": [1, 0, 1]},
        {"errors": [1e-320, 1e-320, 1e-320]},
        {"values": [1e-300, 1, 1], "errors": [1, 1, 1]},
        {"sizes": [1.0, 1.0 + 1e-9, 1.0]},
    ],
    "core.statistics.integrated_autocorrelation_time": [
        {"series": [1.0, 2.0, 3.0]},
        {"series": np.ones((2, 2, 9))},
    ],
    "core.statistics.mean_estimate": [{"axis": 1}],
    "core.statistics.student_interval": [{"samples": [1.0]}],
    "core.statistics.wilson_interval": [{"successes": 11}],
    "dmft.attractors.Thresholds": [{name: -1} for name in get_type_hints(Thresholds)],
    "dmft.attractors.find_attractors": [{"kept": 1}, {"exponents": 13}, {"exponent_steps": 19}],
    "dmft.attractors.find_period": [{"longest": 7}, {"orbit": np.zeros((1, 2)), "longest": 1}],
    "dmft.basin_boundaries.ends_apart": [{"distances": [-0.1]}],
    "dmft.basin_boundaries.neighbours_differ": [
        {"distances": (0, 1)},
        {"distances": (1, 4)},
        {"labels": np.ones(8)},
    ],
    "dmft.basin_boundaries.uncertainty_exponent": [
        {"distances": [4.0, 2.0, 0.0]},
        {"differ": np.full((3, 4000), 2)},
    ],
    "dmft.basins.basins_of_attraction": [{"sets": [np.full((1, 12), 1e200)]}],
    "dmft.basins.draw_starts": [{"count": 0, "starts": lambda rng, count: None}],
    "dmft.corrections.next_means": [{"windows": np.full((5, 4, 3), 1e200)}],
    "dmft.diagrams.orbit_diagram": [{"values": np.ones((2, 2))}],
    "dmft.ensemble.Ensemble": [{"beta": True}, {"context": Context(np.ones((4, 2)), 0)}],
    "dmft.escape.path_action": [{"fields": np.full((3, 1), 2e3)}, {"fields": np.zeros((1, 1))}],
    "dmft.fingerprints.separation": [
        {"other": x} for x in (np.ones((1, 9)), np.ones((3, 4, 9)), np.full((4, 9), 1e200))
    ],
    "dmft.finite_size.attention_of_window": [
        {"window": np.ones((3, 3))},
        {"window": np.full((4, 3), 1.1)},
    ],
    "dmft.finite_size.generate": [
        {"size": 100},
        {"window": np.ones((3, 3))},
        {"window": np.ones((2, 4, 3))},
    ],
    "dmft.finite_size.linear_maps": [
        {"path": np.zeros(shape)} for shape in ((4, 3), (5, 2), (4, 2, 2))
    ]
    + [{"path": np.full((5, 3), 2.0)}],
    "dmft.finite_size.mean_path": [{"window": np.ones((4, 2))}, {"window": np.full((4, 3), 1.1)}],
    "dmft.finite_size.semantic_overlaps": [{"tokens": np.ones((4, 2))}],
    "dmft.finite_size.window_means": [{"attention": np.ones(2)}],
    "dmft.finite_size.window_of_context": [{"context": Context(np.ones((3, 3)), 0)}],
    "dmft.lifetimes.detect_escapes": [{"growth": np.ones((2, 1))}],
    "dmft.lifetimes.escape_law": [{"total": np.zeros(3)}, {"ended": np.zeros(3)}],
    "dmft.lifetimes.estimate_lifetime": [{"ended": [0, 1, 2]}],
    "dmft.lyapunov.detect_change_point": [{"growth": np.ones(9)}, {"growth": 1.0}],
    "dmft.lyapunov.lyapunov_spectrum": [{"count": 13}],
    "dmft.maps.Map": [{"dimension": 0}, {"parameters": {"parameters": 1e200}}],
    "dmft.mean_field.step": [{"epsilon": -0.1}, {"context": Context(np.ones((4, 2)), 0)}],
    "dmft.mean_field.token_overlaps": [{"context": Context(np.ones((4, 2)), 0)}],
    "dmft.mean_field.trajectory": [{"beta": np.ones((0, 2))}],
    "dmft.network.Context": [{"attention": np.ones(3)}, {"position": -1}],
    "dmft.linear_stability.onset": [{"epsilon": 1.0}],
    "hopfield.attention.attention": [
        {"queries": ONES(2, 5)},
        {"values": ONES(3, 4)},
        {"values": ONES(2, 4).double()},
        {"mask": ONES(1, 2) < 0},
        {"mask": torch.tensor([[True, True], [False, False]]), "queries": ONES(2, 2)},
        {"mask": ONES(3, 3) > 0},
        {"mask": ONES(1, 2)},
    ],
    "dmft.cycles.find_cycle": [{"period": 3}, {"start": Context(np.zeros((2, 4, 3)), 0)}],
    "dmft.branches.continue_cycle": [{"step": 0.0}, {"within": (0.6, 0.4)}, {"direction": "left"}],
    "hopfield.density.log_prob": [{"states": ONES(3, 1)}],
    "hopfield.discrete.energy": [
        {"patterns": [1, 1, -1]},
        {"states": [[1, -1]]},
        {"states": WIDE, "patterns": WIDE, "separation": EXPONENTIAL},
    ],
    "hopfield.discrete.fields": [{"diagonal": True, "separation": EXPONENTIAL}],
    "hopfield.discrete.retrieve": [
        {"queries": [[2, 1, 1, 1]]},
        {"separation": COSH, "patterns": WIDE, "queries": WIDE},
    ],
    "hopfield.layer.HopfieldLayer": [{"heads": 5}, {"beta": [1.0, 2.0, 3.0]}, {"beta": 0.0}],
    "dmft.stroboscopic.rotation_number": [{"points": np.ones((3, 2))}],
    "language.heads.overlap_energy": [
        {"queries": ONES(2)},
        {"keys": ONES(2, 2).double()},
        {"keys": ONES(2, 2, 2), "queries": ONES(3, 2, 2)},
    ],
    "language.heads.head_report": [
        {"keys": ONES(3, 2, 6, 5)},
        {"states": ONES(3, 5, 8)},
        {"read": lambda x: ONES(3, 2, 6, 3)},
        {"outputs": ONES(3, 6, 8).double()},
    ],
    "language.traces.output_matrix": [{"layer": 2}, {"layer": -1}],
    "language.traces.project": [
        {"which": "queries"},
        {"layer": 2},
        *({"states": x} for x in (STATES[0, 0], STATES[..., :7], STATES / 0, STATES.float())),
    ],
    "language.traces.trace_layers": [
        {"inputs": x}
        for x in (ONES(2, 3), ONES(3).long(), ONES(1, 600).long(), ONES(1, 3).long() * 40)
    ]
    + [{"layers": [2]}, {"layers": [-1]}],
    "language.minilm.load_model": [{"path": 3}, {"dtype": torch.int64}],
    "language.text.sample_text": [{"path": "/no/such/file"}],
    "language.text.text_windows": [{"length": 2}],
    "spins.large_d.driven_step": [{"theory": "large"}],
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_refused_by_name(name):
    function = EVERY[f"spinformer.{name}"]
    given = call_of(function)
    for changed in MISFITS[name]:
        with pytest.raises((TypeError, ValueError), match=rf"\b{next(iter(changed))}\b"):
            function(**given | changed)


NETWORK = Network.poclopez2024()
CORRECTIONS = finite_size_corrections(NETWORK, 1.2, window=np.zeros((4, 3)), steps=2, position=3)
# Of methods, what is out of range or does not fit.
METHODS = [
    (CORRECTIONS.mean, {"size": 0}),
    (CORRECTIONS.deviation, {"size": 0}),
    (Ensemble(NETWORK, Context(np.zeros((4, 3)), 0), beta=1.2).record, {"steps": 1, "every": 0}),
    (partial(Network.segmented, 0), {"features": 0}),
    (partial(Network.segmented, 0), {"segments": 0}),
    (partial(Network.segmented, 0), {"bits": -1}),
    (NETWORK.overlaps, {"token": np.full(3, 1.1)}),
    *(
        (partial(Network, semantic=NETWORK.semantic, context=1, gamma=1.0), {"fractions": wrong})
        for wrong in ([0.5, 0.5], [0.3, 0.3, 0.3], [0.4, 0.4, 0.4], [1.2, -0.1, -0.1])
    ),
    (partial(implicit_root, solution=ONES(1)), {"residual": 1.0}),
]


@pytest.mark.parametrize(("method", "given"), METHODS)
def test_methods_refuse_what_is_out_of_range(method, given):
    with pytest.raises((TypeError, ValueError), match=rf"\b{next(reversed(given))}\b"):
        method(**given)

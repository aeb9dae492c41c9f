"""What the examples of public functions give, called again: in batches, and of the types stated."""

import dataclasses
import inspect
import re
import typing

import numpy as np
import pytest
import torch
from test_bad_input import EVERY, call_of, named

ARRAYS = np.ndarray | torch.Tensor
LEADING = re.compile(r"^(\w+) : .*shape \(\.\.\.((?:, \w+)*)\)", flags=re.MULTILINE)
# A member of a batch is not all of a distance between two sets or of an implicit solution.
NOT_ALONE = {"implicit_root", "separation", "nan_factor", "HeadRow"}


def parts(result, path=""):
    """The numbers and arrays in a result, by their place in it."""
    if dataclasses.is_dataclass(result):
        inner = {f".{one.name}": getattr(result, one.name) for one in dataclasses.fields(result)}
    elif isinstance(result, tuple | list):
        inner = {f"[{place}]": one for place, one in enumerate(result)}
    elif isinstance(result, ARRAYS | np.generic | int | float):
        return {path: np.asarray(result.detach() if hasattr(result, "detach") else result)}
    else:
        inner = {}
    return {name: one for key in inner for name, one in parts(inner[key], path + key).items()}


def batched(function, given):
    """The arguments of a call that may have leading axes, with the number of their other ones."""
    shapes = dict(LEADING.findall(inspect.getdoc(function)))
    arrays = {name: given[name] for name in shapes if isinstance(given.get(name), ARRAYS)}
    return {
        # A single state stands for a list of one.
        name: array.reshape((1,) * (shapes[name].count(",") - array.ndim) + tuple(array.shape))
        for name, array in arrays.items()
    }


def another(array):
    """An array like this one: a second member of a batch."""
    numbers = torch.as_tensor(array.copy() if isinstance(array, np.ndarray) else array).detach()
    whole = torch.ones(numbers.shape[:-1], dtype=numbers.dtype)
    if not numbers.is_floating_point() or torch.allclose(numbers.sum(-1), whole):
        return array
    return 0.9 * array


BATCHED = [
    name for name in named(EVERY, NOT_ALONE) if LEADING.search(inspect.getdoc(EVERY[name]) or "")
]


@pytest.mark.parametrize("name", BATCHED)
def test_a_batch_gives_what_its_members_give(name):
    function = EVERY[name]
    given = call_of(function)
    first = batched(function, given)
    second = {name: another(array) for name, array in first.items()}
    # Two leading axes, so that an axis counted from the front is another one.
    both = {
        name: (torch.stack if isinstance(array, torch.Tensor) else np.stack)(
            [array[None], second[name][None]]
        )
        for name, array in first.items()
    }
    members = [parts(function(**given | one)) for one in (first, second)]
    # Along the path of an iteration the members end at different steps.
    found = {
        place: one
        for place, one in parts(function(**given | both)).items()
        if "energies" not in place
    }
    for place, one in found.items():
        for number, member in enumerate(members):
            whole = one.shape == member[place].shape
            assert whole or one.shape == (2, 1, *member[place].shape), place
            mine = one if whole else one[number, 0]
            np.testing.assert_allclose(mine, member[place], rtol=1e-6, atol=1e-9, err_msg=place)


def test_many_functions_take_batches():
    assert len(BATCHED) > 40


def types_of(annotation):
    """The types that an annotation names, and those of its alternatives."""
    return {
        part for part in (typing.get_args(annotation) or [annotation]) if isinstance(part, type)
    }


def scalars_of_other_types(result):
    """Where a result has a number of NumPy, or an integer, in the place of a number of Python."""
    if isinstance(result, tuple | list):
        return [words for one in result for words in scalars_of_other_types(one)]
    if not dataclasses.is_dataclass(result):
        return []
    stated = typing.get_type_hints(type(result))
    found = []
    for one in dataclasses.fields(result):
        value = getattr(result, one.name)
        types = types_of(stated[one.name]) & {bool, int, float}
        if (
            types
            and isinstance(value, np.generic | bool | int | float)
            and type(value) not in types
        ):
            found.append(f"{type(result).__name__}.{one.name} is a {type(value).__name__}")
        found += scalars_of_other_types(value)
    return found


@pytest.mark.parametrize("name", named(EVERY, {"implicit_root", "HeadRow", "Solver"}))
def test_numbers_of_a_result_are_of_the_types_stated(name):
    assert scalars_of_other_types(EVERY[name](**call_of(EVERY[name]))) == []

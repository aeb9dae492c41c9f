import dataclasses

import numpy as np
import pytest
import torch

from spinformer.core.records import _summary, record

NAN = float("nan")


@record
class Inner:
    data: np.ndarray


@record
class Wider(Inner):
    more: float = 1.0


def nested(value=1.0, **others):
    table = {"a": torch.tensor([value, NAN]), "b": [1, (np.array([NAN]), float("nan"))]}
    return Wider(data=Inner(data=table), **others)


def test_records_are_equal_entry_by_entry_and_nan_equals_nan():
    assert nested() == nested()
    for other in (nested(2.0), nested(more=2.0), Inner(data=nested().data), 1):
        assert nested() != other
    for pair in (
        (np.array([1.0, 2.0]), np.array([[1.0, 2.0]])),
        (np.zeros(2), np.zeros(2, dtype=np.float32)),
        (np.zeros(1), [0.0]),
        (np.array([1.0]), torch.tensor([1.0], dtype=torch.float64)),
        (torch.zeros(2), torch.zeros(2).double()),
        ({"a": 1}, {"b": 1}),
        ([1, 2], (1, 2)),
        ([1], [1, 2]),
        (1, True),
        (np.array(["a"]), np.array(["b"])),
        (torch.tensor([NAN]), torch.tensor([0.0])),
    ):
        one, other = (Inner(data=data) for data in pair)
        assert one == dataclasses.replace(one)
        assert one != other
        assert other != one


def test_records_are_frozen_take_names_only_and_have_no_hash():
    with pytest.raises(dataclasses.FrozenInstanceError):
        nested().more = 2.0
    with pytest.raises(TypeError, match="positional"):
        Inner(np.zeros(2))
    with pytest.raises(TypeError, match="unhashable"):
        hash(nested())


def test_a_record_prints_its_arrays_in_one_line():
    assert repr(Wider(data=np.ones(2))) == "Wider(data=float64[2] in [1, 1], more=1.0)"
    for value, shown in (
        (np.array([[1.0, np.nan], [3.0, -0.5]]), "float64[2, 2] in [-0.5, 3], 1 not finite"),
        (np.zeros((0, 3)), "float64[0, 3]"),
        (np.full(2, np.inf), "float64[2], 2 not finite"),
        (np.array([True, False, True]), "bool[3] 2 true"),
        (np.array(2.5), "2.5"),
        (torch.ones(2, dtype=torch.bfloat16, requires_grad=True), "bfloat16[2] in [1, 1]"),
    ):
        assert _summary(value) == shown
    assert len(_summary("x" * 100)) == 60

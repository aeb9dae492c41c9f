import dataclasses

import numpy as np
import pytest
import torch

from spinformer.core.records import _summary, record


@record
class Inner:
    data: np.ndarray


@record
class Outer:
    inner: Inner
    table: dict
    note: str = ""


@record
class Wider(Inner):
    more: float = 1.0


def outer(value=1.0):
    return Outer(
        inner=Inner(data=np.array([value, np.nan])),
        table={"a": torch.tensor([value, float("nan")]), "b": [1, (np.arange(2),)]},
    )


def test_records_are_equal_entry_by_entry_and_nan_equals_nan():
    assert Inner(data=np.array([np.nan])) == Inner(data=np.array([np.nan]))
    assert outer() == outer()
    assert outer() != outer(2.0)
    assert outer() != dataclasses.replace(outer(), note="x")
    assert Inner(data=np.zeros(2)) != Inner(data=np.zeros(3))
    assert Inner(data=np.zeros(2)) != Inner(data=np.zeros(2, dtype=np.float32))
    assert Inner(data=np.zeros(1)) != Inner(data=[0.0])
    assert Inner(data=float("nan")) == Inner(data=float("nan"))
    assert Inner(data=1) != Inner(data=1.0)
    assert Inner(data=1) != Inner(data=True)
    # Another class is another thing, also where it holds the same and more.
    assert Inner(data=1) != Wider(data=1)
    assert Wider(data=1) == Wider(data=1)
    assert Wider(data=1) != Wider(data=1, more=2.0)
    assert Inner(data=1) != 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array([1.0, 2.0]), np.array([[1.0, 2.0]])),
        (np.array([1.0]), torch.tensor([1.0], dtype=torch.float64)),
        (torch.zeros(2), torch.zeros(2, 1)),
        (torch.zeros(2), torch.zeros(2).double()),
        ({"a": 1}, {"b": 1}),
        ([1, 2], (1, 2)),
        ([1], [1, 2]),
        ([np.nan], [0.0]),
        (np.array(["a"]), np.array(["b"])),
        (torch.tensor([float("nan")]), torch.tensor([0.0])),
    ],
)
def test_unequal_is_unequal_both_ways(one, other):
    one, other = Inner(data=one), Inner(data=other)
    assert one == dataclasses.replace(one)
    assert other == dataclasses.replace(other)
    assert one != other
    assert other != one


def test_records_are_frozen_take_names_only_and_have_no_hash():
    with pytest.raises(dataclasses.FrozenInstanceError):
        outer().note = "changed"
    with pytest.raises(TypeError, match="positional"):
        Inner(np.zeros(2))
    with pytest.raises(TypeError, match="unhashable"):
        hash(outer())
    with pytest.raises(TypeError, match="data"):
        Inner()


def test_a_record_prints_its_arrays_in_one_line():
    shown = repr(Inner(data=np.array([[1.0, np.nan], [3.0, -0.5]])))
    assert shown == "Inner(data=float64[2, 2] in [-0.5, 3], 1 not finite)"
    assert repr(outer()).startswith("Outer(inner=Inner(data=float64[2] in [1, 1], 1 not finite)")
    assert _summary(np.zeros((0, 3))) == "float64[0, 3]"
    assert _summary(np.full(2, np.inf)) == "float64[2], 2 not finite"
    assert _summary(np.array([True, False, True])) == "bool[3] 2 true"
    assert _summary(np.array(2.5)) == "2.5"
    assert _summary(torch.ones(2, dtype=torch.bfloat16, requires_grad=True)) == (
        "bfloat16[2] in [1, 1]"
    )
    assert len(_summary("x" * 100)) == 60

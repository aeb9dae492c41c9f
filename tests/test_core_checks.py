import re
from fractions import Fraction

import numpy as np
import pytest
import torch

from spinformer.core.checks import (
    check_array,
    check_broadcast,
    check_choice,
    check_flag,
    check_instance,
    check_integer,
    check_real,
    check_tensor,
)

NAN, INF = float("nan"), float("inf")
HUGE = 10**400
ONE = torch.ones(1)
UPPER = torch.ones(2, 2).triu()


def test_what_is_allowed_comes_back_as_one_type():
    assert check_integer("n", np.int16(3), low=3, high=3) == 3
    assert type(check_integer("n", np.uint8(3))) is int
    assert type(check_real("x", Fraction(1, 4))) is float
    assert check_real("x", np.float32(0.5), low=0.5, high=0.5) == 0.5
    for value in ([[1, 2]], np.array([[True, False]]), torch.ones(1, 2), ((1.0, 2),)):
        assert check_array("x", value).dtype == np.float64
    for shape in [(3, 2), (..., "N", 2), (..., None), ("N", "M"), (..., 3, 2)]:
        assert check_array("x", np.ones((3, 2)), shape=shape).all()
    assert check_choice("kind", "tap", ("tap", "naive")) == "tap"
    assert check_choice("count", np.int64(2), (1, 2)) == 2
    assert check_choice("dtype", torch.float64, (torch.float64,)) == torch.float64
    assert check_flag("on", np.bool_(True)) is True
    assert check_broadcast(a=(2, 1), b=(), c=(3,)) == (2, 3)


def test_arrays_are_copies_and_tensors_the_same():
    source = np.zeros(3)
    check_array("x", source)[:] = 1.0
    assert not source.any()
    tensor = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    assert check_tensor("x", tensor) is tensor


@pytest.mark.parametrize(
    ("check", "error", "rules", "refused"),
    [
        (check_integer, TypeError, {}, (True, 2.0, "2", None, np.array([2]))),
        (check_integer, ValueError, {}, (2**63,)),
        (check_integer, ValueError, {"low": 3, "high": 3}, (2, 4, HUGE)),
        (check_real, TypeError, {}, (True, 1j, np.ones(1))),
        (check_real, ValueError, {}, (NAN, HUGE, INF)),
        (check_real, ValueError, {"low": 0.0, "high": 1.0}, (INF, -1e-300, 1.5)),
        (check_real, ValueError, {"low": 0.0, "open_low": True}, (0.0,)),
        (check_choice, ValueError, {"allowed": ("exact",)}, ("exakt",)),
        (check_choice, ValueError, {"allowed": (1, 2)}, (True, np.True_, np.ones(2), [1])),
        (check_flag, TypeError, {}, ("False", 1)),
        (check_instance, TypeError, {"kind": dict}, (3,)),
        (check_array, ValueError, {}, ([1.0, NAN], [1.0, INF])),
        (check_array, TypeError, {}, ("text", None, True, [1j], [[1.0], [1.0, 2.0]])),
        (
            check_array,
            TypeError,
            {},
            (np.ma.masked_invalid([1.0, NAN]), torch.ones(2, requires_grad=True)),
        ),
        (check_array, ValueError, {"ndim": 2}, ([1.0],)),
        (check_array, ValueError, {"shape": (None, 1)}, ([1.0], [[1.0, 2.0]])),
        (check_array, ValueError, {"shape": (..., "N", 2)}, ([1.0, 2.0], np.ones((3, 0, 2)))),
        (check_array, ValueError, {"shape": ("N", "N")}, (np.ones((1, 2)), np.ones((1, 1, 1)))),
        (check_array, ValueError, {"low": 0.0, "high": 1.0}, ([0.0, 2.0], [-0.5, 1.0])),
        (check_array, ValueError, {"low": 0.0, "open_low": True}, ([0.0],)),
        (check_array, ValueError, {"values": (-1, 1)}, ([1, 0],)),
        (check_array, ValueError, {"square": True}, (np.ones((2, 3)), np.ones((0, 0)))),
        (check_array, ValueError, {"symmetric": True}, ([[0, 1], [2, 0]],)),
        (check_tensor, TypeError, {}, (np.ones(2), ONE.int())),
        (check_tensor, TypeError, {"like": ("y", ONE.double())}, (ONE,)),
        (check_tensor, ValueError, {}, (NAN * ONE,)),
        (check_tensor, ValueError, {"high": 0.5}, (ONE,)),
        (check_tensor, ValueError, {"square": True}, (torch.ones(2, 3),)),
        (check_tensor, ValueError, {"symmetric": True}, (UPPER,)),
    ],
)
def test_the_error_names_the_argument(check, error, rules, refused):
    for value in refused:
        with pytest.raises(error, match=r"^x must"):
            check("x", value, **rules)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: check_integer("n", 4, high=3), r"\(-inf, 3\], got 4"),
        (lambda: check_integer("n", HUGE, high=3), "got an integer of 1329 bits"),
        (lambda: check_array("x", [0.0, 2.0], high=1.0), "from 0.0 to 2.0"),
        (lambda: check_array("x", [1, 0], values=(-1, 1)), r"\[-1, 1\], got 0"),
        (lambda: check_array("x", [1.0], shape=(..., None, "d")), r"\(..., any, d\), got \(1,\)"),
        (lambda: check_broadcast(a=(2,), b=(3,)), r"a and b .*a \(2,\), b \(3,\)"),
    ],
)
def test_the_error_tells_what_is_allowed_and_what_came(call, told):
    with pytest.raises(ValueError, match=told):
        call()


def test_an_asymmetry_of_rounding_is_told_what_mends_it():
    """Couplings from single precision: the call that the error proposes works."""
    couplings = np.triu(np.random.default_rng(0).standard_normal((4, 4)), 1)
    couplings = couplings + couplings.T.astype(np.float32)
    hint = r"couplings must be symmetric, .*; where that is rounding, pass (\(.*\) / 2)$"
    for check, given in (
        (check_array, couplings),
        (check_array, couplings[None]),
        (check_tensor, torch.tensor(couplings)),
        (check_tensor, torch.tensor(couplings)[None]),
    ):
        with pytest.raises(ValueError, match=hint) as error:
            check("couplings", given, symmetric=True)
        (mended,) = re.findall(hint, str(error.value))
        check("couplings", eval(mended, {"couplings": given}), symmetric=True)
    # What is no rounding has no hint: half of a triangle is another system.
    with pytest.raises(ValueError, match=r"got an asymmetry of [\d.]+$"):
        check_array("couplings", np.triu(couplings), symmetric=True)


def test_symmetric_is_meant_to_ten_digits_of_the_largest_entry():
    matrix = np.array([[1e6, 1.0], [1.0 + 5e-5, 0.0]])
    check_array("x", matrix, symmetric=True)
    matrix[1, 0] += 1e-3
    stack = np.stack([np.eye(2), UPPER.numpy()])
    for refused in (matrix, stack):
        with pytest.raises(ValueError, match=r"x must be symmetric, got an asymmetry of"):
            check_array("x", refused, symmetric=True)

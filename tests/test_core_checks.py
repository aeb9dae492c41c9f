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


def test_what_is_allowed_comes_back_as_one_type():
    assert check_integer("n", np.int16(3), low=3, high=3) == 3
    assert type(check_integer("n", np.uint8(3))) is int
    assert type(check_real("x", Fraction(1, 4))) is float
    assert check_real("x", np.float32(0.5), low=0.5, high=0.5) == 0.5
    for value in ([[1, 2]], np.array([[True, False]]), torch.ones(1, 2), ((1.0, 2),)):
        assert check_array("x", value).dtype == np.float64
    assert check_choice("kind", "tap", ("tap", "naive")) == "tap"
    assert check_choice("count", np.int64(2), (1, 2)) == 2
    assert check_flag("on", np.bool_(True)) is True
    assert check_broadcast(a=(2, 1), b=(), c=(3,)) == (2, 3)


def test_arrays_are_copies_and_tensors_the_same():
    source = np.zeros(3)
    check_array("x", source)[:] = 1.0
    assert not source.any()
    tensor = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    assert check_tensor("x", tensor) is tensor


NAN = float("nan")


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: check_integer("n", 2, low=3), ValueError, r"n must be an integer in \[3, inf\)"),
        (lambda: check_integer("n", 4, high=3), ValueError, r"n must .* \(-inf, 3\], got 4"),
        (lambda: check_integer("n", True), TypeError, "n must be an integer"),
        (lambda: check_integer("n", 2.0), TypeError, "n must be an integer"),
        (lambda: check_integer("n", "2"), TypeError, "n must be an integer"),
        (lambda: check_integer("n", None), TypeError, "n must be an integer"),
        (lambda: check_integer("n", np.array([2])), TypeError, "n must be an integer"),
        (lambda: check_integer("n", 2**63), ValueError, "n must be an integer of at most 63 bits"),
        (lambda: check_integer("n", 10**400, high=3), ValueError, "n must .* integer of 1329 bits"),
        (lambda: check_real("x", NAN), ValueError, "x must be a finite number"),
        (lambda: check_real("x", float("inf"), low=0.0), ValueError, "x must .*, got inf"),
        (lambda: check_real("x", 10**400), ValueError, "x must be a finite number"),
        (lambda: check_real("x", -1e-300, low=0.0), ValueError, r"x must .* \[0.0, inf\)"),
        (lambda: check_real("x", 0.0, low=0.0, open_low=True), ValueError, r"x must .* \(0.0"),
        (lambda: check_real("x", 1.5, high=1.0), ValueError, "x must"),
        (lambda: check_real("x", True), TypeError, "x must be a real number"),
        (lambda: check_real("x", 1j), TypeError, "x must be a real number"),
        (lambda: check_real("x", np.ones(1)), TypeError, "x must be a real number"),
        (lambda: check_choice("kind", "exakt", ("exact",)), ValueError, "kind .*exact.*exakt"),
        (lambda: check_choice("kind", True, (1, 2)), ValueError, "kind"),
        (lambda: check_choice("kind", np.ones(2), (1, 2)), ValueError, "kind"),
        (lambda: check_flag("on", "False"), TypeError, "on must be True or False"),
        (lambda: check_flag("on", 1), TypeError, "on must be True or False"),
        (lambda: check_instance("model", 3, dict), TypeError, "model must be a dict, got int 3"),
        (lambda: check_array("x", [1.0, NAN]), ValueError, "x must be finite"),
        (lambda: check_array("x", [1.0, np.inf]), ValueError, "x must be finite"),
        (lambda: check_array("x", "text"), TypeError, "x must be a real numeric array"),
        (lambda: check_array("x", None), TypeError, "x must be a real numeric array"),
        (lambda: check_array("x", [1j]), TypeError, "x must be a real numeric array"),
        (lambda: check_array("x", [[1.0], [1.0, 2.0]]), TypeError, "x must be a real numeric"),
        (lambda: check_array("x", np.ma.masked_invalid([1.0, NAN])), TypeError, "x .*masked"),
        (lambda: check_array("x", torch.ones(2, requires_grad=True)), TypeError, "x .*gradient"),
        (lambda: check_array("x", [1.0], ndim=2), ValueError, r"x must have 2 axes.*\(1,\)"),
        (lambda: check_array("x", [1.0], shape=(2,)), ValueError, r"x .* \(2,\), got \(1,\)"),
        (lambda: check_array("x", [1.0], shape=(None, 1)), ValueError, r"x .*\('any', 1\)"),
        (lambda: check_array("x", [0.0, 2.0], high=1.0), ValueError, "x .*from 0.0 to 2.0"),
        (lambda: check_array("x", [-0.5], low=0.0), ValueError, "x must have entries"),
        (lambda: check_array("x", [0.0], low=0.0, open_low=True), ValueError, "x must have"),
        (lambda: check_array("x", [1, 0], values=(-1, 1)), ValueError, r"x .*\[-1, 1\], got 0"),
        (lambda: check_array("x", np.ones((2, 3)), square=True), ValueError, r"x .*\(2, 3\)"),
        (lambda: check_array("x", np.ones((0, 0)), square=True), ValueError, "x must have shape"),
        (lambda: check_array("x", [[0, 1], [2, 0]], symmetric=True), ValueError, "x .*symmetric"),
        (lambda: check_tensor("x", np.ones(2)), TypeError, "x must be a floating-point torch"),
        (lambda: check_tensor("x", torch.ones(2, dtype=torch.int64)), TypeError, "x must be a"),
        (lambda: check_tensor("x", torch.tensor([NAN])), ValueError, "x must be finite"),
        (lambda: check_tensor("x", torch.ones(2), high=0.5), ValueError, "x must have entries"),
        (lambda: check_tensor("x", torch.ones(2, 3), square=True), ValueError, "x must have shape"),
        (
            lambda: check_tensor("x", torch.triu(torch.ones(2, 2)), symmetric=True),
            ValueError,
            "x must be symmetric",
        ),
        (
            lambda: check_tensor("x", torch.ones(2), like=("y", torch.ones(2).double())),
            TypeError,
            "x must be torch.float64 on cpu like y",
        ),
        (lambda: check_broadcast(a=(2,), b=(3,)), ValueError, r"a and b .*a \(2,\), b \(3,\)"),
    ],
)
def test_the_error_names_argument_value_and_range(call, error, told):
    with pytest.raises(error, match=told):
        call()


def test_symmetric_is_meant_to_ten_digits_of_the_largest_entry():
    matrix = np.array([[1e6, 1.0], [1.0 + 5e-5, 0.0]])
    check_array("x", matrix, symmetric=True)
    matrix[1, 0] += 1e-3
    with pytest.raises(ValueError, match="x must be symmetric"):
        check_array("x", matrix, symmetric=True)
    stack = np.stack([np.eye(2), [[0.0, 1.0], [0.0, 0.0]]])
    with pytest.raises(ValueError, match="x must be symmetric"):
        check_array("x", stack, symmetric=True)

"""The answers to the exercises on networks of many bits that were not computed elsewhere."""

import math

import numpy as np
import pytest
from exercises import answers, near, said
from scipy.integrate import trapezoid
from scipy.special import binom

from compendium.c32c_fluctuations.closure import exact_moments
from compendium.c33g_escapes.study import ESCAPES, escape_law
from compendium.c35_other_tokens.letters import LetterNetwork
from compendium.c35_other_tokens.study import (
    ATTENTION,
    BETA,
    one_feature,
    site_information,
)
from compendium.c35b_scaling_and_blocks.loaded import resting_state
from compendium.c36_learning_through_the_limit.learning import one_bit
from spinformer.dmft.network import Network
from spinformer.dmft.onset import onset

# One kind of bit, all weights +1, a window of one token.
COIN = Network(
    semantic=np.ones((4, 1, 1)), position=np.ones((4, 1, 0)), context=1, gamma=1.0, epsilon=0.0
)


@answers("32b.4", "32b.5")
def test_fluctuations():
    half, excess = np.array([[0.5]]), []
    for size in (3, 100, 1000):
        up = np.arange(size + 1)
        chance = binom(size, up) * 0.75**up * 0.25 ** (size - up)
        answer = np.tanh(2.0 * (2 * up / size - 1))
        mean, square = chance @ answer, chance @ answer**2
        _, covariance = exact_moments(COIN, size, beta=2.0, window=half, steps=1, position=0)
        assert covariance[1, 0, 0] == pytest.approx(square - mean**2 + (1 - square) / size)
        excess.append((1 - mean**2) / size - (1 - square) / size)
        assert excess[-1] == pytest.approx((square - mean**2) / size)
    assert excess[1] / excess[2] == pytest.approx(100.0, rel=0.1)
    few, wanted = said("32b", r"= ?10\^\{(\d+)\}\$ times as many: \$10\^\{(\d+)\}", 2)
    assert math.log10(math.exp(0.29 * (100 - 20))) == near(few, 0)
    assert wanted == few + 6


@answers("33b.3")
def test_switching():
    time, first, second = said(
        "33b", r"= ([\d.]+)\$ flashes; shares \$([\d.]+)\$ and \$([\d.]+)\$", 3
    )
    leave = np.array([[0.99, 0.01], [0.03, 0.97]])
    slow = float(np.sort(np.linalg.eigvals(leave))[0])
    assert -1 / math.log(slow) == near(time, 1)
    assert np.linalg.matrix_power(leave, 400)[0] == pytest.approx([first, second])


def relative_entropy(x, m):
    up = (1 + x) / 2 * np.log((1 + x) / (1 + m)) if x > -1 else 0.0
    down = (1 - x) / 2 * np.log((1 - x) / (1 - m)) if x < 1 else 0.0
    return up + down


@answers("33b.4", "33b.5")
def test_escapes():
    m, away = 0.4, 1e-3
    assert relative_entropy(m + away, m) == pytest.approx(away**2 / 2 / (1 - m * m), rel=1e-2)
    logarithm, slope, more, whole = said(
        "33b",
        r"=([\d.]+)\$, divided by the slope \$([\d.]+)\$, is about (\d+),500 more bits, (\d+),500",
        4,
    )
    assert math.log(1e6 / 1200) == near(logarithm, 1)
    assert math.log(1e6 / 1200) / slope == near(1000 * more + 500, -2)
    assert whole == 3 + more
    table = ESCAPES.read()
    rows = (table["beta"] == 3.0) & (table["cycle"] == 3)
    law = escape_law(
        table["size"][rows], total=table["total"][rows], ended=table["escaped"][rows].astype(float)
    )
    assert law.slope.value == near(slope, 4)
    assert math.exp(law.intercept.value + 3000 * law.slope.value) == pytest.approx(1200, rel=0.1)


@answers("35.1", "35.2", "35.3", "35.4")
def test_other_tokens():
    for push in (0.3, 1.4):
        mean = one_feature(2).mean_overlaps(np.array([push]), beta=0.8)
        assert mean.ravel()[0] == pytest.approx(math.tanh(0.8 * push))
    for q in (2, 3, 8):
        machine = one_feature(q)
        assert machine.semantic[0, 0, 0].var() == pytest.approx(1 / (q - 1))
        assert onset(machine).critical_beta == pytest.approx(q - 1)
        x = 1e-4
        beta = x / q * (math.exp(x) + q - 1) / math.expm1(x)
        assert (beta - 1) / x == pytest.approx(1 / q - 1 / 2, abs=1e-4)
    share, words, bits, tens = said(
        "35", r"\$2\^\{([\d.]+)\\cdot(\d+)\} = 2\^\{(\d+)\}\$, more than \$10\^\{(\d+)\}", 4
    )
    letters = LetterNetwork.from_binary(Network.document())
    assert site_information(letters, ATTENTION, beta=BETA) / math.log(2) == near(share, 3)
    assert share * words == near(bits, 0)
    assert math.floor(bits * math.log10(2)) == tens


@answers("35b.1", "35b.2", "35b.3")
def test_scaling_and_blocks():
    gamma = said("35b", r"\\approx ([\d{},]+)\$\.")
    assert 1e6 / math.sqrt(1000) == near(gamma, -2)
    beta, variance = 300.0, 0.7
    x = np.linspace(-0.2, 0.2, 200_001)
    density = np.exp(-x * x / 2 / variance) / math.sqrt(2 * math.pi * variance)
    gain = trapezoid(beta / np.cosh(beta * x) ** 2 * density, x)
    assert gain == pytest.approx(math.sqrt(2 / (math.pi * variance)), rel=1e-3)
    # The package's own gain, where the load and with it the noise is large.
    rest = resting_state(50.0, load=2.0, context=4)
    assert rest.gain == pytest.approx(math.sqrt(2 / (math.pi * rest.noise)), rel=1e-2)
    kept, remembered = said("35b", r"frac\{1\+([\d.]+)\}\{1-0\.990\} \\approx ([\d.]+)\$\.", 2)
    assert math.exp(-1 / 100) == near(kept, 3)
    assert math.atanh(math.exp(-1 / 100)) == near(remembered, 2)


@answers("36.1")
def test_learning_through_the_limit():
    up, down = said("36", r"/4=(-[\d.]+)\$, .*tfrac34=([\d.]+)\$", 2)
    a = math.log(3) / 2
    by_package = one_bit(a)
    assert by_package["straight"][:2] == (near(up, 3), near(down, 3))
    for x, slope in ((1, up), (-1, down)):
        assert -2 / math.log(2) * (x + 0.75 * a) / (1 + math.exp(2 * a * x)) == near(slope, 3)

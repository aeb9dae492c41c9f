"""The numbers in the answers to the exercises, read from the chapters' texts and computed.

`@answers("10.2")` names the exercise, chapter and number, that a test computes; what no test
computes is in `PROOFS`.
"""

import math
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from minilm_model import installed_model
from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcinv, ive
from scipy.stats import binomtest, norm, t as student_t

from bookmaker.source import chapters
from compendium.c11b_load_and_temperature import study as warm_memory
from compendium.c12b_continuous_capacity import study as continuous_capacity
from compendium.c13_memory_density.study import pair_mixing
from compendium.c15_demonstrations.boundary import spinodal
from compendium.c17_interacting_patterns.interacting import safe_step_size
from compendium.c18b_trained_couplings.study import gaussian_ratio
from compendium.c23_anatomy import study
from compendium.c23c_real_layer.study import mixing_terms
from compendium.c25_driven.study import critical_beta
from compendium.c33b_lifetimes.finite_size_escapes import escapes_table
from compendium.c35_other_tokens.letters import LetterNetwork
from compendium.c35_other_tokens.study import ATTENTION, BETA, site_information
from compendium.c36_learning_through_the_limit.learning import one_bit
from compendium.c51_synthesis.study import spins_in_equilibrium, valley_depth
from compendium.common.token_tasks import crowd_share
from spinformer.core.solve import Status
from spinformer.dmft.lifetimes import escape_law, estimate_lifetime
from spinformer.dmft.linear_stability import onset
from spinformer.dmft.network import Network
from spinformer.language.heads import overlap_energy
from spinformer.language.text import sample_texts, text_windows
from spinformer.language.traces import trace_layers
from spinformer.spins.exact_vectors import two_spins
from spinformer.spins.ising import sherrington_kirkpatrick
from spinformer.spins.mean_field import solve_mean_field
from spinformer.spins.module import SpinTransformerModule
from spinformer.spins.solvers import solve_saddle_point

CHAPTERS = chapters(Path(__file__).parents[1])
DONE: list[str] = []
# A derivation or an explanation without a number, or a reading of the chapter's own figures.
PROOFS = {
    *("10.1", "10.3"),
    *("11.1", "11.3"),
    "11b.1",
    *("12.1", "12.2", "12.3", "12.4"),
    "12b.1",
    "12c.1",
    *("13.1", "13.3"),
    "14.1",
    "14b.3",
    *("14c.1", "14c.2"),
    *("15.1", "15.2"),
    *("16.1", "16.2", "16.3"),
    *("17.1", "17.2", "17.3"),
    *("18.1", "18b.1"),
    *("21.2", "21.4"),
    *("21a.1", "21a.2", "21a.4"),
    "21b.2",
    "22.1",
    *("22b.1", "22b.2"),
    *("23.1", "23.4"),
    "23b.1",
    "23c.1",
    *("24.2", "24.3"),
    *("24a.2", "24a.3"),
    "24b.2",
    *("25.1", "25.2"),
    "26.1",
    "25b.2",
    *("31.1", "31.2", "31.3"),
    *("32.1", "32.2", "32.3"),
    *("32b.1", "32b.2"),
    *("32c.1", "32c.2"),
    *("33.1", "33.3"),
    "33b.4",
    "33d.2",
    *("33e.1", "33e.2"),
    *("33f.1", "33f.2", "33f.3"),
    *("33g.1", "33g.2"),
    *("34.1", "34.2"),
    *("35.1", "35.2", "35.3"),
    "35b.2",
    *("37.1", "37.2", "37.3"),
    *("42.1", "42.3"),
    "42a.3",
    "42b.2",
    "42c.1",
    "42d.3",
    "51.1",
}


def answers(*names):
    """Enter the test under the exercises that it computes."""
    DONE.extend(names)
    return lambda function: function


@cache
def exercises(chapter):
    """The section of the chapter, questions and answers."""
    (one,) = (one for one in CHAPTERS if one.name.split("_")[0] == chapter)
    found = re.search(r"^## Exercises\n(.*?)(?=^## |\Z)", one.shown_text, re.M | re.S)
    return found[1] if found else ""


def said(chapter, pattern, count=1):
    """The numbers in the groups of `pattern`, in the chapter's exercises and their answers."""
    (found,) = re.findall(pattern, exercises(chapter))
    texts = [found] if isinstance(found, str) else found
    assert len(texts) == count
    values = [float(re.sub(r"\{?,\}?", "", text)) for text in texts]
    return values[0] if count == 1 else values


def near(value, digits):
    """Equal as printed with so many digits behind the point."""
    return pytest.approx(value, abs=0.5 * 10.0**-digits + 1e-12)


def test_every_exercise_is_computed_or_named_here():
    """Every one that a chapter asks is in one of the lists, once, and nothing else is."""
    asked = []
    for one in CHAPTERS:
        chapter = one.name.split("_")[0]
        # Questions stand before the answers; where both alternate, numbers do not repeat.
        text = re.split(r"\n:::\{admonition\} Answers\n", exercises(chapter))[0]
        asked += {f"{chapter}.{count}" for count in re.findall(r"^(\d)\. ", text, re.M)}
    assert sorted([*DONE, *PROOFS]) == sorted(asked)


def chain_of_three():
    """Mean spins of three tokens at right angles, each coupled to the one before, D → ∞."""
    couplings = np.diag([1.0, 1.0], -1)
    fields = np.eye(3)
    mean = fields * 2 / (1 + math.sqrt(5))
    for _ in range(3):
        local = fields + couplings @ mean
        square = (local**2).sum(1) + couplings**2 @ (1 - (mean**2).sum(1))
        mean = local * (2 / (1 + np.sqrt(1 + 4 * square)))[:, None]
    return mean


# Exercise, where the numbers of its answer stand, with so many digits, and what they should be.
FORMULAS = [
    (
        *("33g.3", r"\(2p-1\)\^2=([\d.]+)\$\. Fair patterns .*? scatter of ([\d.]+)\.", (2, 1)),
        # Signs agree or disagree, in the mean; the standard deviation of a mean of 100 fair signs.
        lambda: [(0.7**2 + 0.3**2) - 2 * 0.7 * 0.3, math.sqrt(100 * 0.25) * 2 / 100],
    ),
    (
        *("22b.3", r"must be less than ([\d.]+)\.", 2),
        # φ' = φ'' at t = 1.
        lambda: brentq(lambda b: b - 0.5 - b * 0.25 / 4 - (0.5 + b * 0.25 / 2), 0.1, 5),
    ),
    (
        *("22b.4", r"_\{11\}=([\d.]+)\$, whereas the program returns ([\d.]+)\.", (3, 0)),
        lambda: [np.linalg.inv(np.eye(2) - [[0.5, 0.3], [0.3, 0.5]])[0, 0], 1 / (1 - 0.5)],
    ),
    (
        *("10.2", r"\\approx (\d+)\$ for", 0),
        lambda: brentq(lambda n: 4 * (32 + (n - 32) / 32) - n, 1, 1000),
    ),
    (
        *("11.2", r"sqrt\\alpha=([\d.]+)\$, \$\\alpha=([\d.]+)\$: above", 2),
        lambda: [math.sqrt(2) * erfcinv(0.02), 0.5 / erfcinv(0.02) ** 2],
    ),
    (
        *("10.4", r"N>4d=(\d+)\$ tokens", 0),
        lambda: brentq(lambda n: 4 * n**2 * 100 - 16 * n * 100**2, 1, 1e4),
    ),
    (
        # The largest load of the equation of Amit, Gutfreund and Sompolinsky at T = 0, twice.
        *("11.4", r"c=([\d.]+)\$ bits for each", 3),
        lambda: (
            -minimize_scalar(
                lambda y: -((math.erf(y) / y - 2 * math.exp(-(y**2)) / math.sqrt(math.pi)) ** 2),
                bounds=(1, 3),
                method="bounded",
            ).fun
        ),
    ),
    (
        *("11.5", r"which is ([\d,]+) patterns .* holds ([\d,]+) by", 0),
        lambda: [1e6 / (6 * erfcinv(0.02) ** 2), 1e3 / (2 * erfcinv(0.02) ** 2)],
    ),
    ("11b.4", r"it is \$([\d.]+)\$\. There", 1, lambda: 1 / (1 - 1.5**-2)),
    (
        "12.5",
        r"10\)/\\beta=([\d.]+)\$\. Against .*9n\)/\\beta=([\d.]+)\$",
        1,
        lambda: 8 * np.log([10, 4608]),
    ),
    ("13.2", r"a\^2-b\^2=([\d.]+)/", 1, lambda: 2 * math.log(100)),
    (
        *("13.5", r"from ([\d.]+) % to ([\d.]+) %\.", 3),
        lambda: 100 * norm.sf([3, 3.5]),
    ),
    (
        *("14.2", r"falls from \$(-[\d.]+)\$ to \$(-[\d.]+)\$\. This", 3),
        lambda: -np.log(np.cosh([1.0, -2.0])),
    ),
    ("14.3", r"decreases for \$s\$ below \$([\d.]+)", 1, lambda: 2 * math.cos(math.pi / 3)),
    (
        *("14c.3", r"the angle is \$([\d.]+)°", 1),
        lambda: math.degrees(math.atan2(2, 1)) - 45,
    ),
    (
        *("14b.1", r"1/32\$ give \$s = ([\d.]+)\$, \$([\d.]+)\$ and \$([\d.]+)", 2),
        lambda: norm.ppf(0.9) - norm.ppf([1 / 2, 1 / 8, 1 / 32]),
    ),
    (
        *("14b.2", r"which is \$([\d.]+)\$ and \$([\d.]+)\$", 2),
        lambda: np.sqrt(2 * np.log([128, 512])),
    ),
    (
        *("14b.4", r"=([\d.]+)\$ at \$s=2\$\. .* fraction is \$([\d.]+)\$", 3),
        lambda: norm.cdf(norm.ppf(0.9) - np.array([2, 4])),
    ),
    (
        *("15.3", r"approx([\d.]+)\$\. At", 2),
        lambda: brentq(lambda k: spinodal(k) - math.log(2), 1.1, 3.0),
    ),
    ("21.5", r"largest logit by \$([\d.]+)\$", 2, lambda: math.log(10) / 2),
    (
        *("15.4", r"50=([\d.]+)\$\. With .*=([\d.]+)\$\. Frequent", 3),
        lambda: [round(math.log(50), 2), 1 / (1 + 50 * math.exp(-5))],
    ),
    (
        *(
            "16.4",
            r"2\)=(-[\d.]+)\$ with .* of ([\d.]+), and .*=(-[\d.]+)\$ with a third",
            [2, 3, 1],
        ),
        lambda: [-math.log(math.exp(5) + 2), 1 / (1 + 2 * math.exp(-5)), -2 - math.log(3)],
    ),
    (
        *("17.4", r"beta=([\d.]+)\$; beyond .*=([\d.]+)\$ is safe", 1),
        lambda: [
            brentq(lambda k: math.tanh(2 * k * math.tanh(2 * k * 1e-4)) - 1e-4, 0.1, 2),
            safe_step_size(-2.0 * torch.eye(2), beta=4.0),
        ],
    ),
    (
        *("21a.5", r"solution \$m=([\d.]+)\$\. .*/N=([\d.]+)\$\. The ratio", 4),
        lambda: [
            brentq(lambda m: np.tanh(2 * m) - m, 0.5, 1.0),
            0.02 * (1 - brentq(lambda m: np.tanh(2 * m) - m, 0.5, 1.0) ** 2),
        ],
    ),
    (
        *("21b.1", r"0.58 = (\d+)\$ layers at .*0.99 = ([\d{},]+)\$", 0),
        lambda: 2 * math.log(1e-3) / np.log([0.58, 0.99]),
    ),
    (
        *("21b.3", r"ln0.9=(\d+)\$ steps.* needed, (\d+)\.", 0),
        lambda: [math.log(1e-6) / math.log(0.9), 2 * math.log(1e-6) / math.log(0.9)],
    ),
    ("23b.3", r"log_2 300=([\d.]+)\$: nine", 1, lambda: math.log2(0.3 / 1e-3)),
    ("24.5", r"\\tfrac12=([\d.]+)\$\.", 4, lambda: crowd_share(2, kinds=8)),
    (
        # The mean field by finite differences.
        *("24.4", r"the slope is ([\d.]+)\.", 2),
        lambda: brentq(lambda m: math.tanh(0.5 * m + 1e-6) - m, -1, 1) / 1e-6,
    ),
    (
        *("24b.3", r"hence \$a=([\d.]+)\$", 3),
        lambda: brentq(lambda a: (a + 0.5 * (1 - a)) ** 24 - 0.5, 0, 1),
    ),
    (
        *("24b.4", r"so (\d+) channels", 0),
        lambda: min(range(200), key=lambda d: abs(d**2 + 2 * d - (12 * 32**2 + 9 * 32))),
    ),
    (
        # The best field from the maximum of the derivative.
        *(
            "24a.4",
            r"which is \$([\d.]+)\$ at \$h=1\$.*?by it, ([\d.]+)\..*?\$h=([\d.]+)\$: weak",
            3,
        ),
        lambda: [
            1 - math.tanh(1) ** 2,
            0.02 / (1 - math.tanh(1) ** 2),
            minimize_scalar(lambda h: -h / math.cosh(h) ** 2, bounds=(0, 3)).x,
        ],
    ),
    ("24a.1", r"Two: (\d+) numbers for (\d+) unknowns", 0, lambda: [2 * 6 * 8, 8 * 8 + 2]),
    (
        # Sums over the states of the two spins that are seen, and the naive theory's slope.
        *("25.4", r"response is ([\d.]+)\. Exactly.*?=([\d.]+)\$\. The", 3),
        lambda: [
            math.tanh(0.5 * math.tanh(0.5 * math.tanh(1e-6))) / 1e-6,
            sum(
                (1 + one * math.tanh(1e-6))
                / 2
                * (1 + two * math.tanh(0.5 * one))
                / 2
                * math.tanh(0.5 * two)
                for one in (1, -1)
                for two in (1, -1)
            )
            / 1e-6,
        ],
    ),
    ("25.3", r"returns ([\d.]+)\.", 6, lambda: critical_beta(0.0, field_scale=0.0)),
    (
        # σ = ½ J² L(√(1 + J²))/√(1 + J²) (1 − m²) of a pair, J = 2.
        *("25b.1", r"which is ([\d.]+) for \$J=2\$", 3),
        lambda: 2 * 2 / (1 + math.sqrt(21)) * (1 - 4 / (1 + math.sqrt(5)) ** 2),
    ),
    (
        # Three updates of the chain with every spin's own unit field.
        *("25b.3", r"second spin, ([\d.]+)\. Information", 4),
        lambda: chain_of_three()[2, 0],
    ),
    ("33.2", r"it is back: (\d+) steps", 0, lambda: 4 * 11 / math.gcd(3, 11)),
    (
        *("33d.1", r"0\.05 at \$n = (\d+)\$\. .* in (\d+) % of the cells", 0),
        lambda: [math.ceil(math.log(0.05) / math.log(0.9)), 100 * 0.9**8],
    ),
    ("33d.3", r"3\\ln 10\)=([\d.]+)\$\. Another halving", 3, lambda: math.log10(2) / 3),
    ("34.5", r"At most (\d+) inputs", 0, lambda: 64 / 0.8),
    ("34.3", r"0\.1 = (\d+)\$ tokens", 0, lambda: math.log(1e6) / 0.1),
    ("34.4", r"a factor of ([\d.]+)\.", 1, lambda: math.exp(2 * 0.05 * 10)),
]
DONE.extend(exercise for exercise, *_ in FORMULAS)


@pytest.mark.parametrize(("exercise", "pattern", "digits", "computed"), FORMULAS)
def test_an_answer_is_what_its_formula_gives(exercise, pattern, digits, computed):
    wanted = np.atleast_1d(computed())
    told = np.atleast_1d(said(exercise.split(".")[0], pattern, len(wanted)))
    assert told.tolist() == [*map(near, wanted, np.broadcast_to(digits, len(wanted)))]


@answers("11b.2", "11b.3")
def test_load_and_temperature():
    top = minimize_scalar(
        lambda t: -warm_memory.coexistence_load(t), bounds=(0.03, 0.3), method="bounded"
    )
    load, at = said("11b", r"all temperatures is ([\d.]+), near \$T=([\d.]+)", 2)
    assert -top.fun == near(load, 3)
    assert top.x == near(at, 2)
    overlap, magnet = said("11b", r"gives ([\d.]+); a magnet .*=([\d.]+)\$\.", 2)
    assert warm_memory.retrieval_fold(0.99)[1] / 0.1 == near(overlap, 2)
    assert math.sqrt(3) == near(magnet, 2)


@answers("12b.2", "12b.3", "12b.4")
def test_continuous_capacity():
    half = said("12b", r"gives ([\d.]+) \$=I")
    assert continuous_capacity.capacity(50, overlap=0.5, ensemble="binary") == near(half, 3)
    goal = math.log(1e6)
    assert goal == near(said("12b", r"10\^6=([\d.]+)"), 1)
    passed, asked = said("12b", r"near \$d=(\d+)\$; the expansion\s.* asks for about (\d+)", 2)
    below, above = (
        continuous_capacity.retrieval_fold(d, beta=d**-0.5).log_count
        for d in (int(passed) - 2, int(passed) + 2)
    )
    assert below < goal < above
    width = brentq(lambda d: math.sqrt(d) - 0.5 * math.log(d) - 1.5 - goal, 50, 1000)
    assert width == near(asked, 0)
    pattern = r"/64=([\d.]+)\$, so .*alpha\}\}=([\d.]+)\$\. .* gives ([\d.]+), since"
    load, cosine, exact = said("12b", pattern, 3)
    assert goal / 64 == near(load, 3)
    # Where a memory on the sphere, at any temperature, needs that overlap.
    cold = continuous_capacity.capacity(1e6, overlap=cosine)
    assert cold == pytest.approx(load, abs=0.01)
    # A component of a unit vector has the t-distribution's angle.
    tail = student_t.sf(math.sqrt(63) * exact / math.sqrt(1 - exact**2), 63)
    assert tail == pytest.approx(1e-6, rel=0.2)


@answers("12c.2", "12c.3")
def test_hidden_neurons():
    # ρ ü + (1 + ρ) u̇ + (1 − a) u = 0 near a fixed point; rates of the slow mode.
    edge = said("12c", r"at \$\\omega_0=(\d)\$, with")
    rates = np.roots([1.0, 2.0, 1.0 - 1j * edge])
    slow = rates[np.argmax(rates.real)]
    assert slow.real == pytest.approx(0.0, abs=1e-9)
    assert abs(slow.imag) == near(said("12c", r"\(1\+\\rho\)=(\d)\$ in units"), 6)
    rate, factor = said("12c", r"\)=(-[\d.]+)\$\. Without .* factor of \$([\d.]+)\$", 2)
    slowest = max(np.roots([0.25, 1.0, 0.9]))
    assert slowest == near(rate, 2)
    assert slowest / -0.9 == near(factor, 1)


@answers("13.4")
def test_the_density():
    assert near(said("13", r"lambda=([\d.]+)\$, for"), 5) == 0.9**0.01
    # As the exercise says, this is reached at some distance.
    brentq(
        lambda a: pair_mixing(torch.tensor([[a], [-a]], dtype=torch.float64)) - 0.9**0.01, 1.0, 6.0
    )


@answers("18.2")
def test_gains_that_undo_the_factor_of_attention():
    gain = said("18", r"d\^\{-1/4\}=([\d.]+)\$")
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(64, generator=generator, dtype=torch.float64) for _ in range(2))
    score = (gain * query) @ (gain * key)
    assert float(score) == pytest.approx(float(query @ key) / math.sqrt(64), rel=3e-3)


@answers("18.3")
def test_loss_of_contrastive_learning_at_a_high_temperature():
    lowest, guess = said("18", r"=([\d.]+)\$, not much below the \$\\ln256=([\d.]+)\$", 2)
    captions = torch.nn.functional.normalize(torch.ones(256, 3, dtype=torch.float64), dim=-1)
    image = captions[:1].clone()
    captions[1:] *= -1.0
    wanted = torch.zeros(1, dtype=torch.long)
    loss = torch.nn.functional.cross_entropy(image @ captions.T, wanted)
    assert float(loss) == pytest.approx(lowest, abs=5e-4)
    assert math.log(len(captions)) == pytest.approx(guess, abs=5e-4)


@answers("18b.2", "18b.3")
def test_participation_of_long_texts_and_of_independent_assets():
    width = said("18b", r"becomes the width, (\d+)\.")
    assert gaussian_ratio(10**9, int(width), 10**9) == pytest.approx(width)
    ratio = said("18b", r"nT/\(n\+T\)=([\d.]+)\$")
    returns = np.random.default_rng(0).normal(size=(200, 50, 100))
    eigenvalues = np.linalg.eigvalsh(np.swapaxes(returns, 1, 2) @ returns)
    shared = eigenvalues.sum(-1) ** 2 / (eigenvalues**2).sum(-1)
    assert shared.mean() == pytest.approx(ratio, rel=0.02)


@answers("21.1", "21.3")
def test_exact_sums():
    energy, entropy, free = said("21", r"\$(-[\d.]+) - ([\d.]+) = (-[\d.]+)\$", 3)
    assert energy - entropy == pytest.approx(free, abs=1e-9)
    pattern = r"\$([\d.]+) \\times 10\^\{14\}\$ operations at \$N\$ a state: .* between (\d+) and"
    mantissa, spins = said("21", pattern, 2)
    assert near(mantissa, 1) == 86_400 * 1e10 / 1e14
    assert spins * 2**spins < 86_400 * 1e10 < (spins + 1) * 2 ** (spins + 1)


@answers("21a.3")
def test_rests_of_a_glass():
    pattern = r"naive theory, about (\w+), .* about (\w+) for adaptive TAP\. TAP has (\w+),"
    (found,) = re.findall(pattern, exercises("21a"))
    couplings, _ = sherrington_kirkpatrick(16, seed=0, field_std=0.0)
    starts = np.random.default_rng(0).uniform(-0.9, 0.9, (10, 16))
    for method, told in zip(("naive", "adaptive", "tap"), found, strict=True):
        given = {"fields": np.zeros(16), "beta": 4.0, "method": method, "throw": False}
        ends = [solve_mean_field(couplings, start=start, **given) for start in starts]
        solved = [end for end in ends if end.residual <= 1e-12]
        places = {tuple(end.magnetization.round(2) + 0.0) for end in solved}
        assert len(places) == {"one": 1, "four": 4, "six": 6}[told]
        impossible = method == "tap"
        assert {end.status == Status.DIVERGED for end in solved} == {impossible}
    assert "`status` says DIVERGED" in exercises("21a")
    assert places == {(0.0,) * 16}


@answers("22.2", "22.3")
def test_vector_spins():
    theory, known = said("22", r"gives \$L=([\d.]+)\$\. .* is ([\d.]+), so that", 2)
    assert theory == near(4 / (1 + math.sqrt(17)), 4)
    assert known == near(ive(32, 128.0) / ive(31, 128.0), 4)
    assert 0 < known - theory < min(0.003, theory / 64)
    told = said("22", r"Both give ([\d.]+): a pair")
    pair = torch.tensor([[0, 0.5], [0.5, 0]]).double()
    by_package = solve_saddle_point(pair, fields=torch.zeros(2, 1).double(), beta=1.0).correlations
    assert float(by_package[0, 1]) == near(told, 3)
    exact = two_spins(pair.numpy(), fields=np.zeros((2, 100)), beta=1.0)
    assert exact.correlation[0, 1] == pytest.approx(told, abs=2e-3)


@answers("23.2", "23.3")
def test_the_anatomy():
    ordered = said("23", r"which is \$(-[\d.]+)\$ at \$g = 2\$")
    assert -2 + (1 + math.log(4)) / 2 == near(ordered, 3)
    uniform = torch.full((256, 256), 2.0 / 256, dtype=torch.float64)
    solved = solve_saddle_point(uniform, fields=0 * uniform[:, :1], beta=1.0)
    assert float(solved.free_energy) / 256 == pytest.approx(ordered, abs=0.02)
    assert float(solved.saddle.value[0]) == pytest.approx(2.0, abs=0.02)
    told = r"a little below $g = \tfrac12$, where each has a size of about a tenth"
    assert told in exercises("23")
    fields = study.draw_tokens(24, sites=24, dim=32, seed=0)
    bilinear = study.draw_bilinear(32, seed=1)

    def sizes(strength):
        parts = study.dissect(fields, bilinear=bilinear, beta=1.0, strength=strength).sizes()
        return [float(parts[name].mean()) for name in ("first_step", "higher_orders")]

    crossing = brentq(lambda g: float(np.diff(sizes(g))[0]), 0.4, 0.6, xtol=1e-3)
    assert 0.45 < crossing < 0.5
    assert sizes(crossing) == pytest.approx([0.1] * 2, abs=0.02)


@answers("23b.2")
def test_the_eigenvalue_of_the_hub():
    assert r"which is $\tfrac g2\sqrt{N-1}$ times the vector" in exercises("23b")
    hub = np.zeros((10, 10))
    hub[0, 1:] = hub[1:, 0] = 0.5 / 2
    assert np.linalg.eigvalsh(hub)[-1] == pytest.approx(0.5 / 2 * 3)


@answers("23.5")
def test_the_response():
    assert "decides about half as much of the attention step as of the response" in exercises("23")
    bilinear = study.draw_bilinear(16, seed=1)
    centres = study.draw_tokens(1, sites=4, dim=16, seed=6)[0]
    found = {"first_step": [], "response": []}
    for prototypes in (None, centres):
        # Eighty tokens, each with ten draws of its companions.
        fields = study.draw_tokens(800, sites=12, dim=16, seed=30, prototypes=prototypes)
        fields = fields.unflatten(0, (80, 10)).clone()
        fields[:, :, 0] = fields[:, :1, 0]
        parts = study.dissect(fields, bilinear=bilinear, beta=1.0, strength=0.5)
        for name, shares in found.items():
            shares.append(study.share_between_groups(getattr(parts, name)[:, :, 0]))
    ratios = np.divide(found["first_step"], found["response"])
    assert ratios == pytest.approx([0.5, 0.5], abs=0.1)


@answers("23c.3")
def test_a_candidate_that_contains_its_target():
    third, equal = said("23c", r"This is ([\d.]+) for one third and ([\d.]+) for equal", 2)
    signal, noise = np.random.default_rng(0).standard_normal((2, 400_000))
    for size, told in ((1 / 3, third), (1.0, equal)):
        candidate = signal + math.sqrt(size) * noise
        assert np.corrcoef(candidate, signal)[0, 1] ** 2 == pytest.approx(told, abs=0.005)


@answers("23c.2")
def test_heads_of_a_real_layer():
    encoder = installed_model()
    model = encoder.model
    square, product, whole = (np.zeros(12) for _ in range(3))
    total = 0.0
    looks = []
    for words in sample_texts().values():
        trace = trace_layers(model, text_windows(encoder, words, 64)[:1])[0]
        terms = mixing_terms(model, trace)
        balanced, directed = (
            terms[name] - terms[name].mean(2, keepdim=True) for name in ("balanced", "directed")
        )
        square += balanced.square().sum((0, 2, 3)).numpy()
        product += (balanced * directed).sum((0, 2, 3)).numpy()
        whole += directed.square().sum((0, 2, 3)).numpy()
        total += float(directed.sum(1).square().sum())
        third = torch.softmax(trace.beta * trace.queries @ trace.keys.mT, -1)[0, 2]
        looks.append([float(third.diagonal(step).mean()) for step in (-1, 1)])
    explained = product**2 / square / whole
    lost = (1 - explained) * whole / total
    assert lost.argmax() == 2
    assert np.mean(looks, 0) == pytest.approx([1.0, 0.0], abs=0.05)
    assert "about half of what this head writes, and the rest is about a fifth" in exercises("23c")
    assert [explained[2], lost[2]] == pytest.approx([0.5, 0.2], abs=0.02)
    lower = np.flatnonzero(explained < explained[2])
    assert len(lower) == 2
    assert (whole[lower] < whole[2]).all()


def two_tokens(tokens, **options):
    module = SpinTransformerModule(
        tokens.shape[-1], heads=1, solver="saddle", dtype=torch.float64, **options
    )
    return module(tokens)[0].detach()


@answers("24.1", "24b.1")
def test_two_tokens():
    weak = said("24", r"turns into \$([\d.]+)\$ for")
    alike = two_tokens(torch.ones(1, 2, 1).double(), coupling_strength=1e-9, normalize=False)
    assert float(alike[0, 0]) == near(weak, 3)
    told, modules = said("24b", r"\$([\d.]+)\^L<10\^\{-3\}\$ gives \$L>([\d.]+)\$: eight", 2)
    angle = 1e-4
    tokens = torch.tensor([[[1.0, angle], [1.0, -angle]]], dtype=torch.float64)
    out = two_tokens(tokens, coupling_strength=0.5)
    shrink = float(out[0, 1] / out[0, 0]) / angle
    assert shrink == near(told, 3)
    assert math.log(0.001) / math.log(shrink) == near(modules, 1)


@answers("32b.3", "32b.4", "32b.5")
def test_finite_size():
    rate, grown, bits = said(
        "32b", r"2\\lambda=([\d.]+)\$ about \$(\d)\\times10\^6\$ times: \$(\d)\\times10", 3
    )
    assert math.exp(50 * rate) / 1e6 == near(grown, 0)
    assert grown == bits
    few, wanted = said("32b", r"= ?10\^\{(\d+)\}\$ times as many: \$10\^\{(\d+)\}", 2)
    assert math.log10(math.exp(0.29 * (100 - 20))) == near(few, 0)
    assert wanted == few + 6
    gained = said("32b", r"log_2 10\\approx(\d+)\$ tokens")
    # Differences grow and fresh noise adds up, for as many samples and for a hundred times as many.
    tokens = []
    for samples in (1e8, 1e10):
        variance = 0.0
        for token in range(1000):
            variance = 2**0.2 * variance + 1 / samples
            if variance > 0.01:
                tokens.append(token)
                break
    assert tokens[1] - tokens[0] == pytest.approx(gained, abs=1)


@answers("32c.3", "32c.4")
def test_corrections():
    rate, predicted, slope, measured = said(
        "32c", r"1000\)/([\d.]+)\\approx(\d+)\$ tokens.* of \$([\d.]+)\$ it is about (\d+)", 4
    )
    assert math.log(1000) / rate == near(predicted, 0)
    assert slope * math.log(1000) / rate == near(measured, 0)
    told = said("32c", r"s\(1\)=([\d.]+)\$.*gives \$([\d.]+)\$, and .* average is ([\d.]+)\.", 3)

    def probability(logit):
        return 1 / (1 + np.exp(-logit))

    step = 1e-3
    curvature = probability(1 + step) - 2 * probability(1) + probability(1 - step)
    average = norm.expect(lambda z: probability(1 + z))
    assert told == [
        near(probability(1), 3),
        near(probability(1) + curvature / step**2 / 2, 3),
        near(average, 3),
    ]


@answers("31.4", "31.5")
def test_a_mixture_and_a_margin():
    mixed = said("31", r"tanh\(2\\beta m\)=([\d.]+)\$ with features 1 and 2")
    one, two = np.random.default_rng(0).choice([-1.0, 1.0], (2, 200_000))
    means = np.tanh(3.0 * (one + two))
    assert [one @ means / len(one), two @ means / len(one)] == pytest.approx([mixed] * 2, abs=0.01)
    factor = said("31", r"approx(\d+)\$\. So a margin")
    scores = torch.zeros(1000)
    scores[3] = 0.1
    reached = [torch.softmax(gamma * scores, 0)[3].item() for gamma in (factor - 1, factor + 1)]
    assert reached[0] < 0.9 < reached[1]


@answers("32.4", "32.5")
def test_letters_and_bits():
    slope, curvature = said("32", r"probability \$([\d.]+)\$ of .*frac12=([\d.]+)\$\. The p", 2)
    source = torch.zeros((), dtype=torch.float64, requires_grad=True)
    weights = torch.tensor([0.5, 0.25, 0.125, 0.125], dtype=torch.float64)
    marked = torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    logarithm = torch.log((weights * torch.exp(source * marked)).sum())
    (first,) = torch.autograd.grad(logarithm, source, create_graph=True)
    (second,) = torch.autograd.grad(first, source)
    assert (first.item(), second.item()) == (slope, curvature)
    difference, constant, bits = said(
        "32", r"it is ([\d.]+), so \$c\$ is about ([\d.]+)\..* needs about ([\d,]+) bits", 3
    )
    assert 256 * difference == pytest.approx(constant, rel=0.02)
    assert constant / 1e-5 == pytest.approx(bits, rel=0.01)
    # By the curvature of the map: half of it times the variance, from the first tokens on.
    mean = 0.5
    shift = 0.0
    variance = 0.0
    for _ in range(3):
        after = math.tanh(1.5 * mean)
        slope = 1.5 * (1 - after**2)
        shift = slope * shift - 1.5 * after * slope * variance
        variance = slope**2 * variance + 1 - after**2
        mean = after
    assert abs(shift) == pytest.approx(constant, rel=0.05)


@answers("33.4", "33.5")
def test_growth_of_differences():
    rate, steps = said("33", r"\\lambda=\\ln2=([\d.]+)\$, .*/\\ln2\\approx(\d+)\$ steps", 2)
    orbit = np.random.default_rng(0).random(1000)
    twin = orbit + 1e-10
    gaps = []
    for _ in range(60):
        orbit = 4 * orbit * (1 - orbit)
        twin = 4 * twin * (1 - twin)
        gaps.append(np.abs(twin - orbit))
    growth = np.log(np.median(gaps[19]) / np.median(gaps[4])) / 15
    assert growth == pytest.approx(rate, abs=0.05)
    # Half of the differences are of order one a few steps around the time that the exponent gives.
    typical = np.median(gaps, axis=1)
    assert np.flatnonzero(typical > 0.1)[0] == pytest.approx(steps, abs=4)
    half, single, more = said(
        "33", r"approx(\d+)\$ tokens\. With .*approx(\d+)\$ tokens, so that (\d+) more", 3
    )
    assert 11 * math.log(2) / 0.05 == near(half, 0)
    assert 24 * math.log(2) / 0.05 == near(single, 0)
    assert 13 * math.log(2) / 0.05 == near(more, 0)


@answers("33b.1", "33b.2", "33b.3", "33b.5")
def test_lifetimes():
    risk, lifetime, week, chance = said(
        "33b",
        r"30=(\d+)\$ days for three failures, so the lifetime is about (\d+) days\. A week of all "
        r"processors is (\d+) days at risk, .*=([\d.]+)\$\.",
        4,
    )
    failed = np.array([True] * 3 + [False] * 37)
    days = np.array([4.0, 11.0, 20.0] + [30.0] * 37)
    found = estimate_lifetime(days, ended=failed)
    assert (days.sum(), week) == (risk, 7 * 40)
    assert found.value == near(lifetime, 0)
    assert math.exp(-week / found.value) == near(chance, 2)
    mantissa = said("33b", r"0\.9\) = ([\d.]+)\\times10\^5")
    assert 1 / math.log(1 / 0.9) == near(mantissa, 1)
    time, *shares = said(
        "33b", r"= ([\d.]+)\$ periods, with fractions \$([\d.]+)\$ and \$([\d.]+)\$", 3
    )
    leave = np.array([[0.99, 0.01], [0.03, 0.97]])
    assert -1 / math.log(np.linalg.eigvals(leave).min()) == near(time, 1)
    assert np.linalg.matrix_power(leave, 400)[0] == pytest.approx(shares)
    pattern = r"=([\d.]+)\$, divided by the slope \$([\d.]+)\$, is about (\d+) more bits, (\d+) in"
    logarithm, slope, more, whole = said("33b", pattern, 4)
    assert math.log(1e6 / 1200) == near(logarithm, 1)
    assert math.log(1e6 / 1200) / slope == near(more, -2)
    assert whole == 3000 + more
    table = escapes_table.read()
    rows = (table["beta"] == 3.0) & (table["cycle"] == 3)
    size, total, ended = (table[name][rows] for name in ("size", "total", "escaped"))
    law = escape_law(size, total=total, ended=ended.astype(float))
    assert law.value[1] == near(slope, 4)
    assert math.exp(law.value @ [1, 3000]) == pytest.approx(1200, rel=0.1)


@answers("33c.1", "33c.2", "33c.3", "33c.4")
def test_bifurcations():
    found = onset(Network.poclopez2024(), epsilon=0.0)
    mu = found.mu[0]
    pattern = r"varphi = ([\d.]+)\$, .* = ([\d.]+)\\,\(T\+1\)\$ tokens. This is ([\d.]+) for"
    angle, turn, four, three = said("33c", rf"{pattern} .T = 4. and ([\d.]+)", 4)
    phase = abs(np.angle(mu))
    assert phase == near(angle, 3)
    half_turns = np.array([1, 5, 4]) * math.pi / phase
    assert half_turns.tolist() == [near(turn, 2), near(four, 1), near(three, 1)]
    # T = 1: a step multiplies by βμ, so |z| = 1 at β = 1/|μ| and it turns by the angle of μ.
    z = np.exp(2j * phase / 5)
    sharp = found.beta[0] * abs(mu)
    assert z**4 == pytest.approx(sharp * np.exp(1j * phase) * (z ** np.arange(4)).mean())
    # Long windows, from the roots of the characteristic equation alone.
    limit = said("33c", r"beta_c\\to\\pi/2=([\d.]+)\$")

    def largest(beta, mu, length):
        roots = np.roots([1.0, *[-beta * mu / length] * length])
        return roots[np.argmax(np.abs(roots))]

    def critical(mu, length):
        return brentq(lambda beta: abs(largest(beta, mu, length)) - 1.0, 0.5, 2.0 * length)

    assert critical(1j, 40) * 41 / 40 == pytest.approx(limit, abs=0.003)
    assert critical(-1.0, 12) == pytest.approx(12.0)
    assert abs(np.angle(largest(critical(1j, 12), 1j, 12))) == pytest.approx(math.pi / 13)
    # All multipliers reach the circle together, and each returns after T + 1 tokens.
    assert np.roots([1.0, *[1.0] * 12]) ** 13 == pytest.approx(np.ones(12))
    assert "a Neimark–Sacker point with a period of six steps" in exercises("33c")
    assert np.abs(np.angle(np.roots([1.0, -1.0, 1.0]))) == pytest.approx(2 * math.pi / 6)
    assert np.abs(np.roots([1.0, -1.0, 0.99])).max() < 1.0 < np.abs(np.roots([1, -1, 1.01])).max()


@answers("26.2", "26.3", "26.4")
def test_mixers_of_weak_couplings():
    half, limit, causal = said(
        "26", r"epsilon=([\d.]+)\$\.\n.*frac53}=([\d.]+)\$\.\n.*epsilon=([\d.]+)\$, whatever", 3
    )
    rng = np.random.default_rng(0)
    # Independent weights that are exponentials of normal scores, without any formula.
    for spread, left, digits in ((0.5, half, 2), (limit, 0.5, 2)):
        weights = np.exp(spread * rng.normal(size=(1500, 1500)))
        pair = weights + weights.T
        missed = ((pair - pair.mean()) ** 2).sum()
        assert math.sqrt(missed / (pair**2).sum()) == near(left, digits)
    weights = np.tril(rng.exponential(size=(30, 30)), -1)
    pair = weights + weights.T
    factors = np.linspace(0, 3, 301)
    errors = [np.linalg.norm(pair - factor * weights) for factor in factors] / np.linalg.norm(pair)
    assert errors.min() == near(causal, 4)
    assert errors[200] == pytest.approx(1.0)


@answers("33e.3", "33e.4")
def test_the_census():
    told = said("33e", r"2\^\{-3/2\}=([\d.]+)\$ for .*2\^\{-15/2\}=([\d.]+)\$", 2)
    rng = np.random.default_rng(0)
    for size, chance, error in ((3, told[0], 0.03), (6, told[1], 0.004)):
        eigenvalues = np.linalg.eigvals(rng.standard_normal((8000, size, size)))
        assert (eigenvalues.imag == 0).all(axis=1).mean() == pytest.approx(chance, abs=error)
    # What none of n leaves open.
    highs = said("33e", r"n=12\$, .*\)=([\d.]+)\$ with .* would end at ([\d.]+),", 2)
    for trials, high in zip((12, 14), highs, strict=True):
        assert binomtest(0, trials).proportion_ci(method="wilson").high == near(high, 2)


@answers("36.2", "36.3")
def test_paths_and_horizons():
    share, texts, more = said("36", r"cdot1/([\d.]+)=(\d+)\$ texts\. .* so (\d+) texts", 3)
    # Texts of one estimate per text of the other at equal variance of the mean.
    assert 10 * 1.0 / share == near(texts, 0)
    assert 10 * 1.0 / (share / 10) == near(more, 0)
    steps, longer = said("36", r"approx\\ln\(10\^4\)/\\lambda=(\d+)\$ steps\. .*=(\d+)\$ steps", 2)
    noise = {steps: 1e-4, steps + longer: 1e-6}
    for told, size in noise.items():
        grown = size * np.exp(0.5 * np.arange(100))
        assert abs(int((grown < 1.0).sum()) - told) <= 1


@answers("35b.4")
def test_a_normalization_after_the_residual_connection():
    plain, normalized = said("35b", r"2=([\d.]+)\$\. With it, .*1=([\d.]+)\$\. The", 2)

    def response(scale):
        """Of the mean over both values of the bit, by differences of the field."""
        up, down = (
            np.mean([np.tanh((h + 2.0 * x) / scale(h)) for x in (1.0, -1.0)]) for h in (1e-4, -1e-4)
        )
        return (up - down) / 2e-4

    assert response(lambda h: 1.0) == near(plain, 3)
    assert response(lambda h: math.hypot(h, 2.0)) == near(normalized, 3)


@answers("35.4", "35.5", "35b.1", "35b.3", "36.1")
def test_other_tokens_and_learning():
    share, words, bits, tens = said(
        "35", r"\$2\^\{([\d.]+)\\cdot(\d+)\} = 2\^\{(\d+)\}\$, more than \$10\^\{(\d+)\}", 4
    )
    letters = LetterNetwork.from_binary(Network.poclopez2024())
    assert site_information(letters, ATTENTION, beta=BETA) / math.log(2) == near(share, 3)
    assert share * words == near(bits, 0)
    assert math.floor(bits * math.log10(2)) == tens
    patches, narrower = said("35", r"sqrt\{(\d+)\}=(\d+)\$ for any size", 2)
    rng = np.random.default_rng(0)
    for words in (32, 1024):
        value = rng.standard_normal(words)
        whole = rng.choice(value, (2000, int(patches))).mean(axis=1).std()
        assert value.std() / whole == pytest.approx(narrower, rel=0.06)
    assert 1e6 / math.sqrt(1000) == near(said("35b", r"\\approx ([\d{},]+)\$\."), -2)
    kept, remembered = said("35b", r"frac\{1\+([\d.]+)\}\{1-0\.990\} \\approx ([\d.]+)\$\.", 2)
    assert math.exp(-1 / 100) == near(kept, 3)
    assert math.atanh(math.exp(-1 / 100)) == near(remembered, 2)
    up, down = said("36", r"/4=(-[\d.]+)\$, .*tfrac34=([\d.]+)\$", 2)
    assert one_bit(math.log(3) / 2)["straight"][:2] == (near(up, 3), near(down, 3))


@answers("42.2", "42.4", "42b.1", "42b.3", "42c.2", "42c.3")
def test_a_generator():
    want, one = said(
        "42", r"deviation of ([0-9.]+) at the first token, if one sample deviates by ([0-9.]+)", 2
    )
    other = said("42", r"The other one is then \$(-[0-9.]+)\$")
    # Two tokens, each of which the newest one answers with the slope 1/2.
    values = np.linalg.eigvals(np.array([[0.0, 1.0], [0.5, 0.5]]))
    assert np.sort(values) == near(np.array([other, 1.0]), 1)
    assert said("42", r"/0.05\)\^2 = (\d+)\$") == pytest.approx((one / want) ** 2)
    share = said("42b", r"1/\(1\+e\^\{2s\}\) = ([0-9.]+)")
    assert torch.softmax(torch.tensor([2.0, -2.0]), 0)[1].item() == near(share, 3)
    energy = said("42b", r"\\ln\(4 a_j\) = (-[0-9.]+)\$")
    scores = torch.tensor([0.97, 0.01, 0.01, 0.01]).double().log()[:, None]
    # One number a key, a query of one: the scores are the keys.
    found = overlap_energy(torch.ones(1, 1, 1, 1).double(), keys=scores[None, None], beta=1.0)
    assert found.item() == near(energy, 3)
    layers, reach, window = said(
        "42c", r"(?s)a model with ([0-9]+) layers need to reach ([0-9,]+) words.*?T = ([0-9]+)\$", 3
    )
    assert layers * (window - 1) >= reach > layers * (window - 2)
    chance, steps = said(
        "42c", r"has the probability \$2.*\) = ([0-9.]+)\$ in each step: after ([0-9.]+) steps", 2
    )
    turns = (np.random.default_rng(0).random((2, 20_000, 200)) < 0.1).sum(0) == 1
    assert turns.mean() == pytest.approx(chance, abs=0.005)
    assert turns.argmax(1).mean() + 1 == pytest.approx(steps, abs=0.15)


@answers("42a.1", "42a.2", "42a.4")
def test_beyond_a_fixed_point():
    rate, tokens = said(
        "42a", r"(?s)at an exponent of ([0-9.]+)\?.*?\\ln\(10\^8\)/[0-9.]+ = ([0-9]+)\$", 2
    )
    gap, count = 1e-8, 0
    while gap < 1:
        gap, count = gap * math.exp(rate), count + 1
    assert count == pytest.approx(tokens, abs=1)
    growth, bought = said("42a", r"\\ln\(100\)/\(2\\cdot([0-9.]+)\) = ([0-9.]+)\$ tokens\.", 2)
    # A hundred times as many samples begin ten times nearer.
    assert math.log(10) / growth == near(bought, 2)
    low, high = said(
        "42a", r"is \$e\^\{-2\\beta\}\$: \$?([0-9.]+)\$? at β = 5 and ([0-9.]+) at β = 1", 2
    )
    for beta, ratio in ((5.0, low), (1.0, high)):
        first, second = torch.softmax(beta * torch.tensor([2.0, 0.0]).double(), 0).tolist()
        assert second / first == pytest.approx(ratio, rel=0.005)


@answers("42d.1", "42d.2", "42d.4")
def test_while_a_model_learns():
    late, early, factor = said(
        "42d",
        r"(?s)has \$\\beta_c = ([0-9.]+)\$.*?was ([0-9.]+)\?.*?smaller by \$[^$]* = ([0-9.]+)\$",
        3,
    )

    def lost(scale):
        """β at which logits ± scale·x lose the fixed point at zero."""
        return brentq(lambda beta: math.tanh(beta * scale * 1e-6) - 1e-6 * (1 - 1e-9), 1e-3, 100)

    assert lost(1 / early) / lost(1 / late) == pytest.approx(factor, rel=1e-3)
    characters, loss = said("42d", r"The loss is \$\\ln ([0-9]+) = ([0-9.]+)\$", 2)
    assert -math.log(1 / characters) == near(loss, 2)
    pattern = r"(?s)is lost at \$\\beta_c=([0-9.]+)\$.*?twice the teacher's, \$([0-9.]+)\$\."
    teacher, student = said("42d", pattern, 2)
    assert lost(0.5 / teacher) == pytest.approx(student, rel=1e-3)


@answers("51.2", "51.3", "51.4")
def test_three_views():
    square = said("51", r"3\\cdot 1\.087\} = ([\d.]+)\$")
    # The mean square is 2/N times the slope of ln Z in β.
    low, high = (
        spins_in_equilibrium(np.array([[1.0], [-1.0]]), beta=beta, spins=3)[1]
        for beta in (0.499, 0.501)
    )
    assert (high - low) / 0.002 * 2 / 3 == near(square, 3)
    period = said("51", r"a period of ([\d.]+) steps")
    turn = brentq(lambda w: 0.1 / abs(np.exp(1j * w) - 0.9) - 0.5, 0.01, 3.0)
    assert 2 * math.pi / turn == near(period, 1)
    barrier, factor = said("51", r"\^2=([\d.]+)\$ for each member.*?is about (\d+)\.", 2)
    assert valley_depth(2.0) == near(barrier, 3)
    assert math.exp(20 * valley_depth(2.0)) == pytest.approx(factor, rel=0.01)

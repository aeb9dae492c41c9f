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
from scipy.special import erfcinv
from scipy.stats import norm

from bookmaker.source import chapters
from compendium.c11b_load_and_temperature import study as warm_memory
from compendium.c12b_continuous_capacity import study as continuous_capacity
from compendium.c13_memory_density.study import pair_mixing
from compendium.c15_demonstrations.boundary import spinodal
from compendium.c23_anatomy import study
from compendium.c23c_real_layer.study import mixing_terms
from compendium.c24_training.token_tasks import crowd_share
from compendium.c25_driven.study import critical_beta
from compendium.c33b_lifetimes.finite_size_escapes import escapes_table
from compendium.c35_other_tokens.letters import LetterNetwork
from compendium.c35_other_tokens.study import ATTENTION, BETA, site_information
from compendium.c36_learning_through_the_limit.learning import one_bit
from compendium.c51_synthesis.study import readers_in_equilibrium
from spinformer.core.solve import Status
from spinformer.dmft.lifetimes import escape_law
from spinformer.dmft.linear_stability import onset
from spinformer.dmft.network import Network
from spinformer.language.encoder import run_model
from spinformer.language.heads import overlap_energy
from spinformer.language.text import sample_texts, text_windows
from spinformer.spins.exact_vectors import two_spins
from spinformer.spins.ising import sherrington_kirkpatrick
from spinformer.spins.mean_field import solve_mean_field
from spinformer.spins.module import SpinTransformerModule
from spinformer.spins.solvers import solve_saddle_point

CHAPTERS = chapters(Path(__file__).parents[1])
DONE: list[str] = []
# A derivation or an explanation without a number, or a reading of the chapter's own figures.
PROOFS = {
    *("10.1", "10.3", "11.1", "11.3", "11b.1", "12.1", "12.2", "12.3", "12.5", "12b.1"),
    *("13.1", "13.3", "14.1", "14b.3", "15.1", "15.2", "16.1", "16.2", "16.3"),
    *("17.1", "17.2", "17.3", "21.2", "21.4", "21a.1", "21a.2", "21a.4", "22.1"),
    *("23.1", "23.4", "23c.1", "24.2", "24.3", "24.4", "24a.2", "24a.3", "25.1", "25.2"),
    *("31.1", "31.2", "31.3", "32.1", "32.2", "32.3", "32b.1", "32b.2", "32b.4"),
    *("33.1", "33.3", "33b.1", "33b.4", "33d.2", "33e.1", "33e.2", "34.1", "34.2"),
    *("35.1", "35.2", "35.3", "35b.2", "42.1", "42.3", "42a.3", "42b.2", "42c.1"),
    *("42d.3", "51.1"),
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
    values = [float(re.sub(r"\{,\}|,(?=[0-9]{3})", "", text)) for text in texts]
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


# Exercise, where the numbers of its answer stand, with so many digits, and what they should be.
FORMULAS = [
    (
        *("10.2", r"\\approx (\d+)\$ for", 0),
        lambda: brentq(lambda n: 4 * (32 + (n - 32) / 32) - n, 1, 1000),
    ),
    (
        *("11.2", r"sqrt\\alpha=([\d.]+)\$, \$\\alpha=([\d.]+)\$: above", 2),
        lambda: [math.sqrt(2) * erfcinv(0.02), 0.5 / erfcinv(0.02) ** 2],
    ),
    ("13.2", r"a\^2-b\^2=([\d.]+)/", 1, lambda: 2 * math.log(100)),
    (
        *("14.2", r"falls from \$(-[\d.]+)\$ to \$(-[\d.]+)\$\. This", 3),
        lambda: -np.log(np.cosh([1.0, -2.0])),
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
        *("15.3", r"approx([\d.]+)\$\. At", 2),
        lambda: brentq(lambda k: spinodal(k) - math.log(2), 1.1, 3.0),
    ),
    (
        *("21a.5", r"0.58 = (\d+)\$; .*0.99 = ([\d{},]+)\$", 0),
        lambda: 2 * math.log(1e-3) / np.log([0.58, 0.99]),
    ),
    ("24.6", r"\\tfrac12=([\d.]+)\$\.", 4, lambda: crowd_share(2, kinds=8)),
    ("24a.1", r"Two: (\d+) numbers for (\d+) unknowns", 0, lambda: [2 * 6 * 8, 8 * 8 + 2]),
    ("25.3", r"returns ([\d.]+)\.", 6, lambda: critical_beta(0.0, field_scale=0.0)),
    (
        # σ = ½ J² L(√(1 + J²))/√(1 + J²) (1 − m²) of a pair, J = 2.
        *("25b.1", r"which is ([\d.]+) for \$J=2\$", 3),
        lambda: 2 * 2 / (1 + math.sqrt(21)) * (1 - 4 / (1 + math.sqrt(5)) ** 2),
    ),
    ("33.2", r"it is back: (\d+) steps", 0, lambda: 4 * 11 / math.gcd(3, 11)),
    (
        *("33d.1", r"0\.05 at \$n = (\d+)\$\. .* in (\d+) % of the cells", 0),
        lambda: [math.ceil(math.log(0.05) / math.log(0.9)), 100 * 0.9**8],
    ),
    ("34.3", r"0\.1 = (\d+)\$ tokens", 0, lambda: math.log(1e6) / 0.1),
    ("34.4", r"a factor of ([\d.]+)\.", 1, lambda: math.exp(2 * 0.05 * 10)),
]
DONE.extend(exercise for exercise, *_ in FORMULAS)


@pytest.mark.parametrize(("exercise", "pattern", "digits", "computed"), FORMULAS)
def test_an_answer_is_what_its_formula_gives(exercise, pattern, digits, computed):
    wanted = np.atleast_1d(computed())
    told = np.atleast_1d(said(exercise.split(".")[0], pattern, len(wanted)))
    assert told.tolist() == [near(value, digits) for value in wanted]


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


@answers("12b.2", "12b.3")
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


@answers("12.4")
def test_hidden_neurons():
    # ρ ü + (1 + ρ) u̇ + (1 − a) u = 0 near a rest; rates of the slow mode.
    edge = said("12", r"at \$\\omega_0=(\d)\$, with")
    rates = np.roots([1.0, 2.0, 1.0 - 1j * edge])
    slow = rates[np.argmax(rates.real)]
    assert slow.real == pytest.approx(0.0, abs=1e-9)
    assert abs(slow.imag) == near(said("12", r"\(1\+\\rho\)=(\d)\$ in units"), 6)


@answers("13.4")
def test_the_density():
    assert near(said("13", r"lambda=([\d.]+)\$, for"), 5) == 0.9**0.01
    # As the exercise says, this is reached at some distance.
    brentq(
        lambda a: pair_mixing(torch.tensor([[a], [-a]], dtype=torch.float64)) - 0.9**0.01, 1.0, 6.0
    )


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


@answers("22.2")
def test_vector_spins():
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


@answers("23c.2")
def test_heads_of_a_real_layer():
    model = installed_model()
    square, product, whole = (np.zeros(12) for _ in range(3))
    total = 0.0
    looks = []
    for words in sample_texts().values():
        trace = run_model(model, text_windows(model, words, 64)[:1])[0]
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


@answers("24.1", "24.5")
def test_two_tokens():
    weak = said("24", r"turns into \$([\d.]+)\$ for")
    alike = two_tokens(torch.ones(1, 2, 1).double(), coupling_strength=1e-9, normalize=False)
    assert float(alike[0, 0]) == near(weak, 3)
    told, modules = said("24", r"\$([\d.]+)\^L<10\^\{-3\}\$ gives \$L>([\d.]+)\$: eight", 2)
    angle = 1e-4
    tokens = torch.tensor([[[1.0, angle], [1.0, -angle]]], dtype=torch.float64)
    out = two_tokens(tokens, coupling_strength=0.5)
    shrink = float(out[0, 1] / out[0, 0]) / angle
    assert shrink == near(told, 3)
    assert math.log(0.001) / math.log(shrink) == near(modules, 1)


@answers("32b.3", "32b.5")
def test_finite_size():
    rate, grown, bits = said(
        "32b", r"2\\lambda=([\d.]+)\$ about \$(\d)\\times10\^6\$ times: \$(\d)\\times10", 3
    )
    assert math.exp(50 * rate) / 1e6 == near(grown, 0)
    assert grown == bits
    few, wanted = said("32b", r"= ?10\^\{(\d+)\}\$ times as many: \$10\^\{(\d+)\}", 2)
    assert math.log10(math.exp(0.29 * (100 - 20))) == near(few, 0)
    assert wanted == few + 6


@answers("33b.2", "33b.3", "33b.5")
def test_lifetimes():
    mantissa = said("33b", r"0\.9\) = ([\d.]+)\\times10\^5")
    assert 1 / math.log(1 / 0.9) == near(mantissa, 1)
    time, *shares = said("33b", r"= ([\d.]+)\$ flashes; shares \$([\d.]+)\$ and \$([\d.]+)\$", 3)
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


@answers("33c.1", "33c.2")
def test_bifurcations():
    found = onset(Network.document())
    mu = found.mu[0]
    pattern = r"varphi = ([\d.]+)\$; .* = ([\d.]+)\\,\(T\+1\)\$ tokens, so ([\d.]+) for \$T = 4\$"
    angle, turn, four, three = said("33c", rf"{pattern} and ([\d.]+)", 4)
    phase = abs(np.angle(mu))
    assert phase == near(angle, 3)
    half_turns = np.array([1, 5, 4]) * math.pi / phase
    assert half_turns.tolist() == [near(turn, 2), near(four, 1), near(three, 1)]
    # T = 1: a step multiplies by βμ, so |z| = 1 at β = 1/|μ| and it turns by the angle of μ.
    z = np.exp(2j * phase / 5)
    sharp = found.beta[0] * abs(mu)
    assert z**4 == pytest.approx(sharp * np.exp(1j * phase) * (z ** np.arange(4)).mean())


@answers("35.4", "35b.1", "35b.3", "36.1")
def test_other_tokens_and_learning():
    share, words, bits, tens = said(
        "35", r"\$2\^\{([\d.]+)\\cdot(\d+)\} = 2\^\{(\d+)\}\$, more than \$10\^\{(\d+)\}", 4
    )
    letters = LetterNetwork.from_binary(Network.document())
    assert site_information(letters, ATTENTION, beta=BETA) / math.log(2) == near(share, 3)
    assert share * words == near(bits, 0)
    assert math.floor(bits * math.log10(2)) == tens
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
        r"(?s)has \$\\beta_c = ([0-9.]+)\$.*?was ([0-9.]+)\?.*?smaller by \$.* = ([0-9.]+)\$",
        3,
    )

    def lost(scale):
        """β at which logits ± scale·x lose the fixed point at zero."""
        return brentq(lambda beta: math.tanh(beta * scale * 1e-6) - 1e-6 * (1 - 1e-9), 1e-3, 100)

    assert lost(1 / early) / lost(1 / late) == pytest.approx(factor, rel=1e-3)
    characters, loss = said("42d", r"The loss is \$\\ln ([0-9]+) = ([0-9.]+)\$", 2)
    assert -math.log(1 / characters) == near(loss, 2)
    teacher, student = said("42d", r"(?s)is lost at \$\\beta_c=([0-9.]+)\$.*?, \$([0-9.]+)\$\.", 2)
    assert lost(0.5 / teacher) == pytest.approx(student, rel=1e-3)


@answers("51.2", "51.3")
def test_three_views():
    square = said("51", r"3\\cdot 1\.087\} = ([\d.]+)\$")
    # The mean square is 2/N times the slope of ln Z in β.
    low, high = (
        readers_in_equilibrium(np.array([[1.0], [-1.0]]), beta=beta, readers=3)[1]
        for beta in (0.499, 0.501)
    )
    assert (high - low) / 0.002 * 2 / 3 == near(square, 3)
    period = said("51", r"a period of ([\d.]+) steps")
    turn = brentq(lambda w: 0.1 / abs(np.exp(1j * w) - 0.9) - 0.5, 0.01, 3.0)
    assert 2 * math.pi / turn == near(period, 1)

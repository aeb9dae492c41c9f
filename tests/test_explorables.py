"""The live figures compute what the package computes: their mathematics, run in a browser."""

import itertools

import numpy as np
import pytest
import torch
from pages import FIGURES, LIVE_FIGURES, press, until, words
from scipy.signal import periodogram
from scipy.special import softmax
from selenium.webdriver.common.keys import Keys

from compendium.front.explorables import every_figure, network_data
from spinformer.dmft.lyapunov import lyapunov_spectrum
from spinformer.dmft.mean_field import random_contexts, trajectory
from spinformer.dmft.network import Network
from spinformer.hopfield import continuous
from spinformer.hopfield.discrete import CLASSICAL
from spinformer.spins.ising import solve_exact
from spinformer.spins.large_d import langevin_response
from spinformer.spins.mean_field import belief_propagation, solve_mean_field
from spinformer.spins.module import Solver, SpinTransformerModule


def assert_near(pairs, tolerance):
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours, np.asarray(theirs), atol=tolerance)


def drawn(number):
    """A network (odd: published), a context, parameters; the three as a script takes them."""
    generator = np.random.default_rng(number)
    bits = number % 3
    other = Network.segmented(number, bits=bits, epsilon=0.02 if bits else 0.0)
    network = Network.poclopez2024() if number % 2 else other
    parameters = {
        "beta": float(generator.uniform(0.8, 1.4)),
        "gamma": float(generator.uniform(20.0, 200.0)),
        "epsilon": float(generator.uniform(0.0, 0.1)) if network.bits else 0.0,
    }
    context = random_contexts(network, number, count=1).select(0)
    given = network_data(network), vars(context), parameters
    return network, context, parameters, given


def test_data_is_what_the_package_writes():
    stored = (LIVE_FIGURES / "data.js").read_text(encoding="utf-8")
    assert stored == every_figure(), "run python -m compendium.front.explorables"


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.nightly] * (name in FIGURES[1:3])) for name in FIGURES],
)
def test_the_sentence_says_what_the_knob_shows(browser, page, name):
    """Dragged with the mouse there and back, as quickly as a hand does."""
    page(name)
    knob = "strength" if name == "module" else "beta"
    symbol = {"module": "g", "recall": "β√d"}.get(name, "β")
    handle = browser.find_element("css selector", f"[name={knob}]")
    if name == "map":
        # What runs on by itself says something new in every picture.
        browser.find_element("xpath", "//button[text()='Pause']").click()
    shown = f"//input[@name='{knob}']/following-sibling::output"
    seen = set()
    for step in (-40, 25, -18, 33):
        press(browser, handle, (0, 0), *[(step // 4, 0)] * 4)
        value = browser.find_element("xpath", shown).text
        until(browser, lambda now=value: f"{symbol} = {now}" in words(browser))
        seen.add(value)
    assert len(seen) > 2
    # The copy for screen readers lags behind, but it ends at the same sentence.
    told = words(browser)
    until(browser, lambda: words(browser, ".explorable-heard") == told)


@pytest.mark.nightly
def test_a_screen_reader_is_told_at_most_once_in_three_seconds(browser, page):
    page("landscape")
    changes = browser.execute_async_script("""
        const done = arguments[arguments.length - 1], times = [];
        const heard = document.querySelector(".explorable-heard");
        new MutationObserver(() => times.push(performance.now())).observe(heard, {childList: true});
        const tell = document.querySelector("[name=beta]"), begin = performance.now();
        const beat = setInterval(() => {
          tell.value = Math.log(1 + (performance.now() - begin) / 1000);
          tell.dispatchEvent(new Event("input"));
          if (performance.now() - begin < 5000) return;
          clearInterval(beat);
          setTimeout(() => done(times), 3500);
        }, 50);
    """)
    assert 2 <= len(changes) <= 4
    assert min(np.diff(changes)) > 2900


@pytest.mark.parametrize(
    ("setting", "end"),
    [
        ("0.5&points=1,0;-1,0&query=0.5,1", "the average of all patterns, each with weight 0.50"),
        ("0.5&points=1,0;-1,0;0,1", "at a mixture, in which no pattern has more"),
        ("8&points=1,0;-1,0&query=0.5,1", "at pattern 1 with weight 1.00"),
        ("8&points=1,0;1,0;-1,0&query=0.5,1", "at patterns 1 and 2 on one spot with weight 1.00"),
        ("8&points=1,0;-1,0&query=0.5,1&step=2", "has not come to rest after 300 steps"),
        ("8&points=1,0;-1,0&query=0.5,1&step=2.5", "runs away"),
    ],
)
def test_the_landscape_says_where_a_query_ends(browser, page, setting, end):
    page("landscape", f"&beta={setting}")
    assert end in words(browser)


@pytest.mark.parametrize("number", range(8))
def test_the_map_takes_the_steps_of_the_package(run, number):
    network, context, parameters, given = drawn(number)
    wanted, _ = trajectory(network, context, steps=100, **parameters)
    found = run("spinformer.map.trajectory", *given, 100)
    rates = lyapunov_spectrum(network, context, steps=100, count=1, **parameters).exponents.value
    # Rounding grows with the orbit where this is chaotic; the package's own forms part as much.
    np.testing.assert_allclose(found, wanted, atol=1e-12 * np.exp(100 * max(rates[0], 0.0) + 5))


@pytest.mark.parametrize(("beta", "tolerance"), [(0.9, 1e-4), (1.255, 1e-4), (1.29, 6e-3)])
def test_its_exponent_is_that_of_the_package(run, beta, tolerance):
    network, context, _, (data, start, _) = drawn(1)
    parameters = {"beta": beta, "gamma": network.gamma, "epsilon": network.epsilon}
    _, later = trajectory(network, context, transient=5000, steps=0, **parameters)
    wanted = lyapunov_spectrum(network, later, steps=40_000, count=1, **parameters).exponents.value
    found = run("spinformer.map.exponent", data, start, parameters, 6000, 40_000)
    assert found == pytest.approx(wanted[0], abs=tolerance)


def test_its_spectrum_is_that_of_the_package(run):
    signal = np.random.default_rng(0).standard_normal(256)
    found = run("(signal) => Array.from(spinformer.map.power(signal))", signal)
    wanted = periodogram(signal, window="hann", return_onesided=False)[1][:129]
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_other_parameters_make_the_window_anew(run):
    """Moving a knob in the middle of a text equals starting from its context."""
    network, context, parameters, given = drawn(3)
    later = {**parameters, "beta": 1.1}
    _, middle = trajectory(network, context, steps=7, **parameters)
    wanted, _ = trajectory(network, middle, steps=20, **later)
    text = """(network, start, one, other) => {
        const system = new spinformer.map.System(network, start, one);
        system.run(7);
        system.set(other);
        return Array.from({length: 20}, () => { system.step(); return [...system.output]; });
    }"""
    np.testing.assert_allclose(run(text, *given, later), wanted, atol=1e-12)


@pytest.mark.parametrize("number", range(4))
def test_the_landscape_is_that_of_the_package(run, number):
    generator = np.random.default_rng(number)
    patterns = generator.uniform(-2, 2, (3 + number, 2))
    query = generator.uniform(-2, 2, 2)
    beta = float(generator.uniform(0.3, 20.0))
    step = float(generator.uniform(0.2, 1.4))
    stored = torch.from_numpy(patterns)
    state = torch.from_numpy(query)
    text = """(patterns, query, beta, step, l = spinformer.landscape) => ({
        energy: l.energy(patterns, query, beta), weights: l.weights(patterns, query, beta),
        classical: l.classical(patterns, query), path: l.path(patterns, query, beta, step, 2000)})
    """
    found = run(text, patterns, query, beta, step)
    wanted = continuous.retrieve(
        stored, queries=state, beta=beta, step_size=step, tolerance=1e-6, keep_trajectory=True
    )
    pairs = (
        (found["energy"], continuous.energy(stored, states=state, beta=beta)),
        (found["weights"], continuous.attention_weights(stored, states=state, beta=beta)),
        (found["classical"], -CLASSICAL(patterns @ query).sum()),
        (found["path"][1], continuous.update(stored, states=state, beta=beta, step_size=step)),
        (found["path"][-1], wanted.states),
    )
    assert_near(pairs, 1e-9)
    assert len(found["path"]) - 1 == int(wanted.steps)


def test_the_memory_of_pictures_is_that_of_the_package_and_an_address_keeps_them(run):
    generator = np.random.default_rng(0)
    patterns = generator.choice([-1.0, 1.0], (3, 16))
    query = 0.5 * generator.normal(size=16)
    beta = 0.3
    text = """(patterns, query, beta, r = spinformer.recall) => ({
        weights: r.weights(patterns, query, beta), once: r.update(patterns, query, beta),
        rest: r.rest(patterns, query, beta, 2000).state,
        kept: patterns.map((x) => r.decode(r.encode(x), 16)), wrong: r.decode("00g0", 16)})"""
    found = run(text, patterns, query, beta)
    stored = torch.from_numpy(patterns)
    state = torch.from_numpy(query)
    rest = continuous.retrieve(stored, queries=state, beta=beta, tolerance=1e-6).states
    once = continuous.update(stored, states=state, beta=beta)
    weights = continuous.attention_weights(stored, states=state, beta=beta)
    assert_near([(found["weights"], weights), (found["once"], once)], 1e-12)
    assert_near([(found["rest"], rest)], 1e-5)
    assert (found["kept"], found["wrong"]) == (patterns.tolist(), None)


def test_half_of_a_drawing_brings_back_the_whole(browser, page):
    """At attention's temperature, by address and by hand; far above it, a mixture."""
    page("recall", "&asked=2&part=its%20left%20half")
    until(browser, lambda: "picture 2 with weight 1.00" in words(browser))
    page("recall", "&asked=2&beta=0.01")
    until(browser, lambda: "a mixture" in words(browser))
    page("recall")
    sheet = browser.find_element("css selector", ".explorable-press")
    sheet.send_keys(" ")
    until(browser, lambda: "pictures=" in browser.execute_script("return location.hash"))
    pictures = browser.execute_script("return decodeURIComponent(location.hash)")
    # The pixel of the cursor, the upper left one, was paper and is ink.
    assert pictures.partition("pictures=")[2][0] == "8"


@pytest.mark.parametrize("number", range(4))
def test_the_three_spins_are_those_of_the_package(run, number):
    generator = np.random.default_rng(number)
    pairs = generator.normal(size=3)
    fields = generator.normal(size=3)
    beta = float(generator.uniform(0.1, 1.5))
    matrix = np.zeros((3, 3))
    matrix[[0, 0, 1], [1, 2, 2]] = pairs
    system = {"couplings": matrix + matrix.T, "fields": fields, "beta": beta}
    exact = run("spinformer.spins.exact", pairs, fields, beta)
    solved = [(exact, solve_exact(**system), 1e-12)]
    for method in ("naive", "tap", "adaptive"):
        start = np.tanh(beta * fields)
        found = run("spinformer.spins.solve", method, pairs, fields, beta, start)
        assert found["residual"] <= 1e-12
        solved.append((found, solve_mean_field(**system, method=method), 1e-9))
    for found, wanted, tolerance in solved:
        both = (found["m"], wanted.magnetization), (found["logZ"], wanted.log_partition)
        assert_near(both, tolerance)


@pytest.mark.parametrize("number", range(4))
def test_twelve_spins_are_those_of_the_package(run, number):
    generator = np.random.default_rng(number)
    pairs = list(itertools.combinations(range(12), 2))
    bonds = generator.choice(len(pairs), 14 + 8 * number, replace=False)
    edges = [[*pairs[bond], int(generator.choice([-1, 1]))] for bond in sorted(bonds)]
    couplings = np.zeros((12, 12))
    for i, j, coupling in edges:
        couplings[i, j] = couplings[j, i] = coupling
    field = float(generator.uniform(-0.5, 0.5))
    # Weak enough that each theory has one solution.
    beta = float(generator.uniform(0.05, 0.15))
    system = {"couplings": couplings, "fields": np.full(12, field), "beta": beta}
    exact = solve_exact(**system)
    solved = [(run("spinformer.twelve.exact", edges, field, beta), exact, exact.magnetization)]
    for method in ("naive", "tap"):
        found = run("spinformer.twelve.solve", method, edges, field, beta)
        wanted = solve_mean_field(**system, method=method)
        solved.append((found, wanted, wanted.magnetization))
    bethe = run("spinformer.twelve.solve", "bethe", edges, field, beta)
    beliefs = belief_propagation(**system)
    solved.append((bethe, beliefs, beliefs.value))
    for found, wanted, means in solved:
        assert_near([(found["m"], means), (found["logZ"], wanted.log_partition)], 1e-7)
    # The address keeps the bonds, and a word that is none changes nothing.
    kept = run("(edges, t = spinformer.twelve) => t.decode(t.encode(edges))", edges)
    assert kept == edges
    assert run("(word) => spinformer.twelve.decode(word)", "00") is None


def test_the_bethe_theory_is_exact_on_a_tree_and_not_on_a_loop(browser, page, run):
    tree = [[(i - 1) // 2, i, 1] for i in range(1, 12)]
    off = """(edges, t = spinformer.twelve) => {
        const exact = t.exact(edges, 0.1, 0.8), found = t.solve("bethe", edges, 0.1, 0.8);
        return Math.abs(found.logZ - exact.logZ); }"""
    assert run(off, tree) < 1e-8
    assert run(off, [*tree, [9, 10, 1]]) > 1e-3
    page("twelve", "&edges=01.12&beta=0.5&field=0")
    until(browser, lambda: "2 bonds, β = 0.50" in words(browser))
    sheet = browser.find_element("css selector", ".explorable-press")
    # By keyboard: the first spin and the second, whose bond turns from agreeing to disagreeing.
    sheet.send_keys(" ", Keys.ARROW_RIGHT, " ")
    until(browser, lambda: "01-" in browser.execute_script("return location.hash"))
    # By hand: the spins at the top and at the right, which had no bond.
    size = min(sheet.size["width"], sheet.size["height"]) / 2 - 30
    press(browser, sheet, (0, round(-size)))
    press(browser, sheet, (round(size), 0))
    until(browser, lambda: "3 bonds" in words(browser))
    until(browser, lambda: "03" in browser.execute_script("return location.hash"))


def test_the_front_page_s_plane_fills_its_panel(browser, page):
    page("landscape", small=True)
    wide = browser.execute_script(
        "const box = e => document.querySelector(e).getBoundingClientRect();"
        "const panel = box('[data-small]'), sheet = box('canvas');"
        "return [sheet.width, sheet.height, panel.width, panel.height]"
    )
    assert wide[0] > 0.6 * wide[2]
    assert wide[1] > 0.75 * wide[3]


def test_the_relief_is_coarse_while_a_hand_moves_and_fine_when_it_rests(browser, page):
    """Else a picture takes longer than a sixtieth of a second."""
    page(
        "landscape",
        "&beta=4",
        first="const seen = [], made = CanvasRenderingContext2D.prototype.createImageData;"
        "CanvasRenderingContext2D.prototype.createImageData = function (...size) {"
        " seen.push(size[0]); return made.apply(this, size); }; globalThis.seen = seen;",
    )
    until(browser, lambda: browser.execute_script("return Math.max(...seen)") == 240)
    browser.execute_script("seen.length = 0")
    press(browser, browser.find_element("css selector", "[name=beta]"), (0, 0), *[(2, 0)] * 6)
    until(browser, lambda: browser.execute_script("return seen.includes(240)"))
    # The colours of the basins lie on a sheet of their own.
    sizes = browser.execute_script("return seen.filter((side) => side !== 72)")
    assert sizes[0] == 80
    assert sizes[-1] == 240
    assert sizes.count(240) < sizes.count(80)


SOLVERS = {
    "saddle": Solver("saddle"),
    "fixed point": Solver(tolerance=1e-14),
    "one step": Solver(steps=1),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("number", range(3))
def test_the_module_is_that_of_the_package(run, number, solver):
    generator = np.random.default_rng(number)
    tokens = generator.normal(size=(3, 2))
    # Weak enough that the fixed point is one: two solvers may end at different ones of several.
    strength = float(generator.uniform(0.1, 0.4 if solver == "fixed point" else 2.0))
    beta, gamma = generator.uniform(0.3, 1.2, 2).tolist()
    shared = {"beta": beta, "gamma": gamma}
    module = SpinTransformerModule(
        2, heads=1, normalize=False, dtype=torch.float64, solver=SOLVERS[solver],
        coupling_strength=strength, **shared,
    )  # fmt: skip
    angle = np.deg2rad(40.0 * number)
    turn = [[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]
    with torch.no_grad():
        module.query.copy_(torch.tensor(turn))
        module.key.copy_(torch.eye(2))
        output, parts = module(torch.from_numpy(tokens) * 2**0.5, return_parts=True)
        meter = parts.validity()
    knobs = {"strength": strength, **shared, "turn": 40.0 * number, "solver": solver}
    found = run("spinformer.module.solve", tokens, knobs)
    m = parts.solution.value[0, 0]
    h = parts.fields[0, 0]
    # A free spin of this length has the gain β(1 − m²); one step is felt from free spins.
    gain = beta * (1 - m.square().sum(-1, keepdim=True))
    felt = parts.pair[0, 0] @ (langevin_response(h, parts.beta[0]) if solver == "one step" else m)
    told = {"m": m, "c": parts.correlation[0, 0], "j": parts.couplings[0, 0]}
    told |= {"output": output / 2**0.5, "response": parts.response[0] / 2**0.5}
    told |= {"residual": gain * h, "mixing": gain * felt, "onsager": m - gain * (h + felt)}
    pairs = [(found[name], value) for name, value in told.items()]
    for name in ("distance", "correction", "largest", "lowest"):
        pairs.append((found["meter"][name], getattr(meter, name)[0, 0]))
    assert_near([(ours, theirs.detach()) for ours, theirs in pairs], 1e-9)
    assert found["meter"]["physical"] == bool(meter.physical)
    assert found["meter"]["converged"] == (solver != "one step")


@pytest.mark.parametrize("number", range(2))
def test_its_truth_is_the_integral_over_all_directions(run, number):
    generator = np.random.default_rng(number)
    tokens = generator.normal(size=(3, 2))
    strength = 0.5 + 1.5 * number
    knobs = {"strength": strength, "beta": 0.8, "gamma": 1.0, "turn": 30.0}
    found = run("spinformer.module.solveExactly", tokens, knobs)
    b = np.array(run("spinformer.module.solve", tokens, {**knobs, "solver": "saddle"})["b"])
    angles = 2 * np.pi * np.arange(48) / 48
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    spins = np.array(list(itertools.product(circle, repeat=3))).swapaxes(0, 1)
    energy = np.einsum("isa,ia->s", spins, tokens)
    energy += 0.5 * np.einsum("isa,ij,jsa->s", spins, b, spins)
    weights = softmax(2 * 0.8 * energy)
    means = np.einsum("s,isa->ia", weights, spins)
    products = np.einsum("s,isa,jsa->ij", weights, spins, spins)
    assert_near(((found["m"], means), (found["c"], products)), 1e-9)

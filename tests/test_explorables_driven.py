"""The live figures are driven: dragged, pressed, restarted, resized, scrolled past with a thumb.

What the sentence of a figure says is compared with what its charts hold at the same moment.
"""

import re

import numpy as np
import pytest
import torch
from pages import press, until, wait_for, words
from selenium.webdriver.common.by import By

from compendium.front.explorables import landscape_data, map_data, recall_data
from spinformer.core.solve import Status
from spinformer.core.statistics import mean_estimate
from spinformer.dmft.mean_field import Context, trajectory
from spinformer.dmft.network import Network
from spinformer.hopfield import continuous
from spinformer.spins.ising import solve_exact
from spinformer.spins.mean_field import solve_mean_field

# What every chart of the page holds: by caption, a list for each axis and curve.
CHARTS = """return Object.fromEntries([...document.querySelectorAll('.explorable-chart')].map(
    box => [box.querySelector('figcaption').textContent.split(/[:,;]/)[0],
            box.plot.data.map(row => Array.from(row))]))"""
RATES = "Running exponent"
PATH = "The last tokens"


def charts(browser):
    return browser.execute_script(CHARTS)


def button(browser, text):
    return browser.find_element(By.XPATH, f"//button[text()='{text}']")


def turn(browser, knob, value):
    """Set a slider as a hand would, to a place between its ends (the logarithm, if it has one)."""
    browser.execute_script(
        "const knob = document.querySelector(`[name=${arguments[0]}]`); knob.value = arguments[1];"
        "knob.dispatchEvent(new Event('input'))",
        knob,
        value,
    )


def tokens(browser):
    return int(words(browser, ".explorable-counter").split()[0].replace(",", ""))


def settled(browser, condition=lambda text: True):
    """The sentence, once a condition holds of it."""
    return until(browser, lambda: (text := words(browser)) and condition(text) and text)


# ---- the text generator as a map


STARTS = ("the paper's protocol", "random 1", "random 2", "random 3")
# Every verdict along a text from each start, stretch by stretch.
VERDICTS = """(network, starts, beta, stretches, map = spinformer.map) => starts.map((start) => {
    const parameters = {beta, gamma: network.gamma, epsilon: network.epsilon};
    const system = new map.System(network, network.starts[start], parameters), rates = [];
    return Array.from({length: stretches}, () => {
        const before = system.growth;
        system.run(2000);
        system.rescale();
        rates.push((system.growth - before) / 2000);
        return map.verdict(rates, 2000)?.says ?? "";
    });
})"""


@pytest.fixture(scope="module")
def document_network():
    return map_data()["the paper's"]


@pytest.mark.parametrize(
    ("beta", "says"), [(1.23, "die out"), (1.242, "die out"), (1.244, "stay"), (1.255, "stay")]
)
def test_regular_motion_is_never_called_chaos(run, document_network, beta, says):
    for verdicts in run(VERDICTS, document_network, STARTS, beta, 40):
        # Nothing is said of the transient, nor before there is an error.
        assert verdicts[:5] == [""] * 5
        assert "grow" not in verdicts
        assert verdicts[-1] == says


@pytest.mark.parametrize("beta", [1.266, 1.28])
def test_chaos_is_found(run, document_network, beta):
    for verdicts in run(VERDICTS, document_network, STARTS, beta, 30):
        assert verdicts[:5] == [""] * 5
        assert verdicts[-1] == "grow"


def test_a_verdict_is_mean_and_error_of_the_last_stretches_after_the_first(run):
    generator = np.random.default_rng(0)
    for count, spread, wanted in ((6, 2e-3, 5), (9, 1e-2, 8), (30, 1e-2, 10)):
        rates = [5.0, *generator.normal(0.1, spread, count - 1)]
        found = run("spinformer.map.verdict", rates, 2000)
        estimate = mean_estimate(rates[1:][-wanted:])
        assert found["mean"] == pytest.approx(float(estimate.value))
        assert found["error"] == pytest.approx(max(float(estimate.error), 1 / (2000 * wanted)))
        assert (found["count"], found["says"]) == (wanted, "grow")
    assert run("spinformer.map.verdict", rates[:5], 2000) is None
    # Exactly repeating stretches do not make the smallest rate a growth.
    assert run("spinformer.map.verdict", [1e-5] * 11, 2000)["says"] == "stay"
    # Chaos that ended: for a while the last stretches say neither.
    ended = [
        run("spinformer.map.verdict", [0.1] * 8 + [-0.01] * n, 2000)["says"] for n in (0, 7, 10)
    ]
    assert ended == ["grow", "open", "die out"]


# Every sentence that stood on the page, before the scripts of the figure and after.
WITNESS = """window.seen = [];
    new MutationObserver(() => seen.push(document.querySelector('.explorable-told')?.textContent))
        .observe(document.documentElement, {childList: true, subtree: true});"""


@pytest.mark.parametrize(
    ("beta", "verdict"),
    [
        (1.23, "small changes die out"),
        (1.255, "neither grow nor die out"),
        (1.28, "small changes grow: chaos"),
    ],
)
def test_the_sentence_of_the_map_is_what_its_chart_holds(browser, page, beta, verdict):
    page("map", f"&beta={beta}&start=random%201", first=WITNESS)
    turn(browser, "pace", np.log(1000))
    until(browser, lambda: tokens(browser) > 16_000)
    button(browser, "Pause").click()
    text = words(browser)
    assert verdict in text
    told = re.search(r"growth (−?[\d.]+) ± ([\d.]+) nats per token over the last (\d+)", text)
    mean = float(told[1].replace("−", "-"))
    error = float(told[2])
    count = int(told[3])
    at, rates, _ = charts(browser)[RATES]
    ended = tokens(browser) // 2000
    assert at == [2 * n for n in range(1, ended + 1)]
    assert mean == pytest.approx(np.mean(rates[1:][-count:]), abs=1e-5)
    assert error >= float(mean_estimate(rates[1:][-count:]).error) - 1e-5
    # Nothing was said of growth before the twelve thousandth token, and chaos only where it is.
    for sentence in filter(None, browser.execute_script("return seen")):
        token = int(re.match(r"Token ([\d,]+)", sentence)[1].replace(",", ""))
        assert ("growth" in sentence) == (token >= 12_000)
        assert "chaos" not in sentence or "chaos" in verdict


def test_its_charts_hold_the_tokens_of_the_package(browser, page):
    page("map", "&beta=1.21")
    until(browser, lambda: tokens(browser) > 300)
    button(browser, "Pause").click()
    button(browser, "One token").click()
    steps = tokens(browser)
    at, shown = charts(browser)[PATH]
    assert at == list(range(steps - 240, steps))
    network = Network.poclopez2024()
    start = map_data()["the paper's"]["starts"][STARTS[0]]
    context = Context(np.array(start["attention"]), start["position"])
    # The knob of γ has two decimals.
    given = {"beta": 1.21, "gamma": round(network.gamma, 2), "epsilon": network.epsilon}
    wanted, _ = trajectory(network, context, steps=steps, **given)
    np.testing.assert_allclose(shown, wanted[-240:, 0], atol=1e-9)


BLANK = """return document.querySelectorAll('canvas[role=img]')[1].getContext('2d').getImageData(
    0, 0, 100, 100).data.every(value => value === 0)"""


def test_no_chart_holds_anything_at_token_zero(browser, page):
    """Whatever set the text back: a button, a slider, a list, the diagram, the address."""
    page("map")
    ways = {
        "button": lambda: button(browser, "Start again").click(),
        "slider": lambda: turn(browser, "beta", 1.21),
        "list": lambda: browser.execute_script(
            "const list = document.querySelector('[name=network]'); list.value = 'drawn, seed 4';"
            "list.dispatchEvent(new Event('change'))"
        ),
        "diagram": lambda: press(browser, browser.find_element(By.CSS_SELECTOR, "canvas"), (99, 0)),
        "address": lambda: browser.execute_script("location.hash = 'map&beta=1.29'"),
    }
    for name, set_back in ways.items():
        turn(browser, "pace", np.log(2000))
        if button_run := browser.find_elements(By.XPATH, "//button[text()='Run']"):
            button_run[0].click()
        until(browser, lambda: tokens(browser) > 5000)
        button(browser, "Pause").click()
        held = charts(browser)
        assert all(len(rows[0]) > 0 for rows in held.values()), name
        assert not browser.execute_script(BLANK)
        set_back()
        until(browser, lambda: tokens(browser) == 0)
        assert not any(row for rows in charts(browser).values() for row in rows), name
        assert browser.execute_script(BLANK), name
        hidden = "getComputedStyle(b.querySelector('.uplot')).visibility === 'hidden'"
        assert browser.execute_script(
            f"return [...document.querySelectorAll('.explorable-chart')].every(b => {hidden})"
        )
        assert settled(browser).startswith("Token 0 at β = ")
        assert "reported from token 12,000 on" in words(browser)


def test_the_map_runs_by_the_newest_entry_of_its_observer(browser, page):
    """Several may come at once; those before the last are what was."""
    stub = """window.IntersectionObserver = class {
        constructor(call) { window.observed = call; } observe() {} };"""
    page("map", first=stub)
    wait_for(browser, "!!window.observed")
    tell = "observed(arguments[0].map(isIntersecting => ({isIntersecting})))"
    assert tokens(browser) == 0
    browser.execute_script(tell, [False, True])
    until(browser, lambda: tokens(browser) > 0)
    browser.execute_script(tell, [True, False])
    after = browser.execute_async_script(
        "const done = arguments[0], told = document.querySelector('.explorable-counter');"
        "requestAnimationFrame(() => requestAnimationFrame(() => { const first = told.textContent;"
        " requestAnimationFrame(() => requestAnimationFrame("
        "  () => done([first, told.textContent]))); }))"
    )
    assert after[0] == after[1]


# ---- the landscape


def shares(text):
    """{where: percent of the plane} of the landscape's sentence."""
    told = text.partition("Of the plane ")[2]
    return {where: int(n) for n, where in re.findall(r"(\d+) % ([^,.]+)", told)}


# How many hundredths of a canvas have a colour (what is drawn on it is black, white or grey), how
# many have one and are opaque, and how many let shine through what is behind the canvas.
COLOURED = """const sheet = document.querySelectorAll('canvas[role=img]')[arguments[0]];
    const {data} = sheet.getContext('2d').getImageData(0, 0, sheet.width, sheet.height);
    let coloured = 0, opaque = 0, thin = 0;
    for (let n = 0; n < data.length; n += 4) {
        const [r, g, b, a] = data.subarray(n, n + 4);
        thin += a > 0 && a < 160;
        if (a > 60 && Math.max(r, g, b) - Math.min(r, g, b) > 25) {
            coloured += 1;
            opaque += a > 250;
        }
    }
    return [coloured, opaque, thin].map(n => 400 * n / data.length)"""


@pytest.mark.parametrize("small", [False, True])
def test_the_basins_are_those_of_the_step_that_is_set(browser, page, small):
    """By the sentence, by the colours of the plane and by the bars."""
    page("landscape", "&beta=4", small=small)
    found = shares(settled(browser, shares))
    assert list(found) == [f"ends at pattern {n}" for n in (1, 2, 3)]
    coloured, _, thin = browser.execute_script(COLOURED, 0)
    assert coloured > 20
    assert thin < 2
    turn(browser, "step", 2.5)
    text = settled(browser, lambda text: "step 2.50" in text and shares(text))
    assert "has not come to rest" in text
    assert shares(text) == {"does not come to rest": 100}
    # The discs of the patterns alone are coloured, and in the valleys there is not even grey.
    coloured, _, thin = browser.execute_script(COLOURED, 0)
    assert coloured < 2
    assert thin > 5
    if not small:
        assert browser.execute_script(COLOURED, 1)[1] == 0
    button(browser, "Start again").click()
    again = settled(browser, lambda text: "step 1.00" in text and shares(text))
    assert shares(again) == found
    if not small:
        assert browser.execute_script(COLOURED, 1)[1] > 0


@pytest.mark.parametrize(
    ("beta", "step", "rests_anywhere"),
    # The last is near the β at which the average becomes stable: steps are small, but go on.
    [(4.0, 0.5, True), (4.0, 1.0, True), (4.0, 1.8, True), (4.0, 2.5, False), (0.9, 0.05, False)],
)
def test_where_a_path_ends_is_that_of_the_package(run, beta, step, rests_anywhere):
    given = landscape_data()
    generator = np.random.default_rng(round(10 * step))
    queries = generator.uniform(-2, 2, (20, 2))
    patterns = torch.tensor(given["patterns"], dtype=torch.float64)
    text = """(patterns, queries, beta, step, l = spinformer.landscape) => queries.map(
        (x) => l.end(patterns, l.path(patterns, x, beta, step, 300), beta))"""
    found = run(text, given["patterns"], queries, beta, step)
    states = torch.from_numpy(queries)
    for _ in range(300):
        before = states
        states = continuous.update(patterns, states=states, beta=beta, step_size=step)
        states = torch.where(states.norm(dim=-1, keepdim=True) < 1e3, states, before)
    weights = continuous.attention_weights(patterns, states=states, beta=beta)
    rests = (states - before).norm(dim=-1) < 1e-6
    largest = weights.max(dim=-1)
    wanted = torch.where(largest.values > 0.501, largest.indices, -1)
    for end, rest, best in zip(found, rests.tolist(), wanted.tolist(), strict=True):
        assert end == best if rest else end < -1
    assert any(rests) == rests_anywhere


def test_its_relief_is_the_energy_of_the_package(run):
    patterns = landscape_data()["more"]
    found = run(
        "(...given) => Array.from(spinformer.landscape.relief(...given))", patterns, 3, 2, 9
    )
    middles = 2 * (2 * (np.arange(9) + 0.5) / 9 - 1)
    states = np.array([[x, -y] for y in middles for x in middles])
    stored = torch.tensor(patterns, dtype=torch.float64)
    wanted = continuous.energy(stored, states=torch.from_numpy(states), beta=3.0)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


def test_two_patterns_on_one_spot_have_a_larger_basin(browser, page):
    page("landscape", "&beta=4")
    before = shares(settled(browser, shares))
    button(browser, "Second on top of the first").click()
    text = settled(browser, lambda text: "one spot" in text and shares(text))
    assert "rests after" in text
    assert "at patterns 1 and 2 on one spot with weight 1.00 together" in text
    after = shares(text)
    assert set(after) == {"ends at patterns 1 and 2 on one spot", "ends at pattern 3"}
    assert after["ends at patterns 1 and 2 on one spot"] > before["ends at pattern 1"]
    # More than the half of the plane that a single pattern would share with the third.
    assert after["ends at patterns 1 and 2 on one spot"] > 50


@pytest.mark.parametrize(
    ("name", "dear", "knob", "most"),
    # Three theories are followed once each; a module's curves go on with what time is left.
    [
        ("landscape", "relief", "beta", 1),
        ("spins", "search", "j12", 3),
        ("module", "solve", "turn", 99),
    ],
)
def test_a_drag_computes_nothing_before_the_next_picture(browser, page, name, dear, knob, most):
    page(name)
    settled(browser)
    inputs, asked = browser.execute_async_script(f"""
        const done = arguments[0], part = spinformer.{name}, whole = part.{dear};
        let asked = 0;
        part.{dear} = (...given) => {{ asked += 1; return whole(...given); }};
        const knob = document.querySelector("[name={knob}]");
        for (let n = 0; n < 40; n += 1) {{
            knob.value = 0.5 + n / 40;
            knob.dispatchEvent(new Event("input"));
        }}
        const inputs = asked;
        (function wait() {{
            requestAnimationFrame(asked ? () => done([inputs, asked]) : wait);
        }})();""")
    assert inputs == 0
    assert 1 <= asked <= most


# ---- three spins


def spins_setting(couplings, fields, beta):
    names = ("j12", "j13", "j23", "h1", "h2", "h3", "beta")
    return "".join(
        f"&{name}={value}" for name, value in zip(names, (*couplings, *fields, beta), strict=True)
    )


def ising(couplings, fields, beta):
    matrix = np.zeros((3, 3))
    matrix[[0, 0, 1], [1, 2, 2]] = couplings
    return {"couplings": matrix + matrix.T, "fields": np.array(fields), "beta": beta}


CASES = {
    # Of two solutions of TAP the curves once followed the worse, and the text told the better.
    "two solutions": ((1.6, -0.3, -1.45), (1.8, -0.35, -1.5), 1.61),
    "agree": ((1.0, 1.0, 1.0), (0.0, 0.0, 0.0), 0.8),
    "all frustrated": ((-1.0, -1.0, -1.0), (0.0, 0.0, 0.0), 2.5),
    "cold": ((0.85, -1.3, 1.15), (-0.6, 0.25, 0.1), 2.98),
}
MAGNETIZATION = "Magnetization of spin 1"
COST = "Free energy of the better solution minus the exact one"


@pytest.mark.parametrize("case", CASES)
def test_the_sentence_of_the_spins_is_a_point_of_their_curves(browser, page, case):
    page("spins", spins_setting(*CASES[case]))
    beta = CASES[case][2]
    text = settled(browser, lambda text: f"β = {beta:.2f}" in text)
    held = charts(browser)
    betas, *lines = held[MAGNETIZATION]
    at = betas.index(beta)
    exact = solve_exact(**ising(*CASES[case]))
    told = dict(re.findall(r"(exact|naive|tap|adaptive) (-?[\d.]+\d)", text))
    assert float(told["exact"]) == pytest.approx(exact.magnetization[0], abs=6e-4)
    assert lines[-1][at] == pytest.approx(exact.magnetization[0], abs=1e-9)
    for n, method in enumerate(("naive", "tap", "adaptive")):
        both = [lines[2 * n][at], lines[2 * n + 1][at]]
        assert min(abs(float(told[method]) - one) for one in both) < 6e-4, method
        assert (f"{method} {told[method]} (" in text) == (abs(both[0] - both[1]) > 1e-3)
        # The curve of the error is that of the solution that the sentence names.
        costs = held[COST][1 + n]
        assert costs[at] is not None
    if case == "two solutions":
        assert "tap 1.000 (the better of two solutions)" in text


@pytest.mark.parametrize("case", CASES)
def test_the_branches_are_maxima_of_the_package(run, case):
    """Each point of each curve solves the package's equations, and none is a saddle."""
    couplings, fields, _ = CASES[case]
    betas = np.linspace(0.02, 3.0, 31)
    for method in ("naive", "tap", "adaptive"):
        found = run("spinformer.spins.branches", method, couplings, fields, betas)
        for beta, points in list(zip(betas, found, strict=True))[::6]:
            assert points
            for point in points:
                system = ising(couplings, fields, float(beta))
                # Above the bound on ln Z the package says diverged: a solution all the same.
                start = np.array(point["m"])
                wanted = solve_mean_field(**system, method=method, start=start, throw=False)
                np.testing.assert_allclose(point["m"], wanted.magnetization, atol=1e-7)
                assert point["logZ"] == pytest.approx(float(wanted.log_partition), abs=1e-9)
                assert wanted.stable or wanted.status == Status.DIVERGED


def test_a_curve_ends_only_where_its_solution_does(run):
    """Along β the number of solutions changes at a fold, not from point to point."""
    couplings, fields, _ = CASES["two solutions"]
    betas = np.linspace(0.02, 3.0, 61)
    found = run("spinformer.spins.branches", "tap", couplings, fields, betas)
    counts = np.array([len(points) for points in found])
    assert np.abs(np.diff(counts)).sum() == 1
    assert (counts[0], counts[-1]) == (1, 2)


# ---- a module of spins


@pytest.mark.parametrize("solver", ["fixed point", "one step"])
def test_the_sentence_of_the_module_is_a_point_of_its_curves(browser, page, solver):
    page("module", f"&strength=0.2&solver={solver.replace(' ', '%20')}")
    ours = "Largest correlation of two spins"
    for strength in (0.8, 0.46):
        turn(browser, "strength", strength)
        # The curves are whole: no place on them is empty.
        until(browser, lambda: None not in charts(browser)[ours][1])
        text = settled(browser, lambda text, g=strength: f"g = {g:.2f}" in text)
        told = re.search(r"off by (\d+) %; the meter says (\d+) %.*\(largest ([\d.]+)\)", text)
        held = charts(browser)
        strengths, errors, _, meters = held["How far the spins are from the exact ones"]
        at = strengths.index(strength)
        assert float(told[1]) == pytest.approx(100 * errors[at], abs=0.51)
        assert float(told[2]) == pytest.approx(100 * meters[at], abs=0.51)
        assert float(told[3]) == pytest.approx(held[ours][2][at], abs=0.006)
        # The point at g is one of the curve: between its neighbours.
        for curve in (errors, meters, held[ours][1], held[ours][2]):
            low, high = sorted((curve[at - 1], curve[at + 2]))
            assert low - 0.01 <= curve[at] <= high + 0.01


# ---- a memory of pictures


PARTS = {
    "its upper half": lambda n: n < 128,
    "its left half": lambda n: n % 16 < 8,
    "every third pixel": lambda n: n % 3 == 0,
    "its upper quarter": lambda n: n < 64,
}


def recalled(run, strength, beta, part):
    """Of each picture asked for: weights after one step's look, and of the rest."""
    n = np.arange(256)
    pictures = np.array(
        [run("spinformer.recall.decode", t, 256) for t in recall_data()["pictures"]]
    )
    stored = pictures * np.array([1.0, strength, 1.0])[:, None]
    queries = np.where(PARTS[part](n), stored, 0.0)
    text = """(stored, queries, beta, r = spinformer.recall) => queries.map((query) => [
        r.weights(stored, query, beta),
        r.weights(stored, r.rest(stored, query, beta, 200).state, beta)])"""
    found = np.array(run(text, stored, queries, beta / 16))
    patterns = torch.from_numpy(stored)
    rest = continuous.retrieve(
        patterns, queries=torch.from_numpy(queries), beta=beta / 16, tolerance=1e-7, max_steps=2000
    ).states
    wanted = continuous.attention_weights(patterns, states=rest, beta=beta / 16)
    np.testing.assert_allclose(found[:, 1], wanted, atol=1e-3)
    return found[:, 0], found[:, 1]


@pytest.mark.parametrize("part", PARTS)
def test_what_the_page_says_of_the_pictures_is_so_for_every_part(run, part):
    once, rest = recalled(run, 1.0, 1.0, part)
    assert rest.argmax(axis=1).tolist() == [0, 1, 2]
    if "half" in part:
        assert once.max(axis=1).min() > 0.98
    assert recalled(run, 1.0, 0.1, part)[1].max() < 0.6
    for beta in (0.1, 0.2):
        rest = recalled(run, 2.0, beta, part)[1]
        assert rest.argmax(axis=1).tolist() == [1, 1, 1]
        assert rest.max(axis=1).min() > 0.6
    # As attention has it, the strong picture takes the place of one of the others alone.
    assert recalled(run, 2.0, 1.0, part)[1].argmax(axis=1).tolist() == [0, 1, 1]


# ---- a telephone, and other widths


@pytest.fixture
def screen(browser):
    """`screen(width)`: a window as wide as that, until the test is over."""

    def show(width, **more):
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False} | more
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    yield show
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.fixture
def telephone(browser, screen):
    """A narrow screen that is touched: `swipe(places)` in pixels of the window, one by one."""
    screen(390, deviceScaleFactor=2, mobile=True)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})

    def swipe(*places):
        for n, (x, y) in enumerate(places):
            send(browser, "touchMove" if n else "touchStart", [{"x": x, "y": y}])
        send(browser, "touchEnd", [])

    yield swipe
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def send(browser, kind, points):
    browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


def scrolled(browser):
    return browser.execute_script("return Math.round(scrollY)")


def sheet_box(browser, place=0):
    """Left, top, width and height of a canvas that takes presses, brought to the middle."""
    return browser.execute_script(
        "const sheet = document.querySelectorAll('.explorable-press')[arguments[0]];"
        "sheet.scrollIntoView({block: 'center', behavior: 'instant'});"
        "const box = sheet.getBoundingClientRect();"
        "return [box.left, box.top, box.width, box.height]",
        place,
    )


def knob_values(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('input, select')].map(knob => knob.value)"
    )


# A place of the sheet where nothing is taken hold of, in parts of its width and height.
FREE = {
    "landscape": (0.5, 0.97),
    "spins": (0.06, 0.2),
    "module": (0.06, 0.1),
    "map": (0.5, 0.8),
    "recall": (0.5, 0.9),
}


@pytest.mark.parametrize("name", FREE)
def test_a_thumb_scrolls_past_a_figure_and_changes_nothing(browser, page, telephone, name):
    page(name)
    if name == "map":
        button(browser, "Pause").click()
        button(browser, "Start again").click()
    settled(browser, lambda text: name != "landscape" or shares(text))
    left, top, width, height = sheet_box(browser)
    x = left + FREE[name][0] * width
    y = top + FREE[name][1] * height
    before = scrolled(browser)
    told = words(browser)
    knobs = knob_values(browser)
    telephone(*((x, y - 20 * n) for n in range(12)))
    until(browser, lambda: scrolled(browser) > before + 60)
    assert (words(browser), knob_values(browser)) == (told, knobs)
    assert "pictures=" not in browser.execute_script("return location.hash")


def test_a_thumb_drags_a_pattern_and_drops_the_query(browser, page, telephone):
    page("landscape", "&beta=8&points=1,0;-1,0&query=0.5,1")
    settled(browser, lambda text: "at pattern 1 " in text)
    left, top, width, height = sheet_box(browser)
    unit = (min(width, height) / 2 - 4) / 2.2
    x = left + width / 2
    y = top + height / 2
    before = scrolled(browser)
    telephone((x - unit, y), *((x - unit, y - 10 * n) for n in range(1, 7)))
    moved = f"points=1%2C0%3B-1%2C{round(60 / unit, 3):g}"[:22]
    until(browser, lambda: moved in browser.execute_script("return location.hash"))
    assert scrolled(browser) == before
    # A tap drops the query where it is.
    telephone((x - 0.5 * unit, y - 1.5 * unit))
    settled(browser, lambda text: "at pattern 2 " in text)


def test_a_thumb_chooses_a_picture_and_then_draws_in_it(browser, page, telephone):
    page("recall")
    left, top, width, height = sheet_box(browser, 1)
    # Pixels are wide enough for a finger, and the whole picture is on the canvas.
    cell = int(min(width, height) // 16)
    assert cell >= 9
    start = left + (width - 16 * cell) // 2
    before = scrolled(browser)

    def pixel(row, column):
        pictures = browser.execute_script("return decodeURIComponent(location.hash)")
        if "pictures=" not in pictures:
            return None
        digits = pictures.partition("pictures=")[2].split(".")[1]
        return int(digits[4 * row + column // 4], 16) >> (3 - column % 4) & 1

    def place(row, column):
        return start + (column + 0.5) * cell, top + (row + 0.5) * cell

    # Of the heart these are paper.
    telephone(place(0, 0))
    until(browser, lambda: pixel(0, 0) == 1)
    telephone(*(place(row, 15) for row in range(4)))
    until(browser, lambda: all(pixel(row, 15) == 1 for row in range(4)))
    assert pixel(14, 0) == 0
    assert scrolled(browser) == before


def test_on_the_front_page_the_plane_stands_beside_its_settings(browser, page, screen):
    boxes = """return ['.explorable-knobs', '.explorable-told', 'canvas'].map(chosen => {
        const box = document.querySelector(chosen).getBoundingClientRect();
        return [box.left, box.right, box.top, box.bottom]; })"""
    page("landscape", small=True)
    screen(1000)
    knobs, told, plane = until(browser, lambda: browser.execute_script(boxes))
    assert max(knobs[1], told[1]) <= plane[0]
    assert told[2] < plane[3]
    screen(390)
    until(browser, lambda: (b := browser.execute_script(boxes)) and b[1][3] <= b[2][2])


@pytest.mark.parametrize("name", ["landscape", "spins", "map", "recall"])
def test_a_figure_fits_its_window_again_after_a_resize(browser, page, screen, name):
    page(name)
    fits = """return [...document.querySelectorAll('canvas')].every(sheet => {
        const whole = sheet.closest('.explorable-panel').clientWidth, scale = devicePixelRatio;
        return sheet.clientWidth <= whole + 1
            && Math.abs(sheet.width - sheet.clientWidth * scale) <= 2
            && Math.abs(sheet.height - sheet.clientHeight * scale) <= 2; })
        && [...document.querySelectorAll('.explorable-chart')].every(
            box => Math.abs(box.plot.width - box.clientWidth) <= 1)"""
    for width in (1300, 700, 390):
        screen(width)
        until(browser, lambda: browser.execute_script(fits))

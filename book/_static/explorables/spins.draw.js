// Three spins: pull fields and couplings, turn β, and see what three theories say.
"use strict";
(() => {
  const {frame, spins} = spinformer;
  const NAME = "spins";
  const METHODS = {naive: "blue", tap: "orange", adaptive: "green"};
  const METHOD_NAMES = Object.keys(METHODS);
  const KNOBS = {
    beta: {label: "β, inverse temperature", low: 0.02, high: 3, step: 0.02, digits: 2},
    j12: {label: "coupling of 1 and 2", low: -2, high: 2, step: 0.05, digits: 2},
    j13: {label: "coupling of 1 and 3", low: -2, high: 2, step: 0.05, digits: 2},
    j23: {label: "coupling of 2 and 3", low: -2, high: 2, step: 0.05, digits: 2},
    h1: {label: "field on 1", low: -2, high: 2, step: 0.05, digits: 2},
    h2: {label: "field on 2", low: -2, high: 2, step: 0.05, digits: 2},
    h3: {label: "field on 3", low: -2, high: 2, step: 0.05, digits: 2},
  };
  const GRID = 61, PAIRS = [[0, 1], [0, 2], [1, 2]];

  function build(place) {
    const given = spinformer.data.spins;
    const state = {};
    // The curves that are drawn, those that are being computed, and whether they will be too old.
    let held = null, curves = null, work = null, stale = true;

    const knobs = frame.element(place, "div", {class: "explorable-knobs"});
    frame.take(KNOBS, state, given);
    const shown = frame.sliders(knobs, KNOBS, state, set);
    const buttons = frame.element(place, "div", {class: "explorable-buttons"});
    for (const [word, values] of Object.entries(given.cases)) {
      frame.button(buttons, word, () => set(values));
    }
    const tell = frame.teller(place);
    const panels = frame.element(place, "div", {class: "explorable-panels"});
    const triangle = frame.canvas(panels, {height: 300, draw: drawTriangle,
      label: "The spins: pull a disc up or down to change its field (arrow beside it), the middle of a "
        + "line to change its coupling. Arrows in the discs: exact magnetization."});
    const side = frame.element(panels, "div");
    const values = frame.chart(side, {height: 170, x: "β", y: "m₁", range: {y: [-1.05, 1.05]},
      series: ["blue", "blue", "orange", "orange", "green", "green", "text"],
      names: ["naive", "", "TAP", "", "adaptive", "", "exact"],
      label: "Magnetization of spin 1: exact (in the color of this text), naive (blue), TAP (orange), "
        + "adaptive TAP (green); two lines of one color are two solutions."});
    const costs = frame.chart(side, {height: 150, x: "β", y: "error of F", series: Object.values(METHODS),
      names: ["naive", "TAP", "adaptive"],
      label: "Free energy of the better solution minus the exact one; naive is never below zero."});

    function set(change, write = true) {
      frame.take(KNOBS, state, change);
      for (const name of Object.keys(KNOBS)) shown[name].show(state[name]);
      const fixed = Object.keys(change).every((name) => name === "beta");
      if (!fixed) stale = true;
      if (write) frame.writeState(NAME, state);
      tick();
    }

    const tick = frame.ticker(compute, draw);

    function couplings() { return [state.j12, state.j13, state.j23]; }
    function fields() { return [state.h1, state.h2, state.h3]; }

    // The curves along β, a piece at a time, for the fields and couplings that are set at its start.
    function* follow() {
      const {low, high} = KNOBS.beta, given = [couplings(), fields()];
      const betas = Array.from({length: GRID}, (_, n) => low + ((high - low) * n) / (GRID - 1));
      const points = betas.map((beta) => ({beta, exact: spins.exact(...given, beta)}));
      for (const method of METHOD_NAMES) {
        const found = yield* spins.search(method, ...given, betas);
        found.forEach((here, n) => { points[n][method] = here; });
      }
      return {given, points};
    }

    // As much of the curves as fits into a picture's time. A hand that goes on moving does not begin
    // them anew: they are drawn as soon as they are done, and then follow it.
    function compute(until) {
      if (stale && !work) [work, stale] = [follow(), false];
      while (work && performance.now() < until + 4) {
        const {done, value} = work.next();
        if (done) [curves, work] = [value, null];
      }
      return work !== null || stale;
    }

    // The point of the curves at the β that is set, started from its neighbours on them.
    function here() {
      const {given, points} = curves, step = (KNOBS.beta.high - KNOBS.beta.low) / (GRID - 1);
      const beside = points.filter(({beta}) => Math.abs(beta - state.beta) < step);
      const found = METHOD_NAMES.map((method) => [method,
        spins.solutions(method, ...given, state.beta, beside.flatMap((point) => point[method]))]);
      return {beta: state.beta, exact: spins.exact(...given, state.beta), ...Object.fromEntries(found)};
    }

    // What the curves show at the β that is set the sentence says: it reads one of their points.
    function draw() {
      triangle.paint();
      if (!curves) return;
      const at = here();
      const points = [...curves.points.filter(({beta}) => Math.abs(beta - at.beta) > 1e-9), at]
        .sort((a, b) => a.beta - b.beta);
      const betas = points.map(({beta}) => beta);
      const pairs = METHOD_NAMES.map((method) => points.map((point) => spins.bestAndOther(point[method])));
      // A theory's two lines: the upper and the lower of the two.
      const lines = pairs.flatMap((pair) => [Math.max, Math.min].map((which) => pair.map((two) =>
        (two.length ? which(...two.map(({m}) => m[0])) : null))));
      // The last line is drawn on top: the truth.
      values.setData([betas, ...lines, points.map(({exact}) => exact.m[0])]);
      costs.setData([betas, ...pairs.map((pair) => pair.map(([best], n) =>
        (best ? (points[n].exact.logZ - best.logZ) / betas[n] : null)))]);
      const told = METHOD_NAMES.map((method) => {
        const [best, other] = spins.bestAndOther(at[method]), count = at[method].length;
        if (!best) return `${method} does not converge`;
        const which = best.logZ - other.logZ < 1e-9 ? "one" : "the better", all = count === 2 ? "two" : count;
        return `${method} ${best.m[0].toFixed(3)}${count > 1 ? ` (${which} of ${all} solutions)` : ""}`;
      });
      tell(`β = ${state.beta.toFixed(2)}, magnetization of spin 1: exact ${at.exact.m[0].toFixed(3)}, `
        + `${told.join(", ")}.`);
    }

    function geometry(width, height) {
      const size = Math.min(width / 2, height / 1.9) - 34, x = width / 2, y = height * 0.58;
      return [[x, y - size], [x - 0.87 * size, y + size / 2], [x + 0.87 * size, y + size / 2]];
    }

    function drawTriangle(context, width, height) {
      context.clearRect(0, 0, width, height);
      const corners = geometry(width, height);
      context.font = "12px sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      PAIRS.forEach(([i, j], pair) => {
        const strength = couplings()[pair];
        context.strokeStyle = frame.color(strength < 0 ? "red" : "blue");
        context.lineWidth = 1 + 4 * Math.abs(strength);
        context.setLineDash(strength < 0 ? [8, 5] : []);
        context.beginPath(); context.moveTo(...corners[i]); context.lineTo(...corners[j]); context.stroke();
        context.setLineDash([]);
        const [x, y] = [0, 1].map((axis) => (corners[i][axis] + corners[j][axis]) / 2);
        context.fillStyle = frame.color("paper");
        context.fillRect(x - 20, y - 10, 40, 20);
        context.fillStyle = frame.color("text");
        context.fillText(strength.toFixed(2), x, y);
      });
      const {m} = spins.exact(couplings(), fields(), state.beta);
      const arrow = (x, y, length, hue) => {
        context.strokeStyle = context.fillStyle = frame.color(hue);
        context.lineWidth = 3;
        context.beginPath(); context.moveTo(x, y + length / 2); context.lineTo(x, y - length / 2);
        context.stroke();
        const tip = Math.sign(length) * Math.min(7, Math.abs(length));
        context.beginPath(); context.moveTo(x, y - length / 2); context.lineTo(x - 5, y - length / 2 + tip);
        context.lineTo(x + 5, y - length / 2 + tip); context.fill();
      };
      corners.forEach(([x, y], i) => {
        context.fillStyle = frame.color("paper");
        context.strokeStyle = frame.color("text");
        context.lineWidth = held === `h${i + 1}` ? 3 : 1.5;
        context.beginPath(); context.arc(x, y, 24, 0, 7); context.fill(); context.stroke();
        arrow(x, y, 38 * m[i], "text");
        arrow(x + 34, y, 18 * fields()[i], "violet");
        context.fillStyle = frame.color("text");
        const [out, up] = [[0, -34], [-26, 26], [26, 26]][i];
        context.fillText(String(i + 1), x + out, y + up);
      });
    }

    // The field or coupling nearest to a place, if it is no farther than that.
    function under([x, y], reach) {
      const corners = geometry(triangle.sheet.clientWidth, triangle.sheet.clientHeight);
      const places = {};
      corners.forEach((corner, i) => { places[`h${i + 1}`] = corner; });
      PAIRS.forEach(([i, j]) => {
        places[`j${i + 1}${j + 1}`] = [0, 1].map((axis) => (corners[i][axis] + corners[j][axis]) / 2);
      });
      const far = ([, [px, py]]) => Math.hypot(px - x, py - y);
      const [nearest] = Object.entries(places).sort((a, b) => far(a) - far(b));
      return far(nearest) < reach ? nearest[0] : null;
    }

    // Where the hand took hold, and of which value: sums of small moves would be rounded each.
    let grip = {y: 0, value: 0};
    frame.hand(triangle.sheet, {
      down(at) {
        held = under(at, 40);
        grip = {y: at[1], value: state[held]};
        triangle.paint();
      },
      move([, y]) { if (held) set({[held]: grip.value + (grip.y - y) / 60}); },
      up() { held = null; triangle.paint(); },
      // A thumb needs room beside the discs to scroll.
      grabs: (at) => under(at, 28) !== null,
    });

    set(frame.readState(NAME), false);
    frame.listen(NAME, () => set(frame.readState(NAME), false), tick);
  }

  frame.start(NAME, build);
})();

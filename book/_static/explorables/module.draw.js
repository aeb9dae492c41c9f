// A transformer module as spins: turn tokens in the plane, see what its output is made of and how
// far it is from the exact answer.
"use strict";
(() => {
  const {frame, module} = spinformer;
  const NAME = "module";
  const HUES = ["blue", "orange", "green"];
  const PARTS = {residual: "blue", mixing: "orange", onsager: "green", response: "violet"};
  const SOLVERS = ["fixed point", "saddle", "one step"];
  const KNOBS = {
    strength: {label: "g, strength of couplings", low: 0.02, high: 3, step: 0.02, digits: 2},
    beta: {label: "β, inverse temperature", low: 0.1, high: 2, step: 0.05, digits: 2},
    gamma: {label: "γ, sharpness of attention", low: 0, high: 4, step: 0.05, digits: 2},
    turn: {label: "turn of the query map, degrees", low: -180, high: 180, step: 5, digits: 0},
  };
  const REACH = 1.7, GRID = 31, NODES = 40;

  function build(place) {
    const given = spinformer.data.module;
    const state = {solver: given.solver, token: 0, tokens: given.tokens.map((x) => [...x])};
    let curve = null, found, truth;

    const knobs = frame.element(place, "div", {class: "explorable-knobs"});
    frame.take(KNOBS, state, given);
    const shown = frame.sliders(knobs, KNOBS, state, (change) => set(change));
    shown.solver = frame.choice(knobs, {name: "solver", label: "how it is solved", options: SOLVERS,
      value: state.solver, change: (solver) => set({solver})});
    shown.token = frame.choice(knobs, {name: "token", label: "token taken apart",
      options: ["1", "2", "3"], value: "1", change: (word) => set({token: Number(word) - 1})});
    const buttons = frame.element(place, "div", {class: "explorable-buttons"});
    for (const [word, values] of Object.entries(given.cases)) {
      frame.button(buttons, word, () => set({...values, tokens: values.tokens.map((x) => [...x])}));
    }
    const tell = frame.teller(place);
    const panels = frame.element(place, "div", {class: "explorable-panels"});
    const left = frame.element(panels, "div"), side = frame.element(panels, "div");
    const plane = frame.canvas(left, {height: 300, draw: drawPlane,
      label: "Tokens (discs) act as fields: drag them. Thick arrows: what the module returns; "
        + "rings: the exact answer. Lines between discs: couplings, both directions together."});
    frame.keyed(plane, "Plane of the tokens. Keys 1 to 3 take a token, arrows move it.");
    const chain = frame.canvas(left, {height: 250, draw: drawParts,
      label: "One token taken apart, tip to tail: residual (blue), mixing (orange), higher orders "
        + "(green), response of the couplings (violet); ring: the exact answer."});
    const errors = frame.chart(side, {height: 220, x: "g", y: "error of ⟨σ⟩", series: ["red", "grey", "violet"],
      names: ["error", "", "meter"], range: {x: [0, KNOBS.strength.high], y: [0, 1]},
      label: "How far the spins are from the exact ones, relative to their size (red), and what the "
        + "meter says of it without knowing them (violet). Grey: where g stands."});
    const largest = frame.chart(side, {height: 220, x: "g", y: "largest |C|",
      series: ["text", "blue", "red", "grey"],
      names: ["exact", "module", "", ""], range: {x: [0, KNOBS.strength.high], y: [0, 2]},
      label: "Largest correlation of two spins: the module's (blue) and the exact one (dark on a "
        + "light page, light on a dark one). Above one (red line) no spins can have it."});

    // ---- state

    function set(change, write = true) {
      frame.take(KNOBS, state, change);
      if (SOLVERS.includes(change.solver)) state.solver = change.solver;
      if ([0, 1, 2].includes(change.token)) state.token = change.token;
      if (change.tokens) state.tokens = change.tokens;
      for (const name of Object.keys(KNOBS)) shown[name].show(state[name]);
      shown.solver.show(state.solver);
      shown.token.show(String(state.token + 1));
      const names = Object.keys(change);
      // The curves run over g, and one token or another does not change them.
      if (!curve || names.some((name) => name !== "strength" && name !== "token")) {
        curve = [];
      }
      // Only noted here: a drag changes more often than a picture is drawn.
      found = null;
      if (write) frame.writeState(NAME, words());
      tick();
    }

    function words() {
      const told = Object.fromEntries(Object.keys(KNOBS).map((name) => [name, state[name]]));
      return {...told, solver: state.solver, token: state.token + 1,
        tokens: state.tokens.map((x) => x.map((entry) => Number(entry.toFixed(3))).join(",")).join(";")};
    }

    function read() {
      const {tokens, token, ...rest} = frame.readState(NAME);
      const change = {...rest};
      if (token) change.token = Number(token) - 1;
      const points = (tokens ?? "").split(";").map((text) => text.split(",").map(Number));
      const fits = (x) => x.length === 2 && x.every((entry) => Math.abs(entry) <= REACH);
      if (points.length === 3 && points.every(fits)) change.tokens = points;
      set(change, false);
    }

    // ---- pictures

    const strengths = Array.from({length: GRID}, (_, n) =>
      KNOBS.strength.low + ((KNOBS.strength.high - KNOBS.strength.low) * n) / (GRID - 1));

    // What the charts show of one strength. An iteration that did not end has no answer to compare;
    // a single step is what it is.
    function point({m, meter}, exact) {
      const answers = meter.converged || state.solver === "one step";
      return {
        error: answers ? module.error(m, exact.m) : null,
        meter: answers ? meter.distance + meter.correction : null,
        ours: answers ? meter.largest : null,
        exact: Math.max(...[[0, 1], [0, 2], [1, 2]].map(([i, k]) => Math.abs(exact.c[i][k]))),
      };
    }

    // As many points of the curves as fit into a picture's time.
    function fillCurve(until) {
      while (curve.length < GRID && performance.now() < until) {
        const knobs = {...state, strength: strengths[curve.length]};
        curve.push(point(module.solve(state.tokens, knobs),
          module.solveExactly(state.tokens, knobs, NODES)));
      }
      return curve.length < GRID;
    }

    const tick = frame.ticker(fillCurve, draw);

    function draw() {
      if (!found) {
        found = module.solve(state.tokens, state);
        truth = module.solveExactly(state.tokens, state);
      }
      plane.paint();
      chain.paint();
      const now = point(found, truth);
      // The present g as an upright line: two points of its own among those of the curves.
      const at = strengths.findIndex((x) => x >= state.strength);
      const among = (line, own) => [...line.slice(0, at), own, own, ...line.slice(at)];
      const xs = among(strengths, state.strength);
      const along = (name) =>
        among(strengths.map((_, n) => curve[n]?.[name] ?? null), now[name]);
      const upright = (high) => xs.map((_, n) => (n === at ? 0 : n === at + 1 ? high : null));
      errors.setData([xs, along("error"), upright(1), along("meter")]);
      largest.setData([xs, along("exact"), along("ours"), xs.map(() => 1), upright(2)]);
      const {meter} = found, percent = (x) => `${(100 * x).toFixed(0)} %`;
      const lengths = Object.keys(PARTS).map((name) => Math.hypot(...found[name][state.token]).toFixed(2));
      tell(`g = ${state.strength.toFixed(2)}, token ${state.token + 1}: residual ${lengths[0]}, mixing `
        + `${lengths[1]}, higher orders ${lengths[2]}, response ${lengths[3]}. `
        + (now.error === null ? "No fixed point was found. "
          : `The spins are off by ${percent(now.error)}; the meter says ${percent(now.meter)}. `)
        + `Its correlations are ${meter.physical ? "possible" : "impossible"} for spins `
        + `(largest ${meter.largest.toFixed(2)}).`);
    }

    function arrow(context, from, to, hue, width) {
      const length = Math.hypot(to[0] - from[0], to[1] - from[1]);
      const angle = Math.atan2(to[1] - from[1], to[0] - from[0]), tip = Math.min(3 + 2 * width, length);
      context.strokeStyle = context.fillStyle = frame.color(hue);
      context.lineWidth = width;
      context.beginPath(); context.moveTo(...from);
      context.lineTo(to[0] - 0.7 * tip * Math.cos(angle), to[1] - 0.7 * tip * Math.sin(angle));
      context.stroke();
      context.beginPath(); context.moveTo(...to);
      for (const turn of [-0.4, 0.4]) {
        context.lineTo(to[0] - tip * Math.cos(angle + turn), to[1] - tip * Math.sin(angle + turn));
      }
      context.fill();
    }

    function ring(context, at, hue) {
      context.strokeStyle = frame.color(hue);
      context.lineWidth = 2;
      context.beginPath(); context.arc(...at, 6, 0, 7); context.stroke();
    }

    function drawPlane(context, width, height) {
      context.clearRect(0, 0, width, height);
      if (!found) return;
      const {place: at, unit} = frame.geometry(width, height, REACH), origin = at([0, 0]);
      context.strokeStyle = frame.color("grid");
      context.lineWidth = 1;
      context.beginPath(); context.arc(...origin, unit, 0, 7); context.stroke();
      for (const [i, k] of [[0, 1], [0, 2], [1, 2]]) {
        context.strokeStyle = frame.color("grey");
        context.lineWidth = 0.3 + 3 * Math.min(3, found.b[i][k]);
        context.globalAlpha = 0.45;
        context.beginPath(); context.moveTo(...at(state.tokens[i])); context.lineTo(...at(state.tokens[k]));
        context.stroke();
        context.globalAlpha = 1;
      }
      context.font = "bold 12px sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      state.tokens.forEach((token, i) => {
        arrow(context, origin, at(token), HUES[i], 1);
        arrow(context, origin, at(found.output[i]), HUES[i], 4);
        ring(context, at(truth.output[i]), HUES[i]);
      });
      state.tokens.forEach((token, i) => {
        const [x, y] = at(token);
        context.fillStyle = frame.color(HUES[i]);
        context.beginPath(); context.arc(x, y, 10, 0, 7); context.fill();
        context.strokeStyle = frame.color("text");
        context.lineWidth = state.token === i ? 3 : 1;
        context.stroke();
        context.fillStyle = frame.color("paper");
        context.fillText(String(i + 1), x, y);
      });
    }

    function drawParts(context, width, height) {
      context.clearRect(0, 0, width, height);
      if (!found) return;
      const points = [[0, 0]];
      for (const name of Object.keys(PARTS)) {
        points.push(points.at(-1).map((x, a) => x + found[name][state.token][a]));
      }
      const reach = 1.15 * Math.max(0.8, ...[...points, truth.output[state.token]].flat().map(Math.abs));
      const {place: at, unit} = frame.geometry(width, height, reach);
      context.strokeStyle = frame.color("grid");
      context.lineWidth = 1;
      context.beginPath(); context.arc(...at([0, 0]), unit, 0, 7); context.stroke();
      arrow(context, at([0, 0]), at(points.at(-1)), "text", 1);
      Object.values(PARTS).forEach((hue, n) => arrow(context, at(points[n]), at(points[n + 1]), hue, 3));
      ring(context, at(truth.output[state.token]), "text");
    }

    // ---- hands

    function move(point) {
      const tokens = state.tokens.map((x) => [...x]);
      tokens[state.token] = point.map((entry) => Number(Math.min(REACH, Math.max(-REACH, entry)).toFixed(3)));
      set({tokens});
    }

    let held = false;
    function here() { return frame.geometry(plane.sheet.clientWidth, plane.sheet.clientHeight, REACH); }

    // The token under a hand, -1 if none is near.
    function under(hand) {
      const {place: at} = here();
      const distances = state.tokens.map((x) => Math.hypot(at(x)[0] - hand[0], at(x)[1] - hand[1]));
      const nearest = distances.indexOf(Math.min(...distances));
      return distances[nearest] < 30 ? nearest : -1;
    }
    frame.hand(plane.sheet, {
      down(hand) {
        const token = under(hand);
        held = token >= 0;
        if (held) set({token});
      },
      move(hand) { if (held) move(here().back(hand)); },
      up() { held = false; },
      grabs: (hand) => under(hand) >= 0,
    });
    plane.sheet.addEventListener("keydown", (event) => {
      const ways = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
      if (["1", "2", "3"].includes(event.key)) set({token: Number(event.key) - 1});
      else if (event.key in ways) {
        move(state.tokens[state.token].map((entry, a) => entry + 0.05 * ways[event.key][a]));
      } else return;
      event.preventDefault();
    });

    read();
    frame.listen(NAME, read, tick);
  }

  frame.start(NAME, build);
})();

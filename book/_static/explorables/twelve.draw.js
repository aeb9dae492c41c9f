// Twelve spins: connect them as you like, and see how far every theory is from the sum over all states.
"use strict";
(() => {
  const {frame, twelve} = spinformer;
  const NAME = "twelve";
  const METHODS = {naive: "blue", tap: "orange", bethe: "green"};
  const TITLES = {naive: "naive", tap: "TAP", bethe: "Bethe"};
  const KNOBS = {
    beta: {label: "β, inverse temperature", low: 0.02, high: 1.5, step: 0.01, digits: 2},
    field: {label: "field on every spin", low: -1, high: 1, step: 0.02, digits: 2},
  };
  const POINTS = 31, GRIP = 26;
  const SITES = Array.from({length: twelve.COUNT}, (_, i) => i);
  const ring = SITES.map((i) => [Math.min(i, (i + 1) % 12), Math.max(i, (i + 1) % 12), 1]);
  const pairs = SITES.flatMap((i) => SITES.slice(i + 1).map((j) => [i, j]));
  // Graphs that tell something.
  const CASES = {
    "A ring": {edges: ring, beta: 0.8, field: 0.1},
    "A tree": {edges: SITES.slice(1).map((i) => [Math.floor((i - 1) / 2), i, 1]), beta: 0.8, field: 0.1},
    "All agree": {edges: pairs.map(([i, j]) => [i, j, 1]), beta: 0.12, field: 0.02},
    // The sign that a hash gives: half of the triangles cannot be satisfied.
    "A spin glass": {edges: pairs.filter(([i, j]) => (7 * i + 5 * j) % 3 !== 0)
      .map(([i, j]) => [i, j, (i * j + i + 3 * j) % 5 < 2 ? -1 : 1]), beta: 0.25, field: 0.1},
    "Triangles against each other": {edges: SITES.flatMap((i) => [1, 2].map((far) => {
      const j = (i + far) % 12;
      return [Math.min(i, j), Math.max(i, j), -1];
    })), beta: 0.6, field: 0.2},
  };

  function build(place) {
    const state = {edges: [], beta: 0.8, field: 0.1};
    let first = null, cursor = 0, curves = null, moving = 0;

    const knobs = frame.element(place, "div", {class: "explorable-knobs"});
    frame.take(KNOBS, state, CASES["A ring"]);
    const shown = frame.sliders(knobs, KNOBS, state, (change) => set(change));
    const buttons = frame.element(place, "div", {class: "explorable-buttons"});
    for (const [word, values] of Object.entries(CASES)) frame.button(buttons, word, () => set(values));
    frame.button(buttons, "No bonds", () => set({edges: []}));
    const tell = frame.teller(place);
    const panels = frame.element(place, "div", {class: "explorable-panels"});
    const graph = frame.canvas(panels, {height: 340, draw: drawGraph,
      label: "Press one spin and then another: a bond that wants them equal (blue), then one that wants "
        + "them opposite (red, dashed), then none. Shade: exact magnetization."});
    frame.keyed(graph, "Twelve spins on a circle. Left and right choose a spin, space takes it; a second "
      + "one changes the bond between the two.");
    const side = frame.element(panels, "div");
    const errors = frame.chart(side, {height: 180, x: "β", y: "error of ln Z per spin",
      series: Object.values(METHODS), names: Object.values(TITLES),
      label: "Theory minus exact sum, in ln Z per spin: naive (blue), TAP (orange), Bethe (green). A "
        + "gap: no solution was found. Naive is never above zero."});
    const strip = frame.canvas(side, {height: 150, draw: drawStrip,
      label: "Magnetizations of the twelve spins: exact (bars), and the theories in their colours."});

    function set(change, write = true) {
      frame.take(KNOBS, state, change);
      if (change.edges) state.edges = change.edges.map((edge) => [...edge]);
      for (const name of Object.keys(KNOBS)) shown[name].show(state[name]);
      // The curves over all β follow when nothing has moved for a moment.
      if (Object.keys(change).some((name) => name !== "beta")) curves = null;
      clearTimeout(moving);
      moving = setTimeout(() => { moving = 0; tick(); }, write ? 120 : 0);
      if (write) {
        frame.writeState(NAME, {edges: twelve.encode(state.edges), beta: state.beta, field: state.field});
      }
      tick();
    }

    function read() {
      const told = frame.readState(NAME), edges = twelve.decode(told.edges ?? "");
      set({...CASES["A ring"], ...told, edges: told.edges !== undefined && edges ? edges : CASES["A ring"].edges}, false);
    }

    const betas = Array.from({length: POINTS}, (_, n) => 0.02 + ((KNOBS.beta.high - 0.02) * n) / (POINTS - 1));
    // As many points of the curves as fit into a picture's time.
    function fill(until) {
      if (moving) return false;
      curves ??= [];
      while (curves.length < POINTS && performance.now() < until) curves.push(at(betas[curves.length]));
      return curves.length < POINTS;
    }
    const tick = frame.ticker(fill, draw);

    function at(beta) {
      const found = {exact: twelve.exact(state.edges, state.field, beta)};
      for (const method of Object.keys(METHODS)) found[method] = twelve.solve(method, state.edges, state.field, beta);
      return found;
    }

    let now = null;
    function draw() {
      now = at(state.beta);
      graph.paint();
      strip.paint();
      const done = curves ?? [];
      errors.setData([betas.slice(0, done.length), ...Object.keys(METHODS).map((method) => done.map((point) =>
        (point[method] ? (point[method].logZ - point.exact.logZ) / twelve.COUNT : null)))]);
      const told = Object.entries(TITLES).map(([method, title]) => {
        if (!now[method]) return `${title} finds no solution`;
        const off = Math.max(...now[method].m.map((m, i) => Math.abs(m - now.exact.m[i])));
        return `${title} ${now[method].logZ.toFixed(3)} (magnetizations within ${off.toFixed(3)})`;
      });
      tell(`${state.edges.length} bonds, β = ${state.beta.toFixed(2)}: ln Z is ${now.exact.logZ.toFixed(3)} by `
        + `the sum over 4,096 states; ${told.join(", ")}.`);
    }

    // ---- pictures

    function spot(i, width, height) {
      const size = Math.min(width, height) / 2 - 30, turn = (2 * Math.PI * i) / twelve.COUNT;
      return [width / 2 + size * Math.sin(turn), height / 2 - size * Math.cos(turn)];
    }

    function drawGraph(context, width, height) {
      context.clearRect(0, 0, width, height);
      if (!now) return;
      for (const [i, j, coupling] of state.edges) {
        context.strokeStyle = frame.color(coupling < 0 ? "red" : "blue");
        context.lineWidth = 2;
        context.setLineDash(coupling < 0 ? [6, 4] : []);
        context.beginPath();
        context.moveTo(...spot(i, width, height));
        context.lineTo(...spot(j, width, height));
        context.stroke();
      }
      context.setLineDash([]);
      context.textAlign = "center";
      context.textBaseline = "middle";
      context.font = "bold 13px sans-serif";
      for (const i of SITES) {
        const [x, y] = spot(i, width, height), m = now.exact.m[i];
        context.beginPath(); context.arc(x, y, 17, 0, 7);
        context.fillStyle = frame.color("paper"); context.fill();
        context.globalAlpha = 0.75 * Math.abs(m);
        context.fillStyle = frame.color(m < 0 ? "red" : "blue"); context.fill();
        context.globalAlpha = 1;
        context.strokeStyle = frame.color("text");
        context.lineWidth = first === i ? 4 : document.activeElement === graph.sheet && cursor === i ? 3 : 1.25;
        context.stroke();
        context.lineWidth = 3;
        context.strokeStyle = frame.color("paper");
        context.strokeText(String(i + 1), x, y);
        context.fillStyle = frame.color("text");
        context.fillText(String(i + 1), x, y);
      }
    }

    function drawStrip(context, width, height) {
      context.clearRect(0, 0, width, height);
      if (!now) return;
      const low = height - 20, middle = low / 2 + 2, unit = low / 2 - 6, left = 26, each = (width - left) / twelve.COUNT;
      context.font = "11px sans-serif";
      context.textAlign = "right";
      context.textBaseline = "middle";
      context.fillStyle = frame.color("text");
      for (const [word, m] of [["1", 1], ["0", 0], ["−1", -1]]) context.fillText(word, left - 6, middle - unit * m);
      context.fillStyle = frame.color("grid");
      context.fillRect(left, middle, width - left, 1);
      context.textAlign = "center";
      for (const i of SITES) {
        const x = left + (i + 0.5) * each, m = now.exact.m[i];
        context.fillStyle = frame.color("text");
        context.globalAlpha = 0.35;
        context.fillRect(x - 0.32 * each, Math.min(middle, middle - unit * m), 0.64 * each, Math.max(1, Math.abs(unit * m)));
        context.globalAlpha = 1;
        context.fillText(String(i + 1), x, height - 8);
        Object.entries(METHODS).forEach(([method, hue], n) => {
          if (!now[method]) return;
          context.fillStyle = frame.color(hue);
          context.beginPath();
          context.arc(x + (n - 1) * 0.2 * each, middle - unit * now[method].m[i], 3.5, 0, 7);
          context.fill();
        });
      }
    }

    // ---- hands

    function under(hand) {
      const {clientWidth, clientHeight} = graph.sheet;
      const far = SITES.map((i) => {
        const [x, y] = spot(i, clientWidth, clientHeight);
        return Math.hypot(x - hand[0], y - hand[1]);
      });
      const nearest = far.indexOf(Math.min(...far));
      return far[nearest] < GRIP ? nearest : null;
    }

    // No bond, one that wants the two equal, one that wants them opposite, and round again.
    function turn(i, j) {
      const [low, high] = [Math.min(i, j), Math.max(i, j)];
      const rest = state.edges.filter(([a, b]) => a !== low || b !== high);
      const old = state.edges.find(([a, b]) => a === low && b === high)?.[2];
      set({edges: old === -1 ? rest : [...rest, [low, high, old === 1 ? -1 : 1]]});
    }

    function choose(i) {
      if (i === null || i === first) first = null;
      else if (first === null) first = i;
      else {
        const other = first;
        first = null;
        turn(other, i);
      }
      graph.paint();
    }

    frame.hand(graph.sheet, {down: (hand) => choose(under(hand)), move: () => {}, grabs: (hand) => under(hand) !== null});
    graph.sheet.addEventListener("keydown", (event) => {
      if (event.key === " " || event.key === "Enter") choose(cursor);
      else if (event.key === "ArrowRight" || event.key === "ArrowDown") cursor = (cursor + 1) % twelve.COUNT;
      else if (event.key === "ArrowLeft" || event.key === "ArrowUp") cursor = (cursor + 11) % twelve.COUNT;
      else if (event.key === "Escape") first = null;
      else return;
      event.preventDefault();
      graph.paint();
    });
    for (const kind of ["focus", "blur"]) graph.sheet.addEventListener(kind, () => graph.paint());

    read();
    frame.listen(NAME, read, tick);
  }

  frame.start(NAME, build);
})();

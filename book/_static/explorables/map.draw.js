// The text generator as a map: knobs, orbit diagram, portrait, spectrum, exponent, two starts.
"use strict";
(() => {
  const {frame, map} = spinformer;
  const NAME = "map";
  const KNOBS = {
    beta: {label: "β, inverse temperature", low: 0, high: 10, step: 0.00001, digits: 5},
    gamma: {label: "γ, sharpness of attention", low: 5, high: 300, digits: 2, log: true},
    epsilon: {label: "ε, weight of the position", low: 0, high: 0.2, step: 0.001, digits: 3},
  };
  const RANGES = {"1.2 to 1.3": [1.2, 1.3], "1.26 to 1.28": [1.26, 1.28], "0.5 to 1.5": [0.5, 1.5],
    "0.5 to 4": [0.5, 4]};
  const KEPT = 4096, SHOWN = 240, PART = 1500, COLUMNS = 840, HEIGHT = 340, APART = 1e-10;
  const STRETCH = 2000, STRETCHES = 400;
  const SAYS = {grow: "small changes grow: chaos, for now", "die out": "small changes die out: the text repeats",
    stay: "within the error small changes neither grow nor die out: regular",
    open: "whether small changes grow is not yet decided"};

  function build(place) {
    const data = spinformer.data.map;
    const names = Object.keys(data);
    const state = {network: names[0], start: Object.keys(data[names[0]].starts)[0],
      range: "1.2 to 1.3", beta: 1.275, gamma: Number(data[names[0]].gamma.toFixed(2)), epsilon: data[names[0]].epsilon};
    let system, near, recent, count, diagram, apart, growth, speed = 200;
    // It moves if it should and somebody sees it.
    let running = !frame.still.matches, seen = false;

    const knobs = frame.element(place, "div", {class: "explorable-knobs"});
    const shown = {};
    shown.network = frame.choice(knobs, {name: "network", label: "network", options: names,
      value: state.network, change: (word) => set({network: word})});
    shown.start = frame.choice(knobs, {name: "start", label: "start",
      options: Object.keys(data[state.network].starts), value: state.start,
      change: (word) => set({start: word})});
    shown.range = frame.choice(knobs, {name: "range", label: "range of β", options: Object.keys(RANGES),
      value: state.range, change: (word) => set({range: word})});
    Object.assign(shown, frame.sliders(knobs, KNOBS, state, set));
    const pace = frame.slider(knobs, {name: "pace", label: "steps a picture", low: 1, high: 20000,
      digits: 0, log: true, value: speed, change: (number) => { speed = Math.max(1, number); }});
    const buttons = frame.element(place, "div", {class: "explorable-buttons"});
    const go = frame.button(buttons, "Pause", () => { running = !running; draw(); tick(); });
    frame.button(buttons, "One token", () => { running = false; advance(1); draw(); });
    frame.button(buttons, "Start again", restart);
    const counter = frame.element(buttons, "span", {class: "explorable-counter"});
    const tell = frame.teller(place);
    const panels = frame.element(place, "div", {class: "explorable-panels"});

    const orbits = frame.canvas(panels, {height: HEIGHT, draw: drawOrbits, wide: true,
      label: "Orbit diagram: values of the first overlap against β. Press in it to set β."});
    frame.hand(orbits.sheet, {down: press, move: press});
    const portrait = frame.canvas(panels, {height: 220, draw: drawPortrait,
      label: "Portrait: two overlaps, one colour for each phase of the position clock."});
    const path = frame.chart(panels, {height: 160, label: "The last tokens: first overlap against time.",
      x: "token", y: "m₁", series: ["blue"]});
    const lines = frame.chart(panels, {height: 160, x: "frequency (cycles per token)", y: "log₁₀ power", series: ["blue"],
      label: "Spectrum of the last 4,096 tokens; a chaotic text has a floor, a regular one lines."});
    const rates = frame.chart(panels, {height: 160, x: "thousand tokens", y: "nats per token",
      series: ["orange", "grey"],
      label: "Running exponent: mean growth of a small change over each stretch of 2,000 tokens."});
    const parting = frame.chart(panels, {height: 160, x: "token", y: "log₁₀ distance", series: ["red"],
      label: "Two starts 1e-10 apart: the distance of their texts."});

    // ---- state

    function network() { return data[state.network]; }
    function parameters() {
      return {beta: state.beta, gamma: state.gamma, epsilon: state.epsilon};
    }

    function set(change, write = true) {
      const before = {...state};
      if (change.network !== undefined && change.network in data) state.network = change.network;
      const starts = Object.keys(network().starts);
      shown.start.fill(starts);
      if (change.start !== undefined) state.start = change.start;
      if (!starts.includes(state.start)) [state.start] = starts;
      if (change.range in RANGES) state.range = change.range;
      frame.take(KNOBS, state, change);
      const [low, high] = RANGES[state.range];
      state.beta = Math.min(high, Math.max(low, state.beta));
      shown.beta.bound(low, high);
      for (const name of Object.keys(state)) shown[name].show(state[name]);
      if (write) frame.writeState(NAME, state);
      const same = (...keys) => keys.every((key) => before[key] === state[key]);
      if (!diagram || !same("network", "start", "range", "gamma", "epsilon")) newDiagram();
      restart();
    }

    // Everything from token 0 on: no chart keeps what another setting gave.
    function restart() {
      const start = network().starts[state.start];
      const beside = {...start, attention: start.attention.map((v) => v.map((x) => x + APART))};
      system = new map.System(network(), start, parameters());
      near = new map.System(network(), beside, parameters());
      recent = {values: new Float64Array(KEPT), other: new Float64Array(KEPT)};
      apart = [];
      growth = {at: [], rate: [], before: 0};
      count = 0;
      frame.clear(place);
      draw();
    }

    // ---- time

    function advance(steps) {
      for (let n = 0; n < steps; n += 1) {
        system.step();
        const at = count % KEPT;
        recent.values[at] = system.output[0];
        recent.other[at] = system.output[Math.min(1, system.P - 1)];
        count += 1;
        if (apart.length < PART) {
          near.step();
          const square = system.output.reduce((sum, x, a) => sum + (x - near.output[a]) ** 2, 0);
          apart.push(Math.log10(Math.sqrt(square) + 1e-17));
        }
        if (count % STRETCH === 0) endStretch();
      }
    }

    function endStretch() {
      system.rescale();
      growth.rate.push((system.growth - growth.before) / STRETCH);
      growth.at.push(count / 1000);
      growth.before = system.growth;
      if (growth.rate.length > STRETCHES) { growth.rate.shift(); growth.at.shift(); }
    }

    let waiting = 0;
    function tick() {
      if (waiting) return;
      waiting = requestAnimationFrame(() => {
        waiting = 0;
        const begin = performance.now();
        let left = running && seen ? Math.round(speed) : 0;
        // Never longer than a picture may take.
        while (left > 0 && performance.now() - begin < 7) { advance(Math.min(500, left)); left -= 500; }
        const busy = fillDiagram(begin + 10);
        if (running && seen) draw();
        else if (busy) orbits.paint();
        if ((running && seen) || busy) tick();
      });
    }

    // ---- pictures

    function newDiagram() {
      const canvas = document.createElement("canvas");
      canvas.width = COLUMNS; canvas.height = 2 * HEIGHT;
      const order = Array.from({length: COLUMNS}, (_, i) => (i * 389) % COLUMNS);
      diagram = {canvas, order, next: 0, reach: 0.02, columns: []};
      tick();
    }

    // One column after the other, in an order that shows the whole range early.
    function fillDiagram(until) {
      const {order, columns} = diagram;
      const [low, high] = RANGES[state.range];
      while (diagram.next < COLUMNS && performance.now() < until) {
        const column = order[diagram.next];
        const beta = low + ((high - low) * (column + 0.5)) / COLUMNS;
        const fresh = new map.System(network(), network().starts[state.start], {...parameters(), beta});
        fresh.run(2000);
        const values = new Float32Array(300);
        let reach = 0;
        for (let n = 0; n < values.length; n += 1) {
          fresh.step();
          values[n] = fresh.output[0];
          reach = Math.max(reach, Math.abs(values[n]));
        }
        columns[column] = values;
        diagram.next += 1;
        if (reach > diagram.reach) {
          // A wider scale: what is there is drawn anew.
          diagram.reach = 1.15 * reach;
          diagram.canvas.getContext("2d").clearRect(0, 0, COLUMNS, diagram.canvas.height);
          columns.forEach((_, there) => drawColumn(there));
        } else drawColumn(column);
      }
      return diagram.next < COLUMNS;
    }

    function drawColumn(column) {
      const {canvas, columns, reach} = diagram;
      const context = canvas.getContext("2d");
      context.fillStyle = frame.color("ink");
      context.globalAlpha = 0.35;
      for (const value of columns[column]) {
        context.fillRect(column, Math.round((1 - value / reach) * 0.5 * canvas.height), 1, 2);
      }
    }

    const EDGE = 40;
    function drawOrbits(context, width, height) {
      if (!diagram) return;
      const [low, high] = RANGES[state.range];
      const inner = width - EDGE - 8, base = height - 26;
      context.clearRect(0, 0, width, height);
      context.drawImage(diagram.canvas, EDGE, 4, inner, base - 4);
      context.fillStyle = context.strokeStyle = frame.color("text");
      context.font = "11px sans-serif";
      context.textAlign = "center";
      for (let mark = 0; mark <= 4; mark += 1) {
        const beta = low + (mark / 4) * (high - low);
        context.fillText(String(Number(beta.toFixed(4))), EDGE + (inner * mark) / 4, height - 12);
      }
      context.fillText("β", EDGE + inner / 2, height - 1);
      context.textAlign = "right";
      for (const share of [-1, 0, 1]) {
        const told = String(Number((share * diagram.reach).toPrecision(2)));
        context.fillText(told, EDGE - 4, 8 + ((base - 8) * (1 - share)) / 2);
      }
      const x = EDGE + (inner * (state.beta - low)) / (high - low);
      context.strokeStyle = frame.color("red");
      context.lineWidth = 1.5;
      context.beginPath(); context.moveTo(x, 4); context.lineTo(x, base); context.stroke();
    }

    function press([x]) {
      const share = (x - EDGE) / (orbits.sheet.clientWidth - EDGE - 8);
      const [low, high] = RANGES[state.range];
      set({beta: Number((low + Math.min(1, Math.max(0, share)) * (high - low)).toFixed(KNOBS.beta.digits))});
    }

    function drawPortrait(context, width, height) {
      context.clearRect(0, 0, width, height);
      if (!count) return;
      const size = Math.min(width, height) / 2 - 8, x0 = width / 2, y0 = height / 2;
      let reach = 1e-6;
      const kept = Math.min(count, KEPT);
      for (let n = 0; n < kept; n += 1) {
        reach = Math.max(reach, Math.abs(recent.values[n]), Math.abs(recent.other[n]));
      }
      context.strokeStyle = frame.color("grid");
      context.strokeRect(x0 - size, y0 - size, 2 * size, 2 * size);
      const hues = ["blue", "orange", "green", "red"];
      const dot = rarely() ? 4 : 1.5;
      // 4,096 is a multiple of the clock's period, so a slot keeps its phase.
      hues.forEach((hue, phase) => {
        context.fillStyle = frame.color(hue);
        for (let n = phase; n < kept; n += 4) {
          context.fillRect(x0 + (0.94 * size * recent.values[n]) / reach - dot / 2,
            y0 - (0.94 * size * recent.other[n]) / reach - dot / 2, dot, dot);
        }
      });
      context.fillStyle = frame.color("text");
      context.font = "11px sans-serif";
      context.textAlign = "left";
      context.fillText(`edge at ±${(reach / 0.94).toPrecision(2)}`, x0 - size + 4, y0 + size - 4);
    }

    // Whether the text repeats so soon that a few points are all there is to see.
    function rarely() {
      for (let period = 4; period <= 64 && count > 2 * period; period += 4) {
        let gap = 0;
        for (let n = 1; n <= period; n += 1) {
          const now = (count - n) % KEPT, then = (count - n - period) % KEPT;
          gap = Math.max(gap, Math.abs(recent.values[now] - recent.values[then]));
        }
        if (gap < 1e-6) return true;
      }
      return false;
    }

    let pictures = 0;
    function draw() {
      counter.textContent = `${count.toLocaleString("en")} tokens`;
      orbits.paint();
      portrait.paint();
      // At token 0 every chart is empty.
      if (count) {
        const last = Math.min(SHOWN, count), at = [], values = [];
        for (let n = count - last; n < count; n += 1) { at.push(n); values.push(recent.values[n % KEPT]); }
        path.setData([at, values]);
        parting.setData([apart.map((_, n) => n), apart]);
        rates.setData([growth.at, growth.rate, growth.rate.map(() => 0)]);
      }
      // The dearest picture, every fifteenth time, and whenever the text stands still.
      if (count >= KEPT && (pictures % 15 === 0 || !running)) {
        const order = new Float64Array(KEPT);
        for (let n = 0; n < KEPT; n += 1) order[n] = recent.values[(count + n) % KEPT];
        const found = map.power(order);
        lines.setData([Array.from(found, (_, k) => k / KEPT), Array.from(found, (p) => Math.max(-16, Math.log10(p + 1e-20)))]);
      }
      pictures += 1;
      told();
    }

    // Nothing of chaos before enough stretches have passed to know how much they scatter.
    function told() {
      go.textContent = running ? "Pause" : "Run";
      const found = map.verdict(growth.rate, STRETCH);
      const enough = STRETCH * (map.LEAST + 1);
      tell(`Token ${count.toLocaleString("en")} at β = ${state.beta.toFixed(5)}` + (found
        ? `: growth ${signed(found.mean)} ± ${found.error.toFixed(5)} nats per token over the last `
          + `${found.count} stretches; ${SAYS[found.says]}.`
        : `. Whether small changes grow is reported from token ${enough.toLocaleString("en")} on.`));
    }

    function signed(number) { return `${number < 0 ? "−" : ""}${Math.abs(number).toFixed(5)}`; }

    set(frame.readState(NAME), false);
    pace.show(speed);
    frame.listen(NAME, () => set(frame.readState(NAME), false), () => { newDiagram(); draw(); });
    // Several entries may come at once, the oldest first.
    new IntersectionObserver((entries) => {
      seen = entries.at(-1).isIntersecting;
      tick();
    }).observe(place);
    tick();
  }

  frame.start(NAME, build);
})();

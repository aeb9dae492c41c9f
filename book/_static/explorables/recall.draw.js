// Three pictures in a memory, drawn by the reader; half of one is shown, attention recalls the rest.
"use strict";
(() => {
  const {frame, recall} = spinformer;
  const NAME = "recall";
  const KNOBS = {
    beta: {label: "β√d (1: as attention has it)", low: 0.01, high: 4, digits: 2, log: true},
    strength: {label: "strength of picture 2", low: 0.5, high: 2, step: 0.05, digits: 2},
  };
  const STEPS = 200;

  function build(place) {
    const given = spinformer.data.recall, {side} = given, size = side * side;
    // What is shown of the picture that is asked for.
    const PARTS = {
      "its upper half": (n) => n < size / 2,
      "its left half": (n) => n % side < side / 2,
      "every third pixel": (n) => n % 3 === 0,
      "its upper quarter": (n) => n < size / 4,
    };
    const fresh = () => ({beta: 1, strength: 1, asked: "1", part: "its upper half",
      pictures: given.pictures.map((text) => recall.decode(text, size))});
    const state = fresh();
    let cursor = 0, held = 0;

    const knobs = frame.element(place, "div", {class: "explorable-knobs"});
    const shown = frame.sliders(knobs, KNOBS, state, (change) => {
      frame.take(KNOBS, state, change);
      changed();
    });
    shown.asked = frame.choice(knobs, {name: "asked", label: "ask for picture",
      options: given.pictures.map((_, i) => String(i + 1)), value: state.asked,
      change: (word) => { state.asked = word; changed(); }});
    shown.part = frame.choice(knobs, {name: "part", label: "showing", options: Object.keys(PARTS),
      value: state.part, change: (word) => { state.part = word; changed(); }});
    const buttons = frame.element(place, "div", {class: "explorable-buttons"});
    for (const [i] of given.pictures.entries()) {
      frame.button(buttons, `Clear ${i + 1}`, () => { state.pictures[i].fill(-1); changed(); });
    }
    frame.button(buttons, "Start again", () => { Object.assign(state, fresh()); changed(); });
    const tell = frame.teller(place);
    const panels = frame.element(place, "div", {class: "explorable-six"});
    const sheets = given.pictures.map((_, i) => {
      const label = `Picture ${i + 1}: draw in it (with a thumb: tap it, then draw).`;
      const panel = frame.canvas(panels, {height: 176, label,
        draw: (context, width, height) => drawPicture(context, width, height, state.pictures[i], i)});
      frame.keyed(panel, `Picture ${i + 1}. Arrows move the cursor, space turns a pixel.`);
      hands(panel.sheet, i);
      return panel;
    });
    let query = [], once = [], end = {state: [], steps: 0};
    for (const [label, what] of [["What is shown", () => query], ["After one step of attention", () => once],
      ["Where it comes to rest", () => end.state]]) {
      sheets.push(frame.canvas(panels, {height: 176, label,
        draw: (context, width, height) => drawPicture(context, width, height, what(), -1)}));
    }

    // ---- state

    function words() {
      return {beta: state.beta, strength: state.strength, asked: state.asked, part: state.part,
        pictures: state.pictures.map(recall.encode).join(".")};
    }

    function read() {
      const told = frame.readState(NAME);
      frame.take(KNOBS, state, told);
      if (given.pictures[Number(told.asked) - 1]) state.asked = told.asked;
      if (told.part in PARTS) state.part = told.part;
      const pictures = (told.pictures ?? "").split(".").map((text) => recall.decode(text, size));
      if (pictures.length === given.pictures.length && pictures.every(Boolean)) state.pictures = pictures;
      changed(false);
    }

    function changed(write = true) {
      for (const name of ["beta", "strength", "asked", "part"]) shown[name].show(state[name]);
      if (write) frame.writeState(NAME, words());
      tick();
    }

    // ---- pictures

    // The stored patterns: the second may be longer or shorter than the others.
    function patterns() {
      return state.pictures.map((picture, i) => picture.map((x) => (i === 1 ? state.strength * x : x)));
    }

    function draw() {
      const stored = patterns(), asked = Number(state.asked) - 1, beta = state.beta / side;
      query = stored[asked].map((x, n) => (PARTS[state.part](n) ? x : 0));
      once = recall.update(stored, query, beta);
      end = recall.rest(stored, query, beta, STEPS);
      for (const panel of sheets) panel.paint();
      const told = (point) => {
        const found = recall.weights(stored, point, beta), best = found.indexOf(Math.max(...found));
        return {best, words: `picture ${best + 1} with weight ${found[best].toFixed(2)}`,
          mixed: found[best] < 0.6};
      };
      const last = told(end.state);
      const verdict = last.mixed ? "a mixture of all that is stored"
        : last.best === asked ? "that is what was asked for" : "another than was asked for";
      tell(`β√d = ${state.beta.toFixed(2)}: one step looks at ${told(query).words}; after ${end.steps} steps the memory rests at `
        + `${last.words}: ${verdict}.`);
    }

    const tick = frame.ticker(() => false, draw);

    function drawPicture(context, width, height, picture, own) {
      context.clearRect(0, 0, width, height);
      const cell = Math.floor(Math.min(width, height) / side), whole = cell * side;
      const left = Math.floor((width - whole) / 2);
      const reach = Math.max(1, state.strength);
      context.fillStyle = frame.color("paper");
      context.fillRect(left, 0, whole, whole);
      picture.forEach((x, n) => {
        // Paper is −1, ink is 1; what is not known lies between.
        context.globalAlpha = Math.min(1, Math.max(0, (x / (own === 1 ? 1 : reach) + 1) / 2));
        context.fillStyle = frame.color(own >= 0 ? ["blue", "orange", "green"][own] : "ink");
        context.fillRect(left + (n % side) * cell, Math.floor(n / side) * cell, cell, cell);
      });
      context.globalAlpha = 1;
      context.strokeStyle = frame.color("grid");
      context.strokeRect(left + 0.5, 0.5, whole - 1, whole - 1);
      if (own >= 0 && document.activeElement === sheets[own]?.sheet) {
        context.strokeStyle = frame.color("red");
        context.strokeRect(left + (cursor % side) * cell, Math.floor(cursor / side) * cell, cell, cell);
      }
    }

    // ---- hands

    function hands(sheet, i) {
      const at = ([x, y]) => {
        const cell = Math.floor(Math.min(sheet.clientWidth, sheet.clientHeight) / side);
        const left = Math.floor((sheet.clientWidth - cell * side) / 2);
        const column = Math.floor((x - left) / cell), row = Math.floor(y / cell);
        return column >= 0 && column < side && row >= 0 && row < side ? row * side + column : -1;
      };
      const paint = (n) => {
        if (n < 0) return;
        cursor = n;
        state.pictures[i][n] = held;
        changed();
      };
      frame.hand(sheet, {
        down(place) {
          const n = at(place);
          // The first pixel says whether a stroke draws or erases.
          held = n >= 0 ? -state.pictures[i][n] : 1;
          paint(n);
        },
        move: (place) => paint(at(place)),
        // A thumb scrolls over a picture until a tap has chosen it.
        grabs: () => document.activeElement === sheet,
      });
      sheet.addEventListener("keydown", (event) => {
        const ways = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -side, ArrowDown: side};
        if (event.key in ways) cursor = (cursor + ways[event.key] + size) % size;
        else if (event.key === " ") {
          state.pictures[i][cursor] *= -1;
          changed();
        } else return;
        event.preventDefault();
        tick();
      });
      for (const name of ["focus", "blur"]) sheet.addEventListener(name, () => tick());
    }

    read();
    frame.listen(NAME, read, tick);
  }

  frame.start(NAME, build);
})();

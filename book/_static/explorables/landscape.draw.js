// The landscape of a few patterns: drag them, drop a query, see the basins and where attention goes.
"use strict";
(() => {
  const {frame, landscape} = spinformer;
  const NAME = "landscape";
  const HUES = ["blue", "orange", "green", "red", "violet", "brown"];
  const KNOBS = {
    beta: {label: "β, inverse temperature", low: 0.1, high: 30, digits: 2, log: true},
    step: {label: "step size", low: 0.05, high: 2.5, step: 0.05, digits: 2},
  };
  const REACH = 2.2, CELLS = 72, STEPS = 300, GRIP = 20, UNKNOWN = -9;
  // Cells on a side of the relief: as long as something moves, and once it has stood still so long.
  const COARSE = 80, FINE = 240, STILL = 150;

  function build(place) {
    const given = spinformer.data.landscape;
    const state = {beta: given.beta, step: 1, points: given.patterns.map((x) => [...x]),
      query: [...given.query]};
    let held = "query", basins, states, moving = 0;
    // On the front page the plane alone.
    const small = "small" in place.dataset;

    const knobs = frame.element(place, "div", {class: "explorable-knobs"});
    const shown = frame.sliders(knobs, KNOBS, state, (change) => {
      frame.take(KNOBS, state, change);
      changed(true);
    });
    shown.count = frame.choice(knobs, {name: "count", label: "patterns",
      options: HUES.map((_, i) => String(i + 1)), value: String(state.points.length),
      change: (word) => {
        while (state.points.length > Number(word)) state.points.pop();
        while (state.points.length < Number(word)) {
          state.points.push([...given.more[state.points.length]]);
        }
        changed(true);
      }});
    const buttons = frame.element(place, "div", {class: "explorable-buttons"});
    if (!small) frame.button(buttons, "Equal norms", () => {
      state.points = state.points.map((x) => {
        const size = Math.hypot(...x) || 1;
        return x.map((entry) => Number(((1.5 * entry) / size).toFixed(3)));
      });
      changed(true);
    });
    if (!small) frame.button(buttons, "Second on top of the first", () => {
      if (state.points.length < 2) state.points.push([0, 0]);
      state.points[1] = [...state.points[0]];
      changed(true);
    });
    frame.button(buttons, "Start again", () => {
      Object.assign(state, {beta: given.beta, step: 1, query: [...given.query],
        points: given.patterns.map((x) => [...x])});
      changed(true);
    });
    const tell = frame.teller(place);
    const panels = frame.element(place, "div", {class: "explorable-panels"});
    const plane = frame.canvas(panels, {height: small ? 440 : 380, draw: drawPlane,
      label: small ? "Press to drop a query (ring), drag the keys (discs). Colour: where a query ends; none "
          + "where it does not come to rest."
        : "Landscape: drag patterns (discs) and the query (ring). Colour: which pattern a query that "
          + "takes steps of this size from there ends at, grey where it ends at a mixture, none where it "
          + "does not come to rest; darker is lower."});
    frame.keyed(plane, "Landscape. Keys 1 to 6 take a pattern, Q the query, arrows move it.");
    const side = small ? null : frame.element(panels, "div");
    const bars = side && frame.canvas(side, {height: 130, draw: drawBars,
      label: "Attention weights of the query where it stands (pale) and, if it comes to rest, there (full)."});
    const circle = side && frame.chart(side, {height: 180, x: "direction in turns", y: "energy",
      series: ["blue", "grey"], names: ["attention", "classical"],
      label: "Energy along the circle of radius 1.5: attention (blue) has a valley for every pattern "
        + "that stands apart; the classical quadratic energy (grey, scaled) has two, whatever is stored."});

    // ---- state

    function words() {
      const pair = (x) => x.map((entry) => Number(entry.toFixed(3))).join(",");
      return {beta: state.beta, step: state.step, query: pair(state.query),
        points: state.points.map(pair).join(";")};
    }

    function read() {
      const told = frame.readState(NAME);
      const pair = (text) => text.split(",").map(Number);
      const fits = (x) => x.length === 2 && x.every((entry) => Math.abs(entry) <= REACH);
      frame.take(KNOBS, state, told);
      if (told.query && fits(pair(told.query))) state.query = pair(told.query);
      const points = (told.points ?? "").split(";").map(pair);
      if (points.length <= HUES.length && points.every(fits)) state.points = points;
      changed(true, false);
    }

    function changed(other, write = true) {
      for (const name of Object.keys(KNOBS)) shown[name].show(state[name]);
      shown.count.show(String(state.points.length));
      // Only noted here: a drag changes more often than a picture is drawn.
      if (other || !basins) basins = null;
      clearTimeout(moving);
      moving = write && other ? setTimeout(() => { moving = 0; tick(); }, STILL) : 0;
      if (write) frame.writeState(NAME, words());
      tick();
    }

    // ---- pictures

    // Where steps of the size that is set lead from each cell of the plane; as many as fit into a
    // picture's time.
    function fillBasins(until) {
      basins ??= {next: 0, ends: new Int8Array(CELLS * CELLS).fill(UNKNOWN), side: 0};
      const side = moving ? COARSE : FINE;
      if (basins.side < side) Object.assign(basins, {side, high: heights(side)});
      while (basins.next < CELLS * CELLS && performance.now() < until) {
        // Cells far apart first, so that the whole is there early.
        const cell = (basins.next * 1021) % (CELLS * CELLS);
        const x = coordinate(cell % CELLS), y = -coordinate(Math.floor(cell / CELLS));
        basins.ends[cell] = landscape.end(state.points, follow([x, y]), state.beta);
        basins.next += 1;
      }
      return basins.next < CELLS * CELLS;
    }

    function follow(query) { return landscape.path(state.points, query, state.beta, state.step, STEPS); }

    // Energies on a grid between 0 and 1.
    function heights(side) {
      const values = landscape.relief(state.points, state.beta, REACH, side);
      const least = values.reduce((a, b) => Math.min(a, b));
      const most = values.reduce((a, b) => Math.max(a, b));
      return values.map((e) => Math.sqrt((e - least) / (most - least + 1e-12)));
    }

    // The colour of a theme as red, green and blue from 0 to 255.
    function channels(name) {
      const digits = frame.color(name).slice(1);
      const wide = digits.length === 3 ? [...digits].map((d) => d + d).join("") : digits;
      return [0, 2, 4].map((at) => parseInt(wide.slice(at, at + 2), 16));
    }

    function sheet(side) {
      const made = document.createElement("canvas");
      made.width = made.height = side;
      return made;
    }

    // Two sheets, both drawn larger and smooth: whose basin it is, and over it the height as paper
    // that grows thicker, with a line wherever a tenth is passed.
    const cells = sheet(CELLS), relief = sheet(FINE);
    function drawCells() {
      const picture = cells.getContext("2d").createImageData(CELLS, CELLS);
      const hues = HUES.map(channels), grey = channels("grey");
      basins.ends.forEach((end, cell) => {
        const thick = end === UNKNOWN ? 60 : end < landscape.MIXTURE ? 0 : 190;
        picture.data.set([...(hues[end] ?? grey), thick], 4 * cell);
      });
      cells.getContext("2d").putImageData(picture, 0, 0);
    }

    // The dearest sheet: as long as neither heights nor theme change, it stays as it is.
    let painted = {};
    function drawRelief() {
      const theme = document.documentElement.dataset.theme, {high, side} = basins;
      if (painted.high === high && painted.theme === theme) return;
      painted = {high, theme};
      relief.width = relief.height = side;
      const over = relief.getContext("2d").createImageData(side, side);
      const paper = channels("paper"), line = channels("ink");
      for (let cell = 0; cell < high.length; cell += 1) {
        // How far the next line is, in cells: a line is one and a half of them wide, with soft edges.
        const right = cell % side ? cell - 1 : cell + 1, above = cell < side ? cell + side : cell - side;
        const slope = 10 * Math.hypot(high[cell] - high[right], high[cell] - high[above]);
        const share = (10 * high[cell]) % 1;
        const near = (side === FINE ? 1.25 : 0.8) - Math.min(share, 1 - share) / (slope + 1e-9);
        const thick = Math.min(1, Math.max(0, near)) * 0.35;
        for (let n = 0; n < 3; n += 1) over.data[4 * cell + n] = paper[n] + thick * (line[n] - paper[n]);
        over.data[4 * cell + 3] = (60 + 185 * high[cell]) * (1 - thick) + 160 * thick;
      }
      relief.getContext("2d").putImageData(over, 0, 0);
    }

    function coordinate(cell, count = CELLS) { return REACH * ((2 * (cell + 0.5)) / count - 1); }

    const tick = frame.ticker(fillBasins, draw);

    function drawPlane(context, width, height) {
      const {size, place: at} = frame.geometry(width, height, REACH);
      context.clearRect(0, 0, width, height);
      if (!basins) return;
      drawCells();
      drawRelief();
      const [left, top] = at([-REACH, REACH]);
      context.imageSmoothingQuality = "high";
      context.save();
      context.beginPath(); context.roundRect(left, top, 2 * size, 2 * size, 10); context.clip();
      for (const one of [cells, relief]) context.drawImage(one, left, top, 2 * size, 2 * size);
      context.restore();
      context.strokeStyle = context.fillStyle = frame.color("text");
      context.lineWidth = 1.5;
      context.beginPath();
      states.forEach((point, n) => context[n ? "lineTo" : "moveTo"](...at(point)));
      context.stroke();
      for (const point of states) {
        context.beginPath(); context.arc(...at(point), 2, 0, 7); context.fill();
      }
      context.font = "bold 12px sans-serif";
      context.textAlign = "center";
      context.textBaseline = "middle";
      state.points.forEach((point, i) => {
        const [x, y] = at(point);
        context.fillStyle = frame.color(HUES[i]);
        context.beginPath(); context.arc(x, y, 10, 0, 7); context.fill();
        context.strokeStyle = frame.color("text");
        context.lineWidth = held === i ? 3 : 1;
        context.stroke();
        context.fillStyle = frame.color("paper");
        context.fillText(String(i + 1), x, y);
      });
      context.strokeStyle = frame.color("text");
      context.lineWidth = held === "query" ? 4 : 2.5;
      context.beginPath(); context.arc(...at(state.query), 8, 0, 7); context.stroke();
    }

    function drawBars(context, width, height) {
      context.clearRect(0, 0, width, height);
      if (!states) return;
      const rows = [landscape.weights(state.points, state.query, state.beta)];
      const rests = landscape.end(state.points, states, state.beta) >= landscape.MIXTURE;
      if (rests) rows.push(landscape.weights(state.points, states.at(-1), state.beta));
      const each = width / state.points.length, base = height - 18;
      context.font = "11px sans-serif";
      context.textAlign = "center";
      state.points.forEach((_, i) => {
        rows.forEach((weights, which) => {
          context.fillStyle = frame.color(HUES[i]);
          context.globalAlpha = which ? 1 : 0.45;
          const tall = (base - 16) * weights[i];
          context.fillRect(i * each + each * (0.15 + 0.36 * which), base - tall, each * 0.33, tall);
        });
        context.globalAlpha = 1;
        context.fillStyle = frame.color("text");
        context.fillText(`${i + 1}`, (i + 0.5) * each, height - 5);
        const shown = rows.at(-1)[i];
        context.fillText(shown.toFixed(2), (i + (rests ? 0.68 : 0.32)) * each, base - (base - 16) * shown - 4);
      });
    }

    function draw() {
      states = follow(state.query);
      plane.paint();
      if (!small) drawSide();
      tellOutcome();
    }

    function drawSide() {
      bars.paint();
      const turns = Array.from({length: 241}, (_, n) => n / 240);
      const on = turns.map((t) => [1.5 * Math.cos(2 * Math.PI * t), 1.5 * Math.sin(2 * Math.PI * t)]);
      const own = on.map((point) => landscape.energy(state.points, point, state.beta));
      const quadratic = on.map((point) => landscape.classical(state.points, point));
      // Same height as the other, so that the shapes can be compared.
      const span = (list) => [Math.min(...list), Math.max(...list)];
      const [low, high] = span(own), [least, most] = span(quadratic);
      const scaled = quadratic.map((e) => low + ((e - least) * (high - low)) / (most - least + 1e-12));
      circle.setData([turns, own, scaled]);
    }

    function tellOutcome() {
      const energies = states.map((point) => landscape.energy(state.points, point, state.beta));
      const climbs = energies.filter((e, n) => n && e > energies[n - 1] + 1e-9).length;
      tell(`β = ${state.beta.toFixed(2)}, step ${state.step.toFixed(2)}: the query ${outcome()}; `
        + `${climbs} of its steps climb.${shares()}`);
    }

    // Where the query's path ends, in words.
    function outcome() {
      const end = landscape.end(state.points, states, state.beta), {AWAY, MOVING, MIXTURE} = landscape;
      if (end === AWAY) return "runs away";
      if (end === MOVING) return `has not come to rest after ${STEPS} steps`;
      const weights = landscape.weights(state.points, states.at(-1), state.beta);
      const rests = `rests after ${states.length - 1} steps`;
      const most = Math.max(...weights), least = Math.min(...weights);
      if (end === MIXTURE) {
        return most - least < 0.01
          ? `${rests} at the average of all patterns, each with weight ${most.toFixed(2)}`
          : `${rests} at a mixture, in which no pattern has more weight than ${most.toFixed(2)}`;
      }
      const there = members(end), weight = there.reduce((sum, i) => sum + weights[i], 0);
      return `${rests} at ${named(end)} with weight ${weight.toFixed(2)}${there.length > 1 ? " together" : ""}`;
    }

    // The patterns on the spot of the first of them.
    function members(first) {
      return [...landscape.spots(state.points).entries()].filter(([, spot]) => spot === first).map(([i]) => i);
    }

    function named(first) {
      const numbers = members(first).map((i) => i + 1);
      return numbers.length > 1 ? `patterns ${numbers.slice(0, -1).join(", ")} and ${numbers.at(-1)} on one spot`
        : `pattern ${numbers[0]}`;
    }

    // How much of the plane has which colour, once all of it has one.
    function shares() {
      if (basins.next < CELLS * CELLS) return "";
      const share = (belongs) => Math.round((100 * basins.ends.filter(belongs).length) / basins.ends.length);
      const told = state.points.map((_, i) => [share((end) => end === i), `ends at ${named(i)}`]);
      told.push([share((end) => end === landscape.MIXTURE), "ends at a mixture"],
        [share((end) => end < landscape.MIXTURE), "does not come to rest"]);
      const words = told.filter(([percent]) => percent).map(([percent, what]) => `${percent} % ${what}`);
      return ` Of the plane ${words.join(", ")}.`;
    }

    // ---- hands

    function move(point) {
      const [x, y] = point.map((entry) =>
        Number(Math.min(REACH, Math.max(-REACH, entry)).toFixed(3)));
      if (held === "query") state.query = [x, y];
      else state.points[held] = [x, y];
      changed(held !== "query");
    }

    function here() { return frame.geometry(plane.sheet.clientWidth, plane.sheet.clientHeight, REACH); }

    // What lies under a hand: the query, the number of a pattern, or null.
    function under(hand) {
      const {place: at} = here();
      const far = (point) => Math.hypot(at(point)[0] - hand[0], at(point)[1] - hand[1]);
      // The query first, which a pattern would hide.
      const all = [["query", far(state.query)], ...state.points.map((point, i) => [i, far(point)])];
      const [what, distance] = all.reduce((best, one) => (one[1] < best[1] ? one : best));
      return distance < GRIP ? what : null;
    }

    frame.hand(plane.sheet, {
      // On a pattern it is taken; anywhere else the query is dropped.
      down(hand) {
        held = under(hand) ?? "query";
        if (held === "query") move(here().back(hand));
        tick();
      },
      move: (hand) => move(here().back(hand)),
      grabs: (hand) => under(hand) !== null,
    });
    plane.sheet.addEventListener("keydown", (event) => {
      const ways = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1]};
      if (event.key === "q" || event.key === "Q") held = "query";
      else if (Number(event.key) >= 1 && Number(event.key) <= state.points.length) {
        held = Number(event.key) - 1;
      } else if (event.key in ways) {
        const now = held === "query" ? state.query : state.points[held];
        move(now.map((entry, axis) => entry + 0.05 * ways[event.key][axis]));
      } else return;
      event.preventDefault();
      tick();
    });

    read();
    frame.listen(NAME, read, tick);
  }

  frame.start(NAME, build);
})();

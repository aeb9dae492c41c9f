// What every live figure shares: its knobs, its state in the page's address, words for those who
// do not see it, colours of the theme, canvases that are sharp on any screen.
"use strict";
globalThis.spinformer = globalThis.spinformer ?? {};
spinformer.frame = (() => {
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  // A colour of the page's theme, as it is now.
  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--explorable-${name}`).trim();
  }

  function element(parent, tag, attributes = {}, text = "") {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text) made.textContent = text;
    parent.append(made);
    return made;
  }

  // The state of figure `name` in the address: #name&beta=1.27&start=… ; {} if it is not there.
  function readState(name) {
    const [first, ...pairs] = location.hash.slice(1).split("&");
    if (first !== name) return {};
    return Object.fromEntries(pairs.map((pair) => pair.split("=").map(decodeURIComponent)));
  }

  let pending = 0;
  function writeState(name, state) {
    clearTimeout(pending);
    pending = setTimeout(() => {
      const told = Object.entries(state).map((pair) => pair.map(encodeURIComponent).join("="));
      history.replaceState(null, "", `#${[name, ...told].join("&")}`);
    }, 200);
  }

  // A slider with its number. `log`: the slider moves along the logarithm.
  function slider(parent, {name, label, low, high, step, value, digits, log = false, change}) {
    const box = element(parent, "label", {class: "explorable-knob"});
    element(box, "span", {}, label);
    const forth = log ? Math.log : (x) => x, back = log ? Math.exp : (x) => x;
    const range = element(box, "input", {
      type: "range", name, min: forth(low), max: forth(high), step: log ? "any" : step,
    });
    const shown = element(box, "output");
    function show(number) {
      range.value = forth(number);
      shown.textContent = number.toFixed(digits);
      range.setAttribute("aria-valuetext", number.toFixed(digits));
    }
    range.addEventListener("input", () => {
      const number = Number(back(Number(range.value)).toFixed(digits));
      shown.textContent = number.toFixed(digits);
      range.setAttribute("aria-valuetext", number.toFixed(digits));
      change(number);
    });
    show(value);
    return {show, bound(least, most) { range.min = forth(least); range.max = forth(most); }};
  }

  // Sliders for `knobs` (name: {label, low, high, step, digits, log}); a moved one calls change.
  function sliders(parent, knobs, state, change) {
    return Object.fromEntries(Object.entries(knobs).map(([name, knob]) => [name,
      slider(parent, {...knob, name, value: state[name], change: (number) => change({[name]: number})})]));
  }

  // Into `state` what `change` says of the knobs, as far as it is a number, within their limits.
  function take(knobs, state, change) {
    for (const [name, {low, high, digits}] of Object.entries(knobs)) {
      const number = Number(change[name]);
      if (change[name] === undefined || !Number.isFinite(number)) continue;
      state[name] = Math.min(high, Math.max(low, Number(number.toFixed(digits))));
    }
  }

  // Call `read` when the address changes to a state of figure `name`, `paint` with the theme.
  function listen(name, read, paint) {
    addEventListener("hashchange", () => {
      if (location.hash.slice(1).split("&")[0] === name) read();
    });
    new MutationObserver(paint).observe(document.documentElement, {attributeFilter: ["data-theme"]});
  }

  function choice(parent, {name, label, options, value, change}) {
    const box = element(parent, "label", {class: "explorable-knob"});
    element(box, "span", {}, label);
    const select = element(box, "select", {name});
    function fill(words) {
      select.replaceChildren();
      for (const word of words) element(select, "option", {value: word}, word);
    }
    fill(options);
    select.value = value;
    select.addEventListener("change", () => change(select.value));
    return {show(word) { select.value = word; }, fill};
  }

  function button(parent, text, press) {
    const made = element(parent, "button", {type: "button"}, text);
    made.addEventListener("click", press);
    return made;
  }

  // A canvas with a caption; `draw(context, width, height)` in CSS pixels, again on every resize.
  function canvas(parent, {label, height, draw, wide = false}) {
    const box = element(parent, "figure", {class: `explorable-panel${wide ? " explorable-wide" : ""}`});
    element(box, "figcaption", {}, label);
    const sheet = element(box, "canvas", {role: "img", "aria-label": label});
    sheet.style.height = `${height}px`;
    const context = sheet.getContext("2d");
    function paint() {
      // A style sheet may make the canvas lower than it was asked to be.
      const width = sheet.clientWidth, tall = sheet.clientHeight, scale = devicePixelRatio || 1;
      if (!width) return;
      const size = [Math.round(width * scale), Math.round(tall * scale)];
      if (sheet.width !== size[0] || sheet.height !== size[1]) [sheet.width, sheet.height] = size;
      context.setTransform(scale, 0, 0, scale, 0, 0);
      draw(context, width, tall);
    }
    new ResizeObserver(paint).observe(sheet);
    return {sheet, paint};
  }

  // The plane −reach … reach on a sheet: a point's place in pixels, and back; `unit` pixels are one.
  function geometry(width, height, reach) {
    const size = Math.min(width, height) / 2 - 4;
    return {size, unit: size / reach,
      place: ([x, y]) => [width / 2 + (size * x) / reach, height / 2 - (size * y) / reach],
      back: ([x, y]) => [(reach * (x - width / 2)) / size, (reach * (height / 2 - y)) / size]};
  }

  // Keys that a canvas takes; `words` says which, to those who do not see it.
  function keyed(panel, words) {
    panel.sheet.tabIndex = 0;
    panel.sheet.setAttribute("aria-label", words);
  }

  // Where a pointer is on a sheet, in its pixels.
  function pointer(sheet, event) {
    const box = sheet.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }

  // A canvas that takes presses and drags: `down` with the place of a press, `move` with each
  // further one, `up` at the end. A thumb must still be able to scroll the page: it drags what is at
  // a place only if `grabs(place)` is true there. Anywhere else its tap is a press, and so is a
  // drag to the side, but a drag up or down scrolls and presses nothing.
  const SLOP = 8;
  function hand(sheet, {down, move, up = () => {}, grabs = () => false}) {
    let holding = false, waiting = null;
    sheet.classList.add("explorable-press");
    function take(event, at) {
      [holding, waiting] = [true, null];
      sheet.setPointerCapture(event.pointerId);
      down(at);
    }
    function leave() {
      waiting = null;
      if (holding) up();
      holding = false;
    }
    sheet.addEventListener("pointerdown", (event) => {
      if (!event.isPrimary) return;
      const at = pointer(sheet, event);
      if (event.pointerType !== "touch" || grabs(at)) take(event, at);
      else waiting = at;
    });
    sheet.addEventListener("pointermove", (event) => {
      if (!event.isPrimary) return;
      const at = pointer(sheet, event);
      if (waiting) {
        const [across, along] = [0, 1].map((axis) => Math.abs(at[axis] - waiting[axis]));
        if (across > SLOP && across > along) take(event, waiting);
      }
      if (holding) move(at);
    });
    sheet.addEventListener("pointerup", (event) => {
      if (!event.isPrimary) return;
      if (waiting) take(event, waiting);
      leave();
    });
    // The browser scrolls.
    sheet.addEventListener("pointercancel", leave);
    // The touch follows its pointer: what is held is not scrolled away.
    sheet.addEventListener("touchstart", (event) => { if (holding) event.preventDefault(); }, {passive: false});
  }

  // Calls to what is returned draw once in the next picture; again as long as `fill(until)`, which
  // works at what is not needed at once, says that it is not done. While a hand moves something it has
  // four milliseconds of each picture; when nothing else waits, half of the time, since on a slow
  // machine a picture may take far longer than its work.
  function ticker(fill, draw) {
    let waiting = 0, asked = false, last = 0;
    function next() {
      waiting = requestAnimationFrame(() => {
        const begun = performance.now();
        const share = asked ? 4 : Math.max(4, (begun - last) / 2);
        waiting = 0;
        asked = false;
        last = begun;
        const busy = fill(begun + share);
        draw();
        if (busy && !waiting) next();
      });
    }
    return function tick() {
      asked = true;
      if (!waiting) next();
    };
  }

  // The names of curves beside their ends, in their colours; none covers another.
  function nameCurves(plot, names, series) {
    const {ctx: context, bbox} = plot, scale = devicePixelRatio || 1;
    context.save();
    context.font = `bold ${11 * scale}px sans-serif`;
    context.textAlign = "right";
    const taken = [];
    names.forEach((name, n) => {
      const values = plot.data[n + 1], last = values.length - 1;
      // Above the curve's end, within the chart, and not on another's name.
      let y = plot.valToPos(values[last] ?? NaN, "y", true) - 7 * scale;
      if (!name || !Number.isFinite(y)) return;
      const low = bbox.top + bbox.height - 4 * scale, far = 13 * scale;
      y = Math.max(bbox.top + 12 * scale, Math.min(low, y));
      const free = () => taken.every((other) => Math.abs(other - y) >= far);
      for (const way of [far, -far]) {
        while (!free() && y > bbox.top && y <= low) y += way;
      }
      taken.push(y);
      context.strokeStyle = color("paper");
      context.lineWidth = 3 * scale;
      context.strokeText(name, bbox.left + bbox.width - 4 * scale, y);
      context.fillStyle = color(series[n]);
      context.fillText(name, bbox.left + bbox.width - 4 * scale, y);
    });
    context.restore();
  }

  // A line chart by uPlot that keeps the width of its panel; `names` are written at its curves. Its
  // element in the page has it as `plot`.
  function chart(parent, {label, height, x, y, series, names = [], range = {}}) {
    const box = element(parent, "figure", {class: "explorable-panel explorable-chart"});
    element(box, "figcaption", {}, label);
    const place = element(box, "div", {role: "img", "aria-label": label});
    const axis = (text, size) => ({
      label: text, size, labelSize: 16, labelGap: 0, gap: 2, font: "11px sans-serif",
      labelFont: "12px sans-serif", stroke: () => color("text"),
      grid: {stroke: () => color("grid"), width: 0.5}, ticks: {stroke: () => color("grid"), width: 1},
    });
    const plot = new uPlot({
      width: 300, height, legend: {show: false}, cursor: {show: false},
      scales: {x: {time: false, range: range.x}, y: {range: range.y}},
      axes: [axis(x, 30), axis(y, 46)],
      hooks: {
        draw: [(drawn) => nameCurves(drawn, names, series)],
        // uPlot keeps the axes of data that are gone.
        setData: [({data}) => box.classList.toggle("explorable-empty", !data[0].length)],
      },
      series: [{}, ...series.map((hue) => ({
        stroke: () => color(hue), width: 1.25, points: {show: false},
      }))],
    }, [[], ...series.map(() => [])], place);
    new ResizeObserver(() => {
      if (box.clientWidth) plot.setSize({width: box.clientWidth, height});
    }).observe(box);
    box.plot = plot;
    return plot;
  }

  // Every chart of a live figure without data.
  function clear(place) {
    for (const {plot} of place.querySelectorAll(".explorable-chart")) {
      plot.setData(plot.series.map(() => []));
    }
  }

  // A sentence of what a figure shows now. What is seen is always the newest; a screen reader is
  // read a copy that changes at most every three seconds and ends at the newest, too.
  function teller(parent) {
    const seen = element(parent, "p", {class: "explorable-told"});
    const heard = element(parent, "p", {class: "explorable-heard", "aria-live": "polite"});
    // Read once, and not again by those who walk through the page.
    seen.setAttribute("aria-hidden", "true");
    let last = -Infinity, waiting = 0;
    function say() {
      clearTimeout(waiting);
      waiting = 0;
      last = performance.now();
      if (heard.textContent !== seen.textContent) heard.textContent = seen.textContent;
    }
    return (text) => {
      if (seen.textContent === text) return;
      seen.textContent = text;
      if (!waiting) waiting = setTimeout(say, Math.max(0, last + 3000 - performance.now()));
    };
  }

  // Replace the static picture of each place of figure `name` by the live one.
  function start(name, build) {
    const begin = () => {
      for (const place of document.querySelectorAll(`[data-explorable="${name}"]`)) {
        // It takes over the number of the picture that it replaces.
        const number = place.querySelector(".caption-number");
        place.replaceChildren();
        build(place);
        if (number) place.querySelector("figcaption").prepend(number);
      }
      if (location.hash.slice(1).split("&")[0] === name) {
        document.getElementById(name)?.scrollIntoView();
      }
    };
    if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", begin);
    else begin();
  }

  return {still, color, element, readState, writeState, slider, sliders, take, listen, choice, button,
    canvas, geometry, keyed, hand, ticker, chart, clear, teller, start};
})();

// Figures: pressed, one fills the window; on a narrow page columns stand below one another.
"use strict";
addEventListener("DOMContentLoaded", () => {
  const svgs = [...document.querySelectorAll("article svg.figure")];

  // ---- columns below one another: the same drawing through one window for each column
  const narrow = matchMedia("(max-width: 40rem)");
  function show(svg, view) {
    const [, , width, height] = view.split(" ").map(Number);
    // Points are four thirds of a pixel.
    svg.setAttribute("viewBox", view);
    svg.setAttribute("width", Math.round(width * 4 / 3));
    svg.setAttribute("height", Math.round(height * 4 / 3));
    svg.style.setProperty("--drawn", `${Math.round(width * 4 / 3)}px`);
  }
  function split(svg) {
    const [, , width, height] = svg.dataset.whole.split(" ").map(Number);
    const edges = [0, ...svg.dataset.columns.split(" ").map(Number), 1].map((share) => share * width);
    const views = edges.slice(1).map((end, n) => `${edges[n]} 0 ${end - edges[n]} ${height}`);
    const copies = views.map((view, n) => {
      const copy = n ? svg.cloneNode(true) : svg;
      show(copy, view);
      if (n) {
        copy.classList.add("column");
        copy.setAttribute("aria-hidden", "true");
      }
      return copy;
    });
    svg.after(...copies.slice(1));
  }

  // ---- letters as large as there is room for; a drawing whose letters stay small is wider than the page
  const WANTED = 10, LEAST = 8.5, MOST = 1.4;
  const texts = (svg) => [...svg.querySelectorAll("text")].filter((one) => one.textContent.trim());
  function size(text) {
    const matrix = text.getScreenCTM();
    const parts = text.children.length ? [...text.children] : [text];
    const sizes = parts.map((one) => parseFloat(getComputedStyle(one).fontSize));
    return Math.max(...sizes) * Math.hypot(matrix.a, matrix.b);
  }
  // Words in a box of their own, which does not grow with them.
  function framed(text) {
    const word = text.getBoundingClientRect();
    return [...text.closest("g:not([transform])").querySelectorAll("path")].some((path) => {
      const box = path.getBoundingClientRect();
      return box.left <= word.left && box.right >= word.right && box.top <= word.top && box.bottom >= word.bottom;
    });
  }
  function scale(text, by) {
    text.dataset.drawn ??= text.getAttribute("transform") ?? "";
    const box = text.getBBox(), anchor = getComputedStyle(text).textAnchor;
    // Formulas say nothing of their anchor; short ones stand at ticks.
    const share = anchor === "end" ? 1 : anchor === "middle" || box.width < 30 ? 0.5 : 0;
    const x = box.x + share * box.width, y = box.y + box.height / 2;
    text.setAttribute("transform", `${text.dataset.drawn} translate(${x} ${y}) scale(${by}) translate(${-x} ${-y})`);
  }
  function enlarge(svg) {
    const frame = svg.getBoundingClientRect();
    const all = texts(svg).filter((text) => {
      const box = text.getBoundingClientRect();
      return box.width && box.right > frame.left && box.left < frame.right;
    });
    if (!all.length) return;
    const middle = all.map(size).sort((a, b) => a - b)[Math.floor(all.length / 2)];
    // Letters in boxes that would stay small keep their size in them.
    const most = middle * MOST < LEAST ? 1 : Math.min(MOST, WANTED / middle);
    if (most !== 1 && most < 1.05) return;
    const rows = new Map();
    for (const text of all) {
      const box = text.getBoundingClientRect();
      const row = Math.round((box.top + box.bottom) / 6);
      if (!rows.has(row)) rows.set(row, { texts: [], by: most });
      rows.get(row).texts.push(text);
      if (framed(text)) rows.get(row).by = 1;
    }
    const apart = (a, b) => a.right < b.left + 1 || b.right < a.left + 1 || a.bottom < b.top + 2 || b.bottom < a.top + 2;
    for (let round = 0; round < 5; round += 1) {
      const boxes = [];
      for (const row of rows.values()) {
        for (const text of row.texts) {
          scale(text, row.by);
          boxes.push([text.getBoundingClientRect(), row]);
        }
      }
      const tight = new Set();
      boxes.forEach(([one, row], n) => {
        if (one.left < frame.left - 2 || one.right > frame.right + 2) tight.add(row);
        for (const [other, second] of boxes.slice(n + 1)) if (!apart(one, other)) tight.add(row).add(second);
      });
      for (const row of tight) row.by = round < 3 ? 1 + (row.by - 1) / 2 : 1;
      if (!tight.size) break;
    }
    const now = all.map(size).sort((a, b) => a - b)[Math.floor(all.length / 2)];
    if (now < LEAST) {
      svg.style.setProperty("width", `${Math.round(frame.width * LEAST / now)}px`, "important");
      svg.style.maxWidth = "none";
      // The picture scrolls, its caption does not.
      const shelf = document.createElement("div");
      shelf.className = "figure-wide";
      svg.replaceWith(shelf);
      shelf.append(svg);
    }
  }
  function restore(svg) {
    for (const text of svg.querySelectorAll("text[data-drawn]")) {
      text.setAttribute("transform", text.dataset.drawn);
    }
    svg.style.removeProperty("width");
    svg.style.maxWidth = "";
    if (svg.parentElement.className === "figure-wide") svg.parentElement.replaceWith(svg);
  }

  function arrange() {
    for (const copy of document.querySelectorAll("svg.figure.column")) copy.remove();
    for (const svg of svgs.filter((one) => one.dataset.columns)) {
      svg.dataset.whole ??= svg.getAttribute("viewBox");
      show(svg, svg.dataset.whole);
      if (narrow.matches) split(svg);
    }
    for (const svg of svgs) {
      restore(svg);
      if (narrow.matches && !svg.dataset.columns) enlarge(svg);
    }
  }
  narrow.addEventListener("change", arrange);
  arrange();

  // ---- enlarged
  const dialog = document.createElement("dialog");
  dialog.className = "figure-large";
  dialog.setAttribute("aria-label", "Figure, enlarged. Escape closes.");
  const place = document.createElement("div");
  place.tabIndex = 0;
  const close = document.createElement("button");
  close.type = "button";
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.append(close, place);
  document.body.append(dialog);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  function open(picture) {
    const copy = picture.cloneNode(true);
    if (copy.dataset.whole) show(copy, copy.dataset.whole);
    for (const text of copy.querySelectorAll("text[data-drawn]")) text.setAttribute("transform", text.dataset.drawn);
    for (const name of ["width", "max-width"]) copy.style.removeProperty(name);
    place.replaceChildren(copy);
    dialog.showModal();
  }
  for (const picture of document.querySelectorAll("article figure svg.figure, article figure img")) {
    if (picture.closest("a")) continue;
    picture.tabIndex = 0;
    picture.addEventListener("click", () => open(picture));
    picture.addEventListener("keydown", (event) => { if (event.key === "Enter") open(picture); });
  }
});

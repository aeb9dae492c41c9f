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
  function arrange() {
    for (const copy of document.querySelectorAll("svg.figure.column")) copy.remove();
    for (const svg of svgs.filter((one) => one.dataset.columns)) {
      svg.dataset.whole ??= svg.getAttribute("viewBox");
      show(svg, svg.dataset.whole);
      if (narrow.matches) split(svg);
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

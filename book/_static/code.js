// One switch that opens all folded code of a page; what was chosen holds for the next page, too.
"use strict";
addEventListener("DOMContentLoaded", () => {
  const title = document.querySelector("article h1");
  // Cells that follow one another without a word or an output between them are one fold.
  const isFold = (cell) => cell?.matches?.("div.cell:has(> details.hide)");
  for (const cell of document.querySelectorAll("div.cell:has(> details.hide)")) {
    const next = cell.nextElementSibling;
    if (cell.querySelector(":scope > .cell_output") || !isFold(next)) continue;
    const into = next.querySelector(":scope > details.hide");
    const inputs = cell.querySelectorAll(":scope > details.hide > .cell_input");
    into.querySelector("summary").after(...inputs);
    cell.hidden = true;
  }
  const folded = [...document.querySelectorAll("div.cell:not([hidden]) > details.hide")];
  if (!folded.length || !title) return;
  const NAME = "spinformer-code";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "code-switch";
  function show(open) {
    for (const one of folded) one.open = open;
    button.textContent = open ? "Hide all code" : "Show all code";
    button.setAttribute("aria-pressed", String(open));
  }
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-pressed") !== "true";
    show(open);
    // Pages that lie in a folder may have no storage.
    try { localStorage.setItem(NAME, open ? "open" : ""); } catch { /* nothing to remember */ }
  });
  let chosen = "";
  try { chosen = localStorage.getItem(NAME); } catch { /* nothing remembered */ }
  show(chosen === "open");
  title.after(button);
});

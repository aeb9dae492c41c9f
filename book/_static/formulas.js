// Formulas are broken for the width that they have when the page opens: again for another one.
"use strict";
(() => {
  // What writes formulas for screen readers sets an option that only MathJax's own menu knows.
  const settings = globalThis.MathJax;
  if (settings) settings.startup = {ready() {
    delete MathJax.config.options.menuOptions;
    MathJax.startup.defaultReady();
  }};
  const width = () => document.querySelector("article.bd-article")?.clientWidth;
  // Of the steps of MathJax, the last one that knows of no width.
  const COMPILED = 20;
  let shown = 0, pending = 0;
  // Of two equations side by side that have no room, the second one begins a line of its own.
  const whole = new Map();
  function separate(formulas) {
    for (const item of formulas.math) {
      const broken = item.display && item.typesetRoot?.querySelector("mjx-linebox ~ mjx-linebox");
      if (!broken || !item.math.includes("\\qquad") || item.math.includes("\\begin")) continue;
      whole.set(item, item.math);
      item.math = item.math.replaceAll(/\\qquad(?![A-Za-z])/g, "\\\\");
      item.rerender(formulas, COMPILED);
    }
  }
  addEventListener("load", async () => {
    shown = width();
    await globalThis.MathJax?.startup?.promise;
    if (globalThis.MathJax?.startup?.document) separate(MathJax.startup.document);
  });
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(() => {
      const formulas = globalThis.MathJax?.startup?.document;
      if (!formulas || width() === shown) return;
      shown = width();
      for (const [item, text] of whole) item.math = text;
      whole.clear();
      formulas.rerenderPromise(COMPILED).then(() => separate(formulas));
    }, 250);
  });
})();

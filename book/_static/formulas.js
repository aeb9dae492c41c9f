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
  addEventListener("load", () => { shown = width(); });
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(() => {
      const formulas = globalThis.MathJax?.startup?.document;
      if (!formulas || width() === shown) return;
      shown = width();
      formulas.rerenderPromise(COMPILED);
    }, 250);
  });
})();

// On paper every page is dark on white, whatever the screen shows.
"use strict";
(() => {
  const root = document.documentElement;
  let shown = "";
  addEventListener("beforeprint", () => {
    shown = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => { root.dataset.theme = shown; });
})();

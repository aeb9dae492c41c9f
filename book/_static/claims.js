// Buttons that show only the claims of one part of the book or of one verdict. Without scripts the
// page shows all of them.
"use strict";
(() => {
  const rows = [...document.querySelectorAll("div.claim")];
  const list = document.querySelector("div.claims");
  if (!list || !rows.length) return;
  const wanted = {part: "", verdict: ""};
  const word = (row, key) => {
    const prefix = key === "part" ? "part-" : "verdict-";
    const found = [...row.classList].find((name) => name.startsWith(prefix));
    return found ? found.slice(prefix.length) : "";
  };
  const written = {
    part: (name) => (/^[ivx]+$/.test(name)
      ? `Part ${name.toUpperCase()}` : name[0].toUpperCase() + name.slice(1).replaceAll("-", " ")),
    verdict: (name) => name.replaceAll("-", " "),
  };

  const box = document.createElement("div");
  box.className = "claims-filter";
  const told = document.createElement("p");
  told.setAttribute("role", "status");

  function fits(row, chosen) {
    return Object.entries(chosen).every(([key, name]) => !name || word(row, key) === name);
  }

  // What is chosen stands in the address, so that it survives a reload and can be sent.
  function write() {
    const chosen = new URLSearchParams(Object.entries(wanted).filter(([, name]) => name));
    history.replaceState(null, "", `${location.pathname}${chosen.size ? `?${chosen}` : ""}${location.hash}`);
  }

  function show() {
    let count = 0;
    for (const row of rows) {
      row.hidden = !fits(row, wanted);
      count += row.hidden ? 0 : 1;
    }
    told.textContent = `${count} of ${rows.length} claims shown.`;
    for (const button of box.querySelectorAll("button")) {
      const {key, name} = button.dataset;
      button.setAttribute("aria-pressed", String(wanted[key] === name));
      const chosen = {...wanted, [key]: name};
      button.querySelector("span").textContent = rows.filter((row) => fits(row, chosen)).length;
    }
  }

  for (const [key, title] of [["part", "Part"], ["verdict", "Verdict"]]) {
    const group = document.createElement("div");
    group.setAttribute("role", "group");
    group.setAttribute("aria-label", title);
    const names = ["", ...new Set(rows.map((row) => word(row, key)).filter(Boolean))];
    for (const name of names) {
      const button = document.createElement("button");
      button.type = "button";
      Object.assign(button.dataset, {key, name});
      button.append(name ? written[key](name) : `any ${key}`, " ", document.createElement("span"));
      button.addEventListener("click", () => { wanted[key] = name; show(); write(); });
      group.append(button);
    }
    box.append(group);
  }
  box.append(told);
  list.before(box);

  // ?verdict=fails&part=ii in the address; a link to one claim shows it whatever is chosen.
  const asked = new URLSearchParams(location.search);
  for (const key of Object.keys(wanted)) {
    const name = asked.get(key) ?? "";
    if (rows.some((row) => word(row, key) === name)) wanted[key] = name;
  }
  // A link to a claim opens what is folded in it.
  function reach() {
    const row = document.getElementById(location.hash.slice(1));
    if (!row?.classList.contains("claim")) return;
    if (row.hidden) {
      Object.assign(wanted, {part: "", verdict: ""});
      show();
      write();
    }
    row.querySelector("details").open = true;
    row.scrollIntoView();
  }
  addEventListener("hashchange", reach);
  show();
  if (location.hash) reach();
})();

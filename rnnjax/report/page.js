// The page's own behaviour: theme, filters, sorting. The charts are in charts.js. Nothing here reads the network.
"use strict";

const page = { themed: [] }; // themed: what is drawn anew where the theme changes

function pressed(button, on) {
  button.setAttribute("aria-pressed", String(on));
}
function isPressed(button) {
  return button.getAttribute("aria-pressed") === "true";
}

// Theme: the system's until the button is used; then what was chosen, where the browser keeps it.
{
  const root = document.documentElement,
    system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  let chosen = null;
  try {
    chosen = localStorage.getItem("rnnjax-theme");
  } catch {
    /* a browser that keeps nothing for files */
  }
  const apply = () => {
    const dark = chosen ? chosen === "dark" : system.matches;
    root.dataset.theme = dark ? "dark" : "light";
    button.textContent = dark ? "Light" : "Dark";
    button.setAttribute("aria-label", `Change to ${dark ? "light" : "dark"} colours`);
    page.themed.forEach(draw => draw());
  };
  button.addEventListener("click", () => {
    chosen = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem("rnnjax-theme", chosen);
    } catch {
      /* as above */
    }
    apply();
  });
  system.addEventListener("change", apply);
  apply();
}

// Claims: a chip a verdict, and words that must all be in the row or in the heading of its study.
{
  const chips = [...document.querySelectorAll("#claims .chip")],
    words = document.querySelector("#claims input");
  const apply = () => {
    const shown = new Set(chips.filter(isPressed).map(chip => chip.dataset.verdict));
    for (const study of document.querySelectorAll("#claims .study")) {
      const heading = study.querySelector(".head").textContent;
      let left = 0;
      for (const row of study.querySelectorAll("tbody tr")) {
        row.hidden = !shown.has(row.dataset.verdict) || !matches(heading + row.textContent, words.value);
        left += !row.hidden;
      }
      study.hidden = left === 0;
      if (words.value) study.open = true;
    }
  };
  for (const chip of chips)
    chip.addEventListener("click", () => {
      pressed(chip, !isPressed(chip));
      apply();
    });
  words?.addEventListener("input", apply);
}

function matches(text, words) {
  const held = text.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every(word => held.includes(word));
}

// Runs: sorting by any column, a filter, and only the columns that say something of the rows in view.
{
  const table = document.querySelector("#runs table"),
    MOST_SCORES = 3;
  const words = document.querySelector("#runs input"),
    experiment = document.querySelector("#runs select");
  const count = document.querySelector("#runs .count");
  const apply = () => {
    let left = 0;
    const filled = new Map(); // column: how many rows say something there, and not what the column before says too
    for (const row of table.tBodies[0].rows) {
      const other = experiment.value !== "" && row.dataset.experiment !== experiment.value;
      row.hidden = other || !matches(row.textContent, words.value);
      if (row.hidden) continue;
      left += 1;
      [...row.cells].forEach((cell, at) => {
        const text = cell.textContent;
        if (text && text !== row.cells[at - 1]?.textContent) filled.set(at, (filled.get(at) ?? 0) + 1);
      });
    }
    const heads = [...table.tHead.rows[0].cells],
      isScore = at => "score" in heads[at].dataset;
    const scores = [...filled.keys()].filter(isScore).sort((a, b) => filled.get(b) - filled.get(a) || a - b);
    const kept = new Set([...[...filled.keys()].filter(at => !isScore(at)), ...scores.slice(0, MOST_SCORES)]);
    for (const row of table.rows) heads.forEach((_, at) => row.cells[at].classList.toggle("hidden", !kept.has(at)));
    const more = scores.length - MOST_SCORES;
    count.textContent =
      `${left} of ${table.tBodies[0].rows.length} rows` +
      (more > 0 ? `; ${more} more score${more > 1 ? "s" : ""} where one experiment is chosen, and in the CSV` : "");
  };
  const sort = (head, button) => {
    const down = head.getAttribute("aria-sort") === "ascending",
      at = head.cellIndex,
      numeric = "numeric" in head.dataset;
    const key = row => row.cells[at].dataset.value ?? row.cells[at].textContent.trim();
    const rows = [...table.tBodies[0].rows].sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (x === "" || y === "") return (x === "") - (y === ""); // what is not known stands last, either way
      const order = numeric ? x - y : x.localeCompare(y, undefined, { numeric: true });
      return down ? -order : order;
    });
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    table.tBodies[0].append(...rows);
    button.focus();
  };
  for (const head of table.tHead.rows[0].cells) {
    const button = head.querySelector("button");
    button.addEventListener("click", () => sort(head, button));
  }
  words.addEventListener("input", apply);
  experiment.addEventListener("change", apply);
  apply();
}

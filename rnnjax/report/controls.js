// What is switched on and off above the curves.
"use strict";

function switchOf(name, options, key, redraw) {
  const buttons = options.map(([value, text]) =>
    make("button", {
      type: "button",
      textContent: text,
      onclick: () => {
        chosen[key] = value;
        buttons.forEach((button, at) => pressed(button, options[at][0] === value));
        redraw();
      },
    }),
  );
  buttons.forEach((button, at) => pressed(button, options[at][0] === chosen[key]));
  const group = make("span", { className: "switch", role: "group", ariaLabel: name }, ...buttons);
  return make("span", {}, make("span", { className: "name", textContent: name }), group);
}

function chip(text, hidden, cell) {
  const button = make("button", {
    type: "button",
    className: "chip",
    onclick: () => {
      if (!hidden.delete(text)) hidden.add(text);
      pressed(button, !hidden.has(text));
      drawCurves();
    },
  });
  if (cell) button.append(sample(cell));
  button.append(text);
  pressed(button, !hidden.has(text));
  return button;
}

function sample(cell) {
  const name = "http://www.w3.org/2000/svg",
    svg = document.createElementNS(name, "svg");
  const line = document.createElementNS(name, "line"),
    place = { x1: 0, x2: 30, y1: 5, y2: 5, "stroke-width": 2.5 };
  for (const [key, value] of Object.entries({ width: 30, height: 10, "aria-hidden": true }))
    svg.setAttribute(key, value);
  for (const [key, value] of Object.entries(place)) line.setAttribute(key, value);
  line.setAttribute("stroke", colorOf(cell));
  if (data.cells[cell].dash !== "solid")
    line.setAttribute("stroke-dasharray", data.cells[cell].dash.replaceAll("px", ""));
  svg.append(line);
  return svg;
}

function named(name, ...children) {
  return make("span", {}, make("span", { className: "name", textContent: name }), ...children);
}

function chooseGroup(group) {
  chosen.group = group;
  const lines = [...data.losses, ...data.norms].filter(inGroup),
    runs = unique(lines.map(line => line.run));
  const models = Math.max(1, unique(lines.map(line => `${line.run}/${line.model}`)).length / runs.length);
  chosen.runs = new Set(runs.slice(0, Math.max(1, Math.floor(MOST_LINES / models))));
  chosen.cells.clear();
  chosen.seeds.clear();
  const splits = unique(data.losses.filter(inGroup).map(line => line.split)),
    watched = splits.includes("valid") ? "valid" : splits.find(split => split !== "train");
  const crowded = unique(lines.map(line => `${line.run}/${line.model}`)).length > 8;
  chosen.splits = new Set(
    splits.filter(split => watched && split !== watched && (split !== "train" || crowded)).map(splitName),
  );
  for (const [id, lines] of [
    ["loss", data.losses],
    ["norm", data.norms],
  ])
    $(id).parentElement.hidden = !lines.some(inGroup);
  showControls();
  drawCurves();
  chooseHeat();
}

function showControls() {
  const lines = [...data.losses, ...data.norms].filter(inGroup),
    runs = unique(lines.map(line => line.run));
  const seeds = unique(data.losses.filter(inGroup).map(line => line.seed));
  $("toggles").replaceChildren(
    named("Cells", ...unique(lines.map(line => line.cell)).map(cell => chip(cell, chosen.cells, cell))),
  );
  if (seeds.length > 1)
    $("toggles").append(named("Seeds (of the loss)", ...seeds.map(seed => chip(seed, chosen.seeds))));
  const splits = unique(data.losses.filter(inGroup).map(line => splitName(line.split)));
  if (splits.length > 1)
    $("toggles").append(named("Losses of", ...splits.map(split => chip(split, chosen.splits))));
  const boxes = runs.map(run =>
    make(
      "label",
      {},
      make("input", {
        type: "checkbox",
        value: run,
        checked: chosen.runs.has(run),
        onchange: event => {
          chosen.runs[event.target.checked ? "add" : "delete"](run);
          drawCurves();
        },
      }),
      ` ${data.runs[run].label}`,
    ),
  );
  const all = shown => () => {
    for (const box of boxes.filter(box => !box.hidden)) {
      box.firstChild.checked = shown;
      chosen.runs[shown ? "add" : "delete"](Number(box.firstChild.value));
    }
    drawCurves();
  };
  const words = make("input", {
    type: "search",
    placeholder: "find runs",
    ariaLabel: "find runs",
    oninput: () =>
      boxes.forEach(box => {
        box.hidden = !matches(box.textContent, words.value);
      }),
  });
  const buttons = [
    ["all", true],
    ["none", false],
  ].map(([text, shown]) => make("button", { type: "button", textContent: text, onclick: all(shown) }));
  $("run-toggles").hidden = runs.length < 2;
  $("run-list").replaceChildren(
    make("div", { className: "controls" }, words, ...buttons),
    make("div", { className: "pick" }, ...boxes),
  );
}

function drawCurves() {
  const runs = unique([...data.losses, ...data.norms].filter(inGroup).map(line => line.run));
  $("run-count").textContent = `Runs: ${runs.filter(run => chosen.runs.has(run)).length} of ${runs.length} shown`;
  return Promise.all([drawLosses(), drawNorms()]);
}

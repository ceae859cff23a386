// The charts, drawn by plotly from the data that the page carries: losses, norms over distance, norms over training.
"use strict";

const $ = id => document.getElementById(id);
const MOST_LINES = 48,
  MOST_BANDS = 8,
  DECADES = 20,
  HEAT_DECADES = 12;
const chosen = {
  group: "",
  cells: new Set(),
  runs: new Set(),
  seeds: new Set(),
  loss: "log",
  step: "linear",
  norm: "log",
  when: "last",
  splits: new Set(),
}; // cells, seeds, splits: those hidden; runs: those shown
const SPLITS = { train: "training batches", valid: "validation" };
const splitName = split => SPLITS[split] ?? split;
let data, heat;

async function unpack(id) {
  const bytes = Uint8Array.from(atob($(id).textContent.trim()), letter => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const isDark = () => document.documentElement.dataset.theme === "dark";
const colorOf = cell => data.cells[cell][isDark() ? "dark" : "color"]; // "cell" of a line: a key of data.cells
const safe = text => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;"); // plotly reads tags
const unique = list => [...new Set(list)];
const titleOf = line =>
  (data.runs.filter(run => run.experiment === chosen.group).length > 1 ? `${data.runs[line.run].label} · ` : "") +
  line.model;

// The codes of series.py: sums of differences; "0" a norm of 0, null none.
function decode(rows) {
  return rows.map(row => {
    let sum = 0;
    return row.map(code => (typeof code === "number" ? (sum += code) / 100 : code === "0" ? -Infinity : null));
  });
}

const isShown = line =>
  data.runs[line.run].experiment === chosen.group && chosen.runs.has(line.run) && !chosen.cells.has(line.cell);
const inGroup = line => data.runs[line.run].experiment === chosen.group;

function axis(title, more) {
  return {
    title: { text: title, standoff: 8 },
    gridcolor: color("--grid"),
    linecolor: color("--line"),
    zeroline: false,
    ticks: "outside",
    tickcolor: color("--line"),
    automargin: true,
    exponentformat: "power",
    ...more,
  };
}

// Of a log axis over few decades: 1, 2 and 5 of each, written out, and within one evenly spaced; plotly's own crowd.
function ticksOf(values) {
  const seen = values.filter(value => value > 0),
    least = seen.reduce((a, b) => Math.min(a, b), Infinity);
  const most = seen.reduce((a, b) => Math.max(a, b), 0),
    places = [];
  if (!(most / least < 1e4)) return { dtick: Math.max(1, Math.ceil(Math.log10(most / least) / 8)) };
  if (most / least < 5) return evenTicks(least, most);
  const low = Math.floor(Math.log10(least)),
    high = Math.ceil(Math.log10(most));
  for (let power = low - 1; power <= high; power += 1)
    for (const digit of [1, 2, 5]) places.push(digit * 10 ** power);
  return named10(places);
}

function evenTicks(least, most) {
  const rough = (most - least) / 6 || most / 10,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find(digit => digit * power >= rough) * power,
    places = [];
  for (let at = Math.max(1, Math.floor(least / step) - 3); at <= Math.ceil(most / step) + 3; at += 1)
    places.push(at * step);
  return named10(places);
}

function named10(places) {
  const written = place =>
    place >= 1e5 || place < 1e-4 ? place.toExponential(1).replace(".0", "") : String(+place.toPrecision(3));
  return { tickvals: places, ticktext: places.map(written) };
}

function layout(xaxis, yaxis, more) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    showlegend: false,
    hovermode: "closest",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: color("--ink") },
    hoverlabel: { bgcolor: color("--card"), bordercolor: color("--line"), font: { color: color("--ink") } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: color("--soft"), activecolor: color("--accent") },
    margin: { l: 62, r: 14, t: 10, b: 48 },
    xaxis,
    yaxis,
    ...more,
  };
}

function draw(id, traces, shape) {
  return Plotly.react(id, traces, shape, {
    displaylogo: false,
    responsive: true,
    modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
    toImageButtonOptions: { format: "svg", filename: id },
  }).then(
    drawn => drawn.offsetWidth && drawn.offsetWidth !== drawn._fullLayout.width && Plotly.Plots.resize(drawn),
  );
}

const faint = (hex, share) =>
  hex +
  Math.round(255 * share)
    .toString(16)
    .padStart(2, "0");

// A line over its band, both broken where there is no value; `log` values, drawn as powers of ten.
function curve(line, quartiles, at, banded) {
  const [low, middle, high] = quartiles.map(quartile => quartile[at]);
  const power = value => (value === null ? null : 10 ** value),
    hex = colorOf(line.cell);
  const band = { x: line.distance, mode: "lines", line: { width: 0 }, hoverinfo: "skip", connectgaps: false };
  const drawn = {
    x: line.distance,
    y: middle.map(value => (value === -Infinity ? null : power(value))),
    name: safe(titleOf(line)),
    mode: "lines",
    line: { color: hex, width: 2, dash: data.cells[line.cell].dash },
    customdata: middle.map((value, i) => [low[i], value, high[i]].map(one => one?.toFixed(2) ?? "–")),
    hovertemplate:
      "<b>%{fullData.name}</b><br>%{x} steps back: %{y:.3g}<br>log10 %{customdata[1]}, " +
      "quartiles %{customdata[0]} to %{customdata[2]}<extra></extra>",
  };
  if (middle.filter(value => value !== null && value !== -Infinity).length === 1) drawn.mode = "markers";
  const fills = [
    { ...band, y: low.map(power) },
    { ...band, y: high.map(power), fill: "tonexty", fillcolor: faint(hex, 0.16) },
  ];
  return { drawn: banded ? [...fills, drawn] : [drawn], middle };
}

function crosses(line, middle, floor) {
  const from = middle.findIndex(value => value === -Infinity);
  return from < 0 || chosen.norm !== "log"
    ? []
    : [
        {
          x: [line.distance[from]],
          y: [10 ** floor],
          mode: "markers",
          marker: { symbol: "x", size: 9, color: colorOf(line.cell) },
          cliponaxis: false,
          hovertemplate: `<b>${safe(titleOf(line))}</b><br>0 in float32 from %{x} steps on<extra></extra>`,
        },
      ];
}

// Limits in log10 that hold all medians, and no more than DECADES from what distance 0 has.
function limits(rows) {
  const finite = rows.flat().filter(Number.isFinite),
    starts = rows.map(row => row[0]).filter(Number.isFinite);
  if (!finite.length) return [-1, 1];
  const [least, most] = [starts, finite]
    .map(list => (list.length ? list : finite))
    .map(list => [list.reduce((a, b) => Math.min(a, b)), list.reduce((a, b) => Math.max(a, b))]);
  const low = Math.max(most[0], least[0] - DECADES),
    high = Math.min(most[1], least[1] + DECADES);
  const pad = Math.max(0.04 * (high - low), 0.3);
  return [low - pad, high + pad];
}

function drawLosses() {
  const lines = data.losses.filter(
    line => isShown(line) && !chosen.seeds.has(line.seed) && !chosen.splits.has(splitName(line.split)),
  );
  const heldOut = lines.filter(line => line.split !== "train");
  const traces = lines.map(line => {
    const thin = line.split === "train",
      hex = colorOf(line.cell),
      seed = line.seed ? `, ${line.seed}` : "";
    return {
      x: line.steps,
      y: line.values,
      name: safe(`${titleOf(line)}${seed}`),
      mode: thin ? "lines" : "lines+markers",
      opacity: thin && heldOut.length ? 0.4 : 1,
      marker: { size: 5, color: hex },
      line: {
        color: hex,
        width: thin && heldOut.length ? 1 : 2,
        dash: thin ? "solid" : data.cells[line.cell].dash,
      },
      hovertemplate:
        `<b>%{fullData.name}</b><br>${safe(splitName(line.split))}, step %{x:,}<br>` +
        "loss %{y:.4g}<extra></extra>",
    };
  });
  const split = unique((heldOut.length ? heldOut : lines).map(line => splitName(line.split))).join(", ");
  $("loss-title").textContent = `Loss during training${split ? ` (${split})` : ""}`;
  $("loss-empty").hidden = traces.length > 0;
  $("loss").hidden = !traces.length;
  const { chance, unit } = data.runs[lines[0]?.run] ?? {},
    known = Number.isFinite(chance) && traces.length > 0;
  const level = {
    type: "line",
    xref: "paper",
    x0: 0,
    x1: 1,
    y0: chance,
    y1: chance,
    line: { color: color("--soft"), width: 1.2, dash: "2px,3px" },
  };
  const words = {
    xref: "paper",
    x: 1,
    y: chosen.loss === "log" ? Math.log10(chance) : chance,
    xanchor: "left",
    showarrow: false,
    text: `chance<br>${Number(chance).toPrecision(3)}`,
    align: "left",
    font: { size: 11, color: color("--soft") },
  };
  const ticks =
    chosen.loss === "log" ? ticksOf([...traces.flatMap(trace => trace.y), ...(known ? [chance] : [])]) : {};
  return draw(
    "loss",
    traces.sort((a, b) => a.opacity - b.opacity),
    layout(
      axis("training step", {
        type: chosen.step,
        ...(chosen.step === "log" ? ticksOf(traces.flatMap(trace => trace.x)) : { tickformat: "," }),
      }),
      axis(unit ? `loss (${safe(unit)})` : "loss", { type: chosen.loss, ...ticks }),
      known ? { shapes: [level], annotations: [words], margin: { l: 62, r: 54, t: 10, b: 48 } } : {},
    ),
  );
}

function drawNorms() {
  const lines = data.norms.filter(isShown),
    banded = lines.length <= MOST_BANDS,
    traces = [],
    middles = [];
  for (const line of lines) {
    const { drawn, middle } = curve(line, line.decoded, chosen.when === "last" ? line.steps.length - 1 : 0, banded);
    traces.push(...drawn);
    middles.push(middle);
  }
  const [low, high] = limits(middles);
  lines.forEach((line, at) => traces.push(...crosses(line, middles[at], low)));
  const steps = unique(lines.map(line => (chosen.when === "last" ? line.steps.at(-1) : line.steps[0])));
  const told = steps.length === 1 ? `, step ${steps[0].toLocaleString("en")}` : "";
  $("norm-title").textContent = `Gradient on its way back through time${told}`;
  $("norm-empty").hidden = traces.length > 0;
  $("norm").hidden = !traces.length;
  return draw(
    "norm",
    traces,
    layout(
      axis("distance from the loss (steps)"),
      axis(
        "‖∂L/∂carry<sub>t</sub>‖",
        chosen.norm === "log"
          ? { type: "log", range: [low, high], ...ticksOf([10 ** low, 10 ** high]) }
          : { type: "linear", rangemode: "tozero" },
      ),
    ),
  );
}

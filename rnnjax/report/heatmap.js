// Training step x time lag of one model, with a slider over the steps, and the start of the page's charts.
"use strict";

const ROOM = { l: 62, r: 14, t: 68, b: 48 }; // the same in both, so that their axes stand beside each other

function chooseHeat() {
  const lines = data.norms.filter(inGroup);
  $("heatmap").hidden = lines.length === 0;
  const select = $("heat-line");
  select.replaceChildren(...lines.map((line, at) => make("option", { value: at, textContent: titleOf(line) })));
  const show = () => {
    const line = lines[select.value],
      start = line.decoded.map(rows => rows.slice());
    const first = start[1].map(row => (Number.isFinite(row[0]) ? row[0] : NaN)); // distance 0 of the same step
    const quartiles = start.map(rows =>
      rows.map((row, at) =>
        row.map(value => (value === null || Number.isNaN(first[at]) ? null : value - first[at])),
      ),
    );
    const finite = quartiles[1].flat().filter(Number.isFinite);
    const least = finite.reduce((a, b) => Math.min(a, b), 0),
      most = finite.reduce((a, b) => Math.max(a, b), 0);
    heat = {
      line,
      quartiles,
      step: line.steps.length - 1,
      most,
      low: Math.max(Math.min(least, -1), -HEAT_DECADES),
      high: Math.min(most, HEAT_DECADES),
    };
    Object.assign($("heat-step"), {
      max: line.steps.length - 1,
      value: heat.step,
      disabled: line.steps.length < 2,
    });
    drawHeat();
  };
  select.onchange = show;
  if (lines.length) show();
}

function drawHeat() {
  if (!heat) return undefined;
  const { line, quartiles, low, high } = heat,
    log = chosen.norm === "log";
  const z = quartiles[1].map(row => row.map(value => (!Number.isFinite(value) ? null : log ? value : 10 ** value)));
  const every = Math.ceil(line.steps.length / 10),
    rows = line.steps.map((_, at) => at);
  const ticks = rows.filter(at => at % every === 0 || at === rows.length - 1);
  const far = line.distance.at(-1);
  const map = {
    type: "heatmap",
    x: line.distance,
    y: rows,
    z,
    colorscale: "Viridis",
    zmin: log ? low : 0,
    zmax: log ? high : Math.min(10 ** heat.most, 10),
    customdata: line.steps.map(step => line.distance.map(() => step)),
    hoverongaps: false,
    hovertemplate:
      "step %{customdata:,}<br>%{x} steps back<br>" +
      `${log ? "log10 of the share" : "share"} of distance 0: %{z:.3g}<extra></extra>`,
    colorbar: {
      orientation: "h",
      y: 1.02,
      ypad: 0,
      yanchor: "bottom",
      x: 0,
      xanchor: "left",
      xpad: 0,
      thickness: 10,
      outlinewidth: 0,
      len: 1,
      tickcolor: color("--line"),
      exponentformat: "power",
    },
  };
  const row = {
    type: "rect",
    x0: line.distance[0] - 0.5,
    x1: far + 0.5,
    y0: heat.step - 0.5,
    y1: heat.step + 0.5,
    line: { color: isDark() ? "#ffffff" : "#d6006c", width: 2.5 },
  };
  $("heat-at").textContent =
    `step ${line.steps[heat.step].toLocaleString("en")} of ${line.steps.at(-1).toLocaleString("en")}`;
  const shape = layout(
    axis("distance from the loss (steps)", { showgrid: false }),
    axis("training step", {
      tickvals: ticks,
      ticktext: ticks.map(at => line.steps[at].toLocaleString("en")),
      showgrid: false,
      range: [-0.5, rows.length - 0.5],
    }),
    { shapes: [row], plot_bgcolor: color("--none"), margin: ROOM },
  );
  const now = curve(line, quartiles, heat.step, true),
    before = curve(line, quartiles, 0, false).drawn[0];
  Object.assign(before, {
    name: `${before.name}, step ${line.steps[0]}`,
    line: { color: color("--soft"), width: 1.5, dash: "2px,3px" },
  });
  const [bottom, top] = limits(quartiles[1]);
  const traces = [...(heat.step > 0 ? [before] : []), ...now.drawn, ...crosses(line, now.middle, bottom)];
  $("heat-colors").textContent =
    `Colour: ${log ? "log10 of the gradient's norm" : "the gradient's norm"}, relative to distance 0`;
  $("heat-curve-title").textContent = `The curve at step ${line.steps[heat.step].toLocaleString("en")}`;
  return Promise.all([
    draw("heat", [map], shape),
    draw(
      "heat-curve",
      traces,
      layout(
        axis("distance from the loss (steps)"),
        axis(
          "relative to distance 0",
          log
            ? { type: "log", range: [bottom, top], ...ticksOf([10 ** bottom, 10 ** top]) }
            : { type: "linear", rangemode: "tozero" },
        ),
        { margin: ROOM },
      ),
    ),
  ]);
}

async function start() {
  const lacking = typeof DecompressionStream === "undefined";
  if (lacking) throw new Error("this browser cannot unpack the charts: one of 2023 or later does");
  data = JSON.parse(await unpack("data"));
  for (const line of data.norms) line.decoded = line.quartiles.map(decode);
  const groups = unique([...data.losses, ...data.norms].map(line => data.runs[line.run].experiment));
  if (!groups.length) return;
  document.head.append(make("script", { textContent: await unpack("plotly") }));
  const select = $("group");
  select.replaceChildren(...groups.map(group => make("option", { value: group, textContent: group })));
  select.parentElement.hidden = groups.length < 2;
  select.onchange = () => chooseGroup(select.value);
  const both = [
      ["log", "log"],
      ["linear", "linear"],
    ],
    redraw = () => {
      drawCurves();
      drawHeat();
    };
  $("loss-switches").append(switchOf("Loss", both, "loss", drawCurves), switchOf("Step", both, "step", drawCurves));
  const moments = [
    ["first", "first probe"],
    ["last", "last probe"],
  ];
  $("norm-switches").append(
    switchOf("Norm", both, "norm", redraw),
    switchOf("At the", moments, "when", drawCurves),
  );
  $("heat-step").oninput = event => {
    heat.step = Number(event.target.value);
    drawHeat();
  };
  chooseGroup(groups[0]);
  $("heat").on("plotly_click", event => {
    $("heat-step").value = heat.step = event.points[0].y;
    drawHeat();
  });
  page.themed.push(() => {
    showControls();
    drawCurves();
    drawHeat();
  });
  document.documentElement.dataset.drawn = "yes";
}

start().catch(error => {
  $("charts-failed").textContent = `The charts could not be drawn: ${error.message}.`;
  $("charts-failed").hidden = false;
  console.error(error);
});

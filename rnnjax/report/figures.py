"""Figures of a study: gradient norms against the distance from the loss, the same over training, and the losses."""

import collections
import math
import pathlib
import statistics
import textwrap
from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from rnnjax.report.run_files import Run
from rnnjax.report.style import FAINT, NO_VALUE, STYLE, CellStyle, cell_styles, frame, keys
from rnnjax.report.tables import number

WIDTH = 9.0  # inches; README.md shows 900 pixels of the 1350
DECADES = 20  # how far up and down from the loss's own step a picture of norms reaches
HEAT_DECADES = 12
NORM = r"$\log_{10}\,\Vert \partial L\,/\,\partial\,\mathrm{carry}_t \Vert$"
_CLOCKED = {"png": ("Software",), "svg": ("Date", "Creator"), "pdf": ("CreationDate", "Creator", "Producer")}
DISTANCE = "distance from the loss (steps)"


def curves(run: Run) -> Figure:
    """log10 ||dL/dcarry_t|| against the distance from the loss, at the first and at the last probed training step.

    Lines are medians over sequences, bands the quartiles. A line breaks where its value is not finite, and a cross on
    the lower edge marks where the gradient is 0: float32 ends at 1.2e-38.
    """
    last = max(steps[-1] for steps in run.steps.values())
    first = min(steps[0] for steps in run.steps.values())
    start = "at initialisation" if first == 0 else f"at training step {first:,}"
    shown = [(start, {cell: run.norms[cell]["carry"][0] for cell in run.cells})]
    if last > first:
        later = {cell: run.norms[cell]["carry"][-1] for cell in run.cells if len(run.steps[cell]) > 1}
        shown.append((f"after training, step {last:,}", later))
    drawn = [values for _, panel in shown for values in panel.values()]
    bottom, top = _view(drawn)
    reach = max(1, *(int(np.flatnonzero(~np.isnan(values[:, 1])).max(initial=0)) + 1 for values in drawn))
    styles = cell_styles(run.cells)
    with matplotlib.rc_context(STYLE):
        notes = ["Lines: median over sequences. Bands: quartiles."]
        figure = Figure(figsize=(WIDTH, 4.7), layout="constrained")
        panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
        zeros = False
        for axes, (title, panel) in zip(panels, shown, strict=True):
            axes.set_title(title)
            axes.set(ylim=(bottom, top), xlim=_span(run.distance[:reach]))
            for cell, values in panel.items():
                zeros |= _curve(axes, run.distance, values, styles[cell], cell)
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
            axes.yaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
            axes.set_xlabel(DISTANCE)
        panels[0].set_ylabel(NORM)
        notes += ["Cross on the lower edge: 0 in float32 from there on."] if zeros else []
        notes += ["Lines go on below it."] if any(np.any(values[:, 1] < bottom) for values in drawn) else []
        notes += [_last_probe(run, cell) for cell in run.cells if run.steps[cell][-1] != last]
        frame(figure, f"{_task(run)}: the gradient on its way back through time", notes, keys(run, styles))
    return figure


def heatmaps(run: Run) -> Figure:
    """Norms over training: a panel a cell, training step against distance, relative to distance 0 of the same step.

    Rows are the steps that any cell was probed at, evenly spaced. Grey where there is no finite value.
    """
    steps = np.unique(np.concatenate([run.steps[cell] for cell in run.cells]))
    images = {cell: _relative(run, cell, steps) for cell in run.cells}
    low, high, extend = _heat_limits(list(images.values()))
    columns = len(images) if len(images) <= 3 else math.ceil(math.sqrt(len(images)))
    rows = math.ceil(len(images) / columns)
    with matplotlib.rc_context(STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(WIDTH, 1.7 + rows * min(max(0.22 * len(steps), 2.1), 3.6)), layout="constrained")
        grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        colors = matplotlib.colormaps["viridis"].with_extremes(bad=NO_VALUE)
        for at, (axes, (cell, image)) in enumerate(zip(grid.flat, images.items(), strict=False)):
            drawn = axes.imshow(
                image, cmap=colors, vmin=low, vmax=high, aspect="auto", origin="lower", interpolation="nearest",
                extent=(run.distance[0] - 0.5, run.distance[-1] + 0.5, -0.5, len(steps) - 0.5),
            )  # fmt: skip
            axes.set_title("\n".join(textwrap.wrap(cell, 66 // columns)), parse_math=False)
            lowest = at + columns >= len(images)
            axes.tick_params(labelbottom=lowest)
            axes.set_xlabel(DISTANCE if lowest and (columns < 3 or at % columns == (columns - 1) // 2) else "")
            axes.set_ylabel("training step" if at % columns == 0 else "")
        for axes in grid.flat[len(images) :]:
            axes.set_axis_off()
        every = math.ceil(len(steps) / 10)
        grid[0, 0].set_yticks(range(0, len(steps), every), [f"{step:,}" for step in steps[::every]])
        grid[0, 0].xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
        bar = figure.colorbar(drawn, ax=list(grid.flat), extend=extend, aspect=30, pad=0.02)
        bar.set_label(f"{NORM}\nrelative to distance 0")
        bar.outline.set_visible(False)
        notes = [
            "Medians over sequences, a row a probed step. Grey: 0 in float32, no sequence that long, or not probed."
        ]
        frame(figure, f"{_task(run)}: how far back the gradient reaches, over training", notes, [])
    return figure


def losses(run: Run) -> Figure:
    """Training loss of batches (thin) and held-out loss (points) against the training step, with chance.

    Held out is the validation split, or the test set where there is no other. The view ends at 30 times the largest of
    chance and the held-out losses of the cells that did not diverge.
    """
    styles = cell_styles(run.cells)
    diverged = [cell for cell in run.cells if run.summaries[cell].get("diverged")]
    train = {cell: _losses(run, cell, kind="train") for cell in run.cells}
    splits = {row["split"] for rows in run.metrics.values() for row in rows if row["kind"] == "eval"}
    split = "valid" if "valid" in splits else "test"
    held_out = {cell: _losses(run, cell, kind="eval", split=split) for cell in run.cells}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.5), layout="constrained")
        axes = figure.subplots()
        for cell, (color, dashes) in styles.items():
            steps, (_, middle, _) = train[cell]
            axes.plot(steps, middle, color=color, linewidth=0.8, alpha=0.3, label=f"{cell} training")
            steps, (low, middle, high) = held_out[cell]
            if np.any(low < high):
                axes.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
            axes.plot(steps, middle, color=color, linestyle=dashes, marker="o", markersize=4, label=cell)
        ceiling = _scale_losses(
            axes, run.task.get("chance"), [held_out[cell][1][1] for cell in held_out if cell not in diverged]
        )
        for cell in diverged:
            there = np.isfinite(train[cell][1][1])
            steps, values = train[cell][0][there], train[cell][1][1][there]
            axes.plot(
                steps[-1:], np.minimum(values[-1:], ceiling), "X", color=styles[cell].color, markersize=9,
                clip_on=False, label=f"{cell} diverged",
            )  # fmt: skip
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.margins(x=0.02)
        axes.set(xlabel="training step", ylabel=f"loss ({unit})" if (unit := run.task["unit"]) else "loss")
        notes = [f"Thin lines: training batches. Points: {'validation' if split == 'valid' else split} set."]
        if any("replica" in row for rows in run.metrics.values() for row in rows):
            notes += ["Of several replicas: the median; shaded from the least to the largest."]
        notes += [f"Cross: {cell} diverged ({_when(run, cell)})." for cell in diverged]
        frame(figure, f"{_task(run)}: loss during training", notes, keys(run, styles, marker="o"))
    return figure


def save(figure: Figure, path_without_suffix: str | pathlib.Path, formats: Sequence[str] = ("png", "svg")) -> None:
    """Writes the figure as PATH.png (150 dpi), PATH.svg, or PATH.pdf. The same figure gives the same bytes."""
    path = pathlib.Path(path_without_suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context(STYLE):
        for suffix in formats:
            figure.savefig(f"{path}.{suffix}", dpi=150, metadata=dict.fromkeys(_CLOCKED[suffix]))


def _curve(axes: Axes, distance: np.ndarray, values: np.ndarray, style: CellStyle, cell: str) -> bool:
    """Draws the median and the quartiles of values [distance, 3]; whether a gradient of exactly 0 was marked."""
    low, median, high = values.T
    finite = np.isfinite(median)
    alone = np.flatnonzero(finite & ~np.append(False, finite[:-1]) & ~np.append(finite[1:], False))
    axes.plot(
        distance, np.where(finite, median, np.nan), color=style.color, linestyle=style.linestyle, label=cell,
        marker="o", markersize=5, markevery=alone.tolist(), zorder=3,
    )  # fmt: skip
    floor, ceiling = axes.get_ylim()
    edges = [np.clip(edge, floor - 1, ceiling + 1) for edge in (low, high)]  # an infinite edge leaves the view
    known = ~np.isnan(low) & ~np.isnan(high) & ~np.isneginf(high)
    axes.fill_between(distance, *edges, where=known, color=style.color, alpha=0.16, linewidth=0, zorder=2)
    axes.vlines(distance[alone], *(edge[alone] for edge in edges), color=style.color, alpha=0.3, linewidth=4)
    zero = np.isneginf(median)
    onset = zero & ~np.append(False, zero[:-1])
    (cross,) = axes.plot(
        distance[onset], np.full(onset.sum(), floor), "X", color=style.color, markersize=8, markeredgecolor="white",
        clip_on=False, zorder=4, label=f"{cell} exactly 0",
    )  # fmt: skip
    cross.set_in_layout(False)
    return bool(zero.any())


def _view(panels: list[np.ndarray]) -> tuple[float, float]:
    """Limits that hold every median, and no more than DECADES down and up from those at distance 0."""
    medians = np.concatenate([values[:, 1] for values in panels])
    medians = medians[np.isfinite(medians)].astype(float)
    if not medians.size:
        return -1.0, 1.0
    starts = np.array([values[0, 1] for values in panels if np.isfinite(values[0, 1])], float)
    starts = starts if starts.size else medians.max(keepdims=True)
    low, high = max(medians.min(), starts.min() - DECADES), min(medians.max(), starts.max() + DECADES)
    pad = max(0.04 * (high - low), 0.6)
    return low - pad, high + pad


def _span(distance: np.ndarray) -> tuple[float, float]:
    return (distance[0] - 0.5, distance[0] + 0.5) if len(distance) == 1 else (distance[0], distance[-1])


def _relative(run: Run, cell: str, steps: np.ndarray) -> np.ndarray:
    """Median norms relative to distance 0, [steps, distance]: nan where not finite or not probed."""
    image = np.full((len(steps), len(run.distance)), np.nan)
    median = run.norms[cell]["carry"][:, :, 1].astype(float)
    with np.errstate(invalid="ignore"):
        image[np.searchsorted(steps, run.steps[cell])] = median - median[:, :1]
    return np.where(np.isfinite(image), image, np.nan)


def _heat_limits(images: list[np.ndarray]) -> tuple[float, float, str]:
    """Limits of the colours, 0 included and HEAT_DECADES from it at most, and which ends of the bar go on."""
    seen = np.concatenate([image[np.isfinite(image)] for image in images])
    lowest, highest = (seen.min(), seen.max()) if seen.size else (-1.0, 0.0)
    low, high = max(min(lowest, -1.0), -HEAT_DECADES), min(max(highest, 0.0), HEAT_DECADES)
    extend = {(0, 0): "neither", (1, 0): "min", (0, 1): "max", (1, 1): "both"}[lowest < low, highest > high]
    return low, high, extend


def _scale_losses(axes: Axes, chance: float | None, settled: list[np.ndarray]) -> float:
    """Draws chance and scales the y axis: the highest loss in view."""
    drawn = np.concatenate([[math.nan if chance is None else chance], *(line.get_ydata() for line in axes.lines)])
    usual = np.concatenate([drawn[:1], *settled])
    usual, drawn = usual[np.isfinite(usual)], drawn[np.isfinite(drawn)]
    ceiling = 30 * usual.max() if usual.size and usual.max() > 0 else math.inf
    if drawn.size and drawn.min() > 0 and drawn.max() > 10 * drawn.min():
        axes.set_yscale("log")
    if drawn.size and drawn.max() > ceiling:
        axes.set_ylim(drawn.min() * 0.8 if axes.get_yscale() == "log" else None, ceiling)
    if chance is not None:
        axes.axhline(chance, color=FAINT, linestyle=(0, (2, 2)), linewidth=1.2, zorder=1, label="chance")
        axes.annotate(
            f"chance\n{number(chance)}", (1, chance), (6, 0), xycoords=axes.get_yaxis_transform(),
            textcoords="offset points", color=FAINT, va="center", linespacing=1.1, annotation_clip=False,
        )  # fmt: skip
    return ceiling


def _losses(run: Run, cell: str, **wanted: str) -> tuple[np.ndarray, np.ndarray]:
    """(steps, [3, steps]: the least, the median and the largest loss of the replicas), nan where none is a number."""
    found: dict[int, list[float]] = collections.defaultdict(list)
    for row in run.metrics[cell]:
        if all(row.get(key) == value for key, value in wanted.items()):
            found[row["step"]].append(math.nan if row.get("loss") is None else float(row["loss"]))
    spread = np.full((3, len(found)), math.nan)
    for place, losses in enumerate(found.values()):
        if finite := [loss for loss in losses if math.isfinite(loss)]:
            spread[:, place] = min(finite), statistics.median_low(finite), max(finite)
    return np.array(list(found), int), spread


def _task(run: Run) -> str:
    return run.task["task"].replace("_", " ").capitalize()


def _when(run: Run, cell: str) -> str:
    return str(run.summaries[cell]["diverged"]).partition(":")[0]


def _last_probe(run: Run, cell: str) -> str:
    at = run.steps[cell][-1]
    why = f": it diverged ({_when(run, cell)})" if run.summaries[cell].get("diverged") else ""
    if len(run.steps[cell]) == 1:
        return f"{cell} was probed at step {at:,} only{why}."
    return f"{cell} is shown at step {at:,}, its last probe{why}."

"""The picture of an ablation: a row a variant, a column a task, seeds as dots, gradients through time beside them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rnnjax.report.style import COLORS, FAINT, STYLE, frame

DECADES = 6.0  # how far down a gradient is drawn
VARIANT = "#D55E00"  # of a variant that differs; it is told apart by its marker too
MARKERS = {"differs: worse": ">", "differs: better": "<"}


class Panel(NamedTuple):
    """scores: [seed], log10 of loss over chance. norms: [2, distance], log10, before and after training.

    verdict: of the variant against the whole cell, None of the whole cell itself.
    """

    scores: np.ndarray
    norms: np.ndarray
    verdict: str | None


def draw(
    panels: Mapping[tuple[str, str], Panel],
    labels: Mapping[str, str],
    tasks: Sequence[str],
    whole: str,
    family: str,
    *,
    title: str,
    floor: float,
) -> Figure:
    """panels: {(variant, task)}. labels: {variant: what it is}, in order.

    whole: the variant that all are compared with. family: the cell whose colour is taken. floor: the lowest score.
    """
    rows = len(labels)
    with matplotlib.rc_context(STYLE | {"font.size": 10, "axes.titlesize": 10.5}):
        figure = Figure(figsize=(3.9 * len(tasks) + 1.6, 0.78 * rows + 2.0), layout="constrained")
        widths = [2.3, 1.3] * len(tasks)
        grid = figure.subplots(rows, 2 * len(tasks), squeeze=False, gridspec_kw={"width_ratios": widths})
        for column, task in enumerate(tasks):
            middle = float(np.median(panels[whole, task].scores))
            norms = np.concatenate([_from_the_loss(panels[name, task].norms).ravel() for name in labels])
            top = float(np.max(norms[np.isfinite(norms)], initial=0.0))
            low = max(-DECADES, float(np.min(norms[np.isfinite(norms)], initial=-1.0)))
            for row, name in enumerate(labels):
                scores, gradient = grid[row, 2 * column : 2 * column + 2]
                _scores(scores, panels[name, task], middle, floor, COLORS[family])
                _gradient(gradient, panels[name, task].norms, COLORS[family], (low - 0.3, top + 0.3))
                for axes in (scores, gradient):
                    axes.tick_params(labelbottom=row == rows - 1, labelsize=9)
            grid[0, 2 * column].set_title(task.replace("_", " "), fontweight="bold")
            grid[0, 2 * column + 1].set_title("gradient")
            grid[-1, 2 * column].set_xlabel(r"$\log_{10}$ (test loss / chance)")
            grid[-1, 2 * column + 1].set_xlabel("distance (steps)", fontsize=9)
        for row, (name, what) in enumerate(labels.items()):
            label = {"rotation": 0, "ha": "right", "va": "center", "labelpad": 8}
            grid[row, 0].set_ylabel(name if name == what else f"{name}\n{what}", **label)
        frame(figure, title, _notes(whole), _keys(family))
    return figure


def _from_the_loss(norms: np.ndarray) -> np.ndarray:
    """[2, distance], relative to distance 0; nan where there is no finite gradient there."""
    start = norms[:, :1]
    return norms - np.where(np.isfinite(start), start, np.nan)


def _scores(axes: Axes, panel: Panel, middle: float, floor: float, color: str) -> None:
    """A dot a seed, a bar at the median, the whole cell's median as a line, and the verdict as a mark."""
    if panel.verdict in MARKERS:
        color = VARIANT
    heights = np.linspace(-0.25, 0.25, len(panel.scores)) if len(panel.scores) > 1 else np.zeros(1)
    axes.axvline(middle, color=FAINT, linewidth=1.1, linestyle=(0, (2, 2)), zorder=1)
    axes.plot(panel.scores, heights, "o", color=color, markersize=4, alpha=0.65, clip_on=False, zorder=3)
    axes.plot([np.median(panel.scores)] * 2, [-0.4, 0.4], color=color, linewidth=2.4, zorder=4)
    if panel.verdict in MARKERS:
        axes.plot(
            [1.04], [0.5], MARKERS[panel.verdict], color=VARIANT, markersize=7, transform=axes.transAxes, clip_on=False
        )
    axes.set(xlim=(floor - 0.06, 0.06), ylim=(-0.6, 0.6), yticks=[])
    axes.set_xticks(np.arange(floor, 0.01, 0.5 if floor > -2 else 1.0))
    axes.grid(axis="y", visible=False)


def _gradient(axes: Axes, norms: np.ndarray, color: str, limits: tuple[float, float]) -> None:
    """log10 ||dL/dcarry_t|| against the distance, relative to that at distance 0, before and after training."""
    for values, look in zip(
        _from_the_loss(norms), ({"color": FAINT, "linestyle": (0, (4, 1.5))}, {"color": color}), strict=True
    ):
        axes.plot(np.where(np.isfinite(values), values, np.nan), linewidth=1.6, **look)
    reach = int(np.flatnonzero(~np.isnan(norms).all(axis=0)).max(initial=1))
    axes.set(xlim=(0, reach), ylim=limits)
    axes.locator_params(nbins=3, integer=True)


def _notes(whole: str) -> list[str]:
    return [
        f"Dots: seeds. Bars: their median. Dotted: the median of {whole}.",
        "Orange, with an arrow at the edge: it differs, to the right worse, to the left better (exact sign-flip test, "
        "paired by seed, p < 0.05 after Holm's correction over the variants of a task); all others: not resolved.",
        "Gradients: medians over sequences of log10 ||dL/dcarry_t|| against the distance from the loss, relative to "
        "that at distance 0.",
    ]


def _keys(family: str) -> list[Line2D]:
    dot = {"linestyle": "", "marker": "o", "markersize": 5}
    return [
        Line2D([], [], color=COLORS[family], label="whole, or not resolved", **dot),
        Line2D([], [], color=VARIANT, label="differs", **dot),
        Line2D([], [], color=FAINT, linestyle=(0, (4, 1.5)), label="gradient before training"),
        Line2D([], [], color=COLORS[family], label="gradient after training"),
    ]

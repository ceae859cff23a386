"""Figures of scores: a point a model, or lines over something that is varied."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rnnjax.report.style import FAINT, STYLE, cell_styles, frame

WIDTH = 9.0  # inches


class Score(NamedTuple):
    """label: of the model, which begins with the cell's name; values: one a seed."""

    label: str
    values: Sequence[float]


def score_points(
    scores: Sequence[Score], *, title: str, xlabel: str, references: Mapping[str, float] | None = None
) -> Figure:
    """A row a model from the top down, a dot a seed, a bar at the mean; dashed lines at references, {label: value}."""
    styles = cell_styles(tuple(score.label for score in scores))
    with matplotlib.rc_context(STYLE | {"axes.grid.axis": "x"}):
        figure = Figure(figsize=(WIDTH, 1.6 + 0.34 * max(len(scores), 3)), layout="constrained")
        axes = figure.subplots()
        for row, score in enumerate(scores):
            color = styles[score.label].color
            values = np.asarray([value for value in score.values if np.isfinite(value)], float)
            if values.size:
                axes.plot([values.mean()] * 2, [row - 0.3, row + 0.3], color=color, linewidth=2.5)
                axes.plot(values, np.full(values.size, row), "o", color=color, markersize=5, alpha=0.6)
        drawn = _references(references or {}, axes.axvline)
        axes.set_yticks(range(len(scores)), [score.label for score in scores], parse_math=False)
        axes.set(ylim=(len(scores) - 0.4, -0.6), xlabel=xlabel)
        axes.margins(x=0.05)
        notes = ["Dots: seeds. Bars: their mean."]
        frame(figure, title, notes, drawn)
    return figure


class Line(NamedTuple):
    """label: which begins with the cell's name; x, mean: [n]; deviation: [n] over seeds, or None."""

    label: str
    x: Sequence[float]
    mean: Sequence[float]
    deviation: Sequence[float] | None = None


def score_lines(
    lines: Sequence[Line],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    references: Mapping[str, float] | None = None,
    log: str = "",
) -> Figure:
    """Means over what is varied, bands of a standard deviation over seeds; dashed lines at the references.

    log: the axes, "", "x", "y" or "xy", that are logarithmic.
    """
    styles = cell_styles(tuple(line.label for line in lines))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.7), layout="constrained")
        axes = figure.subplots()
        keys = []
        for label, x, mean, deviation in lines:
            color, dashes = styles[label]
            mean = np.asarray(mean, float)
            axes.plot(x, mean, color=color, linestyle=dashes, marker="o", markersize=4)
            if deviation is not None:
                spread = np.nan_to_num(np.asarray(deviation, float))
                axes.fill_between(x, mean - spread, mean + spread, color=color, alpha=0.15, linewidth=0)
            keys.append(Line2D([], [], color=color, linestyle=dashes, marker="o", markersize=4, label=label))
        drawn = _references(references or {}, axes.axhline)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        if "x" in log:
            axes.set_xscale("log")
        if "y" in log:
            axes.set_yscale("log")
        notes = (
            ["Bands: one standard deviation over seeds."] if any(line.deviation is not None for line in lines) else []
        )
        frame(figure, title, notes, [*keys, *drawn])
    return figure


_DASHES = ((0, (2, 2)), (0, (6, 2)), (0, (1, 1)), (0, (6, 2, 1, 2)))
"""Of references, each its own."""


def _references(references: Mapping[str, float], line: Callable) -> list[Line2D]:
    """Draws each by `line` of the axes, and returns the entries of the legend."""
    entries = []
    for at, (label, value) in enumerate(references.items()):
        look = {"color": FAINT, "linestyle": _DASHES[at % len(_DASHES)], "linewidth": 1.2}
        line(value, zorder=1, **look)
        entries.append(Line2D([], [], label=f"{label} {value:g}", **look))
    return entries

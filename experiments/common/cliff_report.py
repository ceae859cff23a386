"""Pictures of the cliff: the plane of the loss, descents on it, and the gradient through time on the wall."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rnnjax.report.figures import DISTANCE, WIDTH
from rnnjax.report.style import INK, STYLE, cell_styles, frame

WAYS = ("free", "clipped")
NORM = r"$\log_{10}\,\Vert (\partial L/\partial w,\ \partial L/\partial b) \Vert$"


def draw(config: Any, found: Mapping[str, np.ndarray], on_the_line: Sequence[tuple[float, float]]) -> dict:
    """{file: (figure, caption)}; on_the_line: points (w, b) of the wall, a column of found["on_the_line"] each."""
    return {
        "cliff": (
            plane(config, found, on_the_line),
            "The loss over (w, b) with the wall as theory has it and descents beside it, and the norm of its gradient",
        ),
        "descents": (runs(found, on_the_line), "The loss of descents from one start, and dL/dh_t on the wall"),
    }


def _shown(found) -> int:
    """The start nearest w = 5, where the wall is steep and the way along it short."""
    return int(np.argmin(np.abs(found["path"][0, 0, 0, :, 0] - 5)))


def plane(config, found, on_the_line) -> Figure:
    """The loss, and log10 of the norm of its gradient, over the plane."""
    w, b, start = found["w"], found["b"], _shown(found)
    styles = cell_styles(WAYS)
    with np.errstate(divide="ignore"):
        norms = np.log10(found["norm"])
    lowest = max(np.min(norms[np.isfinite(norms)]), -3)
    with matplotlib.rc_context(STYLE | {"axes.grid": False}):
        figure = Figure(figsize=(WIDTH, 4.7), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        shown = (("loss", "L", found["loss"], None), ("its gradient", NORM, norms, lowest))
        for axes, (title, label, values, low) in zip(panels, shown, strict=True):
            image = axes.pcolormesh(w, b, values.T, cmap="Greys" if low is None else "viridis", vmin=low)
            image.set_rasterized(True)
            extend = "neither" if low is None else "min"
            bar = figure.colorbar(image, ax=axes, location="bottom", aspect=30, extend=extend, label=label)
            bar.outline.set_visible(False)
            axes.set(xlim=(w[0], w[-1]), ylim=(b[0], b[-1]), xlabel="w", title=title)
        panels[0].set_ylabel("b")
        panels[0].plot(*zip(*on_the_line, strict=True), color=INK, linestyle=(0, (1, 2)), linewidth=1.2)
        for number, way in enumerate(WAYS):
            path = found["path"][:, 0, number, start]
            panels[0].plot(*path.T, color=styles[way].color, linewidth=1.2, marker=".", markersize=4)
        notes = [
            f"Dotted: b = 0.5 - 0.622 w, where h_0 is a fixed point. Descents: {config.steps:,} steps, a point each, "
            f"at a learning rate of {config.rates[0]:g}, clipped at a norm of {config.clip:g}."
        ]
        frame(figure, "The cliff in the loss of one recurrent unit", notes, _keys(styles))
    return figure


def runs(found, on_the_line) -> Figure:
    """The loss of two descents, and log10 |dL/dh_t| against the distance on the wall."""
    start, styles = _shown(found), cell_styles(WAYS)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        for number, way in enumerate(WAYS):
            losses = np.maximum(found["loss_of_path"][:, 0, number, start], 1e-8)
            left.plot(losses, ".", color=styles[way].color, markersize=4)
        title = f"descents from w = {found['path'][0, 0, 0, start, 0]:.2f}"
        left.set(yscale="log", xlabel="step of descent", ylabel="L", title=title)
        colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(on_the_line)))
        reach = len(found["on_the_line"])
        for (w, _), norms, color in zip(on_the_line, found["on_the_line"].T, colors, strict=True):
            right.plot(norms, color=color)
            label = (f"w = {w:.3g}", (reach - 1, norms[-1]), (4, 0))
            right.annotate(*label, textcoords="offset points", va="center", annotation_clip=False)
        right.set(xlabel=DISTANCE, ylabel=r"$\log_{10}\,|\partial L\,/\,\partial h_t|$", title="on the wall's line")
        right.set_xlim(0, 1.25 * reach)
        right.set_xticks(range(0, reach + 1, max(1, reach // 5)))
        frame(figure, "Descent at the wall, and the gradient through time on it", [], _keys(styles))
    return figure


def _keys(styles) -> list[Line2D]:
    return [
        Line2D([], [], color=one.color, linestyle="", marker="o", markersize=5, label=f"{way} descent")
        for way, one in styles.items()
    ]

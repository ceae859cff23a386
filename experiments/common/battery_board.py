"""The board of the battery: nine panels on a cell beside the others."""

import math
from collections.abc import Callable
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.common.battery_parts import FAILED
from experiments.common.battery_report import SHOWN, SOLVED, Findings
from experiments.common.curves import QUANTILES
from experiments.common.untrained import line_keys
from rnnjax.report.figures import DISTANCE, NORM
from rnnjax.report.style import FAINT, STYLE, CellStyle, cell_styles, frame

DECADES = 20
"""How far up and down from where its lines start a picture of norms reaches."""
NOT_MEASURED, NO_NUMBER = "the cell: not measured", "the cell: no finite number"


def board(found: Findings, config: Any) -> Figure:
    """Nine panels: before training, in it, after it, and time."""
    styles = cell_styles(found.cells)
    with matplotlib.rc_context(STYLE | {"font.size": 10, "axes.titlesize": 10.5}):
        figure = Figure(figsize=(13.5, 11.0), layout="constrained")
        panels = figure.subplots(3, 3)
        for axes, draw in zip(panels.flat, _panels(found, config), strict=True):
            draw(axes, styles)
        notes = [
            f"Top row and exponents: {config.untrained.seeds} networks that were drawn, inputs of unit variance.",
            "Lines: medians over seeds (after training: and sequences); bands: their range (there: quartiles), of the "
            "exponents three standard errors. Singular values: thick, of the product; thin, of one step. After "
            "training: thick, at its end; thin, at its start.",
        ]
        frame(figure, f"{found.mine}: the battery", notes, line_keys(styles))
    return figure


def _panels(found: Findings, config: Any) -> list[Callable[[Axes, dict[str, CellStyle]], None]]:
    """What draws each panel."""
    tasks = list(found.learned)

    def learned(draw, task):
        return lambda axes, styles: draw(axes, styles, found, task)

    return [
        lambda axes, styles: _gradient(axes, styles, found),
        lambda axes, styles: _eigenvalues(axes, styles, found),
        lambda axes, styles: _singular_values(axes, styles, found, config.untrained.product),
        lambda axes, styles: _exponents(axes, styles, found),
        *(learned(_losses, task) for task in tasks),
        lambda axes, styles: _speed(axes, styles, found),
        *(learned(_trained, task) for task in tasks),
    ]


def _line(axes: Axes, x: Any, y: Any, style: CellStyle, mine: bool, band: Any = None, thin: bool = False) -> None:
    """A line of one cell, the user's above all others; what is not finite is left out."""
    y = np.where(np.isfinite(y), y, np.nan)
    if mine and not thin and np.isnan(y).all():
        _nothing(axes, NO_NUMBER)
    width = (1.0 if thin else 2.8) if mine else (0.7 if thin else 1.6)
    axes.plot(x, y, color=style.color, linestyle=style.linestyle, linewidth=width, zorder=4 if mine else 3)
    if band is not None:
        low, high = (np.where(np.isfinite(edge), edge, np.nan) for edge in band)
        axes.fill_between(x, low, high, color=style.color, alpha=0.15, linewidth=0, zorder=2)


def _nothing(axes: Axes, why: str = NOT_MEASURED) -> None:
    """Says that a panel has nothing to show of the user's cell."""
    white = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 2}
    axes.text(0.5, 0.5, why, transform=axes.transAxes, ha="center", color=FAINT, zorder=9, bbox=white)


def _view(axes: Axes) -> None:
    """No more than DECADES down and up from where the lines start."""
    lines = [np.asarray(line.get_ydata(), float) for line in axes.lines]
    starts = [line[0] for line in lines if line.size and np.isfinite(line[0])]
    if starts:
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, min(starts) - DECADES), min(high, max(starts) + DECADES))


def _gradient(axes: Axes, styles: dict[str, CellStyle], found: Findings) -> None:
    axes.set(title="the gradient before training", xlabel=DISTANCE, ylabel=NORM)
    for cell, style in styles.items():
        if "norms" in found.untrained[cell]:
            norms = found.untrained[cell]["norms"][:, :SHOWN]
            band = norms.min(0), norms.max(0)
            _line(axes, np.arange(norms.shape[1]), np.median(norms, 0), style, cell == found.mine, band)
        elif cell == found.mine:
            _nothing(axes)
    _view(axes)


def _eigenvalues(axes: Axes, styles: dict[str, CellStyle], found: Findings) -> None:
    axes.set(title="eigenvalues of a step's Jacobian", xlabel="real part", ylabel="imaginary part")
    turn = np.exp(1j * np.linspace(0, 2 * np.pi, 200))
    axes.plot(turn.real, turn.imag, color=FAINT, linestyle=":", linewidth=1.2)
    for cell, style in reversed(styles.items()):
        mine = cell == found.mine
        if "eigenvalues" in found.untrained[cell]:
            values = found.untrained[cell]["eigenvalues"][0]
            if mine and np.isnan(values).all():
                _nothing(axes, NO_NUMBER)
            axes.plot(
                values.real, values.imag, "o", color=style.color, markersize=5 if mine else 2.5,
                alpha=0.9 if mine else 0.6, markeredgewidth=0, zorder=4 if mine else 3,
            )  # fmt: skip
        elif mine:
            _nothing(axes)
    axes.set_aspect("equal", "datalim")


def _singular_values(axes: Axes, styles: dict[str, CellStyle], found: Findings, steps: int) -> None:
    axes.set(
        title=f"singular values, 1 and {steps} steps", xlabel="rank, share of the carry", ylabel=r"$\log_{10}\,\sigma$"
    )
    for cell, style in styles.items():
        if "product" in found.untrained[cell]:
            for name, thin in (("one", True), ("product", False)):
                values = np.median(found.untrained[cell][name], 0) / math.log(10)
                values = np.where(values > values[0] - 15, values, np.nan)  # below it is float64's rounding
                _line(axes, np.linspace(0, 1, len(values)), values, style, cell == found.mine, thin=thin)
        elif cell == found.mine:
            _nothing(axes)
    _view(axes)


def _exponents(axes: Axes, styles: dict[str, CellStyle], found: Findings) -> None:
    axes.set(title="Lyapunov spectrum, driven", xlabel="index", ylabel="nats a step")
    axes.axhline(0, color=FAINT, linewidth=0.8)
    for cell, style in styles.items():
        held = found.untrained[cell]
        if "exponents" in held:
            values, error = held["exponents"].mean(0), 3 * held["error"].mean(0) / math.sqrt(len(held["error"]))
            index, band = np.arange(1, len(values) + 1), (values - error, values + error)
            _line(axes, index, values, style, cell == found.mine, band)
        elif cell == found.mine:
            _nothing(axes)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))


def _losses(axes: Axes, styles: dict[str, CellStyle], found: Findings, task: str) -> None:
    of = found.learned[task]
    chance, unit = of[found.mine].chance, of[found.mine].unit
    axes.set(title=f"{task}: test loss", xlabel="training step", ylabel=unit)
    axes.axhline(chance, color=FAINT, linestyle=(0, (2, 2)), linewidth=1.2)
    axes.axhline(SOLVED * chance, color=FAINT, linestyle=":", linewidth=1.2)
    for cell, style in styles.items():
        curves = [curve for curve in of[cell].losses.values() if curve]
        steps = sorted({step for curve in curves for step in curve})
        values = np.array([[curve.get(step, math.nan) for step in steps] for curve in curves])
        values = np.where(values > 0, values, np.nan)
        if not np.isfinite(values).any():
            if cell == found.mine:
                _nothing(axes, NOT_MEASURED if of[cell].failed else NO_NUMBER)
            continue
        with np.errstate(all="ignore"):
            low, middle, high = np.nanquantile(values, (0, 0.5, 1), axis=0, method="lower")
        _line(axes, steps, middle, style, cell == found.mine, (low, high))
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, chance * 1e-4), min(high, 10 * chance))
    seen = [loss for curve in of[found.mine].losses.values() for loss in curve.values() if math.isfinite(loss)]
    if seen and min(seen) > 10 * chance:
        _nothing(axes, f"{found.mine} is above the view")
    for level, text in ((chance, "chance"), (SOLVED * chance, "solved")):
        axes.annotate(
            text, (1, level), (-2, 2), xycoords=axes.get_yaxis_transform(), textcoords="offset points", ha="right",
            color=FAINT, fontsize=9,
        )  # fmt: skip


def _trained(axes: Axes, styles: dict[str, CellStyle], found: Findings, task: str) -> None:
    axes.set(title=f"{task}: the gradient after training", xlabel=DISTANCE, ylabel=NORM)
    middle = QUANTILES.index(0.5)
    for cell, style in styles.items():
        norms = found.learned[task][cell].norms
        if norms is None:
            if cell == found.mine:
                _nothing(axes)
            continue
        distance, mine = np.arange(norms.shape[1]), cell == found.mine
        _line(axes, distance, norms[0, :, middle], style, mine, thin=True)
        _line(axes, distance, norms[-1, :, middle], style, mine, (norms[-1, :, 0], norms[-1, :, -1]))
    _view(axes)


def _speed(axes: Axes, styles: dict[str, CellStyle], found: Findings) -> None:
    axes.set(title=f"time of {found.mine} over the other's", xlabel="ratio (less is faster)")
    axes.grid(axis="y", visible=False)
    others = [cell for cell in found.cells if cell != found.mine]
    ratios = {(row["cell"], row["pass"]): row["ratio"] for row in found.speed["rows"]}
    axes.set_yticks(range(len(others)), others)
    axes.set_ylim(len(others) - 0.5, -0.6)
    axes.axvline(1, color=FAINT, linewidth=1.2)
    if found.speed[FAILED]:
        _nothing(axes)
        return
    for at, cell in enumerate(others):
        for kind, shift, alpha in (("forward", -0.19, 0.45), ("train", 0.19, 1.0)):
            ratio, color = ratios[cell, kind], styles[cell].color
            axes.barh(at + shift, ratio, 0.34, color=color, alpha=alpha, zorder=2)
            text = f" {ratio:.2f} {'forward' if kind == 'forward' else 'training step'}"
            white = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}
            axes.text(ratio, at + shift, text, va="center", fontsize=9, zorder=5, bbox=white)
    axes.set_xlim(0, 1.5 * max(1.0, *ratios.values()))

"""Pictures of the forget bias: slopes before training, and test errors in training."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rnnjax.report.figures import WIDTH
from rnnjax.report.style import FAINT, INK, STYLE, cell_styles, frame

TITLES = {
    "lstm": r"LSTM: $\partial L/\partial c_t$, forget bias",
    "gru": r"GRU: $\partial L/\partial h_t$, update bias",
}


def draw_slopes(
    biases: np.ndarray,
    slopes: Mapping[str, Mapping[str, np.ndarray]],
    laws: Mapping[str, Sequence[Callable[[np.ndarray], np.ndarray]]],
) -> Figure:
    """Slopes {cell: {case: [bias, seed]}} against the bias, a panel a cell, and the laws of each cell dashed."""
    between = np.linspace(biases[0], biases[-1], 60)
    styles = cell_styles(tuple(next(iter(slopes.values()))))
    look = {"color": INK, "linewidth": 1, "linestyle": (0, (4, 2)), "zorder": 1}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        panels = figure.subplots(1, len(slopes), sharey=True)
        for axes, (name, cases) in zip(panels, slopes.items(), strict=True):
            axes.axhline(0, color=FAINT, linewidth=0.8)
            for case, values in cases.items():
                axes.plot(biases, values, "o", color=styles[case].color, markersize=5)
            for law in laws[name]:
                axes.plot(between, law(between), **look)
            axes.set(title=TITLES[name], xlabel="bias b", xticks=biases)
        panels[0].set_ylabel("slope (nats a step back)")
        keys = [
            Line2D([], [], color=style.color, marker="o", linestyle="", label=case) for case, style in styles.items()
        ]
        keys.append(Line2D([], [], label="law", **look))
        notes = ["A dot a network. Without input, slopes are of the farther half of the distances."]
        frame(figure, "What the bias does to the gradient before training", notes, keys)
    return figure


def draw_learning(
    curves: Mapping[str, Sequence[Mapping[int, float]]], length: int, chance: float, solved: float
) -> Figure:
    """Test errors {label: [{step: error} of every network]} over training."""
    looks = {label: style._asdict() for label, style in cell_styles(tuple(curves)).items()}
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.2), layout="constrained")
        axes = figure.subplots()
        for label, networks in curves.items():
            for errors in networks:
                axes.plot(list(errors), list(errors.values()), linewidth=1.4, **looks[label])
        axes.axhline(chance, color=FAINT, linewidth=1.2, linestyle=(0, (1, 1)))
        axes.axhline(solved, color=FAINT, linewidth=1.2, linestyle=(0, (4, 2)))
        axes.set(yscale="log", xlabel="training step", ylabel="test error (squared)")
        keys = [Line2D([], [], label=label, **look) for label, look in looks.items()]
        notes = [f"A line a network. Dotted: guessing without having seen an input. Dashed: {solved:g}, solved."]
        frame(figure, f"Adding over {length} steps", notes, keys)
    return figure

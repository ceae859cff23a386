"""Where a model looked when it wrote."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from rnnjax.report.style import STYLE, frame

WIDTH = 9.0  # inches


class Look(NamedTuple):
    """read: source symbols, in the order of reading; written: target symbols; weights: [written, read]."""

    read: Sequence[str]
    written: Sequence[str]
    weights: np.ndarray


def attention_figure(looks: Sequence[Look], *, title: str) -> Figure:
    """A panel an example: what was written from the top down, what was read from left to right, darker for more weight.

    Every row of weights sums to 1.
    """
    columns = min(2, len(looks))
    rows = math.ceil(len(looks) / columns)
    with matplotlib.rc_context(STYLE | {"axes.grid": False}):
        height = sum(
            0.7 + 0.24 * max(len(look.written) for look in looks[at * columns : (at + 1) * columns])
            for at in range(rows)
        )
        figure = Figure(figsize=(WIDTH, 1.0 + height), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        for axes, look in zip(grid.flat, looks, strict=False):
            drawn = axes.imshow(np.asarray(look.weights, float), cmap="Blues", vmin=0, vmax=1, aspect="auto")
            turned = {"rotation": 60, "ha": "left", "rotation_mode": "anchor"} if max(map(len, look.read)) > 3 else {}
            axes.set_xticks(range(len(look.read)), look.read, parse_math=False, **turned)
            axes.set_yticks(range(len(look.written)), look.written, parse_math=False)
            axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
        for axes in list(grid.flat)[len(looks) :]:
            axes.set_axis_off()
        bar = figure.colorbar(drawn, ax=list(grid.flat), aspect=30, pad=0.02, shrink=0.6)
        bar.set_label("weight")
        bar.outline.set_visible(False)
        frame(figure, title, ["Across: read. Down: written. A row of weights sums to 1."], [])
    return figure

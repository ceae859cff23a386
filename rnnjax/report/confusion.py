"""The figure of a confusion matrix: which class was taken for which."""

from collections.abc import Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from rnnjax.report.style import INK, NO_VALUE, STYLE, frame


def confusion_matrix(counts: np.ndarray, labels: Sequence[str], *, title: str, note: str = "") -> Figure:
    """counts [C, C], row the class that it is, column what was said; coloured by the share of the row.

    A class of which there is no example has a grey row. Counts stand in the cells, 0 left out.
    """
    counts, size = np.asarray(counts), len(labels)
    totals = counts.sum(1, keepdims=True)
    shares = np.ma.masked_where(np.broadcast_to(totals == 0, counts.shape), counts / np.maximum(totals, 1))
    with matplotlib.rc_context(STYLE | {"axes.grid": False}):
        side = 2.6 + 0.42 * max(size, 5)
        figure = Figure(figsize=(max(side + 1.4, 7.0), side), layout="constrained")
        axes = figure.subplots()
        image = axes.imshow(shares, cmap=matplotlib.colormaps["Blues"].with_extremes(bad=NO_VALUE), vmin=0, vmax=1)
        for row, column in np.argwhere(counts > 0):
            axes.text(
                column, row, f"{counts[row, column]:,}", ha="center", va="center", fontsize=9,
                color="white" if shares[row, column] > 0.55 else INK,
            )  # fmt: skip
        turned = max(map(len, labels)) * size > 60  # names that would touch side by side
        axes.set_xticks(range(size), labels, rotation=60 if turned else 0, ha="right" if turned else "center",
                        rotation_mode="anchor" if turned else "default", parse_math=False)  # fmt: skip
        axes.set_yticks(range(size), labels, parse_math=False)
        axes.set(xlabel="said", ylabel="is")
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        figure.colorbar(image, ax=axes, label="share of the row", fraction=0.046, pad=0.03)
        frame(figure, title, [note] if note else [], [])
    return figure

"""How every picture looks: colours and dashes of the cells, the frame around the panels."""

import math
import re
import textwrap
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rnnjax.report.run_files import Run

# Okabe and Ito's palette, told apart with any colour vision; the dashes tell the same in grey.
COLORS = {"elman": "#D55E00", "jordan": "#CC79A7", "lstm": "#0072B2", "gru": "#009E73"}
DASHES = {"elman": (0, (5, 1.8)), "jordan": (0, (1.2, 1.2)), "lstm": "-", "gru": (0, (7, 1.6, 1.4, 1.6))}
OTHER_COLORS = ("#E69F00", "#56B4E9", "#000000", "#9A8F00")  # the last is the palette's yellow, darkened for white
OTHER_DASHES = ((0, (3, 1.4, 1.2, 1.4, 1.2, 1.4)), (0, (5, 1.8)), (0, (7, 1.6, 1.4, 1.6)), (0, (1.2, 1.2)), "-")
ON_DARK = {"#000000": "#FFFFFF", "#0072B2": "#2A86C8", "#009E73": "#12B88A", "#9A8F00": "#F0E442"}
"""What stands for a colour on a dark ground, where it is told apart too little: the same hue, lighter."""

INK, FAINT, NO_VALUE = "#222222", "#666666", "#C9C9C9"
STYLE = {
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E8E8E8",
    "grid.linewidth": 0.8,
    "xtick.color": "#999999",
    "xtick.labelcolor": INK,
    "ytick.color": "#999999",
    "ytick.labelcolor": INK,
    "lines.linewidth": 2.0,
    "svg.hashsalt": "rnnjax",  # the same figure gives the same bytes
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # text that journals take and readers search
    "savefig.facecolor": "white",
}


class CellStyle(NamedTuple):
    """What a cell's line looks like."""

    color: str
    linestyle: str | tuple


def cell_styles(cells: tuple[str, ...]) -> dict[str, CellStyle]:
    """{cell: (color, linestyle)}: fixed for the built-in cells, then in the order of `cells`; no pair twice in 20.

    A name that begins with that of a built-in cell, "lstm window 3", has its colour, in other dashes.
    """
    styles: dict[str, CellStyle] = {cell: CellStyle(COLORS[cell], DASHES[cell]) for cell in cells if cell in COLORS}
    others = 0
    for cell in cells:
        if cell in COLORS:
            continue
        of = re.split(r"[^a-z]", cell, maxsplit=1)[0]
        if of in COLORS:
            used = [style.linestyle for style in styles.values() if style.color == COLORS[of]]
            free = [dashes for dashes in (DASHES[of], *OTHER_DASHES) if dashes not in used]
            styles[cell] = CellStyle(COLORS[of], free[0] if free else DASHES[of])
        else:
            turn, color = divmod(others, len(OTHER_COLORS))
            styles[cell] = CellStyle(OTHER_COLORS[color], OTHER_DASHES[(color + turn) % len(OTHER_DASHES)])
            others += 1
    return {cell: styles[cell] for cell in cells}


def keys(run: Run, styles: dict[str, CellStyle], marker: str = "") -> list[Line2D]:
    """Entries of a legend, one a cell."""
    diverged = {cell: " (diverged)" if run.summaries[cell].get("diverged") else "" for cell in run.cells}
    return [
        Line2D([], [], color=color, linestyle=dashes, marker=marker, markersize=4, label=cell + diverged[cell])
        for cell, (color, dashes) in styles.items()
    ]


def frame(figure: Figure, title: str, notes: list[str], keys: list[Line2D]) -> None:
    """Puts title and keys above the panels, and notes below them, where they can hide no data."""
    width, height = figure.get_size_inches()
    longest = max((len(key.get_label()) for key in keys), default=0)
    columns = max(1, min(len(keys), int((width - 0.2) / (0.75 + 0.09 * longest))))
    lines = textwrap.wrap(" ".join(notes), 125)
    top = 0.45 + 0.22 * math.ceil(len(keys) / columns)
    bottom = 0.1 + 0.17 * len(lines)
    grown = height + max(0, top - 0.8) + max(0, bottom - 0.3)  # many keys or notes take nothing from the panels
    figure.set_size_inches(width, grown)
    figure.set_layout_engine("constrained", rect=(0.005, bottom / grown, 0.985, 1 - (top + bottom) / grown))
    figure.text(0.1 / width, 1 - 0.12 / grown, title, fontsize=14, fontweight="bold", va="top", parse_math=False)
    figure.text(
        0.1 / width, 0.09 / grown, "\n".join(lines), fontsize=9, color=FAINT, va="bottom", linespacing=1.25,
        parse_math=False,
    )  # fmt: skip
    if keys:
        figure.legend(
            handles=keys, ncols=columns, loc="upper left", bbox_to_anchor=(0.1 / width, 1 - 0.44 / grown),
            frameon=False, borderpad=0, borderaxespad=0, handlelength=3.2, columnspacing=2.2, labelspacing=0.35,
        )  # fmt: skip

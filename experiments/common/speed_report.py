"""The tables and the picture of the study of speed, from the rows of its speed.json."""

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullFormatter

from experiments.common.claims import verdicts
from experiments.common.speed_claims import geometric_mean
from experiments.common.timing import describe
from experiments.peers import PEERS
from rnnjax.report import tables
from rnnjax.report.style import FAINT, INK, STYLE, cell_styles, frame

PASSES = {"train": "training step", "forward": "forward pass alone"}
MARKERS = "osD^vP*X"
FLOOR = "matmuls alone"
WIDTH = 9.0


def header(found: dict) -> list[str]:
    """Of `rows`: the ratio's columns are called as the peers."""
    return ["cell", "TxBxDxH", "ours (ms)", *peers(found)]


def peers(found: dict) -> list[str]:
    """What ours is compared with: our own columns, the libraries, the floor."""
    names = dict.fromkeys(row["peer"] for row in found["rows"] if row["peer"] != "ours")
    return sorted(names, key=lambda name: (*PEERS, FLOOR).index(name) if name in (*PEERS, FLOOR) else -1)


def rows(found: dict, kind: str) -> list[list]:
    """A row a cell and size: our ms and our time over each peer's; and, for several sizes, one of geometric means."""
    ratios = {(row["cell"], row["size"], row["peer"]): row["ratio"] for row in found["rows"] if row["pass"] == kind}
    ours = [row for row in found["rows"] if row["pass"] == kind and row["peer"] == "ours"]
    table = []
    for cell in dict.fromkeys(row["cell"] for row in ours):
        here = [row for row in ours if row["cell"] == cell]
        lines = [[ratios.get((cell, row["size"], peer)) for peer in peers(found)] for row in here]
        table += [[cell, row["size"], row["ms"], *line] for row, line in zip(here, lines, strict=True)]
        if len(lines) > 1:
            means = [None if None in column else geometric_mean(column) for column in zip(*lines, strict=True)]
            table.append([cell, "geometric mean", None, *means])
    return table


def figure(found: dict) -> Figure:
    """Our time over each peer's, on a log axis: a panel a pass, a row a peer, a colour a cell, a marker a size."""
    shown = [row for row in found["rows"] if row["peer"] not in ("ours", FLOOR)]
    names = [name for name in peers(found) if name != FLOOR]
    cells = tuple(dict.fromkeys(row["cell"] for row in found["rows"]))
    sizes = list(dict.fromkeys(row["size"] for row in found["rows"]))
    styles, markers = cell_styles(cells), {size: MARKERS[at % len(MARKERS)] for at, size in enumerate(sizes)}
    with matplotlib.rc_context(STYLE):
        drawing = Figure(figsize=(WIDTH, 1.4 + 0.62 * max(len(names), 2)), layout="constrained")
        panels = drawing.subplots(1, len(PASSES), sharey=True, sharex=True)
        for axes, (kind, title) in zip(panels, PASSES.items(), strict=True):
            axes.set_title(title)
            axes.axvline(1, color=INK, linewidth=1.2, zorder=1)
            for row in (row for row in shown if row["pass"] == kind):
                lane = (cells.index(row["cell"]) + (sizes.index(row["size"]) + 0.5) / len(sizes)) / len(cells) - 0.5
                axes.plot(
                    row["ratio"], names.index(row["peer"]) + 0.75 * lane, markers[row["size"]], markersize=5.5,
                    color=styles[row["cell"]].color, markeredgecolor="white", markeredgewidth=0.5, zorder=3,
                )  # fmt: skip
            axes.hlines(np.arange(len(names) - 1) + 0.5, *_span(shown), color="#E8E8E8", linewidth=0.8, zorder=0)
            axes.grid(False, axis="y")
            axes.tick_params(axis="y", length=0)
            axes.set_xscale("log")
            axes.set_xlabel("our time / theirs")
        _scale(panels[0], names, *_span(shown))
        keys = [Line2D([], [], color=styles[cell].color, marker="s", linestyle="", label=cell) for cell in cells]
        keys += [Line2D([], [], color=FAINT, marker=markers[size], linestyle="", label=size) for size in sizes]
        notes = ["Left of the line ours is faster. TxBxDxH: steps, batch, features of the inputs, units."]
        frame(drawing, "Speed of a recurrent layer against other libraries", notes, keys)
    return drawing


def _span(shown: list[dict]) -> tuple[float, float]:
    """The ratios in view: all, and some way around 1."""
    ratios = [row["ratio"] for row in shown]
    return min([0.45, *(0.85 * ratio for ratio in ratios)]), max([1.6, *(1.18 * ratio for ratio in ratios)])


def _scale(axes, names: list[str], low: float, high: float) -> None:
    """One row a peer from the top down, and ratios written out."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(low, high)
    steps = (1, 2, 5) if high / low < 40 else (1,)
    axes.set_xticks([tick for power in range(-5, 6) for step in steps if low <= (tick := step * 10.0**power) <= high])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def text(found: dict, claims: list[dict]) -> str:
    """report.md."""
    parts = [
        "# Speed of a recurrent layer",
        f"{describe(found['machine'])}\n\n{verdicts(claims)}.",
        "Medians of interleaved runs in one process. A training step is value and gradient of sum(outputs * targets) "
        "by all parameters, from the same weights everywhere; outputs, loss and gradients were compared before the "
        "clock ran. Ratios are our time over theirs: below 1 ours is faster. *plain scan* is our cell in jax.lax.scan "
        "as JAX differentiates it; *matmuls alone* is the floor: the same matmuls with next to nothing between them. "
        "TxBxDxH: steps, batch, features of the inputs, units.",
        "![Our time over each peer's](ratios.png)",
    ]  # fmt: skip
    for kind, title in PASSES.items():
        parts += [f"## {title.capitalize()}", tables.markdown_table(header(found), rows(found, kind))]
    if "haiku" in peers(found):
        parts.append(
            "Haiku's Elman has relu in place of tanh, and its GRU the reset gate before the matmul: both are timed "
            "against ours as they stand, and were compared with ours of that kind."
        )
    parts += ["## Claims", tables.claims_table(claims), *_more(found)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _more(found: dict) -> list[str]:
    cells = [(row["cell"], row["size"], row["ms"], row["scan_ms"], row["ratio"]) for row in found["other_cells"]]
    compiled = [(row["cell"], row["time"], row["seconds"]) for row in found["compile"]]
    lost = [(lost["peer"], lost["cell"], lost["size"], lost["why"]) for lost in found["left_out"]]
    sections = [
        ("Cells without a backward of their own", ("cell", "size", "ours (ms)", "plain scan (ms)", "ratio"), cells),
        ("Compiling a training step", ("cell", "steps", "seconds"), compiled),
        ("Not timed", ("peer", "cell", "size", "why"), lost),
    ]
    return [part for title, head, table in sections if table
            for part in (f"## {title}", tables.markdown_table(head, table))]  # fmt: skip

"""The table and the picture of what is said of the GRU against the LSTM, out of what a study has found."""

from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from experiments.common.adding_report import SOLVED
from experiments.common.gru_lstm import Difference, count, lead, time_ratio
from experiments.common.study import told, values_of
from experiments.common.untrained import line_keys
from rnnjax.cells import CELLS, GRU
from rnnjax.report.figures import WIDTH
from rnnjax.report.style import FAINT, INK, STYLE, cell_styles, frame
from rnnjax.tasks import Music

PAIR = ("gru", "lstm")


def statements(config: Any, found: Any, units: dict[str, int]) -> tuple[list[tuple], str]:
    """(rows, note): a row a measurement.

    config, found: of the study of matched cells. units: {cell: H} of the cells of as many parameters.
    """
    wide = dict.fromkeys(PAIR, config.time.units)
    rows = []
    for how, sizes in (("as wide", wide), ("matched", {name: units[name] for name in PAIR})):
        counts = [count(CELLS[name](Music.input_size, sizes[name])) for name in PAIR]
        what = f"parameters, {how} ({sizes['gru']} and {sizes['lstm']} units, {Music.input_size} inputs)"
        rows.append(("3/4 of the parameters", what, *counts, f"{counts[0] / counts[1]:.4f}", None))
    for how, sizes in (("as wide", wide), ("matched", units)):
        names = [f"{name} {sizes[name]}" for name in PAIR]
        ms = [f"{1e3 * np.median(found.timed['of'][name]):.2f}" for name in names]
        low, middle, high = np.quantile(time_ratio(found.timed, *names), (0.25, 0.5, 0.75))
        ratio = f"{middle:.3f} (quartiles {low:.3f}, {high:.3f})"
        rows.append(("less time a step", f"ms a training step, {how}", *ms, ratio, len(found.timed["of"][names[0]])))
    if found.task is not None:
        few = {name: found.few[f"{name}-few"] for name in PAIR}
        for how, of in (("all pieces", found.summaries), (f"1 in {config.few.every} pieces", few)):
            gap = lead(of["lstm"], of["gru"])
            said = "ahead on small data" if of is few else "-"
            rows.append((said, f"nats a step, {how}", *(told(of[name], "loss", 3) for name in PAIR), str(gap), gap.n))
    for length in config.long.lengths:
        of = found.solved(length)
        gap = Difference.of(of["lstm"], of["gru"])
        listed = [", ".join(f"{value:g}" for value in of[name]) for name in PAIR]
        what = f"updates to solve adding, T = {length}, {config.long.units} units"
        rows.append(("ahead on long sequences", what, *listed, str(gap) if np.isfinite(gap.mean) else "-", gap.n))
    note = f"""Differences are LSTM less GRU, the mean of n pairs; a score is mean and deviation over seeds; inf
is not within the budget. With its reset gate {GRU(1, 1).reset} the matmul our GRU has a second bias, and a little more
than 3/4. By Student's t at 5 % a difference is resolved from 12.7, 4.3 and 3.2 standard errors on with 2, 3 and 4
pairs. The cells that are trained read 88 keys and have 18,900 (tanh), 18,676 and 18,000 parameters without that bias,
which is within 5 % and not within 3. On few pieces the cells have
the learning rates that were tuned on all of them, which are not the same for both."""
    return rows, " ".join(note.split())


def draw_statements(config: Any, found: Any) -> Figure:
    """Time a step, losses on all and on few pieces, and the error on the adding problem against updates."""
    styles = cell_styles(PAIR)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
        time, few, adding = figure.subplots(1, 3, width_ratios=(1, 1, 1.4))
        _draw_time(time, found, styles)
        _draw_few(few, config, found, styles)
        _draw_adding(adding, config, found, styles)
        notes = ["Left: median and quartiles of timed steps. Middle: dots are seeds, lines their means. Right: seeds."]
        notes += [f"Dotted: solved, {SOLVED}."]
        frame(figure, "The GRU against the LSTM", notes, line_keys(styles))
    return figure


def _draw_time(axes: Axes, found: Any, styles: dict) -> None:
    names = [name for name in found.timed["of"] if name.split()[0] in PAIR]
    for at, name in enumerate(names):
        low, middle, high = 1e3 * np.quantile(found.timed["of"][name], (0.25, 0.5, 0.75))
        color = styles[name.split()[0]].color
        axes.errorbar(at, middle, [[middle - low], [high - middle]], color=color, marker="o", markersize=5, capsize=3)
    axes.set_xticks(range(len(names)), [name.split()[1] for name in names])
    axes.set(title="time a training step", xlabel="units", ylabel="ms", yscale="log", xlim=(-0.5, len(names) - 0.5))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")


def _draw_few(axes: Axes, config: Any, found: Any, styles: dict) -> None:
    axes.set_title("which keys sound next")
    if found.task is None:
        axes.text(0.5, 0.5, "no corpus", color=FAINT, ha="center", va="center", transform=axes.transAxes)
        axes.set(xticks=[], yticks=[])
        return
    for at, of in enumerate(({name: found.summaries[name] for name in PAIR},
                             {name: found.few[f"{name}-few"] for name in PAIR})):  # fmt: skip
        for shift, name in zip((-0.15, 0.15), PAIR, strict=True):
            values = np.array(values_of(of[name], "loss"))
            axes.plot(np.full(values.size, at + shift), values, "o", color=styles[name].color, markersize=4, alpha=0.6)
            if values.size:
                axes.plot([at + shift - 0.1, at + shift + 0.1], [values.mean()] * 2, color=styles[name].color)
    axes.set_xticks((0, 1), ["all", f"1 in {config.few.every}"])
    axes.set(xlabel="training pieces", ylabel="nats a step, test split", xlim=(-0.5, 1.5))


def _draw_adding(axes: Axes, config: Any, found: Any, styles: dict) -> None:
    length = config.long.lengths[-1]
    for name in PAIR:
        for errors in found.learning[f"{name}-adding-{length}"].seeds:
            look = {"color": styles[name].color, "linestyle": styles[name].linestyle, "marker": "o", "markersize": 3}
            axes.plot(list(errors), list(errors.values()), linewidth=1.2, **look)
    axes.axhline(SOLVED, color=INK, linestyle=":", linewidth=1.2)
    axes.set(title=f"adding, T = {length}", xlabel="updates", ylabel="squared error, test", yscale="log")

"""What the study of the temporal order problem shows: its tables, and errors and gradients over training."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.common.claims import Claim
from experiments.common.study_report import Study, Table
from rnnjax.report import run_files
from rnnjax.report.figures import WIDTH
from rnnjax.report.style import FAINT, STYLE, cell_styles, frame

UNSOLVED = 0.01
"""The share of wrong answers from which on a network has not solved the task."""


def is_solved(replica: Mapping[str, Any]) -> bool:
    """Whether a seed of a summary.json ended with fewer errors than UNSOLVED; one that diverged did not."""
    return not replica["diverged"] and 1 - replica["scores"].get("accuracy", 0.0) < UNSOLVED


def read_training(workdir: pathlib.Path, summaries: Mapping[str, dict]) -> dict[str, list[dict[str, np.ndarray]]]:
    """{method: for each seed {"step", "errors"} of its evaluations and {"at", "norm"}, the updates whose gradient's
    norm before clipping was taken down}; nan where it was not finite."""
    found = {}
    for name, summary in summaries.items():
        rows = run_files.read_rows(workdir / name / "metrics.jsonl")
        found[name] = [_of_seed(rows, number) for number in range(len(summary["replicas"]))]
    return found


def _of_seed(rows: Sequence[dict], number: int) -> dict[str, np.ndarray]:
    rows = [row for row in rows if row.get("replica", 0) == number]
    tested = [(row["step"], 1 - row["accuracy"]) for row in rows if row["kind"] == "eval"]
    norms = [(row["step"], row["gradient_norm"]) for row in rows if row["kind"] == "train"]
    step, errors = np.array(tested, float).reshape(-1, 2).T
    at, norm = np.array(norms, float).reshape(-1, 2).T  # None, which JSON has for inf, becomes nan
    return {"step": step, "errors": errors, "at": at, "norm": norm}


def report(
    config: Any,
    summaries: Mapping[str, dict],
    rates: Mapping[str, dict],
    training: Mapping[str, list[dict[str, np.ndarray]]],
    made: list[Claim],
) -> Study:
    """The tables, the picture and the claims."""
    header = ("method", "solved", "after updates", "least errors, %", "largest gradient norm", "rho at the end")
    rows = [(name, *_row(summary, training[name])) for name, summary in summaries.items()]
    every = config.train.log_every
    note = f"""Least errors: of every seed, at any evaluation. Gradient norms are those before clipping, Omega's part in
them, of every {every}th update; the largest of each seed. rho is the spectral radius of W_hh, which starts at 0.95, at
the evaluation with the lowest loss."""
    tables = [Table("Methods", header, rows, " ".join(note.split()))]
    if rates:
        rows = [
            (f"{rate:g}", sum(map(is_solved, one["replicas"])), _ended(one))
            for rate, one in zip(config.rates, rates.values(), strict=True)
        ]
        tables.append(Table("SGD alone at other learning rates, one seed", ("rate", "solved", "errors, %"), rows))
    longer = _longer(config, summaries)
    tables += [longer] if longer.rows else []
    train = config.train
    text = f"""
{config.seeds} networks of {config.model.hidden_size} tanh units are trained by each method on batches of
{train.batch_size} sequences of {config.task.min_length} to {config.task.max_length} steps, at a learning rate of
{train.learning_rate:g}, for {train.steps:,} updates at most. A network has solved the task when fewer than 1 % of its
answers to {train.eval_batch:,} test sequences are wrong; its training ends there. Chance is 75 % errors; a network that
knows the second symbol only makes 50 %. What is not solved is not solved within this budget: the paper's own was five
million updates."""
    drawn = {"training": (draw(config, training), "Errors and the gradient's norm over training, a line a seed")}
    title = "Temporal order: SGD, clipped, and with Omega"
    return Study("temporal_order", title, " ".join(text.split()), tables, drawn, made)


def _row(summary: dict, seeds: list[dict[str, np.ndarray]]) -> tuple:
    done = [f"{one['step']:,}" for one in summary["replicas"] if is_solved(one)]
    errors = ", ".join(f"{100 * np.min(one['errors'], initial=1.0):.1f}" for one in seeds)
    norms = ", ".join(_largest(one["norm"]) for one in seeds)
    rho = ", ".join(f"{one['scores']['rho']:.2f}" if "rho" in one["scores"] else "-" for one in summary["replicas"])
    return f"{len(done)} of {len(seeds)}", ", ".join(done) or "-", errors, norms, rho


def _largest(norms: np.ndarray) -> str:
    if not norms.size:
        return "-"
    return "not finite" if np.isnan(norms).any() else f"{norms.max():.3g}"


def _ended(summary: dict) -> str:
    (one,) = summary["replicas"]
    return "diverged" if one["diverged"] else f"{100 * (1 - one['scores']['accuracy']):.1f}"


def _longer(config: Any, summaries: Mapping[str, dict]) -> Table:
    """Errors of solved networks on fresh sequences, of the lengths they were trained on and of longer ones."""
    rows = [
        (name, one["label"], *(f"{100 * one['scores'][key]:.1f}" for key in ("errors", *_keys(config))))
        for name, summary in summaries.items()
        for one in summary["replicas"]
        if is_solved(one) and "errors" in one["scores"]
    ]
    task = config.task
    header = ("method", "seed", f"{task.min_length} to {task.max_length}", *map(str, config.lengths))
    note = f"""% of answers that are wrong, of {config.tried:,} fresh sequences of every length, and of ten times as
many of the lengths of training."""
    return Table("Longer sequences than those of training", header, rows, " ".join(note.split()))


def _keys(config: Any) -> list[str]:
    return [f"errors_{length}" for length in config.lengths]


def draw(config: Any, training: Mapping[str, list[dict[str, np.ndarray]]]) -> Figure:
    """A column a method: errors, and log10 of the gradient's norm, over updates."""
    styles = cell_styles(tuple(training))
    blocks = max(1, config.train.steps // (60 * config.train.log_every))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 5.4), layout="constrained")
        grid = figure.subplots(2, len(training), sharex=True, sharey="row", squeeze=False)
        for column, (name, seeds) in zip(grid.T, training.items(), strict=True):
            errors, norms = column
            errors.set_title(name)
            color = styles[name].color
            for one in seeds:
                errors.plot(one["step"], 100 * one["errors"], color=color, linewidth=1.2)
                done = one["errors"] < UNSOLVED
                at, left = one["step"][done], 100 * one["errors"][done]
                (dots,) = errors.plot(at, left, "o", color=color, markersize=6, clip_on=False, zorder=3)
                dots.set_in_layout(False)  # of none, the layout knows no place
                norms.plot(*_tops(one["at"], one["norm"], blocks), color=color, linewidth=1.0, alpha=0.8)
            errors.axhline(75, color=FAINT, linestyle=":", linewidth=1.2)
            norms.axhline(np.log10(config.train.clip_norm), color=FAINT, linestyle=(0, (5, 2)), linewidth=1.2)
            norms.set_xlabel("update")
            norms.set_xticks([0, config.train.steps // 2, config.train.steps])
            norms.xaxis.set_major_formatter("{x:,.0f}")
            for label, side in zip(norms.get_xticklabels(), ("left", "center", "right"), strict=True):
                label.set_horizontalalignment(side)  # so that panels' ends don't run into each other
        grid[0, 0].set(ylabel="errors (%)", ylim=(0, 82))
        grid[1, 0].set_ylabel(r"$\log_{10}$ norm of dL/d$\theta$")
        every = config.train.log_every
        notes = [
            f"Dots: solved. Norms are before clipping, of every {every}th update; of {blocks} in a row, the largest."
        ]
        keys = [
            Line2D([], [], color=FAINT, linestyle=":", linewidth=1.2, label="chance"),
            Line2D([], [], color=FAINT, linestyle=(0, (5, 2)), linewidth=1.2, label="clipped at"),
        ]
        frame(figure, "Temporal order: errors and the gradient's norm", notes, keys)
    return figure


def _tops(at: np.ndarray, norms: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(updates, log10 of the largest norm) of blocks of `size`; nan of one that holds a norm that is not finite."""
    starts = np.arange(0, len(at), size)
    if not starts.size:
        return at, norms
    with np.errstate(divide="ignore"):
        return at[starts], np.log10(np.maximum.reduceat(norms, starts))

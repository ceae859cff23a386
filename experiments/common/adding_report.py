"""What the study of the adding problem shows: what was learned by which update, and the picture of it."""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.common.claims import Claim
from experiments.common.curves import QUANTILES, Curve
from experiments.common.study_report import Study, Table
from rnnjax.report import run_files
from rnnjax.report.figures import WIDTH
from rnnjax.report.style import FAINT, STYLE, cell_styles, frame
from rnnjax.tasks import Adding

SOLVED = 0.01
"""The squared error below which a network has solved the task."""


@dataclasses.dataclass(frozen=True)
class Learning:
    """How the test error of a model went down.

    seeds: for each {update: squared error}, nan where it is no number.
    norms: median of log10 ||dL/dcarry_t|| before training, by distance [T]; None where it was not measured.
    """

    seeds: Sequence[Mapping[int, float]]
    norms: np.ndarray | None = None

    def first(self) -> list[int | None]:
        """The first update, of those that were tested, at which each seed had solved the task; None of one that had
        not."""
        return [next((step for step, error in one.items() if error < SOLVED), None) for one in self.seeds]

    def solved_by(self, update: int) -> int:
        """How many seeds had solved it by then."""
        return sum(step is not None and step <= update for step in self.first())

    def at(self, update: int) -> list[float]:
        """The errors at an update, nan of a seed that was not tested there."""
        return [one.get(update, math.nan) for one in self.seeds]

    def at_least(self, error: float, update: int) -> int:
        """How many seeds have at least this error at an update; one that was not tested there has not."""
        return sum(found >= error for found in self.at(update))

    def least(self) -> float:
        """The least error of any seed at any time; nan where one is no number."""
        return float(np.min([error for one in self.seeds for error in one.values()] or [math.nan]))


def read_learning(workdir: pathlib.Path, summaries: Mapping[str, dict]) -> dict[str, Learning]:
    """What the folders of a study's models hold."""
    found = {}
    for name, summary in summaries.items():
        tested = [row for row in run_files.read_rows(workdir / name / "metrics.jsonl") if row["kind"] == "eval"]
        seeds = [
            {
                row["step"]: math.nan if row["loss"] is None else row["loss"]
                for row in tested
                if row.get("replica", 0) == at
            }
            for at in range(len(summary["replicas"]))
        ]
        path, norms = workdir / name / "norms.npz", None
        if path.exists():
            (norms,) = (values for key, values in run_files.read_norms(path).items() if key != "step")
            norms = norms[0, :, QUANTILES.index(0.5)]
        found[name] = Learning(seeds, norms)
    return found


def far_share(learning: Learning) -> float:
    """log10 of the share of the gradient at the loss that is left at the farthest distance; nan where not measured."""
    return math.nan if learning.norms is None else Curve.of(learning.norms).kept


def report(
    config: Any,
    tasks: Mapping[str, Adding],
    summaries: Mapping[str, dict],
    found: Mapping[str, Learning],
    made: list[Claim],
) -> Study:
    """The table, the picture and the claims."""
    early = min(1000, *(summary["steps"] for summary in summaries.values()))
    header = ("model", "length", "parameters", "updates", "solved at", f"error at {early:,}", "least error", "seconds")
    rows = [
        (
            name,
            tasks[name].length,
            summary["parameters"],
            summary["steps"],
            ", ".join("-" if step is None else f"{step:,}" for step in found[name].first()),
            _listed(found[name].at(early)),
            _listed([min(one.values(), default=math.nan) for one in found[name].seeds]),
            summary["seconds"],
        )
        for name, summary in summaries.items()
    ]
    ends = ", where its training ends" if config.stop else ""
    note = f"""A seed an entry. Solved: the first test, one every {config.train.eval_every} updates, with a squared
error below {SOLVED}{ends}. Errors are of {config.train.eval_batch:,} test sequences; - stands for none."""
    train = config.train
    text = f"""
{config.seeds} networks of {config.model.hidden_size} units of every model are trained on batches of
{train.batch_size} fresh sequences, by {train.optimizer} at a learning rate of {train.learning_rate:g}, gradients
clipped at a norm of {train.clip_norm:g}. A guess that has seen no input has an error of 1/6. What is not solved is not
solved within this budget; tanh networks are seen to learn later."""
    figure = draw(config, found)
    drawn = {"learning": (figure, "Test error over training, a line a seed")}
    table = Table("What was learned", header, rows, " ".join(note.split()))
    return Study("adding", "The adding problem", " ".join(text.split()), [table], drawn, made)


def _listed(errors: Sequence[float]) -> str:
    return ", ".join("-" if math.isnan(error) else f"{error:.4f}" for error in errors)


def draw(config: Any, found: Mapping[str, Learning]) -> Figure:
    """Test errors over updates, log-log."""
    styles = cell_styles(tuple(found))
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, 4.7), layout="constrained")
        axes = figure.subplots()
        for name, learning in found.items():
            color, dashes = styles[name]
            for one in learning.seeds:
                axes.plot(list(one), list(one.values()), color=color, linestyle=dashes, linewidth=1.3)
        axes.axhline(1 / 6, color=FAINT, linestyle=(0, (2, 2)), linewidth=1.2)
        axes.axhline(SOLVED, color=FAINT, linestyle=":", linewidth=1.2)
        axes.set(yscale="log", xlabel="update", ylabel="squared error")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        keys = [
            *(Line2D([], [], color=color, linestyle=dashes, label=name) for name, (color, dashes) in styles.items()),
            Line2D([], [], color=FAINT, linestyle=(0, (2, 2)), linewidth=1.2, label="a guess"),
            Line2D([], [], color=FAINT, linestyle=":", linewidth=1.2, label="solved"),
        ]
        notes = [f"Lines: seeds. irnn reads {config.irnn.length} steps, others {config.task.length}."]
        if "irnn-far" in found:
            notes = [f"{notes[0][:-1]}, irnn-far {config.irnn.far_length}."]
        frame(figure, "The adding problem: test error over training", notes, keys)
    return figure

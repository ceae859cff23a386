"""What a report counts and lists: verdicts of claims, a row a model, and the same as CSV.

Columns of the CSV, a row a model, or a run that has no models:

study           path of the workdir below the folders that were asked for
experiment      what ran there, and task where the study names one
model, cell     the model's name and the cell that it is built of
state           finished, diverged, unfinished at step N, or the launcher's word for a run that has not ended
seeds           how many were trained
parameters      numbers in the model
steps           training steps
seconds         of training, or of what the claims took where there is no model
loss in training
                the last loss on the split that was watched (validation, else test), the median over seeds
SCORE, SCORE sd
                the mean over seeds of every score in a summary.json, and the standard deviation of two or more
overrides       the config fields in which runs of one experiment differ, FIELD=VALUE; separated by semicolons
problems        what is wrong with the files of the run
"""

import csv
import dataclasses
import io
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TextIO

from rnnjax.report.discover import Model, Study, is_number
from rnnjax.report.tables import console_table

HELD, NOT_HELD, CONTESTED, NOT_MEASURED = "held", "not held", "contested", "not measured"
VERDICTS = (HELD, NOT_HELD, CONTESTED, NOT_MEASURED)
_ABOUT_SEEDS = {"step", "label", "stopped", "diverged", "seed"}  # of a summary's replicas, and no scores


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the table of runs. scores: {score: [value of a seed]}. at: of its study, among all."""

    at: int
    study: Study
    model: Model | None
    parameters: int | None
    steps: int | None
    seconds: float | None
    loss: float | None
    scores: dict[str, list[float]]
    overrides: dict[str, str]


def verdict_of(claim: dict[str, Any]) -> str:
    """One of VERDICTS. A claim that the literature is not of one mind on is contested, however it came out here."""
    if claim.get("not_measured"):
        return NOT_MEASURED
    if claim.get("contested"):
        return CONTESTED
    return HELD if claim["holds"] is True else NOT_HELD


def counts(studies: Sequence[Study]) -> dict[str, int]:
    """{verdict: how many claims have it}."""
    found = [verdict_of(claim) for study in studies for claim in study.claims or []]
    return {verdict: found.count(verdict) for verdict in VERDICTS}


def print_verdicts(studies: Sequence[Study], file: TextIO | None = None) -> None:
    """Prints, default to stdout, how many claims of every study have which verdict, and of all together."""
    judged = [study for study in studies if study.claims is not None]
    listed = [[study.label, *counts([study]).values(), study.seconds] for study in judged]
    console_table(["study", *VERDICTS, "seconds"], [*listed, ["all", *counts(judged).values(), None]], "Claims", file)


def rows(studies: Sequence[Study]) -> list[Row]:
    """The table of runs, a row a model."""
    different = overrides(studies)
    made = []
    for at, study in enumerate(studies):
        if not study.models:
            made.append(Row(at, study, None, None, None, study.seconds, None, {}, different[at]))
        for model in study.models:
            made.append(_row(at, study, model, different[at]))
    return made


def _row(at: int, study: Study, model: Model, different: dict[str, str]) -> Row:
    summary = model.summary
    asked = summary.get("steps")
    seconds = summary.get("seconds")
    parameters = summary.get("parameters")
    return Row(
        at,
        study,
        model,
        parameters if is_number(parameters) else None,
        asked if is_number(asked) else (model.last_step or None),
        seconds if is_number(seconds) else None,
        last_loss(model),
        scores_of(model),
        different,
    )


def scores_of(model: Model) -> dict[str, list[float]]:
    """{score: value of every seed that has one}, from summary.json."""
    found: dict[str, list[float]] = defaultdict(list)
    metrics = model.summary.get("metrics")
    alone = {"loss": model.summary.get("loss")} | (metrics if isinstance(metrics, dict) else {})
    for seed in model.seeds or [alone]:
        held = seed.get("scores", seed)
        for name, value in held.items() if isinstance(held, dict) else ():
            if name not in _ABOUT_SEEDS and is_number(value):
                found[name].append(float(value))
    return dict(found)


def held_out(model: Model) -> str:
    """The split that training was watched by: valid, or test where there is no other; "" where there is none."""
    splits = {str(row.get("split")) for row in model.rows if row["kind"] == "eval" and is_number(row.get("loss"))}
    return next((split for split in ("valid", "test", *sorted(splits)) if split in splits), "")


def last_loss(model: Model) -> float | None:
    """The median over seeds of the last held-out loss."""
    split = held_out(model)
    last = {}
    for row in model.rows:
        if row["kind"] == "eval" and str(row.get("split")) == split and is_number(row.get("loss")):
            last[row.get("replica") if is_number(row.get("replica")) else 0] = float(row["loss"])
    return statistics.median(last.values()) if last else None


def overrides(studies: Sequence[Study]) -> list[dict[str, str]]:
    """For each study {field: value} of what differs between the runs of its experiment, or what its sweep gave it.

    Compared are the fields that all configs of the experiment and its task have.
    """
    groups: dict[tuple[str, str], list[Study]] = defaultdict(list)
    for study in studies:
        if study.config:
            groups[study.experiment, study.task].append(study)
    differing = {}
    for key, group in groups.items():
        common = [field for field in group[0].config if all(field in study.config for study in group)]
        differing[key] = [field for field in common if len({_text(study.config[field]) for study in group}) > 1]
    return [
        {field: _text(study.config[field]) for field in differing[study.experiment, study.task]}
        if study.config
        else dict(study.overrides)
        for study in studies
    ]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def score_names(table: Sequence[Row]) -> list[str]:
    """All scores there are, the loss first."""
    names = dict.fromkeys(name for row in table for name in row.scores)
    return sorted(names, key=lambda name: (name != "loss", list(names).index(name)))


def csv_text(table: Sequence[Row]) -> str:
    """The table of runs with every score; the columns stand in the docstring of this module."""
    names = score_names(table)
    header = ["study", "experiment", "task", "model", "cell", "state", "seeds", "parameters", "steps", "seconds"]
    header += ["loss in training", *(column for name in names for column in (name, f"{name} sd"))]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([*header, "overrides", "problems"])
    for row in table:
        writer.writerow([*_cells(row), *_score_cells(row, names), *_endings(row)])
    return text.getvalue()


def _cells(row: Row) -> list[Any]:
    study, model = row.study, row.model
    state = study.state if model is None else model.state
    of = ["", "", state, ""] if model is None else [model.name, model.cell, state, model.seed_count]
    return [study.label, study.experiment, study.task, *of, row.parameters, row.steps, row.seconds, row.loss]


def _score_cells(row: Row, names: Sequence[str]) -> list[Any]:
    cells = []
    for name in names:
        values = row.scores.get(name, [])
        cells.append(statistics.fmean(values) if values else None)
        cells.append(statistics.stdev(values) if len(values) > 1 else None)
    return cells


def _endings(row: Row) -> list[str]:
    given = "; ".join(f"{field}={value}" for field, value in row.overrides.items())
    return [given, " | ".join(" ".join(problem.split()) for problem in row.study.problems)]

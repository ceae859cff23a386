"""What the charts of the page are drawn from, small enough for a file that is sent around.

charts() -> {
    "cells": {name: {"color", "dark", "dash"}}        of a cell, or of a model beside the plain one: "lstm-wide"
    "runs": [{"label", "experiment", "chance", "unit"}]                chance: the loss that no input is needed for
    "losses": [{"run", "model", "cell", "seed", "split", "steps": [..], "values": [..]}]     split "train": batches
    "norms": [{"run", "model", "cell", "steps": [..], "distance": [..], "quartiles": [3][step][distance]}]
    "thinned": what was left out, in words, or ""
}
Norms are hundredths of log10, rounded, each the difference from the one before it along the distance, which
compresses well: the sum of a row's first k is the k-th. null: no sequence that long; ZERO_NORM, which is in no sum: 0.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnnjax.report.discover import Model, Study, is_number
from rnnjax.report.style import ON_DARK, cell_styles

ZERO_NORM = "0"
POINTS = (400, 200, 100, 60, 30, 15)
"""To so many points every curve is thinned, the first that fits."""


def charts(studies: Sequence[Study], points: int) -> dict[str, Any]:
    """As this module's docstring has it, no curve with more points than `points`, and a quarter of it probed steps."""
    looks = tuple(dict.fromkeys(model.look for study in studies for model in study.models))
    thinned = {"curves": 0, "of": 0}
    losses, norms = [], []
    for at, study in enumerate(studies):
        for model in study.models:
            losses += [{"run": at} | line for line in _losses(model, points, thinned)]
            norms += [{"run": at} | line for line in _norms(model, points, thinned)]
    left_out = f"{thinned['curves']:,} of {thinned['of']:,} curves are thinned to {points} points" if points else ""
    return {
        "cells": {cell: _look(*style) for cell, style in cell_styles(looks).items()},
        "runs": [_run(study) for study in studies],
        "losses": losses,
        "norms": norms,
        "thinned": left_out if thinned["curves"] else "",
    }


def _run(study: Study) -> dict[str, Any]:
    """Runs whose losses are of one kind, in "experiment", are drawn together."""
    kind = f"{study.experiment}: {study.task}" if study.task else study.experiment
    unit = study.about.get("unit")
    return {
        "label": study.label,
        "experiment": kind,
        "chance": _finite(study.about.get("chance")),
        "unit": unit if isinstance(unit, str) else "",
    }


def _look(color: str, linestyle: str | tuple) -> dict[str, str]:
    """A line's colour on white and on dark, and its dashes in pixels."""
    width = 2.0
    dash = "solid" if isinstance(linestyle, str) else ",".join(f"{width * one:g}px" for one in linestyle[1])
    return {"color": color, "dark": ON_DARK.get(color, color), "dash": dash}


def _losses(model: Model, points: int, thinned: dict[str, int]) -> list[dict[str, Any]]:
    found: dict[tuple[str, int], dict[int, float | None]] = defaultdict(dict)
    for row in model.rows:
        replica = row.get("replica") if isinstance(row.get("replica"), int) else 0
        if row["kind"] in ("train", "eval"):
            split = "train" if row["kind"] == "train" else str(row.get("split"))
            found[split, replica][row["step"]] = _finite(row.get("loss"))
    labels = {at: str(seed.get("label") or "") for at, seed in enumerate(model.seeds)}
    lines = []
    for (split, replica), values in found.items():
        if len(values) < 2 and split != "train":
            continue  # the test split is taken once, at the end: the table has it
        chosen = _thin(len(values), points, thinned)
        steps = np.array(list(values))[chosen]
        seed = labels.get(replica) or f"seed {replica}"
        lines.append({
            "model": model.name, "cell": model.look, "seed": seed, "split": split, "steps": steps.tolist(),
            "values": [list(values.values())[at] for at in chosen],
        })  # fmt: skip
    return lines


def _finite(value: Any) -> float | None:
    return float(f"{value:.4g}") if is_number(value) else None


def _norms(model: Model, points: int, thinned: dict[str, int]) -> list[dict[str, Any]]:
    lines = []
    for unroll, values in model.norms.items():
        steps, distance = _thin(len(values), max(points // 4, 2), thinned), _thin(values.shape[1], points, thinned)
        kept = values[np.ix_(steps, distance)].astype(float)
        name = model.name if len(model.norms) == 1 else f"{model.name} {unroll}"
        lines.append({
            "model": name, "cell": model.look, "steps": model.steps[steps].tolist(), "distance": distance.tolist(),
            "quartiles": [[_coded(row) for row in quartile] for quartile in np.moveaxis(kept, -1, 0)],
        })  # fmt: skip
    return lines


def _coded(row: np.ndarray) -> list[int | str | None]:
    """Differences along the row, in hundredths; what is not finite stands for itself."""
    coded: list[int | str | None] = []
    before = 0
    for value in row:
        if np.isfinite(value) and abs(value) < 1e6:  # of a log10: more is no norm's
            now = round(100 * float(value))
            coded.append(now - before)
            before = now
        else:
            coded.append(ZERO_NORM if np.isneginf(value) else None)
    return coded


def _thin(count: int, most: int, thinned: dict[str, int]) -> np.ndarray:
    """Which of `count` points stay, the first and the last of them."""
    thinned["of"] += 1
    if count <= most:
        return np.arange(count)
    thinned["curves"] += 1
    return np.unique(np.round(np.linspace(0, count - 1, most)).astype(int))

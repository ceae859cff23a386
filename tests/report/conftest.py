"""A study's workdir as the trainer leaves it, small and made up."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

FIELDS = {"elman": ("h",), "jordan": ("y",), "lstm": ("h", "c"), "gru": ("h",)}
SLOPES = {"elman": -0.4, "jordan": -1.5, "lstm": -0.15, "gru": -0.1}  # nats a step, at initialisation


def norms(slope, length, steps):
    """Quartiles of log10 norms, float32 [step, distance, 3]: a slope that flattens with training, underflow to 0."""
    rows = []
    for at, _ in enumerate(steps):
        trained = at / max(len(steps) - 1, 1)
        median = slope * (1 - 0.7 * trained) * np.arange(length) / np.log(10) - 0.5 - 1.2 * trained
        median += 0.15 * np.sin(np.arange(length) / 7 + slope)
        width = 0.15 + 0.012 * np.arange(length)
        rows.append(np.stack([median - width, median, median + 0.8 * width], axis=-1))
    values = np.array(rows)
    return np.where(values < -45, -np.inf, values).astype(np.float32)


def rows_of(cell, last, rng):
    """metrics.jsonl of a cell whose loss falls from about chance."""
    rows = []
    for step in range(1, last + 1, max(last // 60, 1)):
        loss = 0.17 * np.exp(0.0003 * step / SLOPES.get(cell, -0.3)) + 0.002
        rows.append({"step": step, "kind": "train", "loss": loss * rng.uniform(0.8, 1.25), "gradient_norm": 1.0})
    for step in range(0, last + 1, max(last // 8, 1)):
        loss = 0.17 * np.exp(0.0003 * step / SLOPES.get(cell, -0.3)) + 0.002
        rows.append({"step": step, "kind": "eval", "split": "valid", "loss": loss})
    rows.append({"step": last, "kind": "eval", "split": "test", "loss": 9.0})
    return rows


def write(folder, cells=tuple(FIELDS), length=12, steps=(0, 10, 100), change=None, diverged=None, chance=1 / 6):
    """Writes a workdir. change(arrays, rows): a last word on the arrays and on {cell: rows of metrics.jsonl}."""
    rng = np.random.default_rng(0)
    arrays = {"distance": np.arange(length), "quantile": np.array([0.25, 0.5, 0.75])}
    for cell in cells:
        arrays[f"{cell}.step"] = np.array(steps)
        for field in ("carry", *FIELDS.get(cell, ("h",))):
            arrays[f"{cell}.{field}"] = norms(SLOPES.get(cell, -0.3), length, steps)
    rows = {cell: rows_of(cell, max(steps[-1], 1), rng) for cell in cells}
    if change:
        change(arrays, rows)
    axes = {key: ["step", "distance", "quantile"] for key in arrays if "." in key and not key.endswith(".step")}
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "gradient_norms.npz", axes=np.array(json.dumps(axes)), **arrays)
    config = {"experiment": "gradient_norms", "config": {"cells": list(cells), "task": {"name": "adding"}}}
    _json(folder / "config.json", config)
    _json(folder / "summary.json", {"task": "adding", "chance": chance, "unit": "squared error", "reads_last": True})
    claim = {"claim": "it vanishes", "source": "1994", "expected": "slope < 0", "measured": -0.4, "holds": True}
    _json(folder / "claims.json", {"study": "gradient_norms", "claims": [claim], "seconds": 1.0})
    for cell in cells:
        (folder / cell).mkdir(exist_ok=True)
        (folder / cell / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[cell]))
        _json(folder / cell / "summary.json", {"cell": cell, "loss": 0.1, "diverged": (diverged or {}).get(cell)})
    return SimpleNamespace(folder=folder, arrays=arrays, rows=rows)


def _json(path, value):
    path.write_text(json.dumps(value))


@pytest.fixture(scope="session")
def write_study():
    """`write`, for fixtures that outlive a test."""
    return write


@pytest.fixture
def study(tmp_path):
    """write(**changes) -> the folder with what was written, in this test's own directory."""
    return lambda **changes: write(tmp_path / "study", **changes)

"""What a study left in its workdir, read and checked."""

import dataclasses
import json
import pathlib
import zipfile
import zlib
from typing import Any

import numpy as np

WAY_OUT = "run the study again with the same --workdir: it goes on where it stopped"
BROKEN = "the file was changed or cut short: restore it, or run the study again with a new --workdir"


class ReportError(ValueError):
    """A file of a run is missing or malformed. Says which file, where in it, what was found and what to do."""

    user_error = True


@dataclasses.dataclass(frozen=True)
class Run:
    """A study's workdir.

    config: the study's config as a dict; experiment: its name.
    cells: names, in the order of the config; every dict below by cell has exactly these keys, in this order.
    norms: {cell: {"carry" or a field: log10 ||dL/d field_t||, [step, distance, quantile]}}; nan where no sequence is
        that long, -inf where the gradient is 0.
    steps: {cell: training steps that were probed, [step]}.
    distance: steps back from the loss's own, [distance]; quantile: [3], the quartiles over sequences.
    metrics: {cell: rows of its metrics.jsonl}; summaries: {cell: its summary.json}.
    task: the study's summary.json: task, chance, unit, reads_last.
    claims: claims.json, or None where the study has not judged any yet.
    """

    workdir: pathlib.Path
    experiment: str
    config: dict[str, Any]
    cells: tuple[str, ...]
    norms: dict[str, dict[str, np.ndarray]]
    steps: dict[str, np.ndarray]
    distance: np.ndarray
    quantile: np.ndarray
    metrics: dict[str, list[dict[str, Any]]]
    summaries: dict[str, dict[str, Any]]
    task: dict[str, Any]
    claims: dict[str, Any] | None


def read_run(workdir: str | pathlib.Path) -> Run:
    """Reads a study's workdir. Raises ReportError where a file is missing or malformed."""
    workdir = pathlib.Path(workdir)
    config = read_object(workdir / "config.json", {"experiment": str, "config": dict})
    cells = config["config"].get("cells")
    if not isinstance(cells, list) or not cells or not all(isinstance(cell, str) for cell in cells):
        raise _error(workdir / "config.json", f"config.cells is {cells!r}: expected a list of names", BROKEN)
    path = workdir / "gradient_norms.npz"
    arrays = _read_arrays(path)
    _check_norms(path, arrays, cells)
    claims = workdir / "claims.json"
    return Run(
        workdir=workdir,
        experiment=config["experiment"],
        config=config["config"],
        cells=tuple(cells),
        norms={cell: _fields(arrays, cell) for cell in cells},
        steps={cell: arrays[f"{cell}.step"] for cell in cells},
        distance=arrays["distance"],
        quantile=arrays["quantile"],
        metrics={cell: read_rows(workdir / cell / "metrics.jsonl") for cell in cells},
        summaries={cell: read_object(workdir / cell / "summary.json", {}) for cell in cells},
        task=read_object(workdir / "summary.json", {"task": str, "unit": str}),
        claims=read_object(claims, {"claims": list}) if claims.exists() else None,
    )


def read_rows(path: pathlib.Path) -> list[dict[str, Any]]:
    """The rows of a metrics.jsonl. A last line that was torn while it was written is left out."""
    *lines, last = _read_bytes(path).split(b"\n")
    rows = []
    for place, line in enumerate([*lines, last], start=1):
        torn = place > len(lines)  # no newline came after it
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            if torn:
                break
            raise _error(path, f"line {place} is not JSON ({error})", BROKEN) from None
        if not isinstance(row, dict) or not isinstance(row.get("step"), int) or "kind" not in row:
            raise _error(path, f'line {place} is no row with a whole "step" and a "kind"', BROKEN)
        rows.append(row)
    return rows


def read_summary(folder: pathlib.Path) -> dict[str, Any]:
    """What the summary.json of one model of a comparison holds. Raises ReportError where it is missing or malformed."""
    return read_object(folder / "summary.json", {"name": str, "replicas": list})


def read_claims(path: pathlib.Path) -> list[dict[str, Any]]:
    """The claims of a claims.json. Raises ReportError where it is missing or malformed."""
    claims = read_object(path, {"claims": list})["claims"]
    for at, claim in enumerate(claims):
        if (
            not isinstance(claim, dict)
            or not isinstance(claim.get("claim"), str)
            or not isinstance(claim.get("holds"), bool)
        ):
            raise _error(path, f'claims[{at}] is {claim!r:.60}: expected a "claim" and whether it "holds"', BROKEN)
    return claims


def seconds_of_training(folder: pathlib.Path) -> float:
    """The time of training, in all that it was carried out in; 0 where nothing was trained."""
    rows = read_rows(folder / "timing.jsonl")
    return float(max((row.get("seconds") or 0.0 for row in rows), default=0.0))


def seconds_of_study(workdir: pathlib.Path) -> float:
    """The time of a study's trainings, in all that they were carried out in; 0 where there is no seconds.json."""
    path = workdir / "seconds.json"
    return float(read_object(path, {"seconds": float | int})["seconds"]) if path.exists() else 0.0


def read_norms(path: pathlib.Path) -> dict[str, np.ndarray]:
    """The arrays of a norms.npz: `step` and, by unroll, log10 norms [step, distance, quartile]."""
    return _read_arrays(path)


def _fields(arrays: dict[str, np.ndarray], cell: str) -> dict[str, np.ndarray]:
    owners = {key: key.rpartition(".") for key in arrays}
    return {field: arrays[key] for key, (owner, _, field) in owners.items() if owner == cell and field != "step"}


def _check_norms(path: pathlib.Path, arrays: dict[str, np.ndarray], cells: list[str]) -> None:
    needed = ["distance", "quantile", *(f"{cell}.{name}" for cell in cells for name in ("step", "carry"))]
    for key in needed:
        if key not in arrays:
            raise _error(path, f"there is no array {key}, only {', '.join(sorted(arrays)) or 'an empty file'}", WAY_OUT)
        if arrays[key].ndim != (3 if key.endswith(".carry") else 1) or arrays[key].dtype.kind not in "iuf":
            found = f"{arrays[key].dtype} {list(arrays[key].shape)}"
            wanted = "[step, distance, quantile]" if key.endswith(".carry") else "one axis of numbers"
            raise _error(path, f"{key} is {found}: expected {wanted}", BROKEN)
    if arrays["quantile"].size != 3 or not arrays["distance"].size:
        sizes = f"{arrays['quantile'].size} quantiles and {arrays['distance'].size} distances"
        raise _error(path, f"there are {sizes}: expected the 3 quartiles and at least one distance", BROKEN)
    for cell in cells:
        sizes = (arrays[f"{cell}.step"].size, arrays["distance"].size, 3)
        for field, values in _fields(arrays, cell).items():
            if values.shape != sizes or not values.size:
                expected = f"one entry a step, distance and quantile, {list(sizes)}, and at least one step"
                raise _error(path, f"{cell}.{field} is {list(values.shape)}: expected {expected}", BROKEN)


def _read_arrays(path: pathlib.Path) -> dict[str, np.ndarray]:
    if not path.exists():
        raise _error(path, "the file is missing", WAY_OUT)
    try:
        with np.load(path, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files}
    except (ValueError, EOFError, KeyError, AttributeError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise _error(path, f"this is no archive of plain arrays ({error})", BROKEN) from None


def read_object(path: pathlib.Path, expected: dict[str, type]) -> dict[str, Any]:
    """A file that holds a JSON object with at least the `expected` keys. Raises ReportError where it is another."""
    try:
        found = json.loads(_read_bytes(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ReportError):
            raise
        raise _error(path, f"this is not JSON ({error})", BROKEN) from None
    if not isinstance(found, dict):
        raise _error(path, f"this is a JSON {type(found).__name__}: expected an object", BROKEN)
    for key, kind in expected.items():
        if not isinstance(found.get(key), kind):
            raise _error(path, f"{key} is {found.get(key)!r:.60}: expected a {kind.__name__}", BROKEN)
    return found


def _read_bytes(path: pathlib.Path) -> bytes:
    if not path.exists():
        raise _error(path, "the file is missing", WAY_OUT)
    return path.read_bytes()


def _error(path: pathlib.Path, problem: str, way_out: str) -> ReportError:
    return ReportError(f"{path}: {problem}\n{way_out}")

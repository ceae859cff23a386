"""What lies below a folder: studies, sweeps and trainings, finished or not, and what is wrong in their files."""

import dataclasses
import json
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from rnnjax.report import run_files
from rnnjax.report.run_files import ReportError, Run

MARKS = ("config.json", "run.json", "claims.json", "gradient_norms.npz", "metrics.jsonl")
LOOKED_FOR = (
    "a workdir (config.json, and from there on claims.json, report.md, a folder a model), a training "
    "(metrics.jsonl), or a sweep (sweep.json), in it or in a folder below it"
)
_OF_MODELS = ("metrics.jsonl", "summary.json", "norms.npz")
_PASSED = {"checkpoints", "probes", "slurm"}  # many files, and none of them a run's own
_STATES = ("waiting", "running", "stopped", "failed", "finished")  # of run.json
_PICTURE = re.compile(r"^!\[(.*)\]\(([^()]+)\.png\)$", re.MULTILINE)
_Read = TypeVar("_Read")


@dataclasses.dataclass
class Model:
    """One model of a study, with the rows and norms of all its seeds.

    cell: what it is built of; its own name where that is not known or there is none.
    rows: of metrics.jsonl.
    norms: {unroll: log10 norms [step, distance, quartile]}, measured at `steps`.
    """

    name: str
    folder: pathlib.Path
    cell: str
    summary: dict[str, Any]
    rows: list[dict[str, Any]]
    norms: dict[str, np.ndarray]
    steps: np.ndarray

    @property
    def state(self) -> str:
        """What became of it: finished, diverged (every seed, or how many), or unfinished and where it is."""
        seeds = self.seeds
        wild = sum(bool(one.get("diverged")) for one in seeds) or int(bool(self.summary.get("diverged")))
        if wild:
            return "diverged" if wild >= len(seeds) else f"{wild} of {len(seeds)} diverged"
        return "finished" if self.summary else f"unfinished at step {self.at}"

    @property
    def look(self) -> str:
        """The name to which `cell_styles` gives the colour of its cell, in dashes of its own."""
        return self.name if self.name.startswith(self.cell) else f"{self.cell} {self.name}"

    @property
    def seeds(self) -> list[dict[str, Any]]:
        """What summary.json says of every seed."""
        held = self.summary.get("replicas")
        return [one for one in held if isinstance(one, dict)] if isinstance(held, list) else []

    @property
    def seed_count(self) -> int | None:
        """How many were trained; None where nothing tells."""
        told = {row["replica"] for row in self.rows if isinstance(row.get("replica"), int)}
        return len(self.seeds) or len(told) or (1 if self.rows else None)

    @property
    def at(self) -> str:
        """The step that an unfinished one is at, of how many where that is known."""
        try:
            beat = json.loads((self.folder / "heartbeat.json").read_text(encoding="utf-8"))
            return f"{int(beat['step']):,} of {int(beat['steps']):,}"
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return f"{self.last_step:,}"

    @property
    def last_step(self) -> int:
        """The last that a row tells of."""
        return max((row["step"] for row in self.rows), default=0)


@dataclasses.dataclass
class Study:
    """One workdir: a study, a run of a sweep, or a training by itself.

    label: its path, as the report calls it.
    config: {field: value}, flat; overrides: those that a sweep gave it.
    about: its summary.json: of some studies, task, chance and unit.
    state: finished, unfinished, or what run.json says; said: where an unfinished one is, or its last error.
    claims: of claims.json; None where none were judged yet.
    text: report.md, without its pictures; pictures: [(path, caption)].
    run: as `read_run` has it, where the study is of that kind.
    problems: what is wrong with its files.
    """

    folder: pathlib.Path
    label: str
    experiment: str = ""
    task: str = ""
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    overrides: dict[str, str] = dataclasses.field(default_factory=dict)
    about: dict[str, Any] = dataclasses.field(default_factory=dict)
    state: str = "unfinished"
    said: str = ""
    claims: list[dict[str, Any]] | None = None
    seconds: float | None = None
    title: str = ""
    text: str = ""
    pictures: list[tuple[pathlib.Path, str]] = dataclasses.field(default_factory=list)
    models: list[Model] = dataclasses.field(default_factory=list)
    run: Run | None = None
    problems: list[str] = dataclasses.field(default_factory=list)

    def attempt(self, read: Callable[[], _Read], otherwise: _Read) -> _Read:
        """What `read` gives; where a file is malformed or cannot be read that is noted, and `otherwise` stands in."""
        try:
            return read()
        except (ReportError, OSError, UnicodeDecodeError) as error:
            if str(error) not in self.problems:
                self.problems.append(str(error))
            return otherwise


def find_studies(folders: Sequence[str | pathlib.Path]) -> list[Study]:
    """Everything below the folders, in the order of their paths. Raises ReportError for one that holds nothing."""
    if not folders:
        raise ReportError("no folder is given: name one or more that hold runs")
    roots = [pathlib.Path(folder).resolve() for folder in folders]
    found: dict[pathlib.Path, Study] = {}
    for given, root in zip(folders, roots, strict=True):
        if not root.is_dir():
            raise ReportError(f"{given}: there is no such folder\ngive one that holds {LOOKED_FOR}")
        below = _below(root)
        if not below:
            raise ReportError(f"{given}: no run is here\nlooked for: {LOOKED_FOR}")
        found |= {folder: study for folder, study in below.items() if folder not in found}
    base = pathlib.Path(os.path.commonpath(roots))
    for folder, study in found.items():
        label = str(folder.relative_to(base))
        study.label = folder.name if label == "." else label
        study.experiment = study.experiment or study.label
    return sorted(found.values(), key=lambda study: _by_number(study.label))


def _by_number(text: str) -> list[tuple[int, str]]:
    """A key that sorts seed=4 before seed=36."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", text)]


def _below(root: pathlib.Path) -> dict[pathlib.Path, Study]:
    """{folder: its study} of all workdirs; a model's folder belongs to the workdir above it."""
    found: dict[pathlib.Path, Study] = {}
    owners: dict[pathlib.Path, Study | None] = {root.parent: None}
    for parent, below, files in os.walk(root):
        folder = pathlib.Path(parent)
        below[:] = sorted(name for name in below if name not in _PASSED and not name.startswith("."))
        owner = owners.get(folder.parent)
        own = [name for name in MARKS if name in files]
        if own and (owner is None or "config.json" in own or "run.json" in own):
            owner = found.setdefault(folder, Study(folder, folder.name))
            _read_study(owner)
        owners[folder] = owner
        if owner is not None and any(name in files for name in _OF_MODELS) and not _is_whole_study(folder, files):
            owner.models.append(_read_model(owner, folder))
        if "sweep.json" in files:
            for run in _planned(folder):
                found.setdefault(run.folder, run)
    for study in found.values():
        _finish(study)
    return found


def _is_whole_study(folder: pathlib.Path, files: Iterable[str]) -> bool:
    """Whether a summary.json is that of a study and not of a model: the study's models have folders of their own."""
    return "config.json" in files and "metrics.jsonl" not in files and "norms.npz" not in files


def _planned(sweep: pathlib.Path) -> list[Study]:
    """The runs of a sweep that are not begun; a damaged sweep.json is a study by itself that has a problem."""
    study = Study(sweep, sweep.name)
    held = study.attempt(lambda: run_files.read_object(sweep / "sweep.json", {"experiment": str, "runs": list}), None)
    if held is None:
        return [study]
    runs = []
    for run in held["runs"]:
        name = run.get("name") if isinstance(run, dict) else None
        if (
            not isinstance(name, str) or pathlib.PurePath(name).name != name or len(name.encode()) > 255
        ):  # a name is a folder's, and of this folder
            study.problems.append(f"{sweep / 'sweep.json'}: {run!r:.60} is no run: expected a name and overrides")
            continue
        given = run.get("overrides")
        overrides = {str(key): str(value) for key, value in given.items()} if isinstance(given, dict) else {}
        state = Study(sweep / name, name, held["experiment"].rpartition(".")[2], overrides=overrides, state="waiting")
        _read_job(state)
        runs.append(state)
    return [study, *runs] if study.problems else runs


def _read_study(study: Study) -> None:
    folder = study.folder
    if (folder / "config.json").exists():
        config = study.attempt(lambda: run_files.read_object(folder / "config.json", {"experiment": str}), {})
        study.experiment, study.task = config.get("experiment", ""), str(config.get("task", ""))
        study.config = flat(config["config"]) if isinstance(config.get("config"), dict) else {}
    if (folder / "claims.json").exists():
        study.claims = study.attempt(lambda: run_files.read_claims(folder / "claims.json"), None)
        if study.claims is not None:
            seconds = run_files.read_object(folder / "claims.json", {}).get("seconds")
            study.seconds = seconds if is_number(seconds) else None
    if (folder / "gradient_norms.npz").exists():
        study.run = study.attempt(lambda: run_files.read_run(folder), None)
    if (folder / "summary.json").exists() and _is_whole_study(folder, os.listdir(folder)):
        study.about = study.attempt(lambda: run_files.read_object(folder / "summary.json", {}), {})
    text = ""
    if (folder / "report.md").exists():
        text = study.attempt(lambda: (folder / "report.md").read_text(encoding="utf-8"), "")
        study.state = "finished"
    captions = {name: caption for caption, name in _PICTURE.findall(text)}
    paths = sorted(folder.glob("*.png"), key=lambda path: ([*captions, path.stem].index(path.stem), path.name))
    study.pictures = [(path, captions.get(path.stem, path.stem.replace("_", " "))) for path in paths]
    study.title = text.partition("\n")[0].removeprefix("# ").strip() if text.startswith("# ") else ""
    study.text = _PICTURE.sub("", text)
    _read_job(study)


def _read_job(study: Study) -> None:
    """What a launcher says of the run."""
    path = study.folder / "run.json"
    if path.exists():
        held = study.attempt(lambda: run_files.read_object(path, {"state": str}), {})
        if held.get("state") in _STATES:
            study.state = held["state"]
            study.said = str(held.get("error") or "")


def _read_model(study: Study, folder: pathlib.Path) -> Model:
    own = folder == study.folder
    name = folder.name if own else str(folder.relative_to(study.folder))
    parts: dict[str, Any] = {"summary.json": {}, "metrics.jsonl": [], "norms.npz": {}}
    readers = {"summary.json": _summary, "metrics.jsonl": run_files.read_rows, "norms.npz": _norms}
    for file, read in readers.items():
        path = folder / file
        if path.exists():
            parts[file] = study.attempt(lambda read=read, path=path: read(path), parts[file])
    arrays, summary = parts["norms.npz"], parts["summary.json"]
    unrolls = ["carry"] if "carry" in arrays else [key for key in arrays if key != "step"]
    cell = summary.get("cell")
    return Model(
        name, folder, cell if isinstance(cell, str) and cell else name, summary, parts["metrics.jsonl"],
        {unroll: arrays[unroll] for unroll in unrolls}, arrays.get("step", np.zeros(0, int)),
    )  # fmt: skip


def _summary(path: pathlib.Path) -> dict[str, Any]:
    return run_files.read_object(path, {})


def _norms(path: pathlib.Path) -> dict[str, np.ndarray]:
    """Raises ReportError unless every array is [step, distance, quartile] of the steps there are."""
    arrays = run_files.read_norms(path)
    steps = arrays.get("step")
    if steps is None or steps.ndim != 1 or steps.dtype.kind not in "iu" or not steps.size:
        raise ReportError(f"{path}: step is no list of whole numbers\n{run_files.BROKEN}")
    for name, values in arrays.items():
        whole = values.ndim == 3 and values.shape[::2] == (len(steps), 3) and values.shape[1] > 0
        if name != "step" and not (whole and values.dtype.kind in "iuf"):
            found = f"{values.dtype} {list(values.shape)}"
            raise ReportError(f"{path}: {name} is {found}: expected [{len(steps)}, distance, 3]\n{run_files.BROKEN}")
    return arrays


def _finish(study: Study) -> None:
    """Puts the models in the study's own order, gives them what it gathered, and says where an unfinished one is."""
    order = study.config.get("cells")
    if isinstance(order, list):
        study.models.sort(key=lambda model: order.index(model.name) if model.name in order else len(order))
    for model in study.models:
        if study.run is not None and not model.norms and model.name in study.run.cells:  # its own file is gone
            model.norms, model.steps = {"carry": study.run.norms[model.name]["carry"]}, study.run.steps[model.name]
    alone = [model for model in study.models if model.folder == study.folder]
    if alone and study.state == "unfinished" and study.claims is None and alone[0].summary:
        study.state = "finished"  # a training by itself writes no report
    if study.state in ("finished", "waiting") or study.said:
        return
    done = sum(bool(model.summary) for model in study.models)
    under_way = [model for model in study.models if not model.summary]
    parts = [f"{done} of {len(study.models)} models begun are finished"] if study.models else []
    study.said = "; ".join(parts + [f"{model.name}: step {model.at}" for model in under_way])


def flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"train.steps": 100} of nested dicts."""
    fields = {}
    for key, value in config.items():
        fields |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return fields


def is_number(value: Any) -> bool:
    """Whether a value of a file is a number that a float can hold, and no truth, nan or infinity."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max

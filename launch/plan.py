"""One list of runs, checked before anything starts; both engines work it off.

SWEEP/sweep.json   {experiment, config, base, runs: [{name, overrides}]}
SWEEP/NAME/        a run's folder; its name tells its overrides
"""

import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from launch.flags import Request
from launch.job import Job, identity, read_record
from rnnjax.train import cli
from rnnjax.train.config import HOW, Leaf, TrainConfig, UsageError, differences, leaves, read, to_dict, validate
from rnnjax.train.records import hold, write_json
from rnnjax.train.sweep import Override, as_text

_LONGEST_NAME = 120  # a file system takes 255 bytes
_UNSAFE = re.compile(r"[^a-z0-9_.,-]")  # upper case is lost where a file system ignores it
_UNSAFE_IN_NAME = re.compile(r"[^a-z0-9_.,+=-]")
_NAME = re.compile(r"[a-z0-9_][a-z0-9_.,+=-]*")
_AS_IT_IS = "base"


@dataclasses.dataclass(frozen=True)
class Run:
    """name: of its folder. overrides: {field: text}, of this run alone."""

    name: str
    overrides: dict[str, str]


@dataclasses.dataclass(frozen=True)
class Plan:
    """config: the variant and the preset. base: {flag: text} for all runs. checkout: where `python -m` finds them."""

    experiment: str
    config: str
    base: dict[str, str]
    runs: tuple[Run, ...]
    workdir: pathlib.Path
    checkout: pathlib.Path

    def folder(self, run: Run) -> pathlib.Path:
        """Where a run writes."""
        return self.workdir / run.name

    def job(self, run: Run) -> Job:
        """What executes a run."""
        flags = self.base | {f"config.{field}": text for field, text in run.overrides.items()}
        arguments = [self.experiment, f"--workdir={self.folder(run)}", f"--config={self.config}"]
        return Job([*arguments, *(f"--{flag}={text}" for flag, text in flags.items())], str(self.checkout))

    def as_json(self) -> dict[str, Any]:
        """What stands in sweep.json."""
        runs = [dataclasses.asdict(run) for run in self.runs]
        return {"experiment": self.experiment, "config": self.config, "base": self.base, "runs": runs}


def make_plan(request: Request, workdir: pathlib.Path, signals: Sequence[str] = ("SIGTERM",)) -> Plan:
    """The runs that a command line asks for. Nothing is written.

    signals: those that the engine stops a run with.

    Raises UsageError, naming the run, where the experiment's own command line refuses one, where two are the same, and
    where one would not save upon the signals.
    """
    experiment = request.experiment
    config = experiment.get_config(*request.config.split(":"))
    fields = {leaf.flag.removeprefix("config."): leaf for leaf in leaves(config)}
    runs = tuple(_make_run(override, fields) for override in request.overrides)
    plan = Plan(experiment.name, request.config, request.base, runs, workdir, pathlib.Path.cwd())
    seen: dict[str, Run] = {}
    for run in runs:
        if twice := [field for field in run.overrides if f"config.{field}" in request.base]:
            raise UsageError(f"--config.{twice[0]} is given for all runs and the sweep sets it too: keep one of them")
        try:
            config = _parsed(plan.job(run), request)
            _check_signals(config, signals)
        except UsageError as error:
            raise UsageError(f"run {run.name}: {error}") from None
        same = seen.setdefault(json.dumps(to_dict(config)), run)
        if same is not run:
            raise UsageError(f"two runs have the same config, {same.name} and {run.name}: leave one out")
    return plan


def _parsed(job: Job, request: Request) -> Any:
    """The config of a run, as its own command line reads it."""
    experiment = request.experiment
    parsed, _ = cli.parse(job.arguments[1:], experiment.get_config, doc=experiment.doc, variants=experiment.variants)
    if isinstance(getattr(parsed.config, "train", None), TrainConfig):
        validate(parsed.config.train)
    if experiment.check is not None:
        experiment.check(parsed.config)
    return parsed.config


def _check_signals(config: Any, signals: Sequence[str]) -> None:
    train = getattr(config, "train", None)
    for name in signals if isinstance(train, TrainConfig) else ():
        if name not in train.checkpoint.signals:
            given = ",".join(train.checkpoint.signals)
            raise UsageError(f"--config.train.checkpoint.signals is {given}: it needs {name}, which stops a run here")


def _make_run(override: Override, fields: dict[str, Leaf]) -> Run:
    """A run whose values are written in one way: 1e-3 and 0.001 are the same."""
    texts = {}
    for field in sorted(override, key=lambda field: list(fields).index(field) if field in fields else -1):
        text = as_text(override[field])
        if field in fields:  # where it is not, the experiment's command line says what was meant
            leaf = dataclasses.replace(fields[field], flag=f"sweep.{field}")
            value = read(leaf, text)
            if isinstance(override[field], tuple | list) and list(value) != list(override[field]):
                raise UsageError(f"--sweep.{field}: {override[field]!r} is read as {value!r}, which is another value")
            text = as_text(value)
        texts[str(field)] = text
    return Run(_run_name(texts, list(fields)), texts)


def _run_name(texts: dict[str, str], fields: Sequence[str]) -> str:
    """A folder's name that tells the overrides: each field by the end of its path that no other field has.

    Where that is too long, or a value holds what a file system may not, a digest makes up for what is lost.
    """
    told = [(_shortest(field, fields), text) for field, text in texts.items()]
    name = ",".join(f"{field}={_UNSAFE.sub('_', text).replace(',', '+')}" for field, text in told) or _AS_IT_IS
    if len(name) <= _LONGEST_NAME and not any(_UNSAFE.search(part) for pair in told for part in pair):
        return name
    digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()
    return f"{_UNSAFE_IN_NAME.sub('_', name)[:_LONGEST_NAME]}-{digest[:8]}"


def _shortest(field: str, fields: Sequence[str]) -> str:
    parts = field.split(".")
    for count in range(1, len(parts)):
        end = ".".join(parts[-count:])
        if not any(other != field and f".{other}".endswith(f".{end}") for other in fields):
            return end
    return field


def claim(plan: Plan) -> int:
    """Makes the folder that of the plan's sweep, or goes on with it there: how many runs are new.

    Raises UsageError where the folder holds another sweep, naming what differs, or files that no sweep left; where it
    holds a run of another one; nothing in it is touched then.
    """
    _check_claim(plan)  # before a lock is made there
    with hold(plan.workdir / ".launch", str(plan.workdir)):
        held = _check_claim(plan)
        if held is None or held.as_json() != plan.as_json():
            write_json(plan.workdir / "sweep.json", plan.as_json())
    return len(plan.runs) - (len(held.runs) if held else 0)


def _check_claim(plan: Plan) -> Plan | None:
    """The plan that the folder holds already."""
    for run in plan.runs:
        ran = read_record(plan.folder(run))["arguments"]
        if ran is not None and identity(map(str, ran)) != identity(plan.job(run).arguments):
            raise UsageError(f"{plan.folder(run)} is a run of another sweep: move it away or give another --workdir")
    if not (plan.workdir / "sweep.json").exists():
        if plan.workdir.is_dir() and not all(entry.name.startswith(".") for entry in plan.workdir.iterdir()):
            raise UsageError(f"{plan.workdir} holds files but no sweep (no sweep.json): give a new or empty --workdir")
        return None
    held = read_plan(plan.workdir)
    differing = differences(_which(held), _which(plan))
    if differing:
        listed = ", ".join(f"{field} ({there!r} there, {here!r} here)" for field, there, here in differing[:4])
        raise UsageError(f"{plan.workdir} holds another sweep: it differs in {listed}; give another --workdir")
    if left_out := [run.name for run in held.runs if run not in plan.runs]:
        more = f" and {len(left_out) - 3} more" if len(left_out) > 3 else ""
        raise UsageError(
            f"{plan.workdir} holds another sweep: this one leaves out {', '.join(left_out[:3])}{more}; "
            "give those too (more may be added) or another --workdir"
        )
    return held


def _which(plan: Plan) -> dict[str, Any]:
    """What may not differ where a sweep goes on."""
    how = tuple(f"config.{field}." for field in HOW)
    base = {flag: text for flag, text in plan.base.items() if not f"{flag}.".startswith(how)}
    return {"experiment": plan.experiment, "--config": plan.config} | {f"--{flag}": text for flag, text in base.items()}


def read_plan(workdir: pathlib.Path) -> Plan:
    """The plan of the sweep in a folder. Raises UsageError where there is none, or a damaged one."""
    path = workdir / "sweep.json"
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
        runs = tuple(Run(str(run["name"]), dict(run["overrides"])) for run in held["runs"])
        if not all(_NAME.fullmatch(run.name) for run in runs):  # a name is a folder's, and of this folder
            raise ValueError(path)
        base = dict(held["base"])
        return Plan(str(held["experiment"]), str(held["config"]), base, runs, workdir, pathlib.Path.cwd())
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{workdir} holds no sweep (no sweep.json): give the --workdir of one") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UsageError(f"{path} is damaged or not what a launcher wrote: give another --workdir") from None

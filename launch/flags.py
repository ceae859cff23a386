"""The command line of the launchers: `python -m launch.ENGINE EXPERIMENT --workdir=DIR ...`.

It is read as an experiment's own is (`rnnjax.train.cli`): every flag is known, none is given twice, and what is
mistyped is refused with the nearest name before anything starts. The fields of the experiment's config are flags in two
forms, `--config.FIELD=VALUE` for all runs and `--sweep.FIELD=VALUE,VALUE` for a run each.
"""

import dataclasses
import difflib
import functools
import importlib
import pathlib
import pkgutil
import re
from collections.abc import Callable, Sequence
from typing import Any

from absl import app

from rnnjax.train import cli
from rnnjax.train.config import Leaf, UsageError, check_choice, leaves, read
from rnnjax.train.sweep import Override, as_text, product, sweep

COMMON = (
    Leaf("workdir", str, help="the folder of the sweep, with a folder for every run; required"),
    Leaf("sweep", str, default="NAME", help="a sweep that the experiment names in SWEEPS and makes in get_sweep"),
    Leaf("debug", bool, default=False, help="show the traceback of every error"),
)
_OF_NO_RUN = ("workdir", "config", "preset", "debug")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A module that `python -m` runs and that ends in `rnnjax.train.cli.run(main, get_config, ...)`.

    check: (config), raises UsageError for one that can't be, before anything starts; None where the module has none.
    """

    name: str
    doc: str
    get_config: Callable[[str, str], Any]
    variants: tuple[str, ...]
    sweeps: tuple[str, ...]
    get_sweep: Callable[[str], list[Override]] | None
    check: Callable[[Any], Any] | None = None


@dataclasses.dataclass(frozen=True)
class Request:
    """What the command line asks for.

    config: the variant and the preset, as in "adding:quick".
    base: {flag: text} for all runs.
    overrides: those of each run.
    options: {flag: value} of the engine's own.
    """

    experiment: Experiment
    config: str
    base: dict[str, str]
    overrides: list[Override]
    options: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Command:
    """What `rnnjax.train.cli.call` takes: it calls a launcher's `main(config, workdir)`."""

    config: Any
    workdir: pathlib.Path
    debug: bool


def run(main: Callable, parse: Callable[[list[str]], tuple[Command, list[str]]]) -> None:
    """Reads the command line, calls `main` and exits with what it returns, or as `rnnjax.train.cli.run` does."""
    app.run(functools.partial(cli.call, main), flags_parser=functools.partial(cli.read_or_exit, parse))


def parse(arguments: list[str], own: Sequence[Leaf], doc: str) -> tuple[Command, list[str]]:
    """Reads an engine's command line: what it asks for, and the arguments that are absl's own.

    own: the engine's flags.

    Raises UsageError with a message of one line, and SystemExit(0) after printing the help.
    """
    first = arguments[0] if arguments and not cli.FLAG.match(arguments[0]) else None
    experiment = find_experiment(first) if first else None
    if asks_for_help(arguments):
        print(help_text(doc, (*COMMON, *own), experiment), flush=True)
        raise SystemExit(0)
    if experiment is None:
        raise UsageError("which experiment? Its module comes first, as in experiments.gradient_norms --workdir=DIR")
    variant, preset = cli.choose(arguments[1:], experiment.variants)
    fields = {leaf.flag.removeprefix("config."): leaf for leaf in leaves(experiment.get_config(variant, preset))}
    known = {leaf.flag: leaf for leaf in (*cli.OWN, *COMMON, *own, *fields.values())}
    known |= {f"sweep.{field}": Leaf(f"sweep.{field}", str) for field in fields}
    given, for_absl = cli.collect(arguments[1:], known)
    of_runs = [leaf.flag for leaf in (*cli.OWN, *fields.values()) if leaf.flag not in _OF_NO_RUN]
    base = {flag: as_text(read(known[flag], given[flag])) for flag in of_runs if flag in given}
    options = {leaf.flag: read(leaf, given[leaf.flag]) if leaf.flag in given else leaf.default for leaf in own}
    request = Request(experiment, f"{variant}:{preset}", base, _overrides(given, experiment, fields), options)
    return Command(request, folder(given.get("workdir", "")), read(known["debug"], given.get("debug", "no"))), for_absl


def folder(text: str) -> pathlib.Path:
    """The sweep's folder. Raises UsageError where none is given."""
    if not text.strip():
        raise UsageError("--workdir is missing: say where the sweep may write, such as --workdir=runs/sweep")
    return cli.folder("workdir", text).absolute()


def find_experiment(name: str) -> Experiment:
    """Imports an experiment. Raises UsageError where there is none of this name, or what it lacks to be one."""
    if not _MODULE.fullmatch(name) or name.endswith(".py"):
        dotted = ".".join(pathlib.PurePath(name.removesuffix(".py")).parts).lstrip("./")
        raise UsageError(f"{name!r} is no name of a module: write it as python -m takes it, such as {dotted}")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name == missing or name.startswith(f"{missing}."):
            raise UsageError(f"there is no module {name} in {pathlib.Path.cwd()}{_nearest(name)}") from None
        raise UsageError(f"{name} can't be imported: {error}") from None
    for needed in ("get_config", "VARIANTS"):
        if not hasattr(module, needed):
            raise UsageError(f"{name} is no experiment: it has no {needed}")
    sweeps, get_sweep = tuple(getattr(module, "SWEEPS", ())), getattr(module, "get_sweep", None)
    check = getattr(module, "check", None)
    return Experiment(name, module.__doc__ or name, module.get_config, tuple(module.VARIANTS), sweeps, get_sweep, check)


def _nearest(name: str) -> str:
    parent, _, last = name.rpartition(".")
    try:
        path = importlib.import_module(parent).__path__ if parent else [str(pathlib.Path.cwd())]
    except (ImportError, AttributeError):
        return ""
    near = difflib.get_close_matches(last, [module.name for module in pkgutil.iter_modules(path)], n=1)
    return f": did you mean {f'{parent}.' if parent else ''}{near[0]}?" if near else ""


def _overrides(given: dict[str, str], experiment: Experiment, fields: dict[str, Leaf]) -> list[Override]:
    """Those of every run: the product of all sweeps that are given, in the order in which they are."""
    sweeps = []
    for flag, text in given.items():
        if flag == "sweep":
            sweeps.append(_named_sweep(text, experiment))
        elif flag.startswith("sweep."):
            field = flag.removeprefix("sweep.")
            leaf = dataclasses.replace(fields[field], flag=flag)
            outside_brackets = r",(?![^(\[]*[)\]])"
            sweeps.append(sweep(field, [read(leaf, part) for part in re.split(outside_brackets, text)]))
    if not sweeps:
        way_out = "--sweep.FIELD=VALUE,VALUE" + (f" or --sweep={experiment.sweeps[0]}" if experiment.sweeps else "")
        raise UsageError(f"nothing to sweep: give {way_out}; one value makes one run")
    return product(*sweeps)


def _named_sweep(name: str, experiment: Experiment) -> list[Override]:
    if experiment.get_sweep is None or not experiment.sweeps:
        raise UsageError(f"--sweep={name}: {experiment.name} has no SWEEPS and get_sweep: give --sweep.FIELD=VALUES")
    check_choice("--sweep", name, experiment.sweeps)
    made = experiment.get_sweep(name)
    if not isinstance(made, list) or not all(isinstance(one, dict) for one in made):
        raise UsageError(f"--sweep={name}: get_sweep of {experiment.name} gives no list of dicts, but {made!r:.60}")
    if not made:
        raise UsageError(f"--sweep={name} of {experiment.name} is empty: get_sweep gives no runs")
    return made


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether one of the arguments is a flag for help."""
    return any(cli.FLAG.match(one) and one.lstrip("-") in cli.HELP for one in arguments)


def help_text(doc: str, own: Sequence[Leaf], experiment: Experiment | None) -> str:
    """The engine's docstring, its flags, and the sweeps of the experiment where one is given."""
    shown = [f"  --{leaf.flag}={'DIR' if leaf.flag == 'workdir' else cli.show(leaf.default)}" for leaf in own]
    width = max(map(len, shown)) + 2
    lines = [doc.strip(), "", *(cli.help_entry(leaf, start, width) for leaf, start in zip(own, shown, strict=True))]
    if experiment is not None:
        lines += ["", f"sweeps of {experiment.name}: {', '.join(experiment.sweeps) or 'none'}"]
        lines += [f"fields of its config: python -m {experiment.name} --help"]
    return "\n".join(lines)

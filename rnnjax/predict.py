"""A trained run answers lines: with slots, a class, a translation, or what a text goes on with.

    python -m rnnjax.predict --workdir=DIR                    a prompt; Ctrl-D ends
    python -m rnnjax.predict --workdir=DIR --input=FILE       the lines of a file, plain or gzipped
    some-program | python -m rnnjax.predict --workdir=DIR     those of another program, each as it comes

DIR is the --workdir of a finished study, or the folder of one model in it. Of several models the one answers that was
best on the validation split; --model=NAME asks another. No corpus is needed: the run holds the vocabulary too.

On a terminal slots stand in colour below the words. Into a file or a pipe goes plain text: of slots a line
WORD<TAB>SLOT for every word and an empty one behind the sentence, of a class CLASS<TAB>PROBABILITY. Words that the
model does not know, and lines that it can't answer, are told on stderr, so that what is piped on is answers alone.
"""

import dataclasses
import difflib
import importlib
import inspect
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import rich.console

from rnnjax.answers import Answer, Unanswerable, config_like, standings
from rnnjax.data.errors import malformed, shown
from rnnjax.data.lines import read_lines
from rnnjax.train import cli
from rnnjax.train.config import Leaf, UsageError, read

WRITING = (
    Leaf("temperature", float, default=0.8, help="below 1 the likelier is written more often than it is likely; 0 for "
         "the likeliest alone"),
    Leaf("length", int, default=300, help="how many characters or words are written"),
    Leaf("seed", int, default=0, help="the same one writes the same text, another one another"),
)  # fmt: skip
"""Of models that go on with a text."""

OWN = (
    Leaf("workdir", str, help="the folder of a finished study, or of one of its models; required"),
    Leaf("model", str, default="", help="which of the study's models answers, where not the one that was best"),
    Leaf("input", str, default="", help="a file of lines, where they are not typed or piped in"),
    Leaf("debug", bool, default=False, help="show the traceback of every error"),
)


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command line asks for. options: those of WRITING that were given."""

    model: str
    input: str
    options: dict[str, float | int]


def parse(arguments: list[str]) -> tuple[cli.Parsed, list[str]]:
    """Reads the command line: what it asks for, and the arguments that are absl's own.

    Raises UsageError with a message of one line, and SystemExit(0) after printing the help.
    """
    if any(cli.FLAG.match(one) and one.lstrip("-") in cli.HELP for one in arguments):
        print(_help(), flush=True)
        raise SystemExit(0)
    known = {leaf.flag: leaf for leaf in (*OWN, *WRITING)}
    given, for_absl = cli.collect(arguments, known)
    values = {flag: read(known[flag], text) for flag, text in given.items()}
    if not values.get("workdir", "").strip():
        raise UsageError("--workdir is missing: say which run answers, such as --workdir=runs/slot_filling")
    for flag, least in (("temperature", 0), ("length", 1), ("seed", 0)):
        if values.get(flag, least) < least:
            raise UsageError(f"--{flag} is {values[flag]}: expected at least {least}")
    if values.get("seed", 0) >= 2**32:  # 32 bits of a key
        raise UsageError(f"--seed is {values['seed']}: expected at most {2**32 - 1}")
    options = {leaf.flag: values[leaf.flag] for leaf in WRITING if leaf.flag in values}
    asked = Asked(values.get("model", ""), values.get("input", ""), options)
    return cli.Parsed(asked, pathlib.Path(values["workdir"]).expanduser(), values.get("debug", False)), for_absl


def _help() -> str:
    lines = [(__doc__ or "").strip()]
    for heading, leaves in (("flags", OWN), ("of models that go on with a text", WRITING)):
        starts = [f"  --{leaf.flag}={'DIR' if leaf.flag == 'workdir' else cli.show(leaf.default)}" for leaf in leaves]
        lines += [f"\n{heading}:", *(cli.help_entry(*one, 22) for one in zip(leaves, starts, strict=True))]
    return "\n".join(lines)


def main(asked: Asked, workdir: pathlib.Path) -> int | None:
    """Answers every line. Raises UsageError where there is no such run or it is not finished."""
    console = rich.console.Console(highlight=False)
    typed = _typed("> " if console.is_terminal else "")
    lines = read_lines(asked.input) if asked.input else typed if sys.stdin.isatty() else _piped()
    try:
        answer_lines(lines, _answering(asked, workdir), console)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `predict | head`: nobody reads on, so what is left is flushed to nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return None


def answer_lines(lines: Iterable[str], answer: Callable[[str], Answer], console: rich.console.Console) -> None:
    """Shows the answer to every line, and on stderr what there is none to and which words are not known."""
    for number, line in enumerate(lines, start=1):
        try:
            found = answer(line)
        except Unanswerable as error:
            if not console.is_terminal:
                console.file.write("\n")  # so that answers stay beside their lines
            print(f"line {number}: {error}", file=sys.stderr, flush=True)
            continue
        if found.unknown:
            print(f"line {number}: not known: {', '.join(map(shown, found.unknown))}", file=sys.stderr, flush=True)
        found.show(console)
        console.file.flush()


def _typed(prompt: str) -> Iterator[str]:
    """Lines at a prompt, until Ctrl-D."""
    import readline  # noqa: F401  input() then edits the line and remembers those before

    while True:
        try:
            yield input(prompt)
        except EOFError:
            print()
            return


def _piped() -> Iterator[str]:
    for number, data in enumerate(sys.stdin.buffer, start=1):
        try:
            line = data.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            problem = f"{shown(data[error.start : error.end])} is not utf-8"
            raise malformed("standard input", f"line {number}", problem, "Give the text in UTF-8.") from None
        yield line.removesuffix("\n").removesuffix("\r")


def _answering(asked: Asked, workdir: pathlib.Path) -> Callable[[str], Answer]:
    """line -> Answer."""
    name = asked.model
    if not (workdir / "config.json").exists() and (workdir.absolute().parent / "config.json").exists():
        if name and name != workdir.absolute().name:
            raise UsageError(f"--model is {name}, but {workdir} is the folder of one model: give that of the study")
        workdir, name = workdir.absolute().parent, workdir.absolute().name
    run = _read_run(workdir)
    module = _study(run["experiment"], workdir)
    entry = _entry(workdir, name)
    taken = inspect.signature(module.predictor).parameters
    if refused := [flag for flag in asked.options if flag not in taken]:
        raise UsageError(f"--{refused[0]} is given, but the models of {workdir} don't go on with a text: leave it out")
    options = {leaf.flag: asked.options.get(leaf.flag, leaf.default) for leaf in WRITING if leaf.flag in taken}
    config = config_like(module.get_config(module.VARIANTS[0], cli.PRESETS[0]), run["config"])
    return module.predictor(config, workdir, entry, **options)


def _read_run(workdir: pathlib.Path) -> dict[str, Any]:
    path = workdir / "config.json"
    if not path.exists():
        found = "holds no run (no config.json)" if workdir.is_dir() else "is not there"
        raise UsageError(f"--workdir is {workdir}: it {found}: give the --workdir of a study that has been run")
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(run["experiment"], str) and isinstance(run["config"], dict):
            return run
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise UsageError(f"{path} is damaged or not a config that a run wrote: give another --workdir")


def _study(experiment: str, workdir: pathlib.Path) -> Any:
    """The module of a study. Raises UsageError where it can't be imported or answers no lines."""
    name = experiment if "." in experiment else f"experiments.{experiment}"
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{workdir} is a run of {name}, which can't be imported here ({error}): start this in the folder that "
            f"holds {name.partition('.')[0]}/"
        ) from None
    if not hasattr(module, "predictor"):
        raise UsageError(f"{workdir} is a run of {name}, whose models answer no lines: it has no predictor")
    return module


def _entry(workdir: pathlib.Path, name: str) -> str:
    """The model that answers: the one asked for, or the best on the validation split."""
    models = sorted(path.parent.name for path in workdir.glob("*/checkpoints"))
    finished = [model for model in models if (workdir / model / "summary.json").exists()]
    way_out = "run the study again with the same --workdir, it goes on where it stopped"
    if name and name not in finished:
        if name in models:
            raise UsageError(f"the training of {name} in {workdir} is not finished: {way_out}")
        near = difflib.get_close_matches(name, finished, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"there is no model {name} in {workdir}: {meant}there are {', '.join(finished) or 'none'}")
    if not finished:
        raise UsageError(f"{workdir} holds no finished model: {way_out}")
    if name or len(finished) == 1:
        return name or finished[0]
    best = min(finished, key=lambda model: min(standings(workdir / model)))
    print(f"{best} answers, the best of {', '.join(finished)}: --model=NAME asks another", file=sys.stderr, flush=True)
    return best


def run() -> None:
    """What the command line calls."""
    sys.exit(cli.call(main, cli.read_or_exit(parse, sys.argv)))


if __name__ == "__main__":
    run()

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

import ast
import contextlib
import dataclasses
import difflib
import importlib
import importlib.util
import inspect
import json
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib.abc import SourceLoader
from importlib.machinery import PathFinder
from typing import Any

import rich.console

from rnnjax.answers import Answer, Unanswerable, config_like, standings
from rnnjax.data.errors import AGAIN, malformed, shown
from rnnjax.data.lines import read_lines
from rnnjax.text.files import read_json
from rnnjax.text.vocabulary import UnknownWord
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

_STUDY = re.compile(r"[A-Za-z_]\w{0,99}(\.[A-Za-z_]\w{0,99})?", re.ASCII)


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
        cli.print_help(_help())
    known = {leaf.flag: leaf for leaf in (*OWN, *WRITING)}
    texts, for_absl = cli.collect(arguments, known)
    values = {flag: read(known[flag], text) for flag, text in texts.items()}
    if not values.get("workdir", "").strip():
        raise UsageError("--workdir is missing: say which run answers, such as --workdir=runs/slot_filling")
    for flag, least in (("temperature", 0), ("length", 1), ("seed", 0)):
        if values.get(flag, least) < least:
            raise UsageError(f"--{flag} is {values[flag]}: expected at least {least}")
    if values.get("seed", 0) >= 2**32:  # 32 bits of a key
        raise UsageError(f"--seed is {values['seed']}: expected at most {2**32 - 1}")
    options = {leaf.flag: values[leaf.flag] for leaf in WRITING if leaf.flag in values}
    given = values.get("input", "")
    asked = Asked(values.get("model", ""), given and str(cli.folder("input", given)), options)
    return cli.Parsed(asked, cli.folder("workdir", values["workdir"]), values.get("debug", False)), for_absl


def _help() -> str:
    lines = [(__doc__ or "").strip()]
    for heading, leaves in (("flags", OWN), ("of models that go on with a text", WRITING)):
        starts = [f"  --{leaf.flag}={'DIR' if leaf.flag == 'workdir' else cli.show(leaf.default)}" for leaf in leaves]
        lines += [f"\n{heading}:", *(cli.help_entry(*one, 22) for one in zip(leaves, starts, strict=True))]
    return "\n".join(lines)


def main(asked: Asked, workdir: pathlib.Path) -> int | None:
    """Answers every line. Raises UsageError where there is no such run or it is not finished, where standard output is
    closed, and standard input where no file is given; Unwritable where the answers can't be written."""
    if sys.stdout is None:
        raise UsageError("standard output is closed: send the answers to a file or a pipe")
    if sys.stdin is None and not asked.input:
        raise UsageError("standard input is closed: pipe lines in, or give a file of lines as --input")
    console = rich.console.Console(highlight=False)
    typed = _typed("> " if console.is_terminal else "")
    lines = read_lines(asked.input) if asked.input else typed if sys.stdin.isatty() else _piped()
    try:
        answer_lines(lines, _answering(asked, workdir), console)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `predict | head`: nobody reads on
        cli.drop_output()
    except Unwritable:
        cli.drop_output()
        raise
    return None


class Unwritable(Exception):
    """Standard output does not take the answers. Says why."""

    user_error = True


def answer_lines(lines: Iterable[str], answer: Callable[[str], Answer], console: rich.console.Console) -> None:
    """Shows the answer to every line, and on stderr what there is none to and which words are not known.

    Raises Unwritable where it can't be shown, and BrokenPipeError where nobody reads on.
    """
    for number, line in enumerate(lines, start=1):
        try:
            found = answer(line)
        except (Unanswerable, UnknownWord) as error:
            if not console.is_terminal:
                with _written():
                    console.file.write("\n")  # so that answers stay beside their lines
                    console.file.flush()
            print(f"line {number}: {error}", file=sys.stderr, flush=True)
            continue
        if found.unknown:
            print(f"line {number}: not known: {', '.join(map(shown, found.unknown))}", file=sys.stderr, flush=True)
        with _written():
            found.show(console)
            console.file.flush()


@contextlib.contextmanager
def _written() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Unwritable(cli.unwritable(error)) from error
    except UnicodeEncodeError as error:
        letters = shown(error.object[error.start : error.end])
        raise Unwritable(
            f"standard output: {letters} can't be written as {error.encoding}: set PYTHONIOENCODING=utf-8"
        ) from error


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
    for number, data in enumerate(_raw_lines(), start=1):
        try:
            line = data.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            problem = f"{shown(data[error.start : error.end])} is not utf-8"
            raise malformed("standard input", f"line {number}", problem, "Give the text in UTF-8.") from None
        yield line.removesuffix("\n").removesuffix("\r")


def _raw_lines() -> Iterator[bytes]:
    try:
        yield from sys.stdin.buffer
    except OSError as error:  # opened for writing, or a directory
        problem = f"cannot be read: {error.strerror or error}"
        raise malformed("standard input", "", problem, "Pipe lines in, or give a file of lines as --input.") from None


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
    try:
        config = config_like(module.get_config(module.VARIANTS[0], cli.PRESETS[0]), run["config"])
        if hasattr(module, "check"):
            module.check(config)
    except UsageError as error:
        raise UsageError(f"{workdir / 'config.json'}: {error}") from None
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
    """The module of a study, NAME of experiments or PACKAGE.NAME.

    The name stands in a file: what is no study, by what its source defines, is not even imported. Raises UsageError
    where there is no such study, it can't be imported or it answers no lines.
    """
    if not _STUDY.fullmatch(experiment):
        path = workdir / "config.json"
        raise UsageError(f"{path}: experiment is {shown(experiment)}: expected NAME or PACKAGE.NAME of a study")
    name = experiment if "." in experiment else f"experiments.{experiment}"
    try:
        names = vars(sys.modules[name]) if name in sys.modules else _defined(name)
        missing = [one for one in ("get_config", "VARIANTS", "predictor") if one not in names]
        if not missing:
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{workdir} is a run of {name}, which can't be imported here ({error}): start this in the folder that "
            f"holds {name.partition('.')[0]}/"
        ) from None
    raise UsageError(f"{workdir} is a run of {name}, whose models answer no lines: it has no {missing[-1]}")


def _defined(name: str) -> set[str]:
    """The names that a module of a package defines, by its source: neither is imported."""
    package = name.partition(".")[0]
    try:
        places = getattr(importlib.util.find_spec(package), "submodule_search_locations", None)
    except ValueError:  # of what is no module of a file
        places = None
    if places is None:
        raise ModuleNotFoundError(f"No module named {package!r}")
    found = PathFinder.find_spec(name, list(places))
    if found is None:
        raise ModuleNotFoundError(f"No module named {name!r}")
    try:
        source = found.loader.get_source(name) if isinstance(found.loader, SourceLoader) else ""
        tree = ast.parse(source)
    except (SyntaxError, ImportError, ValueError) as error:
        raise UsageError(f"{found.origin} is no Python that can be read: {error}") from error
    defined = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.ImportFrom | ast.Import):
            defined |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            defined |= {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return defined


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
    best = name or min(finished, key=lambda model: min(standings(workdir / model)) if len(finished) > 1 else 0)
    summary = workdir / best / "summary.json"
    if not isinstance(held := read_json(summary), dict):
        raise malformed(summary, "", f"holds {shown(held)}: expected what a study writes", AGAIN)
    if not name and len(finished) > 1:
        told = f"{best} answers, the best of {', '.join(finished)}: --model=NAME asks another"
        print(told, file=sys.stderr, flush=True)
    return best


def run() -> None:
    """What the command line calls."""
    cli.fill_stderr()
    sys.exit(cli.call(main, cli.read_or_exit(parse, sys.argv)))


if __name__ == "__main__":
    run()

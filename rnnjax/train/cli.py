"""The command line of every experiment: all flags of the project.

    python -m experiments.NAME --workdir=DIR [--config=VARIANT[:PRESET]] [--config.FIELD=VALUE ...]

An experiment ends with

    if __name__ == "__main__":
        cli.run(main, get_config, doc=__doc__, variants=("first", "second"))

The flags are absl's, and the config's fields become flags through ml_collections. Left alone these turn a
typo into a KeyError, let the last of two values win, split no tuple at commas and read `--x False` as True.
So the arguments are read and checked first, and absl is handed a list in which nothing is left to guess:

    choose     the variant and the preset, wherever they stand, and so the config that holds the fields
    collect    arguments -> {flag: text}, every flag known, none given twice
    read        text -> value, of exactly the field's type
    _define     absl's flags, parsed from the values

No flag is defined by importing this module or an experiment, and neither starts a JAX backend.
"""

import collections
import copy
import dataclasses
import difflib
import errno
import functools
import logging
import os
import pathlib
import re
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from absl import app, flags
from absl import logging as absl_logging
from ml_collections import config_flags

from rnnjax.train.config import CheckpointConfig, Leaf, UsageError, check_choice, leaves, read
from rnnjax.train.devices import start, without_deadlock
from rnnjax.train.signals import RESUME, Interrupted, ending

PRESETS = ("quick", "full")
HELP = ("h", "?", "help", "helpshort", "helpfull", "helpxml")
OWN = (
    Leaf("workdir", str, help="the folder that the run writes to and goes on from; required"),
    Leaf("config", str, help="the variant, or variant:preset"),
    Leaf("preset", str, help="how long the run is", choices=PRESETS),
    Leaf("init_from", str, default="", help="the folder of a finished training, whose best parameters are the start"),
    Leaf("probe", bool, default=False, help="measure the gradient over time of the study's own models in training"),
    Leaf("debug", bool, default=False, help="show the traceback of every error"),
)
FLAG = re.compile(r"--?[A-Za-z?]")  # not -1 nor -.5, which are values


@dataclasses.dataclass(frozen=True)
class Parsed:
    """What the command line asks for."""

    config: Any
    workdir: pathlib.Path
    debug: bool


def run(main: Callable, get_config: Callable[[str, str], Any], *, doc: str, variants: tuple[str, ...]) -> None:
    """Reads the command line, calls `main(config, workdir)` and exits with what it returns (None is 0).

    get_config: (variant, preset) -> a config of rnnjax.train.config, before the overrides.
    doc: the experiment's docstring, shown by --help.
    variants: names for --config, the default first.

    Raises SystemExit: 2 after a UsageError, 1 after an OSError, an exception whose class says
    `user_error = True` (bad data) or sizes that are too large for the memory or for a number, 130 after Ctrl-C, RESUME
    (75) where a signal asked the run to save and end, each with a line or two on stderr. Any other exception is a bug
    and keeps its traceback.
    """
    fill_stderr()
    logging.getLogger("jax").setLevel(logging.WARNING)  # absl shows INFO: that jax looked for a TPU is no news
    parser = functools.partial(parse_or_exit, get_config=get_config, doc=doc, variants=variants)
    app.run(functools.partial(call, main), flags_parser=parser)


def parse_or_exit(argv: list[str], get_config: Callable, *, doc: str, variants: tuple[str, ...]) -> Parsed:
    """`parse`, and absl's own flags. Raises SystemExit: 0 after the help, 2 with a usage error on stderr."""
    return read_or_exit(functools.partial(parse, get_config=get_config, doc=doc, variants=variants), argv)


def read_or_exit(parse: Callable[[list[str]], tuple[Any, list[str]]], argv: list[str]) -> Any:
    """What `parse(arguments)` makes of a command line, whose other arguments absl gets.

    Raises SystemExit as `parse_or_exit` does.
    """
    try:
        parsed, for_absl = parse(argv[1:])
        flags.FLAGS([argv[0], *for_absl])
        if flags.FLAGS["verbosity"].using_default_value:
            absl_logging.set_verbosity(absl_logging.WARNING)  # orbax tells of every file that it writes
        return parsed
    except (UsageError, flags.Error) as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # `--help | head`: nobody reads on
        drop_output()
        raise SystemExit(0) from None
    except OSError as error:  # of the help
        print(unwritable(error), file=sys.stderr)
        drop_output()
        raise SystemExit(1) from None


def print_help(text: str) -> NoReturn:
    """Prints it and raises SystemExit(0). Raises OSError where standard output is closed or full."""
    if sys.stdout is None:  # closed by the shell: print would say nothing at all
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    print(text, flush=True)
    raise SystemExit(0)


def unwritable(error: OSError) -> str:
    """A line on standard output that can't be written."""
    return f"standard output: cannot be written: {error.strerror or error}: send it to a file or a pipe that can be"


def drop_output() -> None:
    """What is left of the output is flushed to nowhere, not to an error at the end of the process."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fill_stderr() -> None:
    """Where the shell closed standard error, messages go nowhere: print(file=None) would put them among the results."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  until the process ends


def folder(flag: str, text: str) -> pathlib.Path:
    """The path of a flag with ~ as the home folder. Raises UsageError where there is no such user."""
    try:
        return pathlib.Path(text).expanduser()
    except RuntimeError:
        raise UsageError(f"--{flag} is {text}: there is no such user: give the path from / on") from None


def call(main: Callable, parsed: Parsed) -> int:
    """Calls `main(config, workdir)`: the exit status. Prints what the user can mend, raises what is a bug."""
    without_deadlock()
    try:
        training = getattr(parsed.config, "train", None)
        if training is not None:
            start(training)
        with ending((CheckpointConfig() if training is None else training.checkpoint).signals):
            status = main(parsed.config, parsed.workdir)
        return 0 if status is None else status
    except Interrupted as interrupted:
        print(interrupted, file=sys.stderr)
        return RESUME
    except KeyboardInterrupt:
        kept = f"{parsed.workdir} keeps what is finished, and the same command goes on from there"
        print(f"interrupted: {kept if parsed.workdir.exists() else 'nothing was saved yet'}", file=sys.stderr)
        return 130
    except Exception as error:
        message = _user_message(error, parsed.workdir)
        if message is None:
            raise
        if parsed.debug:
            traceback.print_exc()
        print(message, file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1


def _user_message(error: Exception, workdir: pathlib.Path) -> str | None:
    """A line or two on what the user can mend; None for what is a bug."""
    if isinstance(error, OSError):
        return _os_message(error, workdir)
    if getattr(type(error), "user_error", False):
        return str(error)
    told = str(error).partition("\n")[0]
    if isinstance(error, MemoryError | OverflowError) or "RESOURCE_EXHAUSTED" in told:
        return (
            f"this does not fit: {told or type(error).__name__}\n"
            "make it smaller: the model's or the batch's size, or the sequences; --debug shows where it happened"
        )
    return None


def _os_message(error: OSError, workdir: pathlib.Path) -> str:
    way_out = {
        errno.ENOSPC: "free some space and run the same command again, or give another --workdir",
        errno.EDQUOT: "free some of your quota and run the same command again, or give another --workdir",
        errno.EACCES: "give a path, such as another --workdir, that you have permission for",
        errno.EPERM: "give a path, such as another --workdir, that you have permission for",
        errno.EROFS: "give a --workdir on a file system that can be written to",
        errno.ENOTDIR: "a part of the path is a file: give another path, such as another --workdir",
        errno.EEXIST: "something else has that name: move it away or give another path",
        errno.ENOENT: "check the path",
    }.get(error.errno, "if this is no trouble of the machine, --debug shows where it happened")
    if getattr(type(error), "user_error", False) or not error.strerror:
        return f"{str(error) or type(error).__name__}\n{way_out}"
    where = f"(workdir {workdir})" if error.filename is None else error.filename
    return f"{error.strerror}: {where}\n{way_out}"


def parse(
    arguments: list[str], get_config: Callable, *, doc: str, variants: tuple[str, ...]
) -> tuple[Parsed, list[str]]:
    """Reads the arguments that follow the program's name: what they ask for, and those that are absl's own.

    Raises UsageError with a message of one line, and SystemExit(0) after printing the help.
    """
    variant, preset = choose(arguments, variants)
    config = get_config(variant, preset)
    chosen = {"config": variant, "preset": preset}
    own = [dataclasses.replace(leaf, default=chosen.get(leaf.flag, leaf.default)) for leaf in OWN]
    known = {leaf.flag: leaf for leaf in [*own, *leaves(config)]}
    if any(flag in HELP for flag, _ in _split(arguments, known)):
        print_help(_help(doc, known, variants))
    given, for_absl = collect(arguments, known)
    values = {flag: read(known[flag], text) for flag, text in given.items() if flag not in chosen}
    if not values.get("workdir", "").strip():
        what = "is empty" if "workdir" in values else "is missing"
        raise UsageError(f"--workdir {what}: say where the run may write, such as --workdir=runs/{variant}")
    return _define(config, values), for_absl


def choose(arguments: list[str], variants: tuple[str, ...]) -> tuple[str, str]:
    """The variant and the preset, which have to be known before any field is: wherever they stand."""
    own = {leaf.flag: leaf for leaf in OWN}
    given: dict[str, str] = {}
    for flag, text in _split(arguments, own):
        if flag in ("config", "preset"):
            given = _add(given, own[flag], text)
    variant, colon, preset = given.get("config", variants[0]).partition(":")
    check_choice("--config", variant, variants)
    if not colon:
        preset = given.get("preset", PRESETS[0])
    check_choice("--config" if colon else "--preset", preset, PRESETS)
    if given.get("preset", preset) != preset:
        raise UsageError(f"--config={given['config']} and --preset={given['preset']} differ: give one of them")
    return variant, preset


def _split(arguments: list[str], known: dict[str, Leaf]) -> Iterator[tuple[str | None, str | None]]:
    """(flag, text) in order: (flag, None) where there is no value, (None, text) where there is no flag."""
    queue = collections.deque(arguments)
    while queue:
        argument = queue.popleft()
        if not FLAG.match(argument):
            yield None, argument
            continue
        flag, equals, text = argument.lstrip("-").partition("=")
        takes_next = flag in known and known[flag].type is not bool and queue and not FLAG.match(queue[0])
        yield flag, text if equals else queue.popleft() if takes_next else None


def collect(arguments: list[str], known: dict[str, Leaf]) -> tuple[dict[str, str], list[str]]:
    """{flag: text} of what is known, and the arguments for absl. Raises UsageError for any other."""
    given: dict[str, str] = {}
    for_absl: list[str] = []
    before = None
    for flag, text in _split(arguments, known):
        if flag is None:
            example = f"--{before}={text}" if before in known else "--flag=value"
            raise UsageError(f"unexpected argument {text!r}: a value is joined to its flag, as in {example}")
        before = flag if text is None else None
        if flag not in known and text is None and known.get(flag.removeprefix("no"), OWN[0]).type is bool:
            given = _add(given, known[flag.removeprefix("no")], "false")
        elif flag in known:
            given = _add(given, known[flag], text)
        elif flag in flags.FLAGS or flag.removeprefix("no") in flags.FLAGS:
            for_absl.append(f"--{flag}" if text is None else f"--{flag}={text}")
        else:
            raise UsageError(_unknown(flag, known))
    return given, for_absl


def _add(given: dict[str, str], leaf: Leaf, text: str | None) -> dict[str, str]:
    """`given` with one flag more. Raises UsageError where it has no value, or another one already."""
    if text is None and leaf.type is not bool:
        raise UsageError(f"--{leaf.flag} has no value: write --{leaf.flag}=VALUE")
    text = "true" if text is None else text
    if given.get(leaf.flag, text) != text:
        raise UsageError(f"--{leaf.flag} is given twice, as {given[leaf.flag]!r} and as {text!r}: keep one")
    return given | {leaf.flag: text}


def _unknown(flag: str, known: dict[str, Leaf]) -> str:
    if inside := [name for name in known if name.startswith(f"{flag}.")]:
        example = f"--{inside[0]}={show(known[inside[0]].default)}"
        return f"--{flag} is a group of fields: set them one by one, such as {example}"

    def likeness(name: str) -> tuple[float, float]:  # the field is more often right than the path to it
        last = difflib.SequenceMatcher(None, flag.rpartition(".")[2], name.rpartition(".")[2]).ratio()
        return last, last + difflib.SequenceMatcher(None, flag, name).ratio()

    nearest = max(known, key=lambda name: likeness(name)[1])
    if likeness(nearest)[0] < 0.5:
        return f"unknown flag --{flag}: --help lists all flags"
    return f"unknown flag --{flag}: did you mean --{nearest}?"


def _define(config: Any, values: dict[str, Any]) -> Parsed:
    """Defines the flags, apart from those of the process, and parses arguments made of the checked values."""
    config, defined = copy.deepcopy(config), flags.FlagValues()
    values = dict(values)
    if init_from := values.pop("init_from", ""):
        if not hasattr(config, "train"):
            raise UsageError("--init_from is given, but this experiment trains nothing")
        folder("init_from", init_from)
        config.train.init_from = init_from
    if values.pop("probe", False):
        if not hasattr(getattr(config, "probe", None), "on"):
            raise UsageError("--probe is given, but this experiment measures what it measures without it")
        config.probe.on = True
    argv = ["rnnjax"]
    for flag, value in values.items():
        if value is None:  # which ml_collections has no text for
            *groups, field = flag.split(".")[1:]
            setattr(functools.reduce(getattr, groups, config), field, None)
        else:
            argv.append(f"--{flag}={value}")
    workdir = flags.DEFINE_string("workdir", None, "the run's folder", flag_values=defined)
    debug = flags.DEFINE_boolean("debug", False, "show tracebacks", flag_values=defined)
    holder = config_flags.DEFINE_config_dataclass("config", config, flag_values=defined, sys_argv=argv)
    defined(argv)
    return Parsed(holder.value, folder("workdir", workdir.value), debug.value)


def show(value: Any) -> str:
    """A value as it is typed on the command line."""
    if isinstance(value, tuple):
        return ",".join(map(show, value)) or "()"
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _help(doc: str, known: dict[str, Leaf], variants: tuple[str, ...]) -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    command = f"python -m {spec.name}" if spec else f"python {sys.argv[0]}"
    lines = [
        textwrap.dedent(doc).strip(),
        f"\nusage: {command} --workdir=DIR [--config=VARIANT[:PRESET]] [--config.FIELD=VALUE ...]",
        f"\nvariants: {', '.join(variants)}",
        f"presets:  {', '.join(PRESETS)} (the first of each is the default)",
    ]
    groups: dict[str, list[Leaf]] = collections.defaultdict(list)
    for leaf in known.values():
        groups[leaf.flag.rpartition(".")[0]].append(leaf)
    for group, members in groups.items():
        lines.append(f"\n{group or 'run'}:")
        shown = [f"  --{leaf.flag}={'DIR' if leaf.flag == 'workdir' else show(leaf.default)}" for leaf in members]
        width = min(max(map(len, shown)), 50) + 2
        lines += [help_entry(leaf, start, width) for leaf, start in zip(members, shown, strict=True)]
    return "\n".join(lines)


def help_entry(leaf: Leaf, start: str, width: int) -> str:
    """The lines of --help on a flag; start: the flag with its default, width: of the column that it stands in."""
    kind = f"{'tuple of ' if leaf.many else ''}{leaf.type.__name__}{' or none' if leaf.optional else ''}"
    choices = f" (one of {', '.join(map(str, leaf.choices))})" if leaf.choices else ""
    help = f"{kind}: {leaf.help.removesuffix('.')}{choices}" if leaf.help else kind + choices
    columns = max(shutil.get_terminal_size((110, 24)).columns, width + 30)
    body = textwrap.indent(textwrap.fill(help, columns - width), " " * width)
    return start + body[len(start) :] if len(start) <= width - 2 else f"{start}\n{body}"

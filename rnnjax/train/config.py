"""Typed configs, what a run is told: mutable dataclasses. Every field is a flag, `--config.GROUP.FIELD`.

A hyper-parameter is declared once, where it is used. The config of a cell or task is derived from its fields:

    ElmanConfig = derive(Elman, leave_out=("input_size", "hidden_size"))    sizes come from elsewhere
    build(Elman, ElmanConfig(gain=1.2), input_size=3, hidden_size=64)       and back

A field is a bool, int, float or str, one of these or None, a tuple of these, or a group: another dataclass.
`metadata={"help": text, "choices": (...)}` documents it and limits its values. Where there is no help, it is
read from the line `name: text` of the class's docstring.
"""

import dataclasses
import difflib
import inspect
import math
import re
import types
import typing
from typing import Any


class UsageError(ValueError):
    """The user asked for something that can't be: told in one line, without a traceback; exit status 2."""

    user_error = True


OPTIMIZERS = ("adam", "sgd", "rmsprop")
SCHEDULES = ("constant", "cosine")


@dataclasses.dataclass
class ModelConfig:
    """hidden_size: features of the recurrent state."""

    hidden_size: int = 64  # enough for the synthetic tasks, and quick on a CPU


@dataclasses.dataclass
class TrainConfig:
    """steps: updates of the parameters, a multiple of steps_per_call.
    steps_per_call: updates in one compiled call; rows, evaluations and probes stand between calls.
    batch_size: examples in an update.
    optimizer: how a gradient becomes an update.
    learning_rate: the optimizer's step size, at the start.
    schedule: how the step size goes on: as it is, or down to 0 along half a cosine.
    clip_norm: the largest global norm of a gradient, longer ones are scaled down to it; 0 turns it off.
    eval_every: steps between evaluations, a multiple of steps_per_call.
    eval_batch: examples of an evaluation.
    log_every: steps between rows of metrics.jsonl, a multiple of steps_per_call.
    seed: the root of every random draw.
    devices: how many share a batch, whose size is a multiple of it; on a CPU the host is split into as many.
    """

    steps: int = 2000  # a start; every experiment sets its own
    steps_per_call: int = 50  # spares most of the dispatch, and progress is still seen
    batch_size: int = 32  # a gradient of little noise at a price that a CPU can pay
    optimizer: str = dataclasses.field(default="adam", metadata={"choices": OPTIMIZERS})  # forgiving
    learning_rate: float = 1e-3  # Adam's own default (Kingma, Ba 2015)
    schedule: str = dataclasses.field(default="constant", metadata={"choices": SCHEDULES})  # no end to tune
    clip_norm: float = 1.0  # an exploding gradient costs one short step, not the run (Pascanu et al. 2013)
    eval_every: int = 500  # four points on the curve of a default run
    eval_batch: int = 256  # the standard error of an accuracy is then 3% at most
    log_every: int = 50  # once a call
    seed: int = 0  # any fixed number: the same command gives the same bits
    devices: int = 1  # the same numbers on every machine; more change the rounding


def validate(train: TrainConfig) -> None:
    """Raises UsageError, naming flag and value, where a field is out of range or a period does not fit."""
    for name in ("steps", "steps_per_call", "batch_size", "eval_every", "eval_batch", "log_every", "devices"):
        _expect(train, name, getattr(train, name) >= 1, "a whole number of at least 1")
    for name in ("steps", "eval_every", "log_every"):
        fits = getattr(train, name) % train.steps_per_call == 0
        _expect(train, name, fits, f"a multiple of steps_per_call ({train.steps_per_call})")
    shared = train.batch_size % train.devices == 0
    _expect(train, "batch_size", shared, f"a multiple of the number of devices ({train.devices})")
    _expect(train, "optimizer", train.optimizer in OPTIMIZERS, f"one of {', '.join(OPTIMIZERS)}")
    _expect(train, "schedule", train.schedule in SCHEDULES, f"one of {', '.join(SCHEDULES)}")
    _expect(train, "learning_rate", 0 < train.learning_rate < float("inf"), "a number above 0")
    _expect(train, "clip_norm", 0 <= train.clip_norm < float("inf"), "a number above 0, or 0 for no clipping")
    _expect(train, "seed", 0 <= train.seed < 2**32, "a whole number from 0 to 4294967295")  # 32 bits of a key


def _expect(train: TrainConfig, name: str, holds: bool, expected: str) -> None:
    if not holds:
        raise UsageError(f"--config.train.{name} is {getattr(train, name)}: expected {expected}")


def derive(cls: type, /, *, leave_out: tuple[str, ...] = (), name: str | None = None, **defaults) -> type:
    """A mutable dataclass with the fields of the dataclass `cls`: their types, defaults and help.

    leave_out: fields that come from elsewhere, such as sizes; `cls` may lack some of them.
    name: of the new class, by default that of `cls` and "Config".
    defaults: values in place of those of `cls`.

    Raises TypeError for a default of no field, and for a field that is left without one.
    """
    kept = [field for field in dataclasses.fields(cls) if field.init and field.name not in leave_out]
    if unknown := sorted(set(defaults) - {field.name for field in kept}):
        raise TypeError(f"{cls.__name__} has no field {unknown[0]} to give a default to")
    annotations, helps = typing.get_type_hints(cls), field_helps(cls)
    specs = []
    for field in kept:
        metadata = ({"help": helps[field.name]} if field.name in helps else {}) | dict(field.metadata)
        value = {"default": defaults.get(field.name, field.default)}
        if field.name not in defaults and field.default_factory is not dataclasses.MISSING:
            value = {"default_factory": field.default_factory}
        elif value["default"] is dataclasses.MISSING:
            raise TypeError(f"{cls.__name__}.{field.name} has no default: leave it out or give one")
        specs.append((field.name, annotations[field.name], dataclasses.field(**value, metadata=metadata)))
    namespace = {"__doc__": f"The options of {cls.__name__}.", "__module__": cls.__module__}
    return dataclasses.make_dataclass(name or f"{cls.__name__}Config", specs, namespace=namespace)


def build(cls: type, options: Any, /, **sizes) -> Any:
    """`cls` made of `options`, a config that `derive` made of it or a dict, and of the sizes that were left out there.

    Raises UsageError where `cls` refuses a value.
    """
    values = options
    if dataclasses.is_dataclass(options):
        values = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    try:
        return cls(**values, **sizes)
    except ValueError as error:
        raise UsageError(str(error)) from error


def field_helps(cls: type) -> dict[str, str]:
    """The help of each field that a docstring of `cls` or of its bases tells of in a line `name: text`.

    One line may tell of several, `name, name: text`; lines indented deeper go on with the text.
    """
    names = {field.name for field in dataclasses.fields(cls)}
    helps: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        text = re.sub(r"\n[ \t]+", " ", inspect.cleandoc(vars(base).get("__doc__") or ""))
        for told, help in re.findall(r"^(\w+(?:, \w+)*): (.+)$", text, re.MULTILINE):
            helps |= {name: " ".join(help.split()) for name in told.split(", ") if name in names}
    return helps


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One field of a config that a flag sets.

    flag: its name on the command line without the dashes, such as config.train.steps.
    type: bool, int, float or str; of the elements where `many`.
    many: it is a tuple.
    optional: it may be None.
    """

    flag: str
    type: type
    many: bool = False
    optional: bool = False
    default: Any = None
    help: str = ""
    choices: tuple = ()


def leaves(config: Any, prefix: str = "config") -> list[Leaf]:
    """The fields of a config and its groups, in order. Raises TypeError for a field that no flag can set."""
    found = []
    helps = field_helps(type(config))
    for field in dataclasses.fields(config):
        flag, value = f"{prefix}.{field.name}", getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            found += leaves(value, flag)
            continue
        help = field.metadata.get("help", helps.get(field.name, ""))
        choices = tuple(field.metadata.get("choices", ()))
        found.append(Leaf(flag, *_kind(field.type, flag), default=value, help=help, choices=choices))
    return found


def _kind(annotation: Any, flag: str) -> tuple[type, bool, bool]:
    """(type, many, optional) of a Leaf."""
    inner, optional, many = annotation, False, False
    if typing.get_origin(inner) in (typing.Union, types.UnionType):
        options = [option for option in typing.get_args(inner) if option is not types.NoneType]
        optional = len(options) < len(typing.get_args(inner))
        inner = options[0] if len(options) == 1 else None
    if typing.get_origin(inner) is tuple:
        many, arguments = True, typing.get_args(inner)
        inner = arguments[0] if arguments[1:] == (...,) else None
    if inner not in (bool, int, float, str):
        raise TypeError(
            f"{flag} is annotated {annotation}: a flag sets a bool, int, float, str, tuple[X, ...], X | None"
        )
    return inner, many, optional


EXPECTED = {bool: "true or false", int: "a whole number", float: "a finite number", str: "a name"}


def check_choice(flag: str, value: Any, choices: tuple) -> None:
    """Raises UsageError, naming the nearest choice and all of them, where the value is none of them."""
    if choices and value not in choices:
        near = difflib.get_close_matches(str(value), map(str, choices), n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise UsageError(f"{flag}: unknown value {value!r}: {meant}expected one of {', '.join(map(str, choices))}")


def read(leaf: Leaf, text: str) -> Any:
    """The value that `text` stands for, of exactly the leaf's type.

    Elements of a tuple have commas between them, in brackets and quotes or not; `()` is the empty tuple.

    Raises UsageError where the text is none of the type, not finite, or none of the choices.
    """
    if leaf.optional and text.lower() == "none":
        return None
    if not leaf.many:
        return _read_one(leaf, text)
    bracketed = text[:1] in ("(", "[") and text[-1:] in (")", "]")
    inside = text[1:-1] if bracketed else text
    parts = [part.strip().strip("'\"" if bracketed else "") for part in inside.removesuffix(",").split(",")]
    if bracketed and not inside:
        return ()
    if "" in parts:
        raise UsageError(f"--{leaf.flag} is {text!r}: expected {EXPECTED[leaf.type]}, or several with commas between")
    return tuple(_read_one(leaf, part) for part in parts)


def _read_one(leaf: Leaf, text: str) -> Any:
    readers = {bool: _read_bool, int: _read_int, float: _read_float, str: str}
    try:
        value = readers[leaf.type](text)
    except ValueError:
        expected = EXPECTED[leaf.type] + (" or none" if leaf.optional else "")
        raise UsageError(f"--{leaf.flag} is {text!r}: expected {expected}") from None
    check_choice(f"--{leaf.flag}", value, leaf.choices)
    return value


def _read_bool(text: str) -> bool:
    if text.lower() not in ("true", "yes", "1", "false", "no", "0"):
        raise ValueError(text)
    return text.lower() in ("true", "yes", "1")


def _read_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:  # 1e3 is a whole number too
        if not float(text).is_integer():
            raise
        return int(float(text))


def _read_float(text: str) -> float:
    if not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


def to_dict(config: Any) -> dict[str, Any]:
    """The config as JSON has it: nested dicts, tuples as lists. Raises TypeError naming the field."""
    return {field.name: _to_json(getattr(config, field.name), field.name) for field in dataclasses.fields(config)}


def _to_json(value: Any, name: str) -> Any:
    if dataclasses.is_dataclass(value):
        return to_dict(value)
    if isinstance(value, tuple | list):
        return [_to_json(element, name) for element in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{name} is {value!r}: JSON has no {type(value).__name__}")


ABSENT = "(absent)"
"""Stands in `differences` for the value of a field that one side lacks."""


def differences(a: dict[str, Any], b: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """(dotted field, value in a, value in b) of every field in which two dicts of `to_dict` differ."""
    found = []
    for key in dict.fromkeys([*a, *b]):
        in_a, in_b = a.get(key, ABSENT), b.get(key, ABSENT)
        if isinstance(in_a, dict) and isinstance(in_b, dict):
            found += [(f"{key}.{field}", *values) for field, *values in differences(in_a, in_b)]
        elif in_a != in_b:
            found.append((key, in_a, in_b))
    return found

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
import functools
import inspect
import math
import re
import signal
import types
import typing
from typing import Any


class UsageError(ValueError):
    """The user asked for something that can't be: told in one line, without a traceback; exit status 2."""

    user_error = True


OPTIMIZERS = ("adam", "adamw", "sgd", "momentum", "rmsprop")
SCHEDULES = ("constant", "cosine", "linear", "exponential", "inverse_sqrt")
PRECISIONS = ("float32", "bfloat16")
NON_FINITE = ("stop", "skip", "count")

_HOW = {"how": True}
"""Marks a field that says how a run is carried out and not which one it is: it may differ when a run goes on."""


@dataclasses.dataclass
class ModelConfig:
    """hidden_size: features of the recurrent state."""

    hidden_size: int = 64  # enough for the synthetic tasks, and quick on a CPU


@dataclasses.dataclass
class LayersConfig(ModelConfig):
    """layers: how many layers are on top of each other.
    bidirectional: whether each of them reads from both ends.
    dropout: the share of features left out in training, anew at every step, of the inputs of every layer and of the
        outputs of the last.
    """

    layers: int = 1
    bidirectional: bool = False
    dropout: float = 0.0


@dataclasses.dataclass
class GradientConfig:
    """points: at how many steps of training the gradient over time is measured, evenly spaced in log, beside step 0.
    batch: examples whose gradients are taken.
    """

    points: int = 4
    batch: int = 64  # enough for quartiles that do not jump
    on: bool = dataclasses.field(default=False, metadata={"flag": False})  # set by --probe


@dataclasses.dataclass
class CheckpointConfig:
    """every_minutes: the longest time between two saves; 0 for none by the clock.
    every_steps: steps between saves, a multiple of steps_per_call; 0 for none by the step.
    keep: how many of the latest saves, and of the best, are kept.
    signals: upon which the run saves, ends with status 75 and can go on.
    """

    every_minutes: float = 1.0  # what a kill costs at most; a save costs milliseconds
    every_steps: int = 0
    keep: int = 2  # where the newest is damaged, the one before is used
    signals: tuple[str, ...] = ("SIGTERM", "SIGUSR2")  # what Slurm and submitit send; NCCL takes SIGUSR1


@dataclasses.dataclass
class DistributedConfig:
    """processes: how many train together, each started with the same command but for `process`.
    process: which of them this is, from 0.
    coordinator: HOST:PORT of process 0, where they meet.
    """

    processes: int = 1
    process: int = 0
    coordinator: str = "localhost:12355"


@dataclasses.dataclass
class ReplicasConfig:
    """seeds: how many seeds train together, from config.train.seed on.
    learning_rate, clip_norm, weight_decay, weight_noise, omega: values that train together in place of the one in
        config.train; of several lists, every combination, with every seed.
    gain, forget_bias: values of the cell's own field that train together.
    """

    seeds: int = 1
    learning_rate: tuple[float, ...] = ()
    clip_norm: tuple[float, ...] = ()
    weight_decay: tuple[float, ...] = ()
    weight_noise: tuple[float, ...] = ()
    omega: tuple[float, ...] = ()
    gain: tuple[float, ...] = ()
    forget_bias: tuple[float, ...] = ()


@dataclasses.dataclass
class TrainConfig:
    """steps: updates of the parameters, a multiple of steps_per_call.
    epochs: passes over the corpus, in place of steps; 0 for steps.
    minutes: the run ends after this time of training even if steps are left, in all that it was carried out in; 0 for
        no end by the clock. The one setting under which the same command does not give the same bits.
    steps_per_call: updates in one compiled call; rows, evaluations, saves and probes stand between calls.
    batch_size: examples in an update.
    accumulate: into how many parts a batch is split, one after the other, to fit into memory; the update is the same.
    window: steps of time in an update, 0 for whole sequences: longer ones are trained window by window, in order, each
        with the carry that the one before ended with (truncated backpropagation through time).
    optimizer: how a gradient becomes an update.
    learning_rate: the optimizer's step size, at its highest.
    momentum: of the optimizer momentum (Polyak 1964), 0.9 where none is given.
    weight_decay: of adamw, what a parameter loses in an update, times the step size; 0.01 where none is given.
    schedule: how the step size goes on after the warm-up: as it is, or down over the steps that are left, along half a
        cosine or a line to 0, by a constant factor to a hundredth, or with the root of the steps.
    warmup_steps: updates in which the step size grows along a line from 0.
    clip_norm: the largest global norm of a gradient, longer ones are scaled down to it; 0 turns it off.
    clip_value: the largest magnitude of a gradient's entry; 0 turns it off.
    clip_adaptive: the largest norm of the gradient of a unit's weights over that of the weights; 0 turns it off.
    omega: strength of the regulariser that keeps the norm of dL/dcarry_t from one step to the one before (Pascanu et
        al. 2013, whose sum over the steps is a mean here); 0 turns it off.
    weight_noise: standard deviation of the noise added to all parameters in a training step; 0 turns it off.
    ema: decay of the moving average of the parameters that is evaluated in their place; 0 turns it off.
    precision: of the computation in training; parameters, optimizer, sums over a batch and evaluation stay in float32.
    nonfinite: on a loss or gradient that is not finite, stop, skip the update and count it, or count alone. The
        schedule counts the updates that were made.
    patience: evaluations without a lower loss (on the validation split where there is one) until the run ends; 0 for
        no end.
    eval_every: steps between evaluations, a multiple of steps_per_call.
    eval_batch: examples of an evaluation.
    log_every: steps between rows of metrics.jsonl, a multiple of steps_per_call.
    seed: the root of every random draw.
    devices: how many train together, replicas first and then shares of a batch, whose size is a multiple of the number
        of shares; on a CPU the host is split into as many.
    profile: whether the second call is traced by jax.profiler, into WORKDIR/profile.
    tensorboard, wandb: whether the rows are written there too (offline), into WORKDIR/tensorboard or WORKDIR/wandb.
    """

    steps: int = 2000  # a start; every experiment sets its own
    epochs: int = 0
    minutes: float = 0.0
    steps_per_call: int = 50  # spares most of the dispatch, and progress is still seen
    batch_size: int = 32  # a gradient of little noise at a price that a CPU can pay
    accumulate: int = 1
    window: int = 0
    optimizer: str = dataclasses.field(default="adam", metadata={"choices": OPTIMIZERS})  # forgiving
    learning_rate: float = 1e-3  # Adam's own default (Kingma, Ba 2015)
    momentum: float | None = None
    weight_decay: float | None = None
    schedule: str = dataclasses.field(default="constant", metadata={"choices": SCHEDULES})  # no end to tune
    warmup_steps: int = 0
    clip_norm: float = 1.0  # an exploding gradient costs one short step, not the run (Pascanu et al. 2013)
    clip_value: float = 0.0
    clip_adaptive: float = 0.0
    omega: float = 0.0
    weight_noise: float = 0.0
    ema: float = 0.0
    precision: str = dataclasses.field(default="float32", metadata={"choices": PRECISIONS})
    nonfinite: str = dataclasses.field(default="stop", metadata={"choices": NON_FINITE})  # nothing wrong in silence
    patience: int = 0
    eval_every: int = 500  # four points on the curve of a default run
    eval_batch: int = 256  # the standard error of an accuracy is then 3% at most
    log_every: int = 50  # once a call
    seed: int = 0  # any fixed number: the same command gives the same bits
    devices: int = dataclasses.field(default=1, metadata=_HOW)  # more change the rounding
    profile: bool = dataclasses.field(default=False, metadata=_HOW)
    tensorboard: bool = dataclasses.field(default=False, metadata=_HOW)
    wandb: bool = dataclasses.field(default=False, metadata=_HOW)
    checkpoint: CheckpointConfig = dataclasses.field(default_factory=CheckpointConfig, metadata=_HOW)
    distributed: DistributedConfig = dataclasses.field(default_factory=DistributedConfig, metadata=_HOW)
    init_from: str = dataclasses.field(default="", metadata={"flag": False})  # set by --init_from


HOW = tuple(f"train.{field.name}" for field in dataclasses.fields(TrainConfig) if field.metadata.get("how"))
"""Where the fields stand in an experiment's config that may differ when its run goes on."""


def validate(train: TrainConfig) -> None:
    """Raises UsageError, naming flag and value, where a field is out of range or a period does not fit."""
    whole = ("steps", "steps_per_call", "batch_size", "accumulate", "eval_every", "eval_batch", "log_every", "devices")
    for name in whole:
        _expect(train, name, getattr(train, name) >= 1, "a whole number of at least 1")
    for name in ("epochs", "window", "warmup_steps", "patience"):
        _expect(train, name, getattr(train, name) >= 0, "a whole number of at least 0")
    for name in ("eval_every", "log_every") if train.epochs else ("steps", "eval_every", "log_every"):
        fits = getattr(train, name) % train.steps_per_call == 0
        _expect(train, name, fits, f"a multiple of steps_per_call ({train.steps_per_call})")
    parts = train.batch_size % train.accumulate == 0
    _expect(train, "batch_size", parts, f"a multiple of accumulate ({train.accumulate})")
    for name, choices in (
        ("optimizer", OPTIMIZERS), ("schedule", SCHEDULES), ("precision", PRECISIONS), ("nonfinite", NON_FINITE)
    ):  # fmt: skip
        _expect(train, name, getattr(train, name) in choices, f"one of {', '.join(choices)}")
    _expect(train, "learning_rate", 0 < train.learning_rate < math.inf, "a number above 0")
    for name, owner in {"momentum": "momentum", "weight_decay": "adamw"}.items():
        used = getattr(train, name) is None or train.optimizer == owner
        _expect(train, name, used, f"none with --config.train.optimizer={train.optimizer}, which has no {name}")
    for name in ("minutes", "clip_norm", "clip_value", "clip_adaptive", "omega", "weight_noise"):
        _expect(train, name, 0 <= getattr(train, name) < math.inf, "a number above 0, or 0 to turn it off")
    _expect(train, "weight_decay", 0 <= (train.weight_decay or 0) < math.inf, "a number of at least 0")
    for name in ("momentum", "ema"):
        _expect(train, name, 0 <= (getattr(train, name) or 0) < 1, "a number from 0 to below 1")
    _expect(
        train, "warmup_steps", train.warmup_steps < train.steps or train.epochs > 0, f"fewer than steps ({train.steps})"
    )
    _expect(train, "seed", 0 <= train.seed < 2**32, "a whole number from 0 to 4294967295")  # 32 bits of a key
    _validate_checkpoint(train)
    hosts = train.distributed
    _expect(train, "distributed.processes", hosts.processes >= 1, "a whole number of at least 1")
    _expect(train, "distributed.process", 0 <= hosts.process < hosts.processes, f"0 to {hosts.processes - 1}")
    shared = train.devices % hosts.processes == 0
    _expect(train, "devices", shared, f"a multiple of the number of processes ({hosts.processes})")


def _validate_checkpoint(train: TrainConfig) -> None:
    saves = train.checkpoint
    _expect(train, "checkpoint.every_minutes", 0 <= saves.every_minutes < math.inf, "a number of at least 0")
    fits = saves.every_steps >= 0 and saves.every_steps % train.steps_per_call == 0
    _expect(train, "checkpoint.every_steps", fits, f"a multiple of steps_per_call ({train.steps_per_call}), or 0")
    _expect(train, "checkpoint.keep", saves.keep >= 1, "a whole number of at least 1")
    for name in saves.signals:
        known = name in signal.Signals.__members__ and name not in ("SIGKILL", "SIGSTOP")
        _expect(train, "checkpoint.signals", known, f"names of signals that can be caught, and not {name!r}")


def _expect(train: TrainConfig, name: str, holds: bool, expected: str) -> None:
    if not holds:
        value = functools.reduce(getattr, name.split("."), train)
        raise UsageError(f"--config.train.{name} is {value}: expected {expected}")


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
    """The fields of a config and its groups, in order; those marked `metadata={"flag": False}` are left out.

    Raises TypeError for a field that no flag can set.
    """
    found = []
    helps = field_helps(type(config))
    for field in dataclasses.fields(config):
        if not field.metadata.get("flag", True):
            continue
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


def in_words(found: list[tuple[str, Any, Any]]) -> str:
    """The first four of `differences`, "FIELD (a there, b here)", and how many more there are."""
    listed = ", ".join(f"{field} ({there!r} there, {here!r} here)" for field, there, here in found[:4])
    return f"{listed} and {len(found) - 4} more" if len(found) > 4 else listed


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

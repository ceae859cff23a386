"""Several trainings in one compiled program: other seeds, and other values of what is data of the program."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from flax import nnx

from rnnjax.cell import Cell
from rnnjax.train.config import ReplicasConfig, TrainConfig, UsageError
from rnnjax.train.devices import shares_of
from rnnjax.train.step import Learner, TrainState, root_key

_MOST = 10_000  # each is made one after the other
OF_THE_CELL = ("gain", "forget_bias")
"""Fields of a cell that only its `init` reads."""


@dataclasses.dataclass(frozen=True)
class Replica:
    """One of several trainings.

    model: its start. seed: the root of its draws. traced: {name: value} of the settings that differ from config.train.
    label: what tells it from the others, such as "seed=3, learning_rate=0.01".
    """

    model: nnx.Module
    seed: int
    traced: dict[str, float] = dataclasses.field(default_factory=dict)
    label: str = ""


def make_replicas(
    make: Callable[[Cell, int], nnx.Module], cell: Cell, config: TrainConfig, replicas: ReplicasConfig
) -> list[Replica]:
    """Every combination of the lists of `replicas`, with every seed; one, with nothing traced, where it asks for none.

    make: (cell, seed) -> a model. Raises UsageError as `check_replicas` does.
    """
    check_replicas(cell, config, replicas)
    lists, seeds = _lists(replicas)
    found = []
    for *values, seed in itertools.product(*lists.values(), range(config.seed, config.seed + seeds)):
        given = dict(zip(lists, values, strict=True))
        of_cell = {name: given.pop(name) for name in OF_THE_CELL if name in given}
        made = dataclasses.replace(cell, **of_cell) if of_cell else cell
        label = ", ".join(f"{name}={value:g}" for name, value in {"seed": seed, **of_cell, **given}.items())
        found.append(Replica(make(made, seed), seed, given, label))
    return found


def check_replicas(cell: Cell, config: TrainConfig, replicas: ReplicasConfig) -> None:
    """Raises UsageError for a list of a field that the cell has not, or that not only its start depends on, for a value
    that is out of range or given twice, and where a batch can't be shared out over the devices."""
    lists, seeds = _lists(replicas)
    count = seeds * math.prod(map(len, lists.values()))
    if seeds < 1 or count > _MOST:
        raise UsageError(f"--config.replicas.seeds is {seeds}, which makes {count} replicas: expected 1 to {_MOST}")
    if config.seed + seeds > 2**32:
        raise UsageError(f"--config.train.seed is {config.seed}: with {seeds} seeds, expected at most {2**32 - seeds}")
    for name, values in lists.items():
        _check(name, values, cell, config)
    shares_of(count, config)


def _lists(replicas: ReplicasConfig) -> tuple[dict[str, tuple[float, ...]], int]:
    lists = {field.name: getattr(replicas, field.name) for field in dataclasses.fields(replicas)}
    seeds = lists.pop("seeds")
    return {name: values for name, values in lists.items() if values}, seeds


def _check(name: str, values: tuple[float, ...], cell: Cell, config: TrainConfig) -> None:
    flag = f"--config.replicas.{name}"
    if len(set(values)) < len(values):
        raise UsageError(f"{flag} is {','.join(map(str, values))}: each value once is enough")
    if name not in OF_THE_CELL:
        low, above = min(values), "above 0" if name == "learning_rate" else "of at least 0"
        if low < 0 or (name == "learning_rate" and low == 0):
            raise UsageError(f"{flag} has {low:g}: expected numbers {above}")
        if name == "weight_decay" and config.optimizer != "adamw":
            raise UsageError(f"{flag} is given, but --config.train.optimizer={config.optimizer} has none: take adamw")
        return
    fields = {field.name for field in dataclasses.fields(cell)}
    if name not in fields:
        raise UsageError(
            f"{flag} is given, but {type(cell).__name__} has no {name}: it has {', '.join(sorted(fields))}"
        )
    if name == "forget_bias" and (getattr(cell, "chrono", None) is not None or not getattr(cell, "forget_gate", True)):
        raise UsageError(f"{flag} is given, but {cell!r} does not start from it")
    if name == "gain" and getattr(cell, "orthogonal", False):
        raise UsageError(f"{flag} is given, but with orthogonal the gain holds at all times: sweep over it instead")


def first_states(learner: Learner, replicas: Sequence[Replica]) -> TrainState:
    """The states of all replicas before the first step, stacked on a new first axis."""
    states = [learner.init(root_key(one.seed), one.traced, one.model) for one in replicas]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)


def of_replica(tree, number: int):
    """What belongs to one replica of a stacked tree."""
    return jax.tree.map(lambda leaf: leaf[number], tree)

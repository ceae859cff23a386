"""From config to objects: the options of every cell and task, derived from their classes, and back."""

import dataclasses
from typing import Any

import jax
from flax import nnx

from rnnjax.cell import Cell
from rnnjax.cells import CELLS
from rnnjax.layers import Bidirectional, InputDropout, Layer, Stack
from rnnjax.nn import SequenceModel
from rnnjax.tasks import TASKS, Task
from rnnjax.train.config import UsageError, build, derive
from rnnjax.train.step import INIT, root_key, stream

_SIZES = ("input_size", "hidden_size", "output_size")
_MOST_HIDDEN = 2**16  # its square alone takes 16 GiB; at far larger sizes XLA aborts the process
_HIDDEN_SIZE = dataclasses.field(
    default=None, metadata={"help": "features of the recurrent state, where not config.model.hidden_size"}
)


def cell_options(**defaults: dict[str, Any]) -> Any:
    """A config with one group for every cell of CELLS: the cell's own hyper-parameters and `hidden_size`.

    defaults: {cell: {field: value}} in place of the cell's own.
    """
    groups = []
    for name, cls in CELLS.items():
        given = dict(defaults.get(name, {}))
        hidden_size = given.pop("hidden_size", None)
        options = derive(cls, leave_out=_SIZES, **given)
        sized = dataclasses.make_dataclass(
            options.__name__, [("hidden_size", int | None, _HIDDEN_SIZE)], bases=(options,)
        )
        groups.append((name, sized, dataclasses.field(default_factory=_with(sized, hidden_size))))
    return dataclasses.make_dataclass("CellOptions", groups)()


def _with(cls: type, hidden_size: int | None):
    return lambda: cls(hidden_size=hidden_size)


def make_cell(name: str, config: Any, task: Task) -> Cell:
    """The cell `name` as `config.cell_options` and `config.model` say, in the sizes of the task.

    Raises UsageError where the cell refuses a value, and where it would not fit into memory.
    """
    return sized_cell(name, config, task.input_size, task.output_size)


def hidden_size(name: str, config: Any) -> int:
    """Features of the recurrent state of the cell `name`."""
    own = getattr(config.cell_options, name).hidden_size
    return config.model.hidden_size if own is None else own


def sized_cell(name: str, config: Any, input_size: int, output_size: int) -> Cell:
    """`make_cell` for sizes that are not those of a task."""
    options, hidden = getattr(config.cell_options, name), hidden_size(name, config)
    if hidden > _MOST_HIDDEN:
        raise UsageError(f"hidden_size of {name} is {hidden}: expected at most {_MOST_HIDDEN}")
    sizes = {"input_size": input_size, "hidden_size": hidden, "output_size": output_size}
    fields = {field.name for field in dataclasses.fields(CELLS[name])}
    own = {
        field.name: getattr(options, field.name) for field in dataclasses.fields(options) if field.name not in _SIZES
    }
    return build(CELLS[name], own, **{size: sizes[size] for size in _SIZES if size in fields})


def make_layer(name: str, config: Any, input_size: int, output_size: int) -> Layer:
    """The layers of the cell `name` that `config.model` (LayersConfig) and `config.cell_options` ask for.

    output_size: that of the model, which a cell that reads out itself (Jordan) has on top; below it is as wide as its
        hidden state.

    Raises UsageError where cell or layer refuse a value, and where it would not fit into memory.
    """
    model = config.model
    if model.layers < 1:
        raise UsageError(f"--config.model.layers is {model.layers}: expected at least 1")
    if not 0 <= model.dropout < 1:
        raise UsageError(f"--config.model.dropout is {model.dropout}: expected at least 0 and less than 1")
    layers, features = [], input_size
    for number in range(model.layers):
        read_out = output_size if number == model.layers - 1 else hidden_size(name, config)
        layer = sized_cell(name, config, features, read_out)
        if number and model.dropout:
            layer = InputDropout(layer, model.dropout, mask="step")
        layers.append(Bidirectional(layer, layer) if model.bidirectional else layer)
        features = layers[-1].output_size
    return layers[0] if len(layers) == 1 else Stack(tuple(layers))


def make_model(cell: Cell, task: Task, seed: int) -> SequenceModel:
    """One layer of `cell` for `task`, its parameters drawn from `seed`."""
    rngs = nnx.Rngs(params=stream(root_key(seed), INIT))
    return SequenceModel(cell, task.output_size, reads_last=task.reads_last, output_bias=task.output_bias, rngs=rngs)


def parameter_count(model: nnx.Module) -> int:
    """Numbers in all parameters of a model."""
    return sum(leaf.size for leaf in jax.tree.leaves(nnx.state(model, nnx.Param)))


def task_options(name: str, **defaults: Any) -> Any:
    """The config of the task `name` of TASKS, with `defaults` in place of its own."""
    return derive(TASKS[name], name=f"{name}_task", **defaults)()


def make_task(options: Any) -> tuple[str, Task]:
    """(name, task) of a config that `task_options` made. Raises UsageError where the task refuses a value."""
    name = type(options).__name__.removesuffix("_task")
    return name, build(TASKS[name], options)


def check_cells(names: tuple[str, ...]) -> None:
    """Raises UsageError where `config.cells` names none, one that is no cell, or one twice."""
    if not names:
        raise UsageError(f"--config.cells is empty: expected some of {', '.join(CELLS)}")
    for name in names:
        if name not in CELLS:
            raise UsageError(f"--config.cells has {name!r}: expected some of {', '.join(CELLS)}")
        if names.count(name) > 1:
            raise UsageError(f"--config.cells names {name} {names.count(name)} times: once is enough")

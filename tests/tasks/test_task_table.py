"""Every task keeps the contract of rnnjax.tasks.base."""

import ast
import dataclasses
import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rnnjax.data
import rnnjax.tasks
from rnnjax.tasks import TASKS, Adding, Batch, Copying, Latch, SyntheticTask, TemporalOrder, reduce_mean
from rnnjax.testing import check_task

SYNTHETIC = [
    Adding(),
    Adding(7),
    Copying(delay=7, symbols=3, recall=4),
    Copying(delay=1, symbols=2, recall=1),
    TemporalOrder(10),
    TemporalOrder(10, 23),
    Latch(),
    Latch(length=2, informative=2, noise=0.0),
]


@pytest.mark.parametrize("task", SYNTHETIC, ids=str)
def test_synthetic_tasks_keep_the_contract(task):
    check_task(task)


def test_every_synthetic_task_of_the_table_is_tested():
    synthetic = {task for task in TASKS.values() if issubclass(task, SyntheticTask)}
    assert synthetic == {type(task) for task in SYNTHETIC}


def test_float32_under_x64(x64):
    for task in (Adding(4), Copying(1, 2, 1), TemporalOrder(10, 12), Latch(4)):
        batch = jax.eval_shape(functools.partial(task.sample, batch_size=2), jax.random.key(0))
        assert batch.inputs.dtype == jnp.float32 and batch.mask.dtype == jnp.float32


@pytest.mark.parametrize("name", TASKS)
def test_tasks_are_frozen_hashable_and_print_themselves(name):
    task = TASKS[name]()
    assert hash(task) == hash(TASKS[name]()) and task == TASKS[name]()
    assert repr(task).startswith(type(task).__name__)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(task, dataclasses.fields(task)[0].name, 1)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Adding(length=1), "length of Adding is 1: expected a whole number of at least 2"),
        (lambda: Adding(length=2.0), "length of Adding is 2.0: expected a whole number"),
        (lambda: Adding(length=True), "length of Adding is True"),
        (lambda: Copying(delay=0), "delay of Copying is 0: expected a whole number of at least 1"),
        (lambda: Copying(symbols=1), "symbols of Copying is 1: expected a whole number of at least 2"),
        (lambda: Copying(recall=0), "recall of Copying is 0"),
        (
            lambda: TemporalOrder(9),
            "min_length of TemporalOrder is 9: expected a whole number of at least 10",
        ),
        (
            lambda: TemporalOrder(20, 19),
            "max_length of TemporalOrder is 19: expected a whole number of at least 20",
        ),
        (lambda: Latch(length=2), "length of Latch is 2: expected a whole number of at least 3"),
        (lambda: Latch(informative=0), "informative of Latch is 0"),
        (lambda: Latch(noise=-1.0), "noise of Latch is -1.0: expected a finite number of at least 0"),
        (lambda: Latch(noise=float("nan")), "noise of Latch is nan"),
        (lambda: Latch(noise="much"), "noise of Latch is 'much'"),
        (lambda: TASKS["music"](buckets=0), "buckets of Music is 0: expected a whole number of at least 1"),
        (
            lambda: TASKS["music"](corpus="Bach"),
            "corpus of Music is 'Bach': expected one of JSB_Chorales, Nottingham",
        ),
    ],
)
def test_wrong_hyper_parameters_are_refused_by_name(make, message):
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value).startswith(message)


@dataclasses.dataclass(frozen=True)
class _Broken(Latch):
    what: str = ""

    def sample(self, key, batch_size):
        batch = super().sample(jax.random.key(0) if self.what == "key" else key, batch_size)
        if self.what == "dtype":
            return batch._replace(inputs=batch.inputs.astype(jnp.bfloat16))
        return batch._replace(mask=jnp.ones(batch_size + 1)) if self.what == "mask" else batch

    def loss(self, outputs, batch):
        losses = super().loss(outputs, batch)
        return {"loss": losses[:1], "nan": losses * jnp.nan, "gradient": losses * 0}.get(self.what, losses)

    @property
    def chance(self):
        return 0.0 if self.what == "chance" else super().chance


@pytest.mark.parametrize(
    "what, message",
    [
        ("key", "nine keys draw the same"),
        ("dtype", "are bfloat16: expected float32"),
        ("mask", "the mask of _Broken has shape"),
        ("loss", "the loss of _Broken has shape"),
        ("nan", "the loss of _Broken is not finite"),
        ("gradient", "gradient of zero"),
        ("chance", "chance of _Broken is 0.0"),
    ],
)
def test_check_task_finds(what, message):
    check_task(_Broken(length=5))
    with pytest.raises(AssertionError, match=message):
        check_task(_Broken(length=5, what=what))


def test_reduce_mean_ignores_what_is_masked_and_is_zero_where_nothing_counts():
    values, mask = jnp.array([1.0, jnp.nan, 3.0]), jnp.array([1.0, 0.0, 1.0])
    assert reduce_mean(values, mask) == 2
    value, gradient = jax.value_and_grad(reduce_mean)(values, jnp.zeros(3))
    assert value == 0 and not np.any(gradient)


def test_losses_of_bfloat16_outputs_are_float32():
    batch = Copying(1, 2, 1).sample(jax.random.key(0), 2)
    assert isinstance(batch, Batch)
    assert Copying(1, 2, 1).loss(jnp.zeros((3, 2, 3), jnp.bfloat16), batch).dtype == jnp.float32


@pytest.mark.parametrize(
    "package, refused",
    [(rnnjax.data, ("jax", "flax", "rnnjax.tasks")), (rnnjax.tasks, ("flax", "rnnjax.train"))],
)
def test_imports_never_go_upwards(package, refused):
    for path in pathlib.Path(package.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert not any(name == bad or name.startswith(f"{bad}.") for bad in (*refused, "rnnjax.nn")), path

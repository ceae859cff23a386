"""The conformance test of a synthetic task, for the tasks here and for a user's own."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.tasks.base import Batch, SyntheticTask, reduce_mean


def check_task(task: SyntheticTask, batch_size: int = 3) -> None:
    """Raises AssertionError, saying what is wrong, unless the task keeps the contract of `rnnjax.tasks.base`.

    Shapes and dtypes of a batch that is drawn under jit, and of what a `draw` of the task's own gives, determinism by
    key, a loss and metrics that are finite and shaped as the mask, a loss with a finite gradient, and a positive
    chance.
    """
    name = type(task).__name__
    keys = jax.random.split(jax.random.key(0), 2)
    sample = jax.jit(task.sample, static_argnums=1)
    batch, again = sample(keys[0], batch_size), sample(keys[0], batch_size)
    _check_batch(task, name, batch, batch_size)
    same = jax.tree.map(np.array_equal, batch, again)
    assert all(jax.tree.leaves(same)), f"{name}: one key draws two different batches"
    others = (sample(key, batch_size) for key in jax.random.split(keys[1], 8))
    differs = any(not np.array_equal(batch.inputs, other.inputs) for other in others)
    assert differs, f"{name}: nine keys draw the same inputs"
    if task.carried or type(task).draw is not SyntheticTask.draw:
        of_step = jax.jit(task.draw, static_argnums=2)(keys[0], 0, batch_size)
        _check_batch(task, name, of_step, batch_size)
        assert not task.carried or of_step.fresh is not None, f"{name} is carried but a batch of draw has no fresh"

    lead = (batch_size,) if task.reads_last else batch.inputs.shape[:2]
    outputs = jax.random.normal(keys[1], (*lead, task.output_size), jnp.float32)
    _check_values(f"the loss of {name}", task.loss(outputs, batch), batch)
    for metric, (values, mask) in task.metrics(outputs, batch).items():
        _check_values(f"{metric} of {name}", values, batch)
        assert mask.shape == batch.mask.shape, f"the mask of {metric} has shape {mask.shape}: not that of batch.mask"
        assert bool(jnp.any(mask > 0)), f"the mask of {metric} of {name} counts nothing"
    gradient = jax.grad(lambda y: reduce_mean(task.loss(y, batch), batch.mask))(outputs)
    finite = bool(jnp.all(jnp.isfinite(gradient)))
    assert finite and bool(jnp.any(gradient != 0)), f"the loss of {name} has a gradient of zero, or one not finite"
    chance = task.chance
    assert math.isfinite(chance) and chance > 0, f"chance of {name} is {chance!r}: expected a positive number"


def _check_batch(task, name, batch: Batch, batch_size: int) -> None:
    inputs, targets, mask, lengths, fresh = batch
    assert inputs.ndim == 3 and inputs.shape[1:] == (batch_size, task.input_size), (
        f"inputs of {name} have shape {inputs.shape}: expected [T, {batch_size}, {task.input_size}]"
    )
    assert inputs.dtype == jnp.float32, f"inputs of {name} are {inputs.dtype}: expected float32"
    lead = (batch_size,) if task.reads_last else inputs.shape[:2]
    assert mask.shape == lead, f"the mask of {name} has shape {mask.shape}: expected {lead}"
    assert bool(jnp.all((mask == 0) | (mask == 1))), f"the mask of {name} holds values other than 0 and 1"
    assert targets.shape[: len(lead)] == lead, f"targets of {name} have shape {targets.shape}: expected {lead} first"
    assert task.link in ("identity", "softmax", "sigmoid"), f"link of {name} is {task.link!r}"
    assert isinstance(task.unit, str) and task.unit, f"unit of {name} is {task.unit!r}: expected a word"
    if lengths is not None:
        assert lengths.shape == (batch_size,), f"lengths of {name} have shape {lengths.shape}"
        in_range = bool(jnp.all((lengths >= 0) & (lengths <= inputs.shape[0])))
        assert in_range, f"lengths of {name} are {lengths}: expected 0 .. {inputs.shape[0]}"
    if fresh is not None:
        assert fresh.shape == (batch_size,), f"fresh of {name} has shape {fresh.shape}: expected {(batch_size,)}"
        assert bool(jnp.all((fresh == 0) | (fresh == 1))), f"fresh of {name} holds values other than 0 and 1"


def _check_values(what: str, values: jax.Array, batch: Batch) -> None:
    assert values.shape == batch.mask.shape, f"{what} has shape {values.shape}: expected {batch.mask.shape}"
    counted = jnp.where(batch.mask > 0, values, 0)
    assert bool(jnp.all(jnp.isfinite(counted))), f"{what} is not finite"

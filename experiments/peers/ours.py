"""Our own columns: the engine, plain scan, the batch over several devices, and the matmuls that none can do without."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from experiments.peers.base import Runner, Work, in_jax, plain_scan
from rnnjax import unroll
from rnnjax.cell import Cell
from rnnjax.train.step import root_key


def outputs(cell: Cell, **options) -> Callable:
    """(params, inputs) -> outputs of `rnnjax.unroll` with its `options`."""
    return lambda params, inputs: unroll(cell, params, inputs, **options).outputs


def engine(work: Work, **options) -> Runner:
    """`rnnjax.unroll` with its `options`."""
    return in_jax(outputs(work.cell, **options), work.params, work)


def scan(work: Work) -> Runner:
    """Plain jax.lax.scan."""
    return in_jax(functools.partial(plain_scan, work.cell), work.params, work)


def over_devices(work: Work, count: int) -> Runner:
    """`rnnjax.unroll` with the batch split over `count` devices, the gradients summed once."""
    mesh = Mesh(np.array(jax.devices()[:count]), ("batch",))
    shared, split = PartitionSpec(), PartitionSpec(None, "batch")
    to_all, to_each = NamedSharding(mesh, shared), NamedSharding(mesh, split)
    params = jax.device_put(work.params, to_all)
    inputs, targets = jax.device_put((work.inputs, work.targets), to_each)

    forward = outputs(work.cell)

    def loss(params, inputs, targets):
        return jnp.sum(forward(params, inputs) * targets)

    def train(params, inputs, targets):
        params = jax.lax.pcast(params, "batch", to="varying")  # else each use of them is summed over the devices
        return jax.lax.psum(jax.value_and_grad(loss)(params, inputs, targets), "batch")

    on_mesh = functools.partial(jax.shard_map, mesh=mesh)
    forward_all = jax.jit(on_mesh(forward, in_specs=(shared, split), out_specs=split))
    train_all = jax.jit(on_mesh(train, in_specs=(shared, split, split), out_specs=shared))
    return Runner(lambda: forward_all(params, inputs), lambda: train_all(params, inputs, targets))


def matmuls(work: Work) -> Runner:
    """The matmuls alone, at the same sizes: one of all inputs, one a step, and their transposes backwards.

    Nothing is computed of use. A step takes its first H columns on, so that no matmul can start before the last.
    """
    hidden, (time, batch, features) = work.cell.hidden_size, work.inputs.shape
    W_ih, W_hh, x = jax.device_put((work.params["W_ih"], work.params["W_hh"], work.inputs))

    def hidden_states(W_ih, W_hh, x):
        def step(h, z):
            h = (z + h @ W_hh)[:, :hidden]
            return h, h

        return jax.lax.scan(step, jnp.zeros((batch, hidden)), x @ W_ih)[1]

    def gradients(W_ih, W_hh, x):
        def back(dz, _):
            dz = jnp.concatenate([dz @ W_hh.T, dz[:, hidden:]], axis=1)
            return dz, dz

        hs = hidden_states(W_ih, W_hh, x).reshape(time * batch, hidden)
        dzs = jax.lax.scan(back, jnp.zeros((batch, W_hh.shape[1])), length=time)[1].reshape(time * batch, -1)
        return hs[0, 0], (x.reshape(time * batch, features).T @ dzs, hs.T @ dzs)

    forward, train = jax.jit(hidden_states), jax.jit(gradients)
    return Runner(lambda: forward(W_ih, W_hh, x), lambda: train(W_ih, W_hh, x), weights=None)


def compile_step(apply: Callable, cell: Cell, time: int, batch: int) -> jax.stages.Compiled:
    """A training step of `apply(params, inputs) -> outputs`, compiled anew, and from shapes alone: no array is held.

    It is called with the parameters, inputs [T, B, D] and targets [T, B, H].
    """

    def loss(params, inputs, targets):
        return jnp.sum(apply(params, inputs) * targets)

    params = jax.eval_shape(cell.init, root_key(0))
    inputs, targets = (
        jax.ShapeDtypeStruct((time, batch, features), jnp.float32) for features in (cell.input_size, cell.hidden_size)
    )
    cached = jax.config.jax_enable_compilation_cache
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        return jax.jit(jax.value_and_grad(loss)).lower(params, inputs, targets).compile()
    finally:
        jax.config.update("jax_enable_compilation_cache", cached)

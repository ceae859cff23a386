"""A training step over several devices: each takes a share of the batch, and one all-reduce adds up what they found."""

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from rnnjax.tasks import Batch
from rnnjax.train.config import UsageError

_AXIS = "data"


def use_devices(count: int) -> None:
    """Lets JAX find `count` devices: on a CPU the host is split into as many, which has to be said before JAX starts.

    Raises UsageError where there are fewer.
    """
    if count == 1:
        return
    with contextlib.suppress(RuntimeError):  # it has started: with these devices or with too few
        jax.config.update("jax_num_cpu_devices", count)
    if len(jax.devices()) < count:
        raise UsageError(f"devices is {count}: JAX runs with {len(jax.devices())} ({jax.devices()[0].device_kind})")


def make_mesh(count: int) -> Mesh:
    """The first `count` devices, along which a batch is split."""
    return jax.make_mesh((count,), (_AXIS,), axis_types=(AxisType.Auto,), devices=jax.devices()[:count])


def on_all(tree: Any, mesh: Mesh) -> Any:
    """The tree with every array on every device."""
    return jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


def on_one(tree: Any) -> Any:
    """The tree as the first device has it; no copy."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


def split(sums: Callable, mesh: Mesh) -> Callable:
    """`sums(params, key, batch)`, which adds up over the examples of a batch, with these split over the devices.

    Parameters and key are the same everywhere: masks are drawn by a row's number in the whole batch (`rnnjax.layers`).
    """

    def of_share(params, key, batch):
        own = functools.partial(jax.lax.pcast, axis_name=_AXIS, to="varying")
        params = jax.tree.map(own, params)  # so that gradients are one's own until the psum
        return jax.lax.psum(sums(params, key, batch), _AXIS)

    def of_batch(params, key, batch):
        everywhere = PartitionSpec()
        specs = (everywhere, everywhere, _split_batch(batch))
        return jax.shard_map(of_share, mesh=mesh, in_specs=specs, out_specs=everywhere)(params, key, batch)

    return of_batch


def _split_batch(batch: Batch) -> Batch:
    """Where the examples of a batch stand: on axis 1, behind time, or 0 where there is one value for each."""
    steps = PartitionSpec(None, _AXIS)
    values = steps if batch.mask.ndim == 2 else PartitionSpec(_AXIS)
    return Batch(steps, values, values, None if batch.lengths is None else PartitionSpec(_AXIS))

"""Where a training runs: one mesh of devices, (replica, data).

Replicas take the devices first, as many as divide both numbers; what is left splits every batch. On each device the
replicas that are its own run one after the other on a CPU, where that is fastest, and as one batch on an accelerator.
"""

import contextlib
import hashlib
import math
import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from rnnjax.train.config import DistributedConfig, TrainConfig, UsageError, validate

REPLICA_AXIS, DATA_AXIS = "replica", "data"


def without_deadlock() -> None:
    """Keeps XLA from a schedule in which a program of JAX before 0.12 was seen to wait for itself for good, on a CPU:
    matrices drawn orthogonal and an unroll in one compiled program. Bits and speed stay. Called before JAX starts.
    """
    flag = "--xla_cpu_enable_concurrency_optimized_scheduler"
    given = os.environ.get("XLA_FLAGS", "")
    if jax.__version_info__ < (0, 12) and flag not in given:
        os.environ["XLA_FLAGS"] = f"{given} {flag}=false".strip()


def use_devices(count: int, processes: int = 1) -> None:
    """Lets JAX find `count` devices: on a CPU the host is split into as many, which has to be said before JAX starts.

    processes: that share them. Raises UsageError where there are fewer.
    """
    if count == 1:
        return  # there always is one, and JAX need not start to know
    with contextlib.suppress(RuntimeError):  # it has started: with these devices or with too few
        jax.config.update("jax_num_cpu_devices", count // processes)
    if len(jax.devices()) < count:
        raise UsageError(f"devices is {count}: JAX runs with {len(jax.devices())} ({jax.devices()[0].device_kind})")


def start(config: TrainConfig) -> None:
    """Meets the other processes of a config, if any, and finds its devices. Called before JAX is used.

    Never on its own: variables of Slurm that are set by accident don't make a run wait for others.

    Raises UsageError where the others can't be met, and where there are too few devices. Where no other comes, JAX ends
    the process itself, after 5 minutes.
    """
    validate(config)
    hosts = config.distributed
    if hosts.processes > 1 and not jax.distributed.is_initialized():
        _check_coordinator(hosts)
        jax.config.update("jax_num_cpu_devices", config.devices // hosts.processes)
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        where = f"at {hosts.coordinator} (--config.train.distributed.coordinator)"
        told = f"process {hosts.process} of {hosts.processes}"
        print(f"{told}: meeting the others {where}", file=sys.stderr, flush=True)  # where none comes, JAX aborts
        try:
            jax.distributed.initialize(hosts.coordinator, hosts.processes, hosts.process)
        except (RuntimeError, ValueError) as error:
            why = str(error).partition("\n")[0]
            raise UsageError(f"{told} did not meet the others {where}: {why}") from None
    use_devices(config.devices, hosts.processes)


def _check_coordinator(hosts: DistributedConfig) -> None:
    """Raises UsageError where it is no address, and where process 0 can't listen there: JAX would crash."""
    flag = "--config.train.distributed.coordinator"
    host, _, port = hosts.coordinator.rpartition(":")
    if not (host and port.isdecimal() and 0 < int(port) < 2**16):
        raise UsageError(f"{flag} is {hosts.coordinator}: expected HOST:PORT, such as localhost:12355")
    if hosts.process == 0:
        try:
            socket.create_server(("", int(port))).close()
        except OSError as error:
            why = os.strerror(error.errno)
            raise UsageError(
                f"{flag} is {hosts.coordinator}: process 0 can't listen there ({why}): give another port"
            ) from None


def is_writer() -> bool:
    """Whether this process writes the files of a run: the first of those that train together."""
    return jax.process_index() == 0


def agree(value: bool) -> bool:
    """Whether `value` holds in any of the processes that train together."""
    if jax.process_count() == 1:
        return value
    return bool(np.any(multihost_utils.process_allgather(np.asarray(value))))


def check_same_everywhere(text: str) -> None:
    """Raises UsageError where processes that train together go on from different saves."""
    if jax.process_count() > 1:
        own = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
        if not np.all(multihost_utils.process_allgather(own) == own):
            raise UsageError("the processes find different saves: --workdir has to be a folder that all of them share")


def shares_of(replicas: int, config: TrainConfig) -> int:
    """Into how many shares a batch is split: replicas take the devices first.

    Raises UsageError where the size of a batch is no multiple of that, part by part.
    """
    shares = config.devices // math.gcd(replicas, config.devices)
    if config.batch_size % (shares * config.accumulate):
        parts = f" times accumulate ({config.accumulate})" if config.accumulate > 1 else ""
        raise UsageError(
            f"--config.train.batch_size is {config.batch_size}: expected a multiple of the devices that share a batch "
            f"({shares}){parts}"
        )
    return shares


def make_mesh(replicas: int, config: TrainConfig) -> Mesh:
    """[replica, data] of `config.devices` devices, equally many of every process.

    Raises UsageError as `shares_of` does, and where a process has too few.
    """
    shares, each = shares_of(replicas, config), config.devices // jax.process_count()
    sizes, kinds = (config.devices // shares, shares), (AxisType.Auto, AxisType.Auto)
    devices = []
    for process in range(jax.process_count()):
        own = [device for device in jax.devices() if device.process_index == process]
        if len(own) < each:
            raise UsageError(
                f"--config.train.devices is {config.devices}, {each} of every process, but process {process} has "
                f"{len(own)}"
            )
        devices += own[:each]
    return jax.make_mesh(sizes, (REPLICA_AXIS, DATA_AXIS), axis_types=kinds, devices=devices)


def on_mesh(function: Callable, mesh: Mesh, *, shared: int = 0, specs: Any = None) -> Callable:
    """`function` of one replica as a function of all, whose arguments and results have replicas on their first axis.

    shared: how many of the last arguments are the same for all replicas and have no such axis.
    specs: (of the arguments, of the results) where more than the replicas is spread over devices.
    """
    each = _of_several(function, shared)
    if mesh.size == 1:
        return each
    spread = PartitionSpec(REPLICA_AXIS)

    def of_all(*arguments):
        given = len(arguments) - shared
        inside, outside = specs or ((spread,) * given, spread)
        inside = (*inside, *(PartitionSpec(),) * shared)
        return jax.shard_map(each, mesh=mesh, in_specs=inside, out_specs=outside)(*arguments)

    return of_all


def _of_several(function: Callable, shared: int) -> Callable:
    def of_several(*arguments):
        given, same = arguments[: len(arguments) - shared], arguments[len(arguments) - shared :]
        count = jax.tree.leaves(given)[0].shape[0]
        if count == 1:
            result = function(*jax.tree.map(lambda leaf: leaf[0], given), *same)
            return jax.tree.map(lambda leaf: jnp.expand_dims(leaf, 0), result)
        if jax.default_backend() == "cpu":
            return jax.lax.map(lambda given: function(*given, *same), given)
        return jax.vmap(lambda *given: function(*given, *same))(*given)

    return of_several


def place(tree: Any, mesh: Mesh, spec: Any = None) -> Any:
    """Arrays [replica, ...] where they belong on the mesh.

    spec: a prefix of the tree, by default the replicas alone.
    """
    spec = PartitionSpec(REPLICA_AXIS) if spec is None else spec
    shardings = jax.tree.map(lambda one: NamedSharding(mesh, one), spec)
    if jax.process_count() == 1:
        return jax.device_put(tree, shardings)
    return jax.tree.map(lambda one, part: jax.tree.map(lambda leaf: _put(leaf, one), part), shardings, tree)


def _put(leaf: Any, sharding: NamedSharding) -> jax.Array:
    """The part of each process of an array that all have whole; device_put refuses keys, and NaN differs from NaN."""
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return jax.device_put(leaf, sharding)
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_put(jax.random.key_data(leaf), sharding), impl=jax.random.key_impl(leaf))
    whole = np.asarray(leaf)
    return jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])


def to_host(tree: Any) -> Any:
    """The tree as numpy arrays, whole in every process."""

    def fetch(leaf):
        if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable:
            return leaf
        if leaf.is_fully_replicated:
            return leaf.addressable_data(0)
        return multihost_utils.process_allgather(leaf, tiled=True)

    return jax.device_get(jax.tree.map(fetch, tree))

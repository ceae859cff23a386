"""Replicas on the cores of a CPU."""

import contextlib
import dataclasses
import math
import os

import jax

from rnnjax.train.config import TrainConfig


def share_cores(train: TrainConfig, replicas: int) -> TrainConfig:
    """The config with its replicas spread over the cores of a CPU, as many of them as divide `replicas`.

    As it was given on an accelerator, where devices were asked for, and where several processes train together. To be
    called before JAX starts: afterwards it makes use of the devices that there are.
    """
    if train.devices > 1 or train.distributed.processes > 1:
        return train
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(RuntimeError):  # it has started
        jax.config.update("jax_num_cpu_devices", cores)
    if jax.default_backend() != "cpu":
        return train
    return dataclasses.replace(train, devices=math.gcd(replicas, len(jax.devices())))


def all_but_a_fifth(seeds: int) -> int:
    """How many of so many seeds a rule asks for that allows for one in five to fail, and for one in any case."""
    return seeds - max(1, seeds // 5)

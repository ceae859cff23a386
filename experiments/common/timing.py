"""How the studies take times, and on what they took them."""

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import pathlib
import platform
import time
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import jax
import numpy as np

import rnnjax

PAUSE = 0.002
"""Seconds between two runs: the threads of one library spin on for about so long after its work is done."""
MOST = 10
"""Times `rounds` that a point is timed at most, however short a round is."""

Name = TypeVar("Name", bound=Hashable)


def interleaved(
    functions: Mapping[Name, Callable[[], Any]], rounds: int, seconds: float = 0.0
) -> dict[Name, np.ndarray]:
    """Seconds that every function takes in every round, {name: [rounds]}.

    A round visits all of them in an order of its own, drawn from a fixed seed, so that a slow phase of the machine and
    what a run leaves to the next fall on all alike. There is one round before that isn't counted. Rounds go on beyond
    `rounds` until `seconds` have passed, up to MOST times as many.
    """
    names, order = list(functions), np.random.default_rng(0)
    taken: dict[Name, list[float]] = {name: [] for name in names}
    start = time.perf_counter()
    for done in range(-1, MOST * rounds):
        if done >= rounds and time.perf_counter() - start >= seconds:
            break
        for at in order.permutation(len(names)):
            time.sleep(PAUSE)
            started = time.perf_counter()
            result = jax.block_until_ready(functions[names[at]]())
            taken[names[at]].append(time.perf_counter() - started)
            del result  # not within the next run's time
    return {name: np.array(values[1:]) for name, values in taken.items()}


def machine(packages: tuple[str, ...] = ()) -> dict[str, Any]:
    """What times depend on: processor, cores, memory, JAX's devices, versions, and the sources of rnnjax themselves."""
    kinds = [device.device_kind for device in jax.devices()]
    versions = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", *packages) if _installed(name)}
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "devices": f"{len(kinds)} {kinds[0]}",
        "python": platform.python_version(),
        "versions": versions,
        "malloc": os.environ.get("GLIBC_TUNABLES", ""),
        "source": _source(),
    }


def describe(machine: Mapping[str, Any]) -> str:
    """`machine` in a line of a report."""
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    tunables = f", GLIBC_TUNABLES={machine['malloc']}" if machine["malloc"] else ""
    return (
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB; JAX sees {machine['devices']}; "
        f"Python {machine['python']}, {versions}{tunables}."
    )


def _installed(package: str) -> bool:
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


def _cpu() -> str:
    path = pathlib.Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    family = "/".join(names[key] for key in ("cpu family", "model") if key in names)
    return names.get("model name", platform.processor() or platform.machine()) + (f" ({family})" if family else "")


@functools.cache
def _source() -> str:
    """A hash of what is timed: the cells and the engine."""
    root = pathlib.Path(rnnjax.__file__).parent
    digest = hashlib.sha256()
    for path in sorted([root / "cell.py", *(root / "cells").glob("*.py"), *(root / "unroll").glob("*.py")]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]

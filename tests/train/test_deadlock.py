"""JAX before 0.12 is kept from a schedule in which a program waits for itself for good."""

import os
import subprocess
import sys

import jax
import pytest

from rnnjax.train.devices import without_deadlock

FLAG = "--xla_cpu_enable_concurrency_optimized_scheduler"
PROGRAM = """
import jax
from rnnjax.train.devices import without_deadlock
without_deadlock()
jax.config.update("jax_enable_x64", True)
from experiments.common.untrained import draw, norms_by_distance
from rnnjax.cells import LSTM
cell = LSTM(64, 64)
run = jax.jit(jax.vmap(lambda key: norms_by_distance(cell)(*draw(cell, key, 1.0, {}, 100, 4))))
jax.block_until_ready(run(jax.random.split(jax.random.key(0), 20)))
"""


@pytest.mark.parametrize("given", ["", "--xla_dump_to=x", f"{FLAG}=true"])
def test_the_flag_is_added_once_and_what_was_asked_for_stays(given, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", given)
    monkeypatch.setattr(jax, "__version_info__", (0, 10, 2))
    for _ in range(2):
        without_deadlock()
    expected = given if FLAG in given else f"{given} {FLAG}=false".strip()
    assert os.environ["XLA_FLAGS"] == expected


def test_a_newer_jax_needs_none(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setattr(jax, "__version_info__", (0, 12, 0))
    without_deadlock()
    assert os.environ["XLA_FLAGS"] == ""


@pytest.mark.full
def test_a_program_that_waited_for_itself_ends(monkeypatch):
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)

"""Strictness for every test: float64 at hand, rank promotion raises, rnnjax's own warnings are errors."""

import jax
import pytest

from rnnjax.train.devices import without_deadlock

without_deadlock()
jax.config.update("jax_numpy_rank_promotion", "raise")


def pytest_configure(config):
    config.addinivalue_line("filterwarnings", r"error:::rnnjax(\..*)?")


@pytest.fixture
def x64():
    """Runs the test in float64."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def corpora():
    """The folder of real corpora; skips, by name, where RNNJAX_DATA does not point to one."""
    import os
    import pathlib

    folder = os.environ.get("RNNJAX_DATA", "")
    if not folder or not pathlib.Path(folder).is_dir():
        pytest.skip("RNNJAX_DATA names no folder of corpora")
    return pathlib.Path(folder)

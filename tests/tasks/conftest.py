"""Batches for tests of samplers."""

import jax
import pytest


@pytest.fixture(scope="session")
def draw():
    """draw(task, batch_size): a batch of one fixed key, drawn under jit."""

    def draw(task, batch_size):
        return jax.jit(task.sample, static_argnums=1)(jax.random.key(0), batch_size)

    return draw

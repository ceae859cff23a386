"""An encoder is a matrix whose rows are looked up: one-hot times the table, without the product."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax.nn import Embedding, OneHot, Trigrams, context_window
from rnnjax.testing import TOLERANCE, assert_close

IDS = np.array([[3, 0], [6, -1], [3, 2]])


def test_a_lookup_is_the_one_hot_vector_times_the_table(x64):
    embed = Embedding(7, 4, rngs=nnx.Rngs(0), dtype=jnp.float64)
    assert_close(embed(IDS), OneHot(7)(IDS) @ embed.table[...], TOLERANCE["float64"])
    assert_close(embed(IDS)[1, 0], embed.table[6], 0)
    assert np.all(embed(IDS)[1, 1] == 0) and np.all(OneHot(7)(IDS)[1, 1] == 0)
    graph, state = nnx.split(embed)
    found = jax.grad(lambda state: jnp.sum(jnp.sin(nnx.merge(graph, state)(IDS))))(state)["table"][...]
    want = jax.grad(lambda table: jnp.sum(jnp.sin(OneHot(7)(IDS) @ table)))(embed.table[...])
    assert_close(found, want, TOLERANCE["float64"])
    assert np.all(found[1] == 0) and np.all(found[3] != 0)


def test_trigrams_are_summed_multi_hot_vectors_times_the_table(x64):
    indices = np.array([[[0, 3, 3, -1]], [[2, -1, -1, -1]], [[-1, -1, -1, -1]]])
    encoder = Trigrams(5, 3, rngs=nnx.Rngs(0), dtype=jnp.float64)
    assert encoder.features == 3
    multi_hot = np.zeros((3, 1, 5))
    for place in np.ndindex(indices.shape):
        if indices[place] >= 0:
            multi_hot[(*place[:2], indices[place])] += 1
    assert_close(encoder(indices), multi_hot @ np.asarray(encoder.table[...]), TOLERANCE["float64"])


def test_an_id_without_a_row_shows():
    for encoder in (OneHot(3), Embedding(3, 2, rngs=nnx.Rngs(0))):
        for ids in (np.array([1, 3]), np.array([1, -2])):
            assert np.isnan(encoder(ids)[1]).all() and not np.isnan(encoder(ids)[0]).any()
        with pytest.raises(TypeError, match="ids have the dtype float32: expected whole numbers"):
            encoder(np.ones(2, np.float32))


def test_where_the_table_starts():
    table = Embedding(400, 64, rngs=nnx.Rngs(0)).table[...]
    assert abs(float(jnp.mean(jnp.sum(table**2, -1))) - 1) < 0.05
    vectors = np.arange(6.0).reshape(3, 2)
    assert_close(Embedding(3, 2, vectors=vectors).table[...], vectors, 0)
    assert Embedding(3, 2, vectors=vectors, dtype=jnp.bfloat16)(IDS[:1]).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Embedding(3, 2, vectors=np.zeros((2, 3))), r"vectors have the shape \(2, 3\): expected \(3, 2\)"),
        (lambda: Embedding(3, 2), "Embedding has neither vectors nor rngs"),
        (lambda: OneHot(0), "size of OneHot is 0: expected a whole number of at least 1"),
        (lambda: Trigrams(4, 2.0, rngs=nnx.Rngs(0)), "features of Trigrams is 2.0"),
    ],
)
def test_what_is_no_encoder_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("size", [1, 3, 5, 9])
def test_a_window_is_the_neighbours_of_each_row(size):
    """Garbage behind the end of a row is no neighbour; a row shorter than the window, and one of no step."""
    time, lengths = 4, np.array([4, 2, 1, 0])
    x = np.random.default_rng(0).normal(size=(time, 4, 2)).astype(np.float32)
    want = np.zeros((time, 4, size, 2), np.float32)
    for row, length in enumerate(lengths):
        for t in range(time):
            for place, at in enumerate(range(t - size // 2, t + size // 2 + 1)):
                if 0 <= at < length:
                    want[t, row, place] = x[at, row]
    padded = np.where((np.arange(time)[:, None] < lengths)[..., None], x, np.nan)
    assert_close(context_window(padded, size, lengths), want.reshape(time, 4, -1), 0)
    assert_close(context_window(x[:, :1], size), want[:, :1].reshape(time, 1, -1), 0)
    assert context_window(x[:0], size).shape == (0, 4, 2 * size)

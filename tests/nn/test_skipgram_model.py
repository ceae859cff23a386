"""The two tables of skip-gram, and trained vectors in the encoder of another model."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from rnnjax.cells import GRU
from rnnjax.data import read_vectors
from rnnjax.nn import Embedding, Tagger, WordVectors, load_vectors
from rnnjax.text import Vocabulary, write_vectors

WORDS = ("<unk>", "to", "Taipei", "apple")
VOCABULARY = Vocabulary(WORDS, "<unk>")


def test_centres_are_rows_and_contexts_start_at_zero():
    model = WordVectors(5, 4, rngs=nnx.Rngs(0))
    outputs = model(np.array([[3, 0, 3]], np.int32), lengths=None, rngs=nnx.Rngs(1))
    table = np.asarray(model.encoder.table[...])
    np.testing.assert_array_equal(outputs.vectors, table[[3, 0, 3]][None])
    np.testing.assert_array_equal(outputs.contexts, np.zeros((5, 4)))
    assert 0.09 < np.abs(table).max() <= 0.125 and outputs.vectors.dtype == jnp.float32


def test_float64(x64):
    model = WordVectors(5, 4, rngs=nnx.Rngs(0), dtype=jnp.float64)
    assert {leaf.dtype for leaf in model(np.zeros((1, 2), np.int32))} == {np.dtype(np.float64)}


def test_found_rows_are_replaced_and_others_stay(tmp_path):
    model = Tagger(GRU(3, 4), 2, encoder=Embedding(4, 3, rngs=nnx.Rngs(0)), rngs=nnx.Rngs(1))
    drawn = np.asarray(model.encoder.table[...])
    vectors = np.arange(9, dtype=np.float32).reshape(3, 3)
    write_vectors(tmp_path / "v.txt", ["Taipei", "Lima", "to"], vectors)
    loaded = load_vectors(model.encoder, VOCABULARY, *read_vectors(tmp_path / "v.txt", only=set(WORDS)))
    assert loaded.found == 2 and loaded.missing == ("<unk>", "apple")
    np.testing.assert_array_equal(model.encoder.table[...], [drawn[0], vectors[2], vectors[0], drawn[3]])
    np.testing.assert_array_equal(model.encoder(np.array([[2]]))[0, 0], vectors[0])
    assert load_vectors(model.encoder, VOCABULARY, ["Lima"], vectors[:1]) == (0, WORDS)
    np.testing.assert_array_equal(model.encoder.table[...], [drawn[0], vectors[2], vectors[0], drawn[3]])


@pytest.mark.parametrize(
    "rows, shape, message",
    [
        (5, (2, 3), "the encoder has 5 rows but the vocabulary 4 words"),
        (4, (2, 4), r"vectors have the shape \(2, 4\): expected \(2, 3\)"),
        (4, (3, 3), r"vectors have the shape \(3, 3\): expected \(2, 3\)"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(rows, shape, message):
    with pytest.raises(ValueError, match=message):
        load_vectors(Embedding(rows, 3, rngs=nnx.Rngs(0)), VOCABULARY, ["to", "Lima"], np.zeros(shape))

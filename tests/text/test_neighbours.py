"""Cosine similarity, nearest neighbours, and files that the reader reads."""

import numpy as np
import pytest

from rnnjax.data import read_vectors
from rnnjax.text import cosine_similarity, neighbours, write_vectors

VECTORS = np.array([[1, 0], [0, 2], [3, 3], [-1, 0], [0, 0]], np.float32)


def test_cosine_similarity():
    np.testing.assert_allclose(cosine_similarity(VECTORS[0], VECTORS), [1, 0, np.sqrt(0.5), -1, 0], atol=1e-15)
    assert cosine_similarity(VECTORS[:2], VECTORS[1:3]).shape == (2,)


def test_neighbours_are_the_nearest_others():
    found, similarities = neighbours(VECTORS, [0, 1], 3)
    assert found.dtype == np.int32 and found.tolist() == [[2, 1, 4], [2, 0, 3]]  # alike ones in their order
    np.testing.assert_allclose(similarities, [[np.sqrt(0.5), 0, 0], [np.sqrt(0.5), 0, 0]], atol=1e-15)
    everyone, _ = neighbours(VECTORS, 3, 10)
    assert everyone.shape == (1, 4) and 3 not in everyone


def test_neighbours_are_those_of_a_loop():
    vectors = np.random.default_rng(0).normal(size=(30, 4))
    found, similarities = neighbours(vectors, range(30), 5)
    for i in range(30):
        ranked = sorted((j for j in range(30) if j != i), key=lambda j: -cosine_similarity(vectors[i], vectors[j]))
        assert found[i].tolist() == ranked[:5]
        np.testing.assert_allclose(similarities[i], [cosine_similarity(vectors[i], vectors[j]) for j in ranked[:5]])


@pytest.mark.parametrize("ids", [[0, 5], [0, -1]])
def test_rows_that_are_none_are_refused(ids):
    with pytest.raises(ValueError, match=r"ids\[1\] is .*: expected 0 .. 4"):
        neighbours(VECTORS, ids)


def test_files_give_the_same_numbers_back(tmp_path):
    drawn = (np.random.default_rng(0).normal(size=(4, 7)) * 10.0 ** np.arange(-30, 33, 9)).astype(np.float32)
    words = ["Taipei", "台北", "don't", "2,000"]
    write_vectors(tmp_path / "vectors.txt", words, drawn)
    found, vectors = read_vectors(tmp_path / "vectors.txt")
    assert found == words and vectors.dtype == np.float32
    np.testing.assert_array_equal(vectors, drawn)
    assert (tmp_path / "vectors.txt").read_text(encoding="utf-8").startswith("4 7\nTaipei ")


@pytest.mark.parametrize(
    "words, vectors, message",
    [
        (["a"], [[1.0], [2.0]], r"vectors have the shape \(2, 1\): expected \[1, D\]"),
        ([], np.zeros((0, 3)), r"vectors have the shape \(0, 3\)"),
        (["a", ""], [[1.0], [2.0]], "a word is ''"),
        (["a b"], [[1.0]], "a word is 'a b'"),
        (["a\x00"], [[1.0]], "a word is"),
        (["a"], [[np.nan]], "the vector of 'a' holds nan"),
    ],
)
def test_what_no_file_can_hold_is_refused(tmp_path, words, vectors, message):
    with pytest.raises(ValueError, match=message):
        write_vectors(tmp_path / "vectors.txt", words, vectors)
    assert not list(tmp_path.iterdir())

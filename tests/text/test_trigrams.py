"""Letter trigrams: what a word is made of, a hash that stays, and collisions counted by hand."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rnnjax.text import TrigramHashing, letter_trigrams


def test_the_example_of_the_paper():
    assert letter_trigrams("good") == ["#go", "goo", "ood", "od#"]
    assert letter_trigrams("a") == ["#a#"] and letter_trigrams("") == []


def test_vectors_are_the_sum_of_one_hots():
    hashing, words = TrigramHashing(11), ["banana", "a", "", "unseen"]
    indices, vectors = hashing.indices(words), hashing.vectors(words)
    assert indices.dtype == np.int32 and indices.shape == (4, 6) and vectors.dtype == np.float32
    summed = np.zeros((4, 11))
    for row, found in enumerate(indices):
        for index in found[found >= 0]:
            summed[row, index] += 1
    np.testing.assert_array_equal(vectors, summed)
    assert vectors.sum(1).tolist() == [6, 1, 0, 6]
    assert indices[0, 2] == indices[0, 4]  # "ana" twice
    assert (indices[2] == -1).all() and (indices[1] >= 0).tolist() == [True] + 5 * [False]
    assert TrigramHashing(3).indices([]).shape == (0, 0) and TrigramHashing(3).vectors([]).shape == (0, 3)


def test_the_hash_is_that_of_the_bytes_and_never_another():
    number = int.from_bytes(hashlib.blake2b("#ü#".encode(), digest_size=8).digest(), "little")
    assert TrigramHashing(1000).indices(["ü"]).tolist() == [[number % 1000]]
    assert TrigramHashing(1000).indices(["good"]).tolist() == [[616, 978, 490, 103]]  # of another process


def test_collisions_counted_by_hand():
    words = ["abab", "baba", "xxxx", "xxxxx", "one", "one"]
    one = TrigramHashing(1).collisions(words)  # words of as many letters are alike
    assert (one.words, one.sharing, one.inseparable) == (5, 3, 0)
    assert one.trigrams == len({t for word in words for t in letter_trigrams(word)}) == one.trigrams_sharing == 12
    assert one.load == 12
    many = TrigramHashing(2**30).collisions(words)
    assert (many.words, many.sharing, many.trigrams_sharing) == (5, 0, 0) and many.load == 12 / 2**30


def test_words_of_the_same_trigrams_are_inseparable():
    # Two cycles through "ab", walked in either order.
    words = ["abcabdab", "abdabcab", "other"]
    assert sorted(letter_trigrams(words[0])) == sorted(letter_trigrams(words[1]))
    found = TrigramHashing(2**30).collisions(words)
    assert (found.words, found.sharing, found.inseparable) == (3, 2, 2)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(max_size=5), max_size=8), st.integers(1, 40))
def test_collisions_are_those_of_the_vectors(words, size):
    distinct = sorted(set(words))
    rows = [row.tobytes() for row in TrigramHashing(size).vectors(distinct)]
    assert TrigramHashing(size).collisions(words).sharing == sum(rows.count(row) > 1 for row in rows)


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "3"])
def test_sizes_that_are_none_are_refused(size):
    with pytest.raises(ValueError, match="size of TrigramHashing is"):
        TrigramHashing(size)

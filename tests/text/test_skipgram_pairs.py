"""Skip-gram's counting and drawing: probabilities by formula, pairs by a loop, draws by chi-square."""

import types

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from rnnjax.text import draw_noise, draw_pairs, keep_probabilities, noise_distribution, skip_gram_pairs


def _generator(seed=0):
    return np.random.Generator(np.random.Philox(seed))


def test_frequent_words_are_thinned_out_by_the_formula_of_the_paper():
    counts = [900, 90, 9, 1]
    expected = [1 - max(0, 1 - np.sqrt(0.01 / (count / 1000))) for count in counts]
    np.testing.assert_allclose(keep_probabilities(counts, 0.01), expected, rtol=1e-14)
    assert keep_probabilities(counts, 0.01).tolist()[2:] == [1, 1]
    assert keep_probabilities(counts, 0).tolist() == [1, 1, 1, 1]
    assert keep_probabilities([0, 5], 0.01).max() <= 1


def test_negatives_are_drawn_from_the_counts_to_three_quarters():
    counts = np.array([1, 16, 81, 0, 256])
    distribution = noise_distribution(counts)
    np.testing.assert_allclose(distribution, np.array([1, 8, 27, 0, 64]) / 100, rtol=1e-14)
    drawn = draw_noise(_generator(), distribution, (200, 100))
    assert drawn.dtype == np.int32 and drawn.shape == (200, 100)
    seen = np.bincount(drawn.ravel(), minlength=5)
    assert seen[3] == 0 and scipy.stats.chisquare(seen[[0, 1, 2, 4]], 200 * np.array([1, 8, 27, 64])).pvalue > 1e-3
    unigram = scipy.stats.chisquare(seen[[0, 1, 2, 4]], 20000 * counts[[0, 1, 2, 4]] / counts.sum()).pvalue
    assert unigram < 1e-6  # the test can tell the two apart


def test_a_word_that_never_occurs_is_never_drawn():
    lowest = types.SimpleNamespace(random=np.zeros)  # the draw 0, which begins the first word that has a share
    assert draw_noise(lowest, np.array([0.0, 0.0, 0.4, 0.6]), (2,)).tolist() == [2, 2]


def _pairs_of_a_loop(ids, sentences, windows):
    return sorted(
        (ids[i], ids[j])
        for i in range(len(ids))
        for j in range(len(ids))
        if i != j and abs(i - j) <= windows[i] and sentences[i] == sentences[j]
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 4)), max_size=12))
def test_pairs_are_those_of_a_loop(words):
    ids, new, windows = (np.array([word[i] for word in words], np.int32) for i in range(3))
    sentences = np.cumsum(new)
    found = skip_gram_pairs(ids, sentences, windows)
    assert found.dtype == np.int32 and found.shape[1:] == (2,)
    assert sorted(map(tuple, found.tolist())) == _pairs_of_a_loop(ids, sentences, windows)


def test_windows_are_drawn_evenly():
    ids, sentences = np.arange(30000, dtype=np.int32), np.zeros(30000, np.int32)
    pairs = draw_pairs(_generator(), ids, sentences, np.ones(30000), 3)
    distances = np.bincount(np.abs(pairs[:, 0] - pairs[:, 1]))[1:]
    # Distance d is within windows of d .. 3.
    assert scipy.stats.chisquare(distances / 2, distances.sum() / 2 * np.array([3, 2, 1]) / 6).pvalue > 1e-3
    assert draw_pairs(_generator(), ids, sentences, np.ones(30000), 1).shape == (2 * 29999, 2)


def test_thinned_out_words_leave_their_neighbours_together():
    kept = np.array([1.0, 0.0, 1.0])
    pairs = draw_pairs(_generator(), np.array([0, 1, 2, 1, 0]), np.array([0, 0, 0, 0, 1]), kept, 1)
    assert sorted(map(tuple, pairs.tolist())) == [(0, 2), (2, 0)]
    ids = np.zeros(20000, np.int32)
    left = len(draw_pairs(_generator(), ids, np.zeros(20000), np.array([0.3]), 1)) / 2 + 1
    assert scipy.stats.binomtest(int(left), 20000, 0.3).pvalue > 1e-3


@pytest.mark.parametrize("length", [0, 1])
def test_texts_without_a_pair(length):
    ids = np.zeros(length, np.int32)
    assert draw_pairs(_generator(), ids, ids, np.ones(1), 5).shape == (0, 2)

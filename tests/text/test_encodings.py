"""One-hot vectors."""

import numpy as np
import pytest

from rnnjax.text import Vocabulary, one_hot


def test_each_id_is_a_one_and_pads_are_nothing():
    found = one_hot([[0, 2], [-1, 1]], 3)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, [[[1, 0, 0], [0, 0, 1]], [[0, 0, 0], [0, 1, 0]]])
    assert one_hot([], 3).shape == (0, 3) and one_hot(np.int32(1), 3).tolist() == [0, 1, 0]


def test_unseen_words_share_the_entry_of_others():
    vocabulary = Vocabulary.build([["a", "b"]])
    found = one_hot(vocabulary.encode(["b", "x", "y"]), len(vocabulary))
    np.testing.assert_array_equal(found, [[0, 0, 1], [1, 0, 0], [1, 0, 0]])


def test_all_words_are_equally_far_apart():
    distances = np.linalg.norm(one_hot(range(7), 7)[:, None] - one_hot(range(7), 7)[None], axis=-1)
    np.testing.assert_allclose(distances, np.sqrt(2) * (1 - np.eye(7)), rtol=1e-7)


@pytest.mark.parametrize(
    "ids, message",
    [
        ([[0, 3]], r"ids\[0, 1\] is 3: expected 0 .. 2, or -1 at a pad"),
        ([-2], r"ids\[0\] is -2"),
        (5, r"ids\[\] is 5"),
        ([0.0], "ids are float64: expected whole numbers"),
    ],
)
def test_ids_of_no_entry_are_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        one_hot(ids, 3)

"""Slot scores: conlleval's count of chunks beside the strict one, and what has no chunk at all."""

import warnings

import pytest

from rnnjax.tasks.scores import slot_scores


@pytest.mark.parametrize(
    "gold, predicted, f1, strict",
    [
        ("B-X I-X", "I-X I-X", 100, 0),
        ("B-X B-X", "B-X I-X", 0, 0),
        ("B-X O B-Y", "B-X O O", 200 / 3, 200 / 3),
        ("O O", "B-X O", 0, 0),
        ("B-X O", "O O", 0, 0),
        ("O O", "O O", 0, 0),
    ],
)
def test_chunks_are_counted_as_conlleval_does_and_strictly(gold, predicted, f1, strict):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = slot_scores([gold.split()], [predicted.split()])
    assert scores["f1"] == pytest.approx(f1) and scores["strict_f1"] == pytest.approx(strict)


def test_accuracy_counts_the_words_that_there_are():
    assert slot_scores([["O", "B-X"], ["O"]], [["O", "O"], ["O"]])["accuracy"] == pytest.approx(200 / 3)


def test_unequal_numbers_are_refused_by_place():
    with pytest.raises(ValueError, match="predicted has 1 sentences but gold has 2"):
        slot_scores([["O"], ["O"]], [["O"]])
    with pytest.raises(ValueError, match=r"predicted\[1\] has 2 tags but gold\[1\] has 1"):
        slot_scores([["O"], ["O"]], [["O"], ["O", "O"]])

"""The figure of a confusion matrix shows every count, and rows as shares."""

import numpy as np
import pytest

from rnnjax.report.confusion import confusion_matrix

COUNTS = np.array([[30, 10, 0], [0, 0, 0], [1, 2, 1]])
NAMES = ("person", "cost $ of $", "place")


def test_counts_are_written_and_rows_are_coloured_by_their_shares():
    figure = confusion_matrix(COUNTS, NAMES, title="What is taken for what", note="Counts of ten.")
    axes = figure.axes[0]
    written = {tuple(int(at) for at in text.get_position()[::-1]): text.get_text() for text in axes.texts}
    assert written == {(0, 0): "30", (0, 1): "10", (2, 0): "1", (2, 1): "2", (2, 2): "1"}
    shares = axes.images[0].get_array()
    np.testing.assert_allclose(shares[[0, 2]], [[0.75, 0.25, 0], [0.25, 0.5, 0.25]])
    assert shares.mask[1].all() and not shares.mask[[0, 2]].any()
    assert [label.get_text() for label in axes.get_yticklabels()] == list(NAMES)
    assert [label.get_text() for label in axes.get_xticklabels()] == list(NAMES)
    assert [text.get_text() for text in figure.texts] == ["What is taken for what", "Counts of ten."]
    figure.canvas.draw()


@pytest.mark.parametrize("size", [1, 18])
def test_names_keep_apart(size):
    figure = confusion_matrix(np.eye(size, dtype=int), [f"language{n}" for n in range(size)], title="x")
    figure.canvas.draw()
    boxes = [label.get_window_extent() for label in figure.axes[0].get_yticklabels()]
    assert not any(a.overlaps(b) for a, b in zip(boxes[:-1], boxes[1:], strict=True))

"""Pictures of word vectors: principal axes by numpy, words that can be read, and files."""

import numpy as np
from matplotlib.figure import Figure

from rnnjax.report import figures
from rnnjax.report.vectors import LINE, _crowds, principal_axes, projection, similarity_maps
from rnnjax.testing import assert_close

GROUPS = {"city": ["Taipei", "$Lima"], "fruit": ["apple", "pear", "fig"]}


def test_principal_axes_are_the_eigenvectors_of_the_covariance():
    vectors = np.random.default_rng(0).normal(size=(30, 5)) * [3, 1, 0.2, 5, 1] + 7
    points, shares = principal_axes(vectors)
    values, axes = np.linalg.eigh(np.cov(vectors.T))
    expected = (vectors - vectors.mean(0)) @ axes[:, [-1, -2]]
    assert_close(np.abs(points), np.abs(expected), 1e-12)
    assert_close(shares, values[[-1, -2]] / values.sum(), 1e-12)
    assert (points[np.abs(points).argmax(0), [0, 1]] > 0).all()
    assert_close(principal_axes(-vectors)[0].std(0), points.std(0), 1e-12)


def test_axes_of_too_few_vectors():
    points, shares = principal_axes(np.array([[1.0], [3.0]]))
    assert_close(np.abs(points), np.array([[1.0, 0.0], [1.0, 0.0]]), 1e-12)
    assert_close(shares, np.array([1.0, 0.0]), 1e-12)
    assert not np.isnan(principal_axes(np.ones((3, 4)))[1]).any()


def test_words_that_would_lie_on_each_other_are_found():
    at = np.array([[0, 0], [10, LINE - 1], [20, 2 * LINE - 2], [0, 90], [200, 90], [204, 91]], float)
    crowds = _crowds(at, [30.0] * 6)
    assert sorted(map(sorted, crowds)) == [[0, 1, 2], [3], [4, 5]]
    assert [2, 1, 0] in crowds and [5, 4] in crowds  # from the top down


def test_pictures_are_drawn_and_hold_every_word(tmp_path):
    draws = np.random.default_rng(1)
    vectors = {"trained": draws.normal(size=(5, 4)), "same": np.ones((5, 4))}
    words = [word for members in GROUPS.values() for word in members]
    drawn = projection(vectors, GROUPS, title="Vectors & $ words")
    assert isinstance(drawn, Figure) and len(drawn.axes) == 2
    for axes in drawn.axes:
        assert sorted(text.get_text() for text in axes.texts) == sorted(words)
    maps = similarity_maps({"one": np.eye(5), "two": -np.eye(5)}, words, title="Alike")
    assert [axes.get_title(loc="left") for axes in maps.axes[:2]] == ["one", "two"]
    assert [label.get_text() for label in maps.axes[0].get_xticklabels()] == words
    for name, figure in {"projection": drawn, "maps": maps}.items():
        figures.save(figure, tmp_path / name)
        assert (tmp_path / f"{name}.png").stat().st_size > 5000

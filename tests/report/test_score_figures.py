"""Pictures of scores: what is drawn is what was given, and the legend's dashes are those of the lines."""

import numpy as np
import pytest

from rnnjax.report.scores import Line, Score, score_lines, score_points

REFERENCES = {"chance": 1.0, "paper": 2.0, "optimum": 3.0}


def points():
    scores = [Score("elman", [1.5, 2.5]), Score("gru", []), Score("lstm", [float("nan"), 2.0])]
    return score_points(scores, title="t", xlabel="x", references=REFERENCES)


def lines():
    found = [Line("gru", [1, 2], [3.0, 1.0], [0.1, np.nan]), Line("lstm-w3", [1, 2], [2.0, 2.5], None)]
    return score_lines(found, title="t", xlabel="x", ylabel="y", references=REFERENCES, log="x")


def test_a_dot_a_seed_and_a_bar_at_the_mean():
    (axes,) = points().axes
    dots = [tuple(line.get_xdata()) for line in axes.lines if line.get_marker() == "o"]
    assert dots == [(1.5, 2.5), (2.0,)]
    assert tuple(axes.lines[0].get_xdata()) == (2.0, 2.0)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["elman", "gru", "lstm"]


def test_a_line_a_model_and_a_band_where_there_are_seeds():
    (axes,) = lines().axes
    assert [tuple(line.get_ydata()) for line in axes.lines[:2]] == [(3.0, 1.0), (2.0, 2.5)]
    assert len(axes.collections) == 1 and axes.get_xscale() == "log"


@pytest.mark.parametrize("draw, along", [(points, "get_xdata"), (lines, "get_ydata")])
def test_references_have_the_dashes_of_the_legend(draw, along):
    figure = draw()
    (axes,) = figure.axes
    drawn = {getattr(line, along)()[0]: line._dash_pattern for line in axes.lines[-len(REFERENCES) :]}
    keys = {line.get_label(): line._dash_pattern for legend in figure.legends for line in legend.get_lines()}
    assert len(set(map(str, drawn.values()))) == len(REFERENCES)
    for label, value in REFERENCES.items():
        assert keys[f"{label} {value:g}"] == drawn[value]

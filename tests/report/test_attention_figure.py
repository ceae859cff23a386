"""The picture of attention shows the weights, what was read across and what was written down."""

import numpy as np

from rnnjax.report.attention import Look, attention_figure


def test_a_panel_an_example_with_its_weights_and_words():
    weights = np.array([[0.75, 0.25, 0.0], [0.0, 0.0, 1.0]])
    looks = [Look(["a", "$b$", "c"], ["A", "</s>"], weights), Look(["winter"], ["Winter"], np.ones((1, 1)))]
    looks.append(looks[0])
    figure = attention_figure(looks, title="reversal: where gru-bahdanau looks")
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 3
    for axes, look in zip(panels, looks, strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), look.weights)
        assert axes.images[0].get_clim() == (0, 1)
        assert [label.get_text() for label in axes.get_xticklabels()] == look.read
        assert [label.get_text() for label in axes.get_yticklabels()] == look.written
    figure.draw_without_rendering()

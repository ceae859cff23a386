"""Figures show the arrays of a run, name what they show, and come out as the same bytes each time."""

import matplotlib.colors
import numpy as np
import pytest

from rnnjax import report
from rnnjax.report.figures import DECADES
from rnnjax.report.style import COLORS, cell_styles

FIGURES = (report.curves, report.heatmaps, report.losses)


def lines(axes):
    return {line.get_label(): line for line in axes.lines}


def words(figure):
    """Everything written outside the panels: title, notes, keys."""
    keys = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
    return keys, " ".join(" ".join(text.get_text() for text in figure.texts).split())


def test_curves_are_the_first_and_the_last_probe_of_the_whole_carry(study):
    made = study()
    figure = report.curves(report.read_run(made.folder))
    start, end = figure.axes
    for cell in COLORS:
        for axes, at in ((start, 0), (end, -1)):
            np.testing.assert_array_equal(lines(axes)[cell].get_ydata(), made.arrays[f"{cell}.carry"][at, :, 1])
            np.testing.assert_array_equal(lines(axes)[cell].get_xdata(), made.arrays["distance"])
    assert start.get_ylim() == end.get_ylim()
    assert (start.get_title("left"), end.get_title("left")) == ("at initialisation", "after training, step 100")
    assert "log_{10}" in start.get_ylabel() and "carry" in start.get_ylabel()
    assert all("distance" in axes.get_xlabel() and "steps" in axes.get_xlabel() for axes in figure.axes)
    keys, text = words(figure)
    assert keys == list(COLORS) and "Adding" in text and "exactly 0" not in text


def test_bands_are_the_quartiles(study):
    made = study(cells=("gru",))
    (band,) = report.curves(report.read_run(made.folder)).axes[0].collections[:1]
    edges = band.get_paths()[0].vertices
    for quartile in (0, 2):
        for distance, value in enumerate(made.arrays["gru.carry"][0, :, quartile]):
            assert np.isclose(edges, [distance, value], atol=1e-5).all(axis=1).any(), (quartile, distance)


def test_a_gradient_of_exactly_0_is_a_gap_with_a_cross_where_it_starts(study):
    made = study(change=lambda arrays, rows: arrays["elman.carry"][:, 5:].fill(-np.inf))
    figure = report.curves(report.read_run(made.folder))
    drawn = lines(figure.axes[0])
    assert np.isfinite(drawn["elman"].get_ydata()).tolist() == [True] * 5 + [False] * 7
    assert drawn["elman exactly 0"].get_xdata().tolist() == [5]
    assert drawn["elman exactly 0"].get_ydata().tolist() == [figure.axes[0].get_ylim()[0]]
    assert drawn["lstm exactly 0"].get_xdata().size == 0
    assert "0 in float32" in words(figure)[1]


def test_no_sequence_that_long_is_a_gap_without_a_cross_and_a_lone_point_is_seen(study):
    def change(arrays, rows):
        arrays["lstm.carry"][:, 4] = arrays["lstm.carry"][:, 6:] = np.nan

    drawn = lines(report.curves(report.read_run(study(change=change).folder)).axes[0])
    assert np.flatnonzero(np.isfinite(drawn["lstm"].get_ydata())).tolist() == [0, 1, 2, 3, 5]
    assert drawn["lstm"].get_markevery() == [5]
    assert drawn["lstm exactly 0"].get_xdata().size == 0


def test_the_view_is_limited_around_the_losss_own_step(study):
    def change(arrays, rows):
        arrays["elman.carry"][0] = np.linspace(0, -60, 12)[:, None]
        arrays["gru.carry"][0] = np.linspace(0, 10, 12)[:, None]

    low, high = report.curves(report.read_run(study(change=change).folder)).axes[0].get_ylim()
    assert -DECADES - 5 < low < -DECADES + 1 and 10 < high < 12


def diverge(arrays, rows):
    for name in ("step", "carry", "h"):
        arrays[f"elman.{name}"] = arrays[f"elman.{name}"][:1]
    rows["elman"] = [row | {"loss": 1e30} for row in rows["elman"] if row["kind"] == "train" and row["step"] <= 7]
    rows["elman"].append({"step": 8, "kind": "train", "loss": float("nan")})


def test_a_cell_that_diverged_is_shown_as_far_as_it_came_and_said_to(study):
    run = report.read_run(study(change=diverge, diverged={"elman": "step 8: the loss is nan"}).folder)
    curves, maps, losses = (figure(run) for figure in FIGURES)
    assert "elman" in lines(curves.axes[0]) and "elman" not in lines(curves.axes[1])
    assert "elman was probed at step 0 only: it diverged (step 8)" in words(curves)[1]
    assert np.isfinite(maps.axes[0].images[0].get_array().filled(np.nan)).all(axis=1).tolist() == [True, False, False]
    cross = lines(losses.axes[0])["elman diverged"]
    assert cross.get_xdata().tolist() == [7] and cross.get_ydata() == pytest.approx(losses.axes[0].get_ylim()[1])
    assert losses.axes[0].get_ylim()[1] < 10, "a loss of 1e30 would flatten the others"
    for figure in (curves, losses):
        assert words(figure)[0] == ["elman (diverged)", "jordan", "lstm", "gru"] and "(step 8)" in words(figure)[1]


def test_heatmaps_are_medians_relative_to_distance_0_on_one_scale(study):
    made = study(change=lambda arrays, rows: arrays["jordan.carry"][1, 9:].fill(-np.inf))
    figure = report.heatmaps(report.read_run(made.folder))
    *panels, bar = figure.axes
    assert [axes.get_title("left") for axes in panels] == list(COLORS)
    for axes, cell in zip(panels, COLORS, strict=True):
        median = made.arrays[f"{cell}.carry"][:, :, 1].astype(float)
        want = median - median[:, :1]
        want[~np.isfinite(want)] = np.nan
        np.testing.assert_array_equal(axes.images[0].get_array().filled(np.nan), want)
    assert len({axes.images[0].get_clim() for axes in panels}) == 1
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["0", "10", "100"]
    assert "log_{10}" in bar.get_ylabel() and "relative to distance 0" in bar.get_ylabel()
    red, green, blue, alpha = panels[1].images[0].get_cmap().get_bad()
    assert 0.5 < red == green == blue < 0.9 and alpha == 1 and "Grey" in words(figure)[1]


def test_losses_are_the_rows_and_chance_is_labelled(study):
    made = study(change=lambda arrays, rows: rows["gru"][0].update(loss=None))
    (axes,) = report.losses(report.read_run(made.folder)).axes
    drawn = lines(axes)
    for cell in COLORS:
        for name, wanted in ((cell, ("eval", "valid")), (f"{cell} training", ("train", None))):
            rows = [row for row in made.rows[cell] if (row["kind"], row.get("split")) == wanted]
            assert drawn[name].get_xdata().tolist() == [row["step"] for row in rows]
            np.testing.assert_array_equal(
                drawn[name].get_ydata(), np.array([row["loss"] for row in rows], float), err_msg=name
            )
    assert drawn["chance"].get_ydata() == [1 / 6, 1 / 6]
    assert [text.get_text() for text in axes.texts] == ["chance\n0.167"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("training step", "loss (squared error)")


@pytest.mark.parametrize("lowest, scale", [(0.1, "linear"), (0.001, "log"), (0.0, "linear"), (-0.1, "linear")])
def test_the_loss_axis_is_logarithmic_over_a_decade_of_positive_losses(study, lowest, scale):
    def change(arrays, rows):
        rows["lstm"] = [row | {"loss": 0.2} for row in rows["lstm"]]
        rows["lstm"][-2]["loss"] = lowest

    (axes,) = report.losses(report.read_run(study(cells=("lstm",), change=change).folder)).axes
    assert axes.get_yscale() == scale


def test_a_cell_has_one_color_everywhere(study):
    run = report.read_run(study(cells=("gru", "mine", "elman")).folder)
    styles = cell_styles(run.cells)
    for figure in (report.curves(run), report.losses(run)):
        handles = {handle.get_label(): handle for handle in figure.legends[0].legend_handles}
        for cell in run.cells:
            for drawn in (handles[cell], *(lines(axes)[cell] for axes in figure.axes)):
                assert matplotlib.colors.same_color(drawn.get_color(), styles[cell].color), cell
    assert styles["gru"].color == COLORS["gru"] and styles["mine"].color not in COLORS.values()


def test_twenty_cells_of_ones_own_are_told_apart_also_in_grey():
    styles = cell_styles((*COLORS, *(f"mine{at}" for at in range(20))))
    assert len(set(styles.values())) == 24
    assert len({styles[cell].linestyle for cell in COLORS}) == len(COLORS)


@pytest.mark.parametrize("changes", [
    {"cells": ("lstm",), "length": 1, "steps": (0,)},
    {"cells": ("a", "b", "c", "d", "e"), "length": 2, "steps": tuple(range(40)), "chance": None},
    {"cells": ("gru",), "change": lambda arrays, rows: arrays["gru.carry"].fill(-np.inf)},
    {"cells": ("gru",), "change": lambda arrays, rows: arrays["gru.carry"].fill(np.nan)},
    {"cells": ("gru",), "change": lambda arrays, rows: rows.update(gru=[])},
    {"cells": ("$x_", "a_cell_with_a_name_that_is_as_long_as_some_peoples_names_are")},
])  # fmt: skip
@pytest.mark.filterwarnings("error")
def test_every_run_gives_every_figure(study, changes):
    run = report.read_run(study(**changes).folder)
    for draw in FIGURES:
        draw(run).draw_without_rendering()


def test_the_same_figure_is_written_as_the_same_bytes(study, tmp_path):
    made = study()
    for draw in FIGURES:
        for copy in ("one", "two"):
            report.save(draw(report.read_run(made.folder)), tmp_path / copy / f"{draw.__name__}.v1")
        for suffix, head in (("png", b"\x89PNG"), ("svg", b"<?xml")):
            first, second = ((tmp_path / copy / f"{draw.__name__}.v1.{suffix}").read_bytes() for copy in ("one", "two"))
            assert len(first) > 1000 and first == second and first.startswith(head) and b"<dc:date>" not in first


def test_nothing_written_around_the_panels_leaves_the_figure_or_meets_a_panel(study):
    cells = (*COLORS, "my_lstm_without_forget_gate", "b", "c")
    diverged = dict.fromkeys(cells, "step 8: nan")
    run = report.read_run(study(cells=cells, change=diverge, diverged=diverged).folder)
    for draw in FIGURES:
        figure = draw(run)
        figure.draw_without_rendering()
        renderer = figure.canvas.get_renderer() if hasattr(figure.canvas, "get_renderer") else None
        panels = [axes.get_tightbbox(renderer) for axes in figure.axes]
        around = [item.get_window_extent(renderer) for item in (*figure.texts, *figure.legends)]
        for box in (*panels, *around):
            assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        for at, box in enumerate(around):
            assert not any(box.overlaps(other) for other in (*panels, *around[:at])), (draw.__name__, at)

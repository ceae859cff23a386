"""What a curve says, against cases worked out by hand."""

import math

import numpy as np
import pytest

from experiments.common.curves import QUANTILES, VISIBLE, Curve, quartiles

INF, NAN = math.inf, math.nan


def test_quartiles_are_those_of_the_examples():
    norms = np.array([[4, 0, 3, 1, 2], [-5, -5, -5, -5, -5.0]])
    assert QUANTILES == (0.25, 0.5, 0.75)
    np.testing.assert_array_equal(quartiles(norms), [[1, 2, 3], [-5, -5, -5]])
    assert quartiles(norms).dtype == np.float32


def test_of_two_neighbours_the_lower_counts_so_that_no_gradient_stays_none():
    np.testing.assert_array_equal(quartiles(np.array([[0.0, 1.0, 2.0, 3.0]])), [[0, 1, 2]])
    np.testing.assert_array_equal(quartiles(np.array([[-INF, -INF, 1.0, 2.0]])), [[-INF, -INF, 1]])
    np.testing.assert_array_equal(quartiles(np.array([[-INF, -INF, -INF, 2.0]])), [[-INF, -INF, -INF]])
    np.testing.assert_array_equal(quartiles(np.array([[-3.0, -2.0, -1.0, INF]])), [[-3, -2, -1]])


def test_a_distance_that_fewer_than_half_of_the_examples_have_is_left_out():
    norms = np.array([[1, 2, 3, 4], [1, 2, 3, NAN], [1, 2, NAN, NAN], [1, NAN, NAN, NAN], [NAN] * 4])
    want = [[1, 2, 3], [1, 2, 2], [1, 1, 1], [NAN] * 3, [NAN] * 3]
    np.testing.assert_array_equal(quartiles(norms), want)


def test_examples_that_fill_up_a_batch_do_not_count():
    norms = np.array([[7.0, 5.0, NAN, NAN, NAN], [3.0, NAN, NAN, NAN, NAN]])
    np.testing.assert_array_equal(quartiles(norms), [[5, 5, 5], [3, 3, 3]])
    np.testing.assert_array_equal(quartiles(np.full((2, 3), NAN)), np.full((2, 3), NAN))
    assert quartiles(np.empty((0, 3))).shape == (0, 3)


@pytest.mark.parametrize("rate", [-0.3, -0.01, 0.2])
def test_an_exact_exponential_has_its_rate_as_slope(rate):
    median = (2 + rate * np.arange(21) / np.log(10)).astype(np.float32)
    curve = Curve.of(median)
    assert curve.slope == pytest.approx(rate, rel=1e-4)
    assert curve.slope_log10 == pytest.approx(rate / np.log(10), rel=1e-4)
    assert curve.reach == 20 and curve.kept == pytest.approx(20 * rate / np.log(10), rel=1e-4)
    assert curve.half_life == (pytest.approx(np.log(2) / -rate, rel=1e-4) if rate < 0 else INF)


def test_a_half_life_of_one_step_halves_in_one_step():
    assert Curve.of(-np.log10(2) * np.arange(5)).half_life == pytest.approx(1, rel=1e-5)
    flat = Curve.of(np.zeros(4))
    assert (flat.slope, flat.half_life, flat.kept, flat.verdict) == (0, INF, 0, "survives")


def test_a_tail_of_nothing_is_left_out_of_the_slope_and_leaves_nothing():
    curve = Curve.of(np.array([0, -1, -2, -INF, -INF]))
    assert curve.slope_log10 == pytest.approx(-1, rel=1e-5)
    assert (curve.reach, curve.kept, curve.verdict) == (4, -INF, "vanishes")


def test_a_tail_without_such_distances_is_cut_off():
    curve = Curve.of(np.array([0, -1, -2, NAN, NAN]))
    assert curve.slope_log10 == pytest.approx(-1, rel=1e-5)
    assert (curve.reach, curve.kept, curve.verdict) == (2, -2, "fades")


@pytest.mark.parametrize("median", [[], [NAN, NAN]])
def test_a_curve_of_nothing_is_no_gradient(median):
    curve = Curve.of(np.array(median))
    assert curve.reach == 0 and curve.verdict == "no gradient"
    assert np.isnan([curve.slope, curve.kept, curve.half_life]).all()


def test_what_has_one_norm_has_no_slope():
    alone = Curve.of(np.array([-3.0]))
    assert math.isnan(alone.slope) and math.isnan(alone.half_life)
    assert (alone.reach, alone.kept, alone.verdict) == (0, 0, "survives")
    lost = Curve.of(np.array([-3.0, -INF]))
    assert math.isnan(lost.slope) and (lost.kept, lost.verdict) == (-INF, "vanishes")


def test_no_gradient_at_the_loss_is_no_gradient_at_all():
    curve = Curve.of(np.array([-INF, -INF, -INF]))
    assert curve.verdict == "no gradient" and math.isnan(curve.slope) and math.isnan(curve.kept)


@pytest.mark.parametrize("median", [[0, INF, -1], [INF, 0, 0], [0, 0, INF]])
def test_a_gradient_that_is_not_finite_on_the_way_is_told(median):
    assert Curve.of(np.array(median)).verdict == "not finite"


@pytest.mark.parametrize(
    "kept, verdict",
    [
        (INF, "explodes"),
        (1.001, "explodes"),
        (1.0, "survives"),
        (0.0, "survives"),
        (-1.0, "survives"),
        (-1.001, "fades"),
        (VISIBLE, "fades"),
        (VISIBLE - 0.001, "vanishes"),
        (-INF, "vanishes"),
        (NAN, "no gradient"),
    ],
)
def test_the_verdict_turns_exactly_at_its_thresholds(kept, verdict):
    assert Curve(-0.1, 10, kept).verdict == verdict


def test_what_can_be_seen_is_what_float32_can_add():
    assert pytest.approx(-6.92, abs=0.01) == VISIBLE
    one = np.float32(1)
    assert one + np.float32(10 ** (VISIBLE + 0.01)) > one and one + np.float32(10 ** (VISIBLE - 0.31)) == one

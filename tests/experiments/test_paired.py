"""The exact paired test against counting all signs, its interval against the test, Holm's correction by hand."""

import itertools
import math

import numpy as np
import pytest

from experiments.common.paired import holm, paired, subset_means


def counted(differences):
    """The p value, by the mean under each way to give the differences signs."""
    observed = abs(np.mean(differences))
    flipped = [np.mean(np.array(signs) * differences) for signs in itertools.product((1, -1), repeat=len(differences))]
    return np.mean(np.abs(flipped) >= observed - 1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_p_is_the_share_of_signs_whose_mean_is_as_far_from_zero(seed):
    differences = np.random.default_rng(seed).normal(0.4, 1, 4 + seed)
    assert paired(differences).p == pytest.approx(counted(differences))


def test_ties_and_zeros_count_as_they_do_in_the_definition():
    for differences in ([1, 1, -1, 0], [0.1, 0.2, -0.3], [0.0, 0.0], [2, 2, 2, 0, 0]):
        assert paired(differences).p == pytest.approx(counted(np.array(differences, float))), differences


def test_the_smallest_p_needs_all_of_one_sign():
    assert paired(range(1, 10)).p == 2 / 2**9 and paired([-1] * 9).p == 2 / 2**9
    assert paired([1] * 8 + [-1]).p > 2 / 2**9
    few = paired([1, 2, 3, 4, 5])
    assert few.p == 1 / 16 and (few.low, few.high) == (-math.inf, math.inf)


@pytest.mark.parametrize("seed", range(3))
def test_the_interval_holds_what_the_test_does_not_reject(seed):
    differences = np.random.default_rng(seed).normal(1, 1, 8)
    mean, low, high, _ = paired(differences)
    assert low < mean < high
    for edge, inward in ((low, 1), (high, -1)):
        assert paired(differences - edge - inward * 1e-6).p > 0.05 >= paired(differences - edge + inward * 1e-6).p


def test_subset_means_are_all_of_them_in_order():
    np.testing.assert_allclose(subset_means([1, 2, 6]), [1, 1.5, 2, 3, 3.5, 4, 6])


@pytest.mark.parametrize("count", [0, 17])
def test_a_number_of_pairs_that_can_not_be_tried_is_refused(count):
    with pytest.raises(ValueError, match=f"{count} differences: expected 1 to 16"):
        subset_means([1.0] * count)


def test_holm_multiplies_by_how_many_are_left_and_never_falls():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0] and holm([0.02]) == [0.02]

"""Whether two models differ, seed by seed: an exact sign-flip test, its interval, and Holm's correction.

All three follow from one list, the means of all non-empty subsets of the paired differences (Hartigan 1969, "Using
subsample values as typical values"): under the hypothesis that their distribution is symmetric about theta, each of
the 2^n - 1 means, put in order, has as many chances to be the last one below theta.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

LEVEL = 0.05
"""Of significance, and of what an interval leaves out."""
MOST = 16
"""Pairs: there are 2^n subsets."""


class Paired(NamedTuple):
    """mean: of the differences. low, high: the interval at 1 - LEVEL, infinite where so few pairs have none.

    p: two-sided, of the hypothesis that the differences are symmetric about 0.
    """

    mean: float
    low: float
    high: float
    p: float


def subset_means(differences: Sequence[float]) -> np.ndarray:
    """[2^n - 1], the means of all non-empty subsets of n numbers, in order. Raises ValueError for none or over MOST."""
    values = np.asarray(differences, np.float64)
    if not 0 < values.size <= MOST:
        raise ValueError(f"{values.size} differences: expected 1 to {MOST}")
    chosen = (np.arange(1, 2**values.size)[:, None] >> np.arange(values.size)) & 1
    return np.sort(chosen @ values / chosen.sum(axis=1))


def paired(differences: Sequence[float]) -> Paired:
    """Of n paired differences: the exact test, over all 2^n ways to give them signs, and the interval it inverts to.

    The smallest p is 2^(1 - n): with 5 pairs it can't reach 0.05, and the interval is infinite.
    """
    means = subset_means(differences)
    flips, rounding = len(means) + 1, 1e-12 * np.max(np.abs(differences))
    tail = 1 + min(np.sum(means <= rounding), np.sum(means >= -rounding))  # the signs as they are count too
    left_out = math.floor(LEVEL / 2 * flips)
    low, high = (means[left_out - 1], means[-left_out]) if left_out else (-math.inf, math.inf)
    return Paired(float(np.mean(differences)), float(low), float(high), float(min(1.0, 2 * tail / flips)))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p values corrected for their number (Holm 1979): those below a level are wrong together with at most that
    probability."""
    order = np.argsort(p_values, kind="stable")
    corrected, largest = np.empty(len(order)), 0.0
    for rank, at in enumerate(order):
        largest = max(largest, (len(order) - rank) * p_values[at])
        corrected[at] = min(1.0, largest)
    return corrected.tolist()

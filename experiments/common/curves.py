"""What a curve of gradient norms over distance says, in one number and one word."""

import dataclasses
import math

import numpy as np

from rnnjax import probes

QUANTILES = (0.25, 0.5, 0.75)

VISIBLE = math.log10(np.finfo(np.float32).eps)
"""Below this share of the gradient at the loss, -6.9 in log10, float32 has no digits left for what a step adds to a sum
in which the loss's own step stands, as it does in dL/dW."""


def quartiles(log10_norms: np.ndarray) -> np.ndarray:
    """[D, B] -> [D, 3], the quartiles over examples; nan at distances that fewer than half of the examples have.

    Examples of no step at all, which fill up a batch, don't count. The lower of two neighbours where a quartile falls
    between them: -inf, no gradient at all, can't be interpolated.
    """
    there = ~np.isnan(log10_norms)
    enough = there.sum(axis=1) * 2 >= max(there.any(axis=0).sum(), 1)
    result = np.full((len(log10_norms), len(QUANTILES)), np.nan, np.float32)
    for distance in np.flatnonzero(enough):
        row = log10_norms[distance][there[distance]]
        result[distance] = np.quantile(row, QUANTILES, method="lower")
    return result


@dataclasses.dataclass(frozen=True)
class Curve:
    """A median curve over distance from the loss.

    slope: of log ||dL/dcarry|| a step back, in nats; nan where fewer than two norms are finite.
    reach: steps between the loss and the farthest distance of the curve.
    kept: log10 of the share of the gradient at the loss that is left there; -inf where none is.
    finite: no norm on the way is infinite.
    """

    slope: float
    reach: int
    kept: float
    finite: bool = True

    @classmethod
    def of(cls, median: np.ndarray) -> "Curve":
        """From log10 norms [D], nan where there is no such distance."""
        median = np.asarray(median, np.float64)
        there = np.flatnonzero(~np.isnan(median))
        if not there.size:
            return cls(math.nan, 0, math.nan)
        last = int(there[-1])
        kept = median[last] - median[0] if np.isfinite(median[0]) else math.nan
        finite = not np.any(np.isposinf(median[: last + 1]))
        return cls(float(probes.slope(median[: last + 1].astype(np.float32))), last, float(kept), finite)

    @property
    def slope_log10(self) -> float:
        """The slope in decades a step."""
        return self.slope / math.log(10)

    @property
    def half_life(self) -> float:
        """Steps in which the norm halves; inf where it does not fall."""
        return math.log(2) / -self.slope if self.slope < 0 else math.nan if math.isnan(self.slope) else math.inf

    @property
    def verdict(self) -> str:
        """explodes (more than 10 times as long at the far end), survives (a tenth or more is left), fades (less), or
        vanishes: less than float32 resolves beside what the last step contributes. "not finite" where a norm is not,
        "no gradient" where there is none at the loss."""
        if not self.finite:
            return "not finite"
        if math.isnan(self.kept):
            return "no gradient"
        if self.kept > 1:
            return "explodes"
        if self.kept >= -1:
            return "survives"
        return "fades" if self.kept >= VISIBLE else "vanishes"

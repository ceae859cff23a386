"""A claim, what was expected of it by theory or paper, and what was measured."""

import dataclasses
import math
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rnnjax.train.records import write_json


@dataclasses.dataclass(frozen=True)
class Claim:
    """claim: a sentence; source: paper or derivation; expected: the rule, set before the measurement; measured: a
    number; holds: whether the rule held; not_measured: why it could not be tried, where it was not; contested: who
    has measured otherwise, where the literature conflicts, so that the rule is one side's and its failing no defect.
    """

    claim: str
    source: str
    expected: str
    measured: float
    holds: bool
    not_measured: str = ""
    contested: str = ""

    @classmethod
    def unmeasured(cls, claim: str, source: str, expected: str, why: str) -> "Claim":
        """A claim that this run could not try: it does not hold, and says why."""
        return cls(claim, source, expected, math.nan, False, why)

    @classmethod
    def at_most(cls, claim: str, source: str, unit: str, target: float, measured: float | None, why: str) -> "Claim":
        """That `measured` is no larger than `target`; where it is None, why it was not measured."""
        expected = f"{unit} <= {target}"
        if measured is None:
            return cls.unmeasured(claim, source, expected, why)
        return cls(claim, source, expected, measured, measured <= target)


def worst(ratios: Iterable[float]) -> float | None:
    """The largest, None of none; nan where one is, which `max` may lose."""
    ratios = list(ratios)
    return float(np.max(ratios)) if ratios else None


def four_of_five(seeds: int) -> int:
    """How many of so many seeds a rule of "at least four of five" asks for: all of fewer than five."""
    return math.ceil(0.8 * seeds)


def write_claims(path: pathlib.Path, study: str, claims: Sequence[Claim], seconds: float) -> None:
    """Writes claims.json. The measured numbers are rounded to 6 digits, which is more than any rule asks for.

    One that is not finite becomes null, and its claim does not hold, whatever was made of it. "not_measured" is there
    only in a claim that could not be tried, "contested" in one that the literature is not of one mind on.
    """
    rows = []
    for claim in claims:
        finite = math.isfinite(claim.measured)
        measured = float(f"{claim.measured:.6g}") if finite else None
        row = {**dataclasses.asdict(claim), "measured": measured, "holds": bool(claim.holds) and finite}
        rows.append({key: value for key, value in row.items() if value or key not in ("not_measured", "contested")})
    write_json(path, {"study": study, "claims": rows, "seconds": round(seconds, 1)})


def verdicts(claims: Sequence[dict[str, Any]]) -> str:
    """How many of the claims of a claims.json hold, in words; those that are contested are counted apart."""
    contested = [claim["holds"] for claim in claims if "contested" in claim]
    settled = [claim for claim in claims if "contested" not in claim]
    untried = sum("not_measured" in claim for claim in settled)
    more = f", {untried} {'was' if untried == 1 else 'were'} not measured" if untried else ""
    more += f"; of {len(contested)} contested, {sum(contested)} held here" if contested else ""
    return f"{sum(claim['holds'] for claim in settled)} of {len(settled)} claims hold{more}"

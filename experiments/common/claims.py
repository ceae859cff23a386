"""A claim, what was expected of it by theory or paper, and what was measured."""

import dataclasses
import math
import pathlib
from collections.abc import Sequence

from rnnjax.train.records import write_json


@dataclasses.dataclass(frozen=True)
class Claim:
    """claim: a sentence; source: paper or derivation; expected: the rule, set before the measurement; measured: a
    number; holds: whether the rule held.
    """

    claim: str
    source: str
    expected: str
    measured: float
    holds: bool


def write_claims(path: pathlib.Path, study: str, claims: Sequence[Claim], seconds: float) -> None:
    """Writes claims.json. The measured numbers are rounded to 6 digits, which is more than any rule asks for.

    One that is not finite becomes null, and its claim does not hold, whatever was made of it.
    """
    rows = []
    for claim in claims:
        finite = math.isfinite(claim.measured)
        measured = float(f"{claim.measured:.6g}") if finite else None
        rows.append({**dataclasses.asdict(claim), "measured": measured, "holds": bool(claim.holds) and finite})
    write_json(path, {"study": study, "claims": rows, "seconds": round(seconds, 1)})

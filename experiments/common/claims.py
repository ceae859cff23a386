"""A claim, what was expected of it by theory or paper, and what was measured."""

import dataclasses
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
    """Writes claims.json. The measured numbers are rounded to 6 digits, which is more than any rule asks for."""
    rows = [{**dataclasses.asdict(claim), "measured": float(f"{claim.measured:.6g}")} for claim in claims]
    write_json(path, {"study": study, "claims": rows, "seconds": round(seconds, 1)})

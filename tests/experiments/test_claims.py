"""Claims go to JSON with 6 digits; what is no number does not hold."""

import dataclasses
import json
import math

import pytest

from experiments.common.claims import Claim, four_of_five, verdicts, worst, write_claims
from rnnjax.report import claims_table

CLAIM = Claim("it vanishes", "1994", "slope < 0", -1.23456789e-7, True)


def test_a_claim_goes_to_json_with_every_field(tmp_path):
    write_claims(tmp_path / "claims.json", "x", [CLAIM, Claim("b", "c", "d", 1234567.0, False)], 12.345)
    assert json.loads((tmp_path / "claims.json").read_text()) == {
        "study": "x",
        "claims": [
            {"claim": "it vanishes", "source": "1994", "expected": "slope < 0", "measured": -1.23457e-7, "holds": True},
            {"claim": "b", "source": "c", "expected": "d", "measured": 1234570.0, "holds": False},
        ],
        "seconds": 12.3,
    }


@pytest.mark.parametrize("measured", [math.nan, math.inf])
def test_what_is_no_number_is_null_and_does_not_hold(tmp_path, measured):
    write_claims(tmp_path / "claims.json", "x", [Claim("a", "b", "c", measured, True)], 1.0)
    (claim,) = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert claim == {"claim": "a", "source": "b", "expected": "c", "measured": None, "holds": False}


def test_what_could_not_be_tried_says_why_and_does_not_hold(tmp_path):
    write_claims(tmp_path / "claims.json", "x", [Claim.at_most("a", "b", "ratio", 0.5, None, "no torch"), CLAIM], 1.0)
    untried, tried = claims = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert untried == {
        "claim": "a", "source": "b", "expected": "ratio <= 0.5", "measured": None, "holds": False,
        "not_measured": "no torch",
    }  # fmt: skip
    assert "not_measured" not in tried
    assert verdicts(claims) == "1 of 2 claims hold, 1 was not measured"
    assert verdicts([tried, tried | {"holds": False}]) == "1 of 2 claims hold"


def test_at_most_holds_up_to_its_target():
    holds = [Claim.at_most("a", "b", "ratio", 0.5, value, "").holds for value in (0.4, 0.5, 0.51, math.nan)]
    assert holds == [True, True, False, False]
    assert worst([]) is None and worst([1.0, 3.0, 2.0]) == 3.0 and math.isnan(worst([0.9, math.nan, 1.0]))


def test_a_claim_is_a_value():
    with pytest.raises(AttributeError):
        CLAIM.holds = False


def test_what_is_contested_is_counted_apart_and_says_who_has_measured_otherwise(tmp_path):
    contested = dataclasses.replace(CLAIM, contested="2014 has the opposite")
    write_claims(tmp_path / "claims.json", "x", [contested, CLAIM, dataclasses.replace(contested, holds=False)], 1.0)
    claims = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert ["contested" in claim for claim in claims] == [True, False, True]
    assert verdicts(claims) == "1 of 1 claims hold; of 2 contested, 1 held here"
    table = claims_table(claims)
    assert "contested, held here: 2014 has the opposite" in table and "contested, not held here: 2014" in table


def test_a_rule_of_four_of_five_asks_for_all_of_fewer():
    assert [four_of_five(seeds) for seeds in (1, 2, 4, 5, 6, 10)] == [1, 2, 4, 4, 5, 8]

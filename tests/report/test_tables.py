"""Numbers, markdown and console tables."""

import io
import math

import numpy as np
import pytest

from rnnjax import report


@pytest.mark.parametrize("value, want", [
    (1 / 6, "0.167"),
    (-1.5, "-1.50"),
    (0.9996, "1.00"),
    (0.0, "0"),
    (np.float32(0.00123), "0.00123"),
    (1.2e-7, "1.20e-07"),
    (45130.4, "45,130"),
    (123456.0, "1.23e+05"),
    (4513, "4,513"),
    (np.int64(1234567), "1,234,567"),
    (math.inf, "inf"),
    (math.nan, "nan"),
    (None, "–"),
    (True, "yes"),
    ("1.23456", "1.23456"),
    ([0.25, 2], "0.250, 2"),
    ({"elman": -0.4}, "elman -0.400"),
])  # fmt: skip
def test_number(value, want):
    assert report.number(value) == want


def test_markdown_table_aligns_numbers_right_and_keeps_its_columns():
    table = report.markdown_table(["cell", "slope"], [["a|b\nc", -0.4], ["gru", None]])
    assert table == "| cell | slope |\n| --- | ---: |\n| a\\|b c | -0.400 |\n| gru | – |\n"


def test_a_row_of_another_length_is_an_error():
    with pytest.raises(ValueError, match=r"rows\[1\] has 1 entries but the header has 2"):
        report.markdown_table(["a", "b"], [[1, 2], [3]])


def test_claims_table_says_which_hold():
    claim = {"claim": "it vanishes", "source": "Bengio 1994", "expected": "slope < 0", "measured": -0.4}
    table = report.claims_table([claim | {"holds": True}, claim | {"holds": False}]).splitlines()
    assert table[2] == "| it vanishes | Bengio 1994 | slope < 0 | -0.400 | holds |"
    assert table[3].endswith("| **does not hold** |")


def test_claims_table_says_why_a_claim_was_not_measured():
    claim = {"claim": "a", "source": "b", "expected": "c", "measured": None, "holds": False, "not_measured": "no torch"}
    assert report.claims_table([claim]).splitlines()[2] == "| a | b | c | – | not measured: no torch |"


def test_console_table_cuts_nothing_and_holds_no_escapes_when_piped(monkeypatch):
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("COLUMNS", "20")
    long, file = "a description of some length " * 9, io.StringIO()
    report.console_table(["cell [bold]", "parameters"], [[long, 4513], ["[red]x[/]", 12]], "Cells", file)
    printed = file.getvalue()
    assert long.strip() in printed and "[red]x[/]" in printed and "cell [bold]" in printed and "\x1b" not in printed
    assert printed.splitlines()[0] == "Cells" and printed.splitlines()[1].strip() == ""
    assert max(map(len, printed.splitlines())) < len(long) + 40

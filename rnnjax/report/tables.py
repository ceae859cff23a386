"""Tables: markdown for a report, aligned text for a console, and numbers as both print them."""

import math
import numbers
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import rich.box
import rich.console
import rich.table
import rich.text

NOTHING = "–"
WIDE = 10_000  # columns of a console that is no terminal: nothing is cut where a program reads


def number(value: Any, digits: int = 3) -> str:
    """A number to `digits` significant digits, trailing zeros kept: 0.167, -1.50, 4,513, 1.20e-07, inf.

    Whole numbers are written out. None is a dash; text stays as it is; lists and dicts go entry by entry.
    """
    if value is None:
        return NOTHING
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {number(entry, digits)}" for key, entry in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(number(entry, digits) for entry in value)
    if isinstance(value, numbers.Integral):
        return f"{value:,}"
    try:
        value = float(value) if not isinstance(value, str) else value
    except (TypeError, ValueError):
        return str(value)
    return value if isinstance(value, str) else _float(value, digits)


def _float(value: float, digits: int) -> str:
    if not math.isfinite(value):
        return str(value)
    if value == 0:
        return "0"
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")  # rounded first: 0.9996 has exponent 0
    if not -3 <= int(exponent) < 5:
        return f"{mantissa}e{exponent}"
    return f"{value:,.{max(digits - 1 - int(exponent), 0)}f}"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A markdown table, numbers through `number` and columns of numbers aligned right. Ends in a newline."""
    rows = _checked(header, rows)
    rule = ["---:" if numeric else "---" for numeric in _numeric(header, rows)]
    lines = [[_escape(title) for title in header], rule, *([_escape(number(value)) for value in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def claims_table(claims: Sequence[dict[str, Any]]) -> str:
    """The claims of a claims.json, [{claim, source, expected, measured, holds}], as a markdown table.

    One that has `not_measured` too, a reason, was not tried, which is no verdict; `contested` says who has measured
    otherwise.
    """
    rows = [
        [
            claim["claim"],
            claim.get("source"),
            claim.get("expected"),
            number(claim.get("measured")),
            _verdict(claim),
        ]
        for claim in claims
    ]
    return markdown_table(["claim", "source", "expected", "measured", "verdict"], rows)


def _verdict(claim: dict[str, Any]) -> str:
    if claim.get("not_measured"):
        return f"not measured: {claim['not_measured']}"
    if claim.get("contested"):
        return f"contested, {'held' if claim['holds'] else 'not held'} here: {claim['contested']}"
    return "holds" if claim["holds"] else "**does not hold**"


def console_table(
    header: Sequence[str], rows: Iterable[Sequence[Any]], title: str = "", file: TextIO | None = None
) -> None:
    """Prints a table to `file`, default stdout: in colour on a terminal, else plain text with no column cut."""
    rows = _checked(header, rows)
    console = rich.console.Console(file=file or sys.stdout, highlight=False)
    if not console.is_terminal:
        console = rich.console.Console(file=file or sys.stdout, highlight=False, width=WIDE)
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name, numeric in zip(header, _numeric(header, rows), strict=True):
        table.add_column(rich.text.Text(name), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(rich.text.Text(number(value)) for value in row))  # Text: brackets are no markup
    if title:
        console.print(rich.text.Text(title, style="bold"))
    console.print(table)


def _checked(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
    rows = list(rows)
    for at, row in enumerate(rows):
        if len(row) != len(header):
            raise ValueError(f"rows[{at}] has {len(row)} entries but the header has {len(header)}: {list(row)!r}")
    return rows


def _numeric(header: Sequence[str], rows: list[Sequence[Any]]) -> list[bool]:
    columns = [[row[at] for row in rows if row[at] is not None] for at in range(len(header))]
    return [bool(column) and all(_is_number(value) for value in column) for column in columns]


def _is_number(value: Any) -> bool:
    return not isinstance(value, str | bool | list | tuple | dict) and hasattr(value, "__float__")


def _escape(text: str) -> str:
    return " ".join(text.replace("\\", "\\\\").replace("|", "\\|").split())

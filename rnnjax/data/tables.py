"""Tables of fields between commas, semicolons or tabs, and the numbers in them."""

import csv
import io
import math
import os
import re
from collections.abc import Sequence

import numpy as np

from rnnjax.data.errors import AGAIN, malformed, shown
from rnnjax.data.lines import read_text

DELIMITERS = (",", ";", "\t")


def read_rows(path: str | os.PathLike, encoding: str = "utf-8") -> tuple[list[list[str]], list[int]]:
    """(rows of fields, the line that each ends at); blank lines are left out.

    The delimiter is the first of `DELIMITERS` that the first line holds outside of double quotes.

    Raises DataError for what is no such text, for a quote that does not end or that something but a delimiter follows,
    and for a row that is not as long as the first.
    """
    text = read_text(path, encoding=encoding)
    first = re.sub('"[^"]*"', "", next(line for line in text.split("\n") if line.strip()))
    delimiter = next((sign for sign in DELIMITERS if sign in first), ",")
    rows, lines = _parsed(path, text, delimiter)
    if not rows:
        raise malformed(path, "", "no line holds a value", AGAIN)
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(rows[0]):
            problem = f"{len(row)} fields: expected {len(rows[0])}, as on line {lines[0]}"
            raise malformed(path, f"line {line}", problem, "Mend or drop the line.")
    return rows, lines


def _parsed(path, text: str, delimiter: str) -> tuple[list[list[str]], list[int]]:
    reader = csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter, strict=True)
    limit = csv.field_size_limit(len(text) + 1)  # the module's own is 131,072
    rows, lines, start = [], [], 1
    try:
        for row in reader:
            if row and (len(row) > 1 or row[0].strip()):
                rows.append(row)
                lines.append(reader.line_num)
            start = reader.line_num + 1
    except csv.Error as error:
        raise malformed(path, f"line {start}", f"not CSV: {error}", "Mend its quotes, or drop the line.") from error
    finally:
        csv.field_size_limit(limit)
    return rows, lines


def is_number(field: str) -> bool:
    """Whether float() takes it: NaN and infinity are numbers here, and so is 1_000, which `as_numbers` refuses."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def as_numbers(path, rows: Sequence[Sequence[str]], lines: Sequence[int], names: Sequence[str]) -> np.ndarray:
    """float64 [N, C] of rows of fields. Raises DataError, by line and name of the column, for what is not finite
    and for "_", which is none of a number's signs in a table."""
    try:
        values = np.array([[float(field) for field in row] for row in rows])
        if np.isfinite(values).all() and not any("_" in "".join(row) for row in rows):
            return values
    except ValueError:
        pass  # found below
    for row, line in zip(rows, lines, strict=True):
        for field, name in zip(row, names, strict=True):
            if "_" in field or not is_number(field) or not math.isfinite(float(field)):
                problem = f"is {shown(field)}: expected a finite number"
                raise malformed(path, f"line {line}, {name}", problem, "Fill the gap, or drop the line or the column.")
    raise AssertionError("a number that is not finite was not found again")

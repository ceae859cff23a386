"""Tables of fields between commas, semicolons or tabs, and the numbers in them."""

import csv
import math
import os
import re
from collections.abc import Sequence

import numpy as np

from rnnjax.data.errors import AGAIN, malformed, shown
from rnnjax.data.lines import read_lines

DELIMITERS = (",", ";", "\t")


def read_rows(path: str | os.PathLike, encoding: str = "utf-8") -> tuple[list[list[str]], list[int]]:
    """(rows of fields, the line that each ends at); blank lines are left out.

    The delimiter is the first of `DELIMITERS` that the first line holds outside of double quotes.

    Raises DataError for what is no such text, and for a row that is not as long as the first.
    """
    text = read_lines(path, encoding=encoding)
    first = re.sub('"[^"]*"', "", next(line for line in text if line.strip()))
    delimiter = next((sign for sign in DELIMITERS if sign in first), ",")
    reader = csv.reader(text, delimiter=delimiter)
    rows, lines = [], []
    try:
        for row in reader:
            if row and (len(row) > 1 or row[0].strip()):
                rows.append(row)
                lines.append(reader.line_num)
    except csv.Error as error:
        raise malformed(path, f"line {reader.line_num}", f"not CSV: {error}", "Mend or drop the line.") from error
    if not rows:
        raise malformed(path, "", "no line holds a value", AGAIN)
    for row, line in zip(rows, lines, strict=True):
        if len(row) != len(rows[0]):
            problem = f"{len(row)} fields: expected {len(rows[0])}, as on line {lines[0]}"
            raise malformed(path, f"line {line}", problem, "Mend or drop the line.")
    return rows, lines


def is_number(field: str) -> bool:
    """Whether float() takes it; NaN and infinity are numbers here."""
    try:
        float(field)
    except ValueError:
        return False
    return True


def as_numbers(path, rows: Sequence[Sequence[str]], lines: Sequence[int], names: Sequence[str]) -> np.ndarray:
    """float64 [N, C] of rows of fields. Raises DataError, by line and name of the column, for what is not finite."""
    try:
        values = np.array([[float(field) for field in row] for row in rows])
        if np.isfinite(values).all():
            return values
    except ValueError:
        pass  # found below
    for row, line in zip(rows, lines, strict=True):
        for field, name in zip(row, names, strict=True):
            if not is_number(field) or not math.isfinite(float(field)):
                problem = f"is {shown(field)}: expected a finite number"
                raise malformed(path, f"line {line}, {name}", problem, "Fill the gap, or drop the line or the column.")
    raise AssertionError("a number that is not finite was not found again")

"""Time series: one long one of a CSV file, or many labelled ones of the UEA and UCR archives."""

import collections
import difflib
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rnnjax.data.errors import AGAIN, malformed, shown
from rnnjax.data.lines import read_lines
from rnnjax.data.tables import as_numbers, is_number, read_rows


class Series(NamedTuple):
    """names: of the C columns; times: the T time stamps as they stand in the file, or (); values: float64 [T, C]."""

    names: tuple[str, ...]
    times: tuple[str, ...]
    values: np.ndarray


class LabelledSeries(NamedTuple):
    """values: float32 [T, C]; label: the class, or "" where the file has none."""

    values: np.ndarray
    label: str


def read_series(path: str | os.PathLike, *, columns: Sequence[str] = (), encoding: str = "utf-8") -> Series:
    """A CSV file (or one with semicolons or tabs), plain or gzip, whose first line names the columns.

    The first column holds time stamps where its first value is no number; they are kept as text.
    columns: those to read, in this order; () for all but the time stamps.

    Raises DataError, naming the file, the line, the column and the value: no header, a name twice or not there, rows
    of unlike lengths, a gap or anything else that is no finite number.
    """
    rows, lines = read_rows(path, encoding)
    names = tuple(name.strip() for name in rows[0])
    if any(is_number(name) for name in names):
        problem = f"is {shown(','.join(rows[0]))}: expected the names of the columns"
        raise malformed(path, f"line {lines[0]}", problem, "Put a line with a name for each column first.")
    if twice := [name for name, count in collections.Counter(names).items() if count > 1]:
        raise malformed(path, f"line {lines[0]}", f"{shown(twice[0])} names two columns", "Rename one of them.")
    rows, lines = rows[1:], lines[1:]
    if not rows:
        raise malformed(path, "", "holds the names of the columns and no values", AGAIN)
    stamped = not is_number(rows[0][0])
    times = tuple(row[0] for row in rows) if stamped else ()
    kept = _positions(path, names, columns or names[stamped:], stamped)
    if not kept:
        raise malformed(path, "line 2", f"{shown(rows[0][0])} is the only value, and no number", AGAIN)
    chosen = tuple(names[place] for place in kept)
    values = as_numbers(path, [[row[place] for place in kept] for row in rows], lines, chosen)
    return Series(chosen, times, values)


def _positions(path, names: tuple[str, ...], columns: Sequence[str], stamped: bool) -> list[int]:
    places = {name: place for place, name in enumerate(names)}
    for column in columns:
        if column not in places:
            near = difflib.get_close_matches(column, names, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"It has {shown(list(names))}."
            raise malformed(path, "", f"no column {column!r}", meant)
        if stamped and column == names[0]:
            raise malformed(
                path, "line 2", f"column {column!r} holds time stamps", f"Numbers are in {shown(names[1:])}."
            )
    return [places[column] for column in columns]


def read_ts(path: str | os.PathLike) -> list[LabelledSeries]:
    """The series of a .ts file, plain or gzip, of many lengths and any number of channels.

    Lines that begin with # are comments and with @ headers, then `@data`, then a line for each series: a part for
    each channel between colons, values between commas, and the class last where `@classLabel true a b ...` says so.
    Source: Bagnall et al. 2018, "The UEA multivariate time series classification archive".

    Raises DataError, naming the file, the line, the channel and the value: no @data, a missing value ('?'), time
    stamps, channels of unlike lengths, an unknown class, or a header that its series contradict.
    """
    lines = read_lines(path)
    header, start = _headers(path, lines)
    found = [
        (number, _case(path, number, line.strip(), header))
        for number, line in enumerate(lines[start:], start + 1)
        if line.strip() and not line.lstrip().startswith("#")
    ]
    if not found:
        raise malformed(path, f"line {start}", "no series follows @data", AGAIN)
    _check_shapes(path, header, found)
    return [case for _, case in found]


class _Header(NamedTuple):
    """What @classLabel, @dimensions, @equalLength and @seriesLength say: classes None where there is no label, () where
    they are not listed; channels and length 0 where it is not said."""

    classes: tuple[str, ...] | None
    channels: int
    equal: bool
    length: int


def _headers(path, lines: list[str]) -> tuple[_Header, int]:
    """What the headers say, and how many lines they take."""
    said = {}
    for number, line in enumerate(lines, 1):
        key, *values = line.split() or ["#"]
        if key.lower() == "@data":
            break
        if key.startswith("#"):
            continue
        if not key.startswith("@"):
            raise malformed(path, f"line {number}", f"{shown(line)} before @data", "Expected headers: @problemName ...")
        said[key[1:].lower()] = number, values
    else:
        raise malformed(path, "", "no line @data", "Expected a .ts file of the UEA and UCR archives.")
    if _flag(path, said, "timestamps"):
        problem, way_out = "time stamps in the series are not read", "Convert it to equal steps without them."
        raise malformed(path, f"line {said['timestamps'][0]}", problem, way_out)
    classes = tuple(said["classlabel"][1][1:]) if _flag(path, said, "classlabel") else None
    channels = 1 if _flag(path, said, "univariate") else _count(path, said, "dimensions")
    equal = _flag(path, said, "equallength")
    return _Header(classes, channels, equal, _count(path, said, "serieslength") if equal else 0), number


def _flag(path, said, key: str) -> bool:
    number, values = said.get(key, (0, ["false"]))
    if not values or values[0].lower() not in ("true", "false"):
        raise malformed(path, f"line {number}", f"@{key} says {shown(values)}: expected true or false", AGAIN)
    return values[0].lower() == "true"


def _count(path, said, key: str) -> int:
    number, values = said.get(key, (0, ["0"]))
    if len(values) != 1 or not values[0].isascii() or not values[0].isdigit() or len(values[0]) > 9:
        raise malformed(path, f"line {number}", f"@{key} says {shown(values)}: expected a whole number", AGAIN)
    return int(values[0])


def _case(path, number: int, line: str, header: _Header) -> LabelledSeries:
    parts, label = line.split(":"), ""
    if header.classes is not None:
        label = parts.pop().strip()
        if not parts or not label or (header.classes and label not in header.classes):
            problem = f"class {shown(label)}: expected one of {shown(list(header.classes))}"
            raise malformed(path, f"line {number}", problem, "The class stands after the last colon.")
    channels = [_channel(path, number, place, part) for place, part in enumerate(parts, 1)]
    lengths = [len(channel) for channel in channels]
    if len(set(lengths)) > 1:
        problem = f"its channels have {shown(lengths)} values"
        raise malformed(path, f"line {number}", problem, "Expected equally many in each: cut or pad them.")
    return LabelledSeries(np.stack(channels, 1), label)


def _channel(path, number: int, place: int, text: str) -> np.ndarray:
    fields = text.split(",")
    with np.errstate(over="ignore"):  # found as infinite
        try:
            values = np.array([float(field) for field in fields], np.float32)
            if np.isfinite(values).all() and "_" not in text:
                return values
        except ValueError:
            pass  # found below
        for step, field in enumerate(fields, 1):
            if "_" in field or not is_number(field) or not math.isfinite(np.float32(float(field))):
                what = "a missing value" if field.strip() in ("?", "") else "expected a finite number"
                where = f"line {number}, channel {place}, value {step}"
                raise malformed(path, where, f"is {shown(field.strip())}: {what}", "Fill the gap or drop the series.")
    raise AssertionError("a number that is not finite was not found again")


def _check_shapes(path, header: _Header, found: list[tuple[int, LabelledSeries]]) -> None:
    (_, first), *_ = found
    channels = header.channels or first.values.shape[1]
    length = header.length or (len(first.values) if header.equal else 0)
    for number, case in found:
        if case.values.shape[1] != channels or (length and len(case.values) != length):
            expected = f"[{length or 'any length'}, {channels}]"
            problem = f"a series of shape {list(case.values.shape)}: expected {expected}"
            raise malformed(path, f"line {number}", problem, "Mend the line, or @dimensions and @seriesLength.")

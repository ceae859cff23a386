"""Sequences that belong together: sentences and their translations, spellings and pronunciations."""

import csv
import io
import os
import re
from collections.abc import Collection
from typing import NamedTuple

from rnnjax.data.errors import malformed, shown
from rnnjax.data.lines import is_blank, parallel_rows, read_lines, read_text, split_words

_ALTERNATIVE = re.compile(r"(.+)\(\d+\)")


class Pair(NamedTuple):
    """What is read and what it becomes, as words, or as letters and phones."""

    source: tuple[str, ...]
    target: tuple[str, ...]


def read_pairs(
    path: str | os.PathLike,
    *,
    source: int = 0,
    target: int = 1,
    delimiter: str | None = None,
    encoding: str = "utf-8",
    reserved: Collection[str] = (),
) -> list[Pair]:
    """The pairs of a table without a header, a pair a row, split into words at spaces; blank rows are left out.

    source, target: the columns that hold them, from 0; there may be more.
    delimiter: what separates columns; where None, a tab if the first row has one, else a comma. Between tabs a quote is
        a character like any other; between others it may enclose a column, as `csv` has it.
    reserved: words that no target may hold, since something else is called so.

    Raises DataError, naming the file and the line, where a row lacks a column or has no word in it, where a quote does
    not end, where a target holds a reserved word, and as `rnnjax.data.read_text` does. Raises ValueError for a negative
    column and a delimiter that can't be one.
    """
    if min(source, target) < 0:
        raise ValueError(f"source is {source} and target {target}: expected columns of at least 0")
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise ValueError(f"delimiter is {delimiter!r}: expected one character, and no quote or end of line")
    text = read_text(path, encoding=encoding)
    if delimiter is None:
        delimiter = "\t" if "\t" in text.lstrip("\n").partition("\n")[0] else ","
    pairs = []
    for number, row in _rows(path, text, delimiter):
        if all(map(is_blank, row)):
            continue
        if len(row) <= max(source, target):
            problem = f"{len(row)} of at least {max(source, target) + 1} columns: {shown(row)}"
            way_out = f"Columns are separated by {delimiter!r}: give another delimiter, or other columns."
            raise malformed(path, f"line {number}", problem, way_out)
        if blank := [column for column in (source, target) if is_blank(row[column])]:
            problem = f"no word in column {blank[0]}: {shown(row)}"
            raise malformed(path, f"line {number}", problem, "Fill it, or take the row out.")
        pairs.append(Pair(split_words(row[source]), split_words(row[target])))
        _check_target(path, number, pairs[-1], reserved)
    return pairs


def _rows(path, text: str, delimiter: str) -> list[tuple[int, list[str]]]:
    """(number of its last line, columns) of each row."""
    quoting = csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL
    rows = csv.reader(io.StringIO(text, newline="\n"), delimiter=delimiter, quoting=quoting, strict=True)
    limit = csv.field_size_limit(len(text) + 1)  # the module's own of 131,072 is less than a long sentence
    try:
        return [(rows.line_num, row) for row in rows]
    except csv.Error as error:
        way_out = "Expected a table: close the quote, or give another delimiter."
        raise malformed(path, f"line {rows.line_num}", str(error), way_out) from None
    finally:
        csv.field_size_limit(limit)


def _check_target(path, number: int, pair: Pair, reserved: Collection[str]) -> None:
    if found := [word for word in pair.target if word in reserved]:
        problem = f"the target holds {shown(found[0])}, which is reserved: {shown(' '.join(pair.target))}"
        raise malformed(path, f"line {number}", problem, "Write it in another way, or take the line out.")


def read_parallel(
    source_path: str | os.PathLike, target_path: str | os.PathLike, *, encoding: str = "utf-8"
) -> list[Pair]:
    """The pairs of two text files whose lines belong together, plain or gzipped, split into words at spaces.

    Rows that are blank in both are left out.

    Raises DataError, naming the file and the line, where a line is blank and the other is not, where one file has more
    lines, and as `rnnjax.data.read_lines` does.
    """
    rows = parallel_rows((source_path, target_path), encoding)
    return [Pair(split_words(source), split_words(target)) for _, (source, target) in rows]


def read_cmudict(
    path: str | os.PathLike, *, stress: bool = False, encoding: str = "utf-8", reserved: Collection[str] = ()
) -> list[Pair]:
    """Spellings in lower-case letters and their phones, from the lines `word PH PH ..` of the CMU dictionary.

    Other pronunciations, `word(2) PH PH ..`, are pairs of their own. What follows a "#", and lines that start with
    ";;;", are comments.

    stress: keep the digit that marks a vowel's stress, AH0, else AH.
    reserved: what no phone may be called.

    Raises DataError, naming the file and the line, for a word without phones, for a reserved phone, and as
    `rnnjax.data.read_lines` does.
    """
    pairs = []
    for number, line in enumerate(read_lines(path, encoding=encoding), 1):
        entry = line.partition("#")[0]
        if is_blank(entry) or entry.startswith(";;;"):
            continue
        word, _, phones = entry.replace("\t", " ").strip(" ").partition(" ")
        if not stress:
            phones = phones.replace("0", "").replace("1", "").replace("2", "")
        phones = split_words(phones)
        if not phones:
            problem = f"a word and no phones: {shown(line)}"
            raise malformed(path, f"line {number}", problem, "Expected a word, then its phones.")
        if word.endswith(")") and (match := _ALTERNATIVE.fullmatch(word)):
            word = match[1]
        pairs.append(Pair(tuple(word.lower()), phones))
        _check_target(path, number, pairs[-1], reserved)
    if not pairs:
        raise malformed(path, "", "no entry", "Expected lines of a word and its phones.")
    return pairs

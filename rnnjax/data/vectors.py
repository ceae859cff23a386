"""Pretrained word vectors: word2vec's binary and text files, GloVe's and fastText's text files."""

import array
import codecs
import os
from collections.abc import Container
from typing import BinaryIO

import numpy as np

from rnnjax.data.binary import CHUNK, opened
from rnnjax.data.errors import AGAIN, malformed, shown

MAX_FEATURES, MAX_WORD = 100_000, 4096
"""Far above what any has; a file that asks for more is damaged, or meant to fill the memory."""
NOT_TEXT = bytes(set(range(32)) - set(b"\t\n\v\f\r")) + b"\x7f"
NOT_A_WORD = NOT_TEXT + b"\t\n\v\f\r"
MAX_LINE = MAX_WORD + 32 * MAX_FEATURES
UNLIKE = "The file is damaged, or its first line announces another D than its vectors have."


def read_vectors(path: str | os.PathLike, *, only: Container[str] | None = None) -> tuple[list[str], np.ndarray]:
    """(words, vectors float32 [N, D]) in the order of the file, plain or gzip.

        word2vec, fastText   a line "N D", then N times a word, a space and D float32 (binary), or N lines
                             "word v_1 ... v_D" (text)
        GloVe                such lines alone

    A word of a text file may hold spaces if what follows the first of them is no number. Memory is that of the words
    that are kept, whatever the first line announces.
    only: the words to keep, a set or whatever says by `in` which; None for all.

    Raises DataError, naming the file, the line or the byte, and the value: another number of values than D, a word
    twice, more or fewer words than announced, a value that is not finite, bytes that are not UTF-8.
    """
    with opened(path) as file:
        line = file.readline(MAX_LINE)
        head = file.read(MAX_WORD)
    first = line.removeprefix(codecs.BOM_UTF8)
    announced = _announced(path, first)
    count, features = announced or (None, _features(path, first))
    kept = _Kept(path, only, features)
    with opened(path) as file:
        file.read(len(line) if announced else len(line) - len(first))
        if announced and _holds(NOT_TEXT, head):  # numbers of 4 bytes, one of which is 0 or the like before long
            _read_binary(kept, file, len(line), count)
        else:
            _read_text(kept, file, count)
    return kept.result()


def _announced(path, first: bytes) -> tuple[int, int] | None:
    """(N, D) of a first line that holds these and nothing else."""
    fields = first.split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 19 for field in fields):
        return None
    count, features = map(int, fields)
    if count < 1 or not 1 <= features <= MAX_FEATURES:
        problem = f"announces {count} words of {features} values: expected 1 to {MAX_FEATURES} values"
        raise malformed(path, "line 1", problem, AGAIN)
    return count, features


def _features(path, first: bytes) -> int:
    """D of a file that does not announce it: the numbers at the end of its first line."""
    fields = first.split()
    numbers = 0
    while numbers + 1 < len(fields) and _is_number(fields[-1 - numbers]):
        numbers += 1
    if not 1 <= numbers <= MAX_FEATURES:
        problem = f"is {shown(first)}: expected a word and its numbers, or how many words and numbers there are"
        raise malformed(path, "line 1", problem, AGAIN)
    return numbers


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


class _Kept:
    """The words that are kept, the places they come from, and their vectors one after the other."""

    def __init__(self, path, only: Container[str] | None, features: int):
        self.path, self.features = path, features
        self._only = only
        self._places: dict[bytes, str] = {}
        self._values = bytearray()

    def wants(self, word: bytes) -> bool:
        return self._only is None or word.decode("utf-8", "surrogateescape") in self._only

    def add(self, word: bytes, values: bytes | array.array, place: str) -> None:
        if word in self._places:
            problem = f"{_text(word)} has a vector already, at {self._places[word]}"
            raise malformed(self.path, place, problem, "Drop one of the two.")
        self._places[word] = place
        self._values += values if isinstance(values, bytes) else values.tobytes()

    def result(self) -> tuple[list[str], np.ndarray]:
        words, places = [], list(self._places.values())
        for word, place in self._places.items():
            try:
                words.append(word.decode())
            except UnicodeDecodeError:
                raise malformed(self.path, place, f"{shown(word)} is not UTF-8", "Convert the file.") from None
        vectors = np.frombuffer(self._values, np.float32).reshape(len(words), self.features)
        for row in np.flatnonzero(~np.isfinite(vectors).all(1)):
            column = int(np.flatnonzero(~np.isfinite(vectors[row]))[0])
            problem = f"value {column + 1} of {shown(words[row])} is {vectors[row, column]}: expected a finite number"
            raise malformed(self.path, places[row], problem, AGAIN)
        return words, vectors


def _text(word: bytes) -> str:
    return shown(word.decode("utf-8", "replace"))


def _holds(signs: bytes, data: bytes) -> bool:
    return len(data.translate(None, signs)) < len(data)


def _read_text(kept: _Kept, file: BinaryIO, count: int | None) -> None:
    """The lines after the first, which announced `count` of them, or all lines."""
    features, number, found = kept.features, 0 if count is None else 1, 0
    while line := file.readline(MAX_LINE):
        number += 1
        fields = line.split()
        if not fields:
            continue
        found += 1
        if len(fields) <= features or (len(fields) > features + 1 and _is_number(fields[1])):
            problem = f"{_text(fields[0])} has {len(fields) - 1} values: expected {features}"
            raise malformed(kept.path, f"line {number}", problem, "Mend or drop the line.")
        word = fields[0] if len(fields) == features + 1 else b" ".join(fields[:-features])
        if kept.wants(word):
            kept.add(word, _parsed(kept.path, number, fields[-features:]), f"line {number}")
    if count is not None and found != count:
        raise malformed(kept.path, "line 1", f"announces {count} words: {found} lines follow", AGAIN)


def _parsed(path, number: int, fields: list[bytes]) -> array.array:
    try:
        values = array.array("f", map(float, fields))
        if b"_" not in b"".join(fields):  # float() takes 1_000
            return values
    except ValueError:
        pass  # found below
    wrong = next(field for field in fields if b"_" in field or not _is_number(field))
    raise malformed(path, f"line {number}", f"{_text(wrong)} is no number", "Mend or drop the line.")


def _read_binary(kept: _Kept, file: BinaryIO, start: int, count: int) -> None:
    """`count` records, the first at byte `start`: a word, a space, the values, and mostly a newline."""
    size, pending, at = 4 * kept.features, b"", 0
    for row in range(count):
        while (space := pending.find(b" ", at, at + MAX_WORD)) < 0 or len(pending) < space + 1 + size:
            place = f"byte {start + at}"
            if space < 0 and len(pending) - at > MAX_WORD:
                raise malformed(kept.path, place, f"no word ends within {MAX_WORD} bytes", UNLIKE)
            chunk = file.read(CHUNK + size)
            if not chunk:
                problem = f"ends within vector {row + 1} of {count} that line 1 announces"
                raise malformed(kept.path, place, problem, AGAIN)
            start, pending, at = start + at, pending[at:] + chunk, 0
        word = pending[at:space].lstrip(b"\n")
        at = space - len(word)
        if not word or _holds(NOT_A_WORD, word):
            raise malformed(kept.path, f"byte {start + at}", f"{_text(word)} is no word", UNLIKE)
        if kept.wants(word):
            kept.add(word, pending[space + 1 : space + 1 + size], f"byte {start + at}")
        at = space + 1 + size
    rest = (pending[at:] + file.read(CHUNK)).strip()
    if rest:
        problem = f"goes on after the {count} words that line 1 announces"
        raise malformed(kept.path, f"byte {start + at}", problem, UNLIKE)

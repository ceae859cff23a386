"""Text files, plain or gzipped: their text, their lines and the words of a line.

A line ends at "\\n", and a "\\r" before it is no part of it; in a file without any "\\n" it ends at "\\r". Words end at
spaces and tabs. What else Unicode counts as the end of a line or as space, NEL and the no-break space for two, stands
inside of lines and words of real corpora: `str.splitlines` and `str.split` count wrongly there. A line of nothing else
is blank: no reader takes it for a sentence.
"""

import codecs
import io
import lzma
import operator
import os
import pathlib
import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from typing import BinaryIO

from rnnjax.data.binary import opened, read_up_to
from rnnjax.data.errors import AGAIN, DataError, malformed, shown

# Far more than the corpora have: a file that inflates to more is meant to fill the memory.
MAX_BYTES = 2**32
_ZIP = b"PK\x03\x04"
# RuntimeError: encrypted, or a compression that Python has not. MemoryError: LZMA that asks for a damaged size.
_BROKEN_ZIP = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError),
    *(ValueError, LookupError, RuntimeError, MemoryError),
)
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_MARKS = re.compile("^\ufeff+", re.MULTILINE)
_strip = operator.methodcaller("strip", " \t")


def read_lines(path: str | os.PathLike, *, encoding: str = "utf-8") -> list[str]:
    """The lines of a text file, without their ends; the last one counts whether or not it has one.

    Raises as `read_text` does.
    """
    return split_lines(read_text(path, encoding=encoding))


def read_text(path: str | os.PathLike, *, member: str | None = None, encoding: str = "utf-8") -> str:
    """A text file, plain or gzipped as its first bytes tell, with "\\n" for "\\r\\n", and without byte order marks.

    Where all lines end at "\\r", "\\n" stands for it. Marks at the beginning of other lines, as of files that were put
    together, are dropped too.

    member: the name of a file in the archive, where `path` is a .zip.

    Raises DataError, naming the file and the line, where there is no such file or member, where nothing but blanks is
    in it, where it is damaged, where it is no text of this encoding, and where Python knows no such encoding of text.
    """
    _check_encoding(path, encoding)
    name = str(path) if member is None else f"{path}({member})"
    with opened(path) as file:
        data = _read_all(path, file)
    if member is not None:
        data = _member(path, data, member)
    elif data.startswith(_ZIP):
        raise malformed(path, "", "a zip archive: expected text", "Extract it, or give the name of a file as member.")
    text = _decode(name, data, encoding)
    if not text or text.isspace():
        raise malformed(name, "", "the file is empty", AGAIN)
    return text


def parallel_rows(paths: Sequence[str | os.PathLike], encoding: str) -> list[tuple[int, tuple[str, ...]]]:
    """(line number, a line of each file) where they are not blank; blank lines at the ends of the files don't count.

    Raises DataError where one is blank and another not, and where one file is longer.
    """
    files = [["" if is_blank(line) else _strip(line) for line in read_lines(path, encoding=encoding)] for path in paths]
    for lines in files:
        while not lines[-1]:
            lines.pop()
    for path, lines in zip(paths, files, strict=True):
        if len(lines) != len(files[0]):
            problem = f"{len(lines)} lines, but {len(files[0])} in {paths[0]}"
            raise malformed(path, "", problem, "Expected files whose lines belong together one by one.")
    rows = list(enumerate(zip(*files, strict=True), 1))
    if not any("" in lines for lines in files):
        return rows
    for number, row in rows:
        if "" in row and any(row):
            full = next(at for at, line in enumerate(row) if line)
            problem = f"is blank, but {shown(row[full])} in {pathlib.Path(paths[full]).name}"
            raise malformed(paths[row.index("")], f"line {number}", problem, "Fill it, or drop the line in all.")
    return [(number, row) for number, row in rows if row[0]]


def split_lines(text: str) -> list[str]:
    """The lines of a text that `read_text` gave."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return lines


def split_words(line: str) -> tuple[str, ...]:
    """The words of a line, between spaces and tabs."""
    return tuple(filter(None, line.replace("\t", " ").split(" ")))


def is_blank(line: str) -> bool:
    """Whether nothing but space is in a line: also what separates no words, as the no-break space."""
    return not line or line.isspace()


def _check_encoding(path, encoding: str) -> None:
    try:
        if codecs.lookup(encoding)._is_text_encoding:  # as bytes.decode asks; a codec of bytes is hex, say
            return
    except (LookupError, ValueError):  # ValueError: a null character
        pass
    problem = f"encoding={shown(encoding)} is no encoding of text that Python knows"
    raise malformed(path, "", problem, 'Give the one it is in, as encoding="utf-8" (--config.task.charset in a study).')


def _read_all(path: str | os.PathLike, file: BinaryIO) -> bytearray:
    data = read_up_to(file, MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise malformed(path, "", f"more than {MAX_BYTES} bytes", "Cut it into parts.")
    return data


def _member(path, data: bytearray, member: str) -> bytearray:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if member not in archive.namelist():
                names = [name for name in archive.namelist() if not name.endswith("/")]
                raise malformed(path, "", f"no member {member!r} among {shown(names)}", "Give one of these as member.")
            with archive.open(member) as file:
                return _read_all(path, file)
    except DataError:
        raise
    except _BROKEN_ZIP as error:
        raise malformed(path, "", f"cannot be read as a zip archive: {shown(str(error))}", AGAIN) from error


def _decode(name: str, data: bytearray, encoding: str) -> str:
    way_out = 'Give the encoding it is in: encoding="latin-1" reads any bytes (--config.task.charset in a study).'
    if data.startswith(_UTF16):
        way_out = 'It starts as UTF-16 does: encoding="utf-16".'
    elif b"\0" in data:
        way_out = "It is binary, and no text: check the path."
    try:
        text = data.removeprefix(codecs.BOM_UTF8).decode(encoding)
    except UnicodeDecodeError as error:
        end = b"\n" if b"\n" in data else b"\r"
        line, broken = error.object[: error.start].count(end) + 1, error.object[error.start : error.end]
        around = shown(error.object[max(0, error.start - 8) : error.start + 8])
        raise malformed(name, f"line {line}", f"{shown(broken)} in {around} is not {encoding}", way_out) from None
    except UnicodeError as error:
        raise malformed(name, "", f"not {encoding}: {shown(str(error))}", way_out) from None
    text = text.replace("\r\n", "\n")
    if "\n" not in text:
        text = text.replace("\r", "\n")
    if (at := text.find("\0")) >= 0:
        raise malformed(name, f"line {text.count(chr(10), 0, at) + 1}", "a NUL byte", way_out)
    return _MARKS.sub("", text) if "\ufeff" in text else text

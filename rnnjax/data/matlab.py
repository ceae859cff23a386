"""Cell arrays of matrices out of a MATLAB 5 file, and nothing else of it.

Pure Python and checked at every step, where `scipy.io.loadmat` can crash the process on a damaged file or
allocate what its header claims. Source: The MathWorks, "MAT-File Format", level 5. A file is a header of 128
bytes and then elements (type, size, data), padded to 8 bytes; a matrix is an element that holds its flags,
its dimensions, its name and its numbers, by columns; a cell array holds matrices.
"""

import math
import struct
import zlib
from typing import NamedTuple

import numpy as np

from rnnjax.data.errors import AGAIN, malformed

MATRIX, COMPRESSED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {1: "cell", 2: "struct", 3: "object", 4: "char", 5: "sparse", 16: "function", 17: "opaque"}
MAX_INFLATED = 2**30
"""Bytes; the largest of the corpora has 35 million."""


class Matrix(NamedTuple):
    """values: an array where kind is "number", a list of Matrix where it is "cell", else None."""

    name: str
    kind: str
    values: np.ndarray | list | None


class _Damaged(Exception):
    """At which byte, of the file or of what a compressed element holds, and what is wrong there."""


def read_matlab(path, data: bytes) -> dict[str, Matrix]:
    """The variables of a file, by name. Raises DataError, naming `path` and the byte, for anything damaged."""
    order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(data[124:128])
    if order is None:
        problem = f"{data[124:128]!r} is no MATLAB 5 header"
        raise malformed(path, "bytes 124 .. 127", problem, "Save it in MATLAB with -v7, or give another format.")
    variables, at, inflated = {}, 128, 0
    try:
        while at < len(data):
            kind, payload, following = _element(order, memoryview(data), at)
            if kind == COMPRESSED:
                following = at + 8 + len(payload)  # alone is not padded
                content = _inflate(payload, MAX_INFLATED - inflated, at)
                inflated += len(content)
                kind, payload, _ = _element(order, memoryview(content), 0)
            if kind == MATRIX:
                matrix = _matrix(order, payload, depth=0)
                variables[matrix.name] = matrix
            at = following
    except _Damaged as error:
        raise malformed(path, f"variable at byte {at}", f"not MATLAB 5: {error}", AGAIN) from None
    return variables


def _inflate(payload: memoryview, limit: int, at: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(payload, limit + 1)
    except zlib.error as error:
        raise _Damaged(f"cannot be decompressed: {error}") from None
    if len(content) > limit:
        raise _Damaged(f"more than {MAX_INFLATED} bytes when decompressed")
    if not inflater.eof:
        raise _Damaged("its compressed data are cut short")
    return content


def _element(order: str, data: memoryview, at: int) -> tuple[int, memoryview, int]:
    """The type, the data and the start of the next element."""
    if at + 8 > len(data):
        raise _Damaged("cut short")
    kind, size = struct.unpack_from(f"{order}II", data, at)
    start = at + 8
    following = start + size + -size % 8
    if kind >> 16:  # a small element: the size and at most 4 bytes of data share the 8 bytes with the type
        kind, size, start, following = kind & 0xFFFF, kind >> 16, at + 4, at + 8
        if size > 4:
            raise _Damaged(f"a small element of {size} bytes")
    if start + size > len(data):
        raise _Damaged(f"{size} bytes announced, {len(data) - start} left")
    return kind, data[start : start + size], following


def _numbers(order: str, kind: int, payload: memoryview) -> np.ndarray:
    dtype = np.dtype(STORED[kind]).newbyteorder(order) if kind in STORED else None
    if dtype is None or len(payload) % dtype.itemsize:
        raise _Damaged(f"{len(payload)} bytes of numbers of type {kind}")
    return np.frombuffer(payload, dtype)


def _matrix(order: str, data: memoryview, depth: int) -> Matrix:
    if not data:  # how an empty cell is stored
        return Matrix("", "number", np.zeros((0, 0)))
    kind, payload, at = _element(order, data, 0)
    flags = _numbers(order, kind, payload)
    kind, payload, at = _element(order, data, at)
    shape = [int(n) for n in _numbers(order, kind, payload)]
    _, label, at = _element(order, data, at)
    name = bytes(label).decode("latin1")
    if not len(flags) or len(shape) < 2 or min(shape) < 0:
        raise _Damaged(f"a matrix of shape {shape[:4]}")
    matrix_class, is_complex = int(flags[0]) & 0xFF, int(flags[0]) & 0x800
    kind_name = CLASSES.get(matrix_class, "number" if 6 <= matrix_class <= 15 else f"class {matrix_class}")
    if kind_name == "cell" and depth == 0:
        return Matrix(name, "cell", _cells(order, data, at, math.prod(shape)))
    if kind_name != "number" or is_complex:
        return Matrix(name, "complex" if is_complex else kind_name, None)
    kind, payload, _ = _element(order, data, at)
    values = _numbers(order, kind, payload)
    if len(values) != math.prod(shape):
        raise _Damaged(f"{len(values)} numbers in a matrix of shape {shape[:4]}")
    return Matrix(name, "number", values.reshape(shape, order="F"))


def _cells(order: str, data: memoryview, at: int, count: int) -> list[Matrix]:
    cells = []
    while len(cells) < count:  # ends with the data, whatever the count claims
        kind, payload, at = _element(order, data, at)
        if kind != MATRIX:
            raise _Damaged(f"cell {len(cells)} is of type {kind}")
        cells.append(_matrix(order, payload, depth=1))
    return cells

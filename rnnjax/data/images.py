"""Images: IDX files, which MNIST and its kin come in, and tables of numbers."""

import math
import os

import numpy as np

from rnnjax.data.binary import opened, read_up_to
from rnnjax.data.errors import AGAIN, malformed, shown
from rnnjax.data.tables import as_numbers, is_number, read_rows

TYPES = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
MAX_AXES = 8
# Twice the largest of MNIST's kin (EMNIST by class): a header that asks for more is damaged, or meant to fill memory.
MAX_BYTES = 2**30


def read_idx(path: str | os.PathLike) -> np.ndarray:
    """The array of an IDX file, plain or gzip, in the type that it is stored in.

    Two bytes 0, one for the type, one for the number of axes, each axis as a big-endian whole number of 4 bytes, and
    the values, last axis fastest. Source: LeCun, Cortes, Burges, "The MNIST database of handwritten digits".

    Raises DataError, naming the file, the byte and the value, for anything that is not exactly that.
    """
    with opened(path) as file:
        head = read_up_to(file, 4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in TYPES or not 1 <= head[3] <= MAX_AXES:
            problem = f"begins with {shown(bytes(head))}: expected 0, 0, a type of IDX and 1 to {MAX_AXES} axes"
            raise malformed(path, "byte 0", problem, AGAIN)
        dtype, axes = np.dtype(TYPES[head[2]]), head[3]
        sizes = read_up_to(file, 4 * axes)
        if len(sizes) < 4 * axes:
            raise malformed(path, f"byte {4 + len(sizes)}", f"ends within the sizes of its {axes} axes", AGAIN)
        shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
        expected = math.prod(shape) * dtype.itemsize
        if not 0 < expected <= MAX_BYTES:
            problem = f"announces shape {shape}, {expected} bytes: expected 1 to {MAX_BYTES}"
            raise malformed(path, "byte 4", problem, AGAIN)
        data = read_up_to(file, expected + 1)
    if len(data) != expected:
        found = "has more" if len(data) > expected else f"has {len(data)}"
        problem = f"announces shape {shape}, {expected} bytes of values, and {found}"
        raise malformed(path, f"byte {4 + 4 * axes}", problem, AGAIN)
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def read_numbers(path: str | os.PathLike) -> np.ndarray:
    """A table of numbers, float64 [N, C]: CSV, semicolons or tabs, plain or gzip.

    A first line in which nothing is a number names the columns, and is skipped.

    Raises DataError, naming the file, the line, the column and the value, for rows of unlike lengths and for fields
    that are no finite number.
    """
    rows, lines = read_rows(path)
    if not any(is_number(field) for field in rows[0]):
        if len(rows) == 1:
            raise malformed(path, f"line {lines[0]}", "holds no number, and nothing follows", AGAIN)
        rows, lines = rows[1:], lines[1:]
    names = [f"column {column}" for column in range(1, len(rows[0]) + 1)]
    return as_numbers(path, rows, lines, names)

"""The MATLAB 5 reader against scipy's, and on bytes written by hand."""

import io
import struct

import numpy as np
import pytest
import scipy.io

from rnnjax.data import DataError
from rnnjax.data.matlab import read_matlab


@pytest.mark.parametrize("compress", [False, True])
def test_cells_of_numbers_are_those_of_scipy(compress):
    rng = np.random.default_rng(0)
    cells = np.empty((1, 9), object)
    for i, dtype in enumerate(["u1", "i1", "u2", "i2", "u4", "i4", "f4", "f8", "?"]):
        cells[0, i] = rng.integers(0, 100, (i + 1, 3)).astype(dtype)
    file = io.BytesIO()
    scipy.io.savemat(file, {"x": cells, "other": "text"}, do_compression=compress)
    found = read_matlab("f", file.getvalue())
    expected = scipy.io.loadmat(io.BytesIO(file.getvalue()))["x"]
    assert set(found) == {"x", "other"} and found["other"].kind == "char"
    for ours, theirs in zip(found["x"].values, expected[0], strict=True):
        np.testing.assert_array_equal(ours.values, theirs)


def _element(order, kind, data):
    return struct.pack(f"{order}II", kind, len(data)) + data + b"\0" * (-len(data) % 8)


def _file(order, shape=(2, 3), kind=3, numbers=6):
    """One matrix of 16-bit numbers, named m in a small element."""
    flags = _element(order, 6, struct.pack(f"{order}II", 10, 0))
    dims = _element(order, 5, struct.pack(f"{order}{len(shape)}i", *shape))
    small = struct.pack(f"{order}I", 1 << 16 | 1) + b"m\0\0\0"
    values = _element(order, kind, struct.pack(f"{order}{numbers}h", *range(numbers)))
    header = b" " * 124 + (b"\0\1IM" if order == "<" else b"\1\0MI")
    return header + _element(order, 14, flags + dims + small + values)


@pytest.mark.parametrize("order", "<>")
def test_both_byte_orders_and_columns_first(order):
    (matrix,) = read_matlab("f", _file(order)).values()
    assert matrix.name == "m" and matrix.kind == "number"
    np.testing.assert_array_equal(matrix.values, [[0, 2, 4], [1, 3, 5]])
    np.testing.assert_array_equal(matrix.values, scipy.io.loadmat(io.BytesIO(_file(order)))["m"])


@pytest.mark.parametrize(
    "data, problem",
    [
        (_file("<", shape=(2, 4)), "6 numbers in a matrix of shape [2, 4]"),
        (_file("<", shape=(-2, -3)), "a matrix of shape [-2, -3]"),
        (_file("<", shape=(6,)), "a matrix of shape [6]"),
        (_file("<", kind=8), "12 bytes of numbers of type 8"),
        (_file("<", kind=9), "12 bytes of numbers of type 9"),
        (_file("<")[:-8], "bytes announced"),
        (_file("<") + b"\0\0\0", "cut short"),
        (_file("<") + struct.pack("<II", 15, 4) + b"abcd", "cannot be decompressed"),
    ],
    ids=range(8),
)
def test_damage_is_named_with_its_byte(data, problem):
    with pytest.raises(DataError) as caught:
        read_matlab("file.mat", data)
    assert str(caught.value).startswith("file.mat: variable at byte ") and problem in str(caught.value)


def test_real_files_are_read_as_scipy_reads_them(corpora):
    path = corpora / "polymusic" / "JSB_Chorales.mat"
    if not path.is_file():
        pytest.skip(f"{path} is missing")
    found, expected = read_matlab(path, path.read_bytes()), scipy.io.loadmat(path)
    for name in ("traindata", "validdata", "testdata"):
        for ours, theirs in zip(found[name].values, expected[name][0], strict=True):
            np.testing.assert_array_equal(ours.values, theirs)

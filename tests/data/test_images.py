"""IDX files and tables of numbers: the arrays that they hold, and one clear error for everything else."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rnnjax.data import DataError, read_idx, read_numbers

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def _idx(array) -> bytes:
    code = CODES[array.dtype.str[1:]]
    head = bytes([0, 0, code, array.ndim]) + b"".join(struct.pack(">I", size) for size in array.shape)
    return head + array.astype(array.dtype.newbyteorder(">")).tobytes()


IMAGES = np.arange(2 * 3 * 4, dtype="u1").reshape(2, 3, 4)
VALID = _idx(IMAGES)


def _read(folder, data: bytes, reader=read_idx, name="x"):
    path = folder / name
    path.write_bytes(data)
    return reader(path)


def _refused(folder, data: bytes, reader=read_idx) -> str:
    with pytest.raises(DataError) as caught:
        _read(folder, data, reader)
    message = str(caught.value)
    assert message.startswith(str(folder / "x")) and message.count("\n") == 1 and len(message) < 600
    return message


@pytest.mark.parametrize("kind", CODES)
def test_every_type_of_idx(tmp_path, kind):
    array = np.array([[-3, 0, 100], [7, 1, 2]]).astype(kind)
    for data in (_idx(array), gzip.compress(_idx(array), mtime=0)):
        found = _read(tmp_path, data)
        assert found.dtype == array.dtype and found.dtype.isnative and np.array_equal(found, array)
    found[0, 0] = 1  # not a view of what cannot be written to


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "byte 0: begins with b''"),
        (b"\0\0\x08", "byte 0: begins with"),
        (b"PK\x08\x03" + VALID[4:], "byte 0: begins with b'PK"),
        (b"\0\0\x07\x03" + VALID[4:], "byte 0: begins with"),
        (b"\0\0\x08\x00" + VALID[4:], "expected 0, 0, a type of IDX and 1 to 8 axes"),
        (b"\0\0\x08\x09" + VALID[4:], "expected 0, 0, a type of IDX and 1 to 8 axes"),
        (VALID[:10], "byte 10: ends within the sizes of its 3 axes"),
        (VALID[:-1], "byte 16: announces shape (2, 3, 4), 24 bytes of values, and has 23"),
        (VALID + b"\0", "byte 16: announces shape (2, 3, 4), 24 bytes of values, and has more"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "byte 4: announces shape (4294967295, 4294967295, 4294967295)"),
        (b"\0\0\x08\x02\0\0\0\0\0\0\0\5", "byte 4: announces shape (0, 5), 0 bytes"),
        (gzip.compress(VALID, mtime=0)[:-9], "its gzip data are damaged or cut short"),
        (gzip.compress(VALID, mtime=0)[:10] + b"\x07" * 9, "its gzip data are damaged or cut short"),
    ],
    ids=range(13),
)
def test_idx_errors_name_the_byte(tmp_path, data, message):
    assert message in _refused(tmp_path, data)


def test_files_that_are_not_there(tmp_path):
    for path in (tmp_path / "none", tmp_path, tmp_path / "a\0b"):
        with pytest.raises(DataError, match="cannot be read: .*\nCheck the name"):
            read_idx(path)


def test_a_header_that_lies_takes_no_memory(tmp_path):
    import tracemalloc

    data = b"\0\0\x08\x01" + struct.pack(">I", 2**30) + b"\0" * 100
    tracemalloc.start()
    assert "1073741824 bytes of values, and has 100" in _refused(tmp_path, gzip.compress(data, mtime=0))
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


@FUZZ
@given(st.integers(0, len(VALID)), st.binary(max_size=12), st.integers(0, 12), st.booleans())
def test_damaged_idx(tmp_path, at, new, removed, packed):
    data = VALID[:at] + new + VALID[at + removed :]
    data = gzip.compress(VALID, mtime=0)[:at] + new + gzip.compress(VALID)[at + removed :] if packed else data
    try:
        assert _read(tmp_path, data).size
    except DataError as error:
        assert str(error).count("\n") == 1 and len(str(error)) < 600


NUMBERS = np.array([[0.5, -1.0], [2e3, 4.0]])


@pytest.mark.parametrize(
    "text",
    [
        "0.5,-1\n2e3,4\n",
        "a,b\n0.5,-1\n2e3,4",
        "\ufeff0.5;-1\r\n\r\n2e3;4\r\n",
        "a\tb\n0.5\t-1\n2e3\t4\n",
        '"a","b, c"\n"0.5", -1\n2e3,4\n\n',
    ],
)
def test_tables_of_numbers(tmp_path, text):
    for data in (text.encode(), gzip.compress(text.encode(), mtime=0)):
        found = _read(tmp_path, data, read_numbers)
        assert found.dtype == np.float64 and np.array_equal(found, NUMBERS)


@pytest.mark.parametrize(
    "data, message",
    [
        (b"1,2\n3\n", "line 2: 1 fields: expected 2, as on line 1"),
        (b"a,b\n\n1,2\n3,x\n", "line 4, column 2: is 'x': expected a finite number"),
        (b"1,2\n3,\n", "line 2, column 2: is '': expected a finite number"),
        (b"1,2\nnan,4\n", "line 2, column 1: is 'nan'"),
        (b"1,2\n3,1e999\n", "line 2, column 2: is '1e999'"),
        (b"1,b\n3,4\n", "line 1, column 2: is 'b'"),
        (b"a,b\n", "line 1: holds no number, and nothing follows"),
        (b'""\n', "no line holds a value"),
        (b"1," + b"2" * 200_000, "line 1, column 2: is '2222"),
        (b"1,2\n1_000,4\n", "line 2, column 1: is '1_000': expected a finite number"),
        (b"1_000\n2\n", "line 1, column 1: is '1_000': expected a finite number"),
        (b'1\n"2\n3\n', "line 2: not CSV: unexpected end of data"),
        (b"", "the file is empty"),
        (b"1\0", "binary"),
        (b"\xff\n1", "line 1"),
    ],
    ids=range(15),
)
def test_errors_of_tables_name_line_and_column(tmp_path, data, message):
    assert message in _refused(tmp_path, data, read_numbers)


@FUZZ
@given(st.one_of(st.binary(max_size=40), st.text('0123456789.,;\t\n\r"eE-+naif', max_size=40).map(str.encode)))
def test_random_tables(tmp_path, data):
    try:
        found = _read(tmp_path, data, read_numbers)
        assert found.ndim == 2 and found.size and np.isfinite(found).all()
    except DataError as error:
        assert str(error).count("\n") == 1 and len(str(error)) < 600


def test_mnist(corpora):
    folder = corpora / "mnist-t10k"
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing")
    images = read_idx(folder / "t10k-images-idx3-ubyte.gz")
    labels = read_idx(folder / "t10k-labels-idx1-ubyte.gz")
    assert images.shape == (10000, 28, 28) and images.dtype == np.uint8 and labels.shape == (10000,)
    assert np.bincount(labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert labels[:5].tolist() == [7, 2, 1, 0, 4] and images[0, 7, 6:9].tolist() == [84, 185, 159]


def test_digits(corpora):
    file = corpora / "digits" / "digits.csv.gz"
    if not file.is_file():
        pytest.skip(f"{file} is missing")
    table = read_numbers(file)
    assert table.shape == (1797, 65) and table[:, :64].max() == 16
    assert np.bincount(table[:, 64].astype(int)).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]

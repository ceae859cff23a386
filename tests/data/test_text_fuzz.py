"""Whatever bytes a reader of text is given, it returns values or raises DataError with a message fit to read."""

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rnnjax.data import (
    DataError,
    read_cmudict,
    read_columns,
    read_jointslu,
    read_labelled,
    read_lines,
    read_pairs,
    read_parallel,
    read_slot_files,
    read_text,
    scheme_of,
    to_scheme,
)


def _whole(values):
    """Sentences and pairs as they may be."""
    for one in values:
        if hasattr(one, "words"):
            assert one.words and all(one.words) and len(one.tags) in (0, len(one.words)) and all(one.tags)
        else:
            assert one.source and one.target and all(one.source) and all(one.target)
    return values


def _tags(path, encoding):
    sentences = _whole(read_columns(path, encoding=encoding))
    try:
        scheme = scheme_of(sentences)
    except ValueError as error:
        assert str(error).startswith("sentence ")
    else:
        assert all(len(to_scheme(one.tags, scheme)) == len(one.tags) for one in sentences)


def _slot_files(path, encoding):
    for name, data in zip(("seq.in", "seq.out", "label"), path.read_bytes().split(b"|") * 3, strict=False):
        (path.parent / name).write_bytes(data)
    _whole(read_slot_files(path.parent, encoding=encoding))


def _parallel(path, encoding):
    other = path.parent / "other"
    other.write_bytes(path.read_bytes()[::-1])
    _whole(read_parallel(path, other, encoding=encoding))


READERS = {
    "lines": (lambda path, encoding: read_lines(path, encoding=encoding), b"a b\nc\r\n\n\xc3\xa4 x"),
    "text": (lambda path, encoding: read_text(path, encoding=encoding), b"\xef\xbb\xbfa b\nc\r\n"),
    "columns": (_tags, b"-DOCSTART- O\n\nNew\tB-X\nYork I-X\n\nin O\nA S-Y\r\n"),
    "slots": (_slot_files, b"fly to x\nhow|O O B-x\nO|f\nd"),
    "jointslu": (
        lambda path, encoding: _whole(read_jointslu(path, encoding=encoding)),
        b"BOS a b EOS\tO O B-x y\nBOS a EOS\tO O z\n",
    ),
    "labelled": (lambda path, encoding: _whole(read_labelled(path, encoding=encoding)), b"NUM how far\nX who\n"),
    "tabs": (lambda path, encoding: _whole(read_pairs(path, encoding=encoding)), b'a\tb\nc "d\te\tf\n'),
    "commas": (lambda path, encoding: _whole(read_pairs(path, encoding=encoding)), b'a,b\n"c ""d, e",f\n'),
    "parallel": (_parallel, b"a b\nc d\n"),
    "cmudict": (lambda path, encoding: _whole(read_cmudict(path, encoding=encoding)), b"a AH0\na(2) EY1 # x\n;;; y\n"),
}
FUZZ = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
ENCODINGS = st.sampled_from(["utf-8", "latin-1", "utf-16", "ascii"])


def _values_or_data_error(folder, name, data, encoding):
    path = folder / "x"
    path.write_bytes(data)
    try:
        READERS[name][0](path, encoding)
    except DataError as error:
        message = str(error)
        assert message.startswith(str(folder)) and message.count("\n") == 1 and len(message) < 1000, message


@pytest.mark.parametrize("name", READERS)
@FUZZ
@given(st.binary(max_size=100), ENCODINGS)
def test_random_bytes(tmp_path, name, data, encoding):
    _values_or_data_error(tmp_path, name, data, encoding)


PIECES = [
    b"\n",
    b"\r\n",
    b"\r",
    b"\t",
    b" ",
    b'"',
    b",",
    b"\0",
    b"\xff",
    b"\x85",
    b"\xef\xbb\xbf",
    b"-DOCSTART-",
    b"O",
    b"|",
]
EDITS = st.lists(
    st.tuples(st.integers(0, 200), st.sampled_from(PIECES) | st.binary(max_size=3), st.integers(0, 4)),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("name", READERS)
@FUZZ
@given(EDITS, ENCODINGS, st.booleans())
def test_mutated_files(tmp_path, name, edits, encoding, compressed):
    data = gzip.compress(READERS[name][1], mtime=0) if compressed else READERS[name][1]
    for at, new, removed in edits:
        at %= len(data) + 1
        data = data[:at] + new + data[at + removed :]
    _values_or_data_error(tmp_path, name, data, encoding)


@pytest.mark.parametrize("name", READERS)
def test_truncated_files(tmp_path, name):
    for data in (READERS[name][1], gzip.compress(READERS[name][1], mtime=0)):
        for end in range(len(data)):
            _values_or_data_error(tmp_path, name, data[:end], "utf-8")

"""Word vectors of word2vec, fastText and GloVe: the same out of every format, and errors by place."""

import gzip
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rnnjax.data import DataError, read_vectors

FUZZ = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS = ["</s>", "the", "café", "Taipei"]
VECTORS = np.array([[0.5, -1, 2], [3, 1e-3, 7], [0, 0, 0], [-4, 5.25, 6]], np.float32)


def _binary(words=WORDS, vectors=VECTORS, newline=b"\n", head=None) -> bytes:
    records = [word.encode() + b" " + row.tobytes() + newline for word, row in zip(words, vectors, strict=True)]
    return (head or f"{len(words)} {vectors.shape[1]}\n".encode()) + b"".join(records)


def _glove(words=WORDS, vectors=VECTORS, end="\n") -> bytes:
    rows = zip(words, vectors, strict=True)
    return "".join(f"{word} {' '.join(repr(float(v)) for v in row)}{end}" for word, row in rows).encode()


FORMATS = {
    "word2vec binary": _binary(),
    "word2vec binary without newlines": _binary(newline=b""),
    "word2vec text": b"4 3\n" + _glove(),
    "fastText": b"4 3\n" + _glove(end=" \n"),
    "GloVe": _glove(),
    "word2vec binary with a byte order mark": b"\xef\xbb\xbf" + _binary(),
    "word2vec text with a byte order mark": b"\xef\xbb\xbf4 3\n" + _glove(),
    "GloVe with a byte order mark": b"\xef\xbb\xbf" + _glove(),
    "GloVe, CRLF, without the last newline": _glove(end="\r\n")[:-2],
}


def _read(folder, data: bytes, **options):
    path = folder / "x"
    path.write_bytes(data)
    return read_vectors(path, **options)


def _refused(folder, data: bytes, **options) -> str:
    with pytest.raises(DataError) as caught:
        _read(folder, data, **options)
    message = str(caught.value)
    assert message.startswith(str(folder / "x")) and message.count("\n") == 1 and len(message) < 600
    return message


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_vectors(tmp_path, name):
    for data in (FORMATS[name], gzip.compress(FORMATS[name], mtime=0)):
        words, vectors = _read(tmp_path, data)
        assert words == WORDS and vectors.dtype == np.float32 and np.array_equal(vectors, VECTORS)
        vectors[0] = 1  # may be written to
        words, vectors = _read(tmp_path, data, only={"Taipei", "the", "absent"})
        assert words == ["the", "Taipei"] and np.array_equal(vectors, VECTORS[[1, 3]])
        words, vectors = _read(tmp_path, data, only=["absent"])
        assert words == [] and vectors.shape == (0, 3)


def test_words_with_spaces_and_words_that_are_numbers(tmp_path):
    words = ["1", ". . .", "at name@x.org", "a\u00a0b", "2.5"]
    vectors = np.arange(15, dtype=np.float32).reshape(5, 3)
    found, values = _read(tmp_path, _glove(words, vectors))
    assert found == words and np.array_equal(values, vectors)


def test_many_words_across_the_buffer(tmp_path):
    words = [f"w{i}" for i in range(3000)]
    vectors = (
        np.random.default_rng(0).normal(size=(3000, 100)).astype(np.float32)
    )  # newlines and spaces among the bytes
    data = _binary(words, vectors)
    found, values = _read(tmp_path, data)
    assert found == words and np.array_equal(values, vectors)
    words[-1] = "w7"
    assert f"byte {len(_binary(words, vectors)) - 404}: 'w7' has a vector" in _refused(
        tmp_path, _binary(words, vectors)
    )


def _with(row, column, value):
    vectors = VECTORS.copy()
    vectors[row, column] = value
    return vectors


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "line 1: is b''"),
        (b"hello\n", "line 1: is b'hello\\n': expected a word and its numbers"),
        (b"4 0\n", "line 1: announces 4 words of 0 values: expected 1 to 100000 values"),
        (b"4 100001\n", "line 1: announces 4 words of 100001 values"),
        (_glove() + b"short 1 2\n", "line 5: 'short' has 2 values: expected 3"),
        (_glove() + b"long 1 2 3 4\n", "line 5: 'long' has 4 values: expected 3"),
        (_glove() + b"odd 1 x 3\n", "line 5: 'x' is no number"),
        (_glove() + b"odd 1 nan 3\n", "line 5: value 2 of 'odd' is nan: expected a finite number"),
        (_glove() + b"odd 1 2 1e60\n", "line 5: value 3 of 'odd' is inf"),
        (_glove() + _glove(), "line 5: '</s>' has a vector already, at line 1"),
        (_glove() + b"caf\xe9 1 2 3\n", "line 5: b'caf\\xe9' is not UTF-8"),
        (b"5 3\n" + _glove(), "line 1: announces 5 words: 4 lines follow"),
        (b"3 3\n" + _glove(), "line 1: announces 3 words: 4 lines follow"),
        (b"4 2\n" + _glove(), "line 2: '</s>' has 3 values: expected 2"),
        (_binary()[:-2], f"byte {len(_binary()) - 21}: ends within vector 4 of 4 that line 1 announces"),
        (_binary(head=b"5 3\n"), f"byte {len(_binary()) - 1}: ends within vector 5 of 5"),
        (_binary(head=b"3 3\n"), f"byte {len(_binary()) - 21}: goes on after the 3 words"),
        (_binary(head=b"4 2\n"), "is no word\nThe file is damaged, or its first line announces another D"),
        (_binary(vectors=_with(1, 2, np.inf)), "byte 22: value 3 of 'the' is inf"),
        (_binary(["a", "b", "a", "c"]), "'a' has a vector already, at byte 4"),
        (b"2 3\n" + b"\0" * 6000, "no word ends within 4096 bytes"),
        (gzip.compress(_binary(), mtime=0)[:-12], "its gzip data are damaged or cut short"),
    ],
    ids=range(22),
)
def test_errors_name_the_place(tmp_path, data, message):
    assert message in _refused(tmp_path, data)


def test_a_header_that_lies_takes_no_memory(tmp_path):
    data = _binary(head=b"900000000000000000 90000\n")
    tracemalloc.start()
    assert "ends within vector 1 of 900000000000000000" in _refused(tmp_path, gzip.compress(data, mtime=0))
    assert tracemalloc.get_traced_memory()[1] < 2**23
    tracemalloc.stop()


def test_unknown_bytes_in_words_that_are_not_asked_for(tmp_path):
    words, _ = _read(tmp_path, _glove() + b"caf\xe9 1 2 3\n", only={"the"})
    assert words == ["the"]


EDITS = st.lists(st.tuples(st.integers(0, 10**4), st.binary(max_size=3), st.integers(0, 5)), min_size=1, max_size=3)


@FUZZ
@given(st.sampled_from(sorted(FORMATS)), EDITS, st.booleans())
def test_damaged_files(tmp_path, name, edits, packed):
    data = gzip.compress(FORMATS[name], mtime=0) if packed else FORMATS[name]
    for at, new, removed in edits:
        at %= len(data) + 1
        data = data[:at] + new + data[at + removed :]
    try:
        words, vectors = _read(tmp_path, data)
        assert len(words) == len(set(words)) == len(vectors) and np.isfinite(vectors).all()
    except DataError as error:
        assert str(error).count("\n") == 1 and len(str(error)) < 700


def test_underscores_are_no_part_of_a_number(tmp_path):
    for data in (b"the 1 2\ncat 3 1_000\n", b"2 2\ncat 3 1_000\nthe 1 2\n"):
        with pytest.raises(DataError, match="line 2: '1_000' is no number"):
            _read(tmp_path, data)
    assert _read(tmp_path, b"a_b 1 2\n")[0] == ["a_b"]

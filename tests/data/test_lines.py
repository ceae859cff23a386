"""Text as it stands in files: ends of lines, encodings, archives, and what is no text."""

import gzip
import io
import sys
import zipfile

import pytest

from rnnjax.data import DataError, read_lines, read_text
from rnnjax.data import lines as module
from rnnjax.data.errors import shown
from rnnjax.data.lines import is_blank, split_words


def _refused(path, **options) -> str:
    with pytest.raises(DataError) as caught:
        read_lines(path, **options)
    message = str(caught.value)
    assert message.startswith(str(path)) and message.count("\n") == 1 and len(message) < 600
    return message


def _put(folder, data: bytes, name="x.txt"):
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "data, lines",
    [
        (b"a b\nc\n", ["a b", "c"]),
        (b"a b\nc", ["a b", "c"]),  # no newline at the end
        (b"a b\r\nc\r\n", ["a b", "c"]),
        (b"\xef\xbb\xbfa b\r\nc", ["a b", "c"]),
        (b"\na\n\n\n", ["", "a", "", ""]),
        (b" a \n\tb\t\n", [" a ", "\tb\t"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a b\r\rc\r", ["a b", "", "c"]),  # nothing but \r
        (b"\xef\xbb\xbf\xef\xbb\xbfa\n\xef\xbb\xbfb\nc\xef\xbb\xbfd\n", ["a", "b", "c\ufeffd"]),  # put together
        ("a\x85b\x0bc\x0cd\u2028e\x1cf\n".encode(), ["a\x85b\x0bc\x0cd\u2028e\x1cf"]),
        ("Z\u00fcrich \U0001f600".encode(), ["Z\u00fcrich \U0001f600"]),
    ],
)
def test_lines(tmp_path, data, lines):
    assert read_lines(_put(tmp_path, data)) == lines
    assert read_lines(_put(tmp_path, gzip.compress(data, mtime=0), "named_as_it_likes")) == lines
    assert read_text(_put(tmp_path, data)).removesuffix("\n").split("\n") == lines


def test_words_end_at_spaces_and_tabs_only():
    assert split_words("  10\u00a0000\tmen  a\x85b ") == ("10\u00a0000", "men", "a\x85b")
    assert split_words(" \t ") == ()


@pytest.mark.parametrize("space", ["", " \t", "\u00a0", " \u3000\t", "\u2028", "\x85", "\x0b\x0c"])
def test_what_is_nothing_but_space_is_blank(space):
    assert is_blank(space) and not is_blank(f"{space}a{space}")


def test_encodings(tmp_path):
    latin = _put(tmp_path, "one\nna\u00efve caf\u00e9\n".encode("latin-1"))
    assert read_lines(latin, encoding="latin-1") == ["one", "na\u00efve caf\u00e9"]
    message = _refused(latin)
    assert r"line 2: b'\xef' in b'one\nna\xefve caf\xe9' is not utf-8" in message
    assert message.endswith('encoding="latin-1" reads any bytes (--config.task.charset in a study).')
    wide = _put(tmp_path, "one\ntwo\n".encode("utf-16"))
    assert read_lines(wide, encoding="utf-16") == ["one", "two"]
    assert read_lines(wide, encoding=f"utf-16-{sys.byteorder[0]}e") == ["one", "two"]
    assert _refused(wide).endswith('encoding="utf-16".')
    assert "line 1: a NUL byte" in _refused(wide, encoding="latin-1")


@pytest.mark.parametrize("name", ["utf-9", "", "hex", "rot13", "../x", "null\0", "x" * 1000])
def test_encodings_that_python_has_not_for_text(tmp_path, name):
    message = _refused(_put(tmp_path, b"one\n"), encoding=name)
    assert f"encoding={shown(name)} is no encoding of text that Python knows" in message
    assert message.endswith('encoding="utf-8" (--config.task.charset in a study).')


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "the file is empty"),
        (b"\xef\xbb\xbf \r\n\n\t", "the file is empty"),
        (b"a\rb\xff\rc", "line 2: b'\\xff'"),
        (b"a\nb\0c\n", "line 2: a NUL byte\nIt is binary"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "is not utf-8\nIt is binary"),
        (b"PK\x03\x04 and so on", "a zip archive: expected text\nExtract it"),
        (gzip.compress(b"a b\n" * 1000, mtime=0)[:-9], "damaged or cut short"),
        (gzip.compress(b"a b\n" * 1000, mtime=0)[:15], "damaged or cut short"),
        (gzip.compress(b"a b\n" * 1000, mtime=0)[:-8] + b"12345678", "damaged or cut short"),
        (gzip.compress(b"a\xffb\n", mtime=0), "line 1: b'\\xff'"),
        (gzip.compress(b"", mtime=0), "the file is empty"),
    ],
)
def test_what_is_no_text_is_refused(tmp_path, data, message):
    assert message in _refused(_put(tmp_path, data))


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path, tmp_path / "none", tmp_path / "null\0"):
        assert "cannot be read: " in _refused(path)


def test_a_file_that_inflates_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_BYTES", 1000)
    path = _put(tmp_path, gzip.compress(b"a" * 1000, mtime=0))
    assert len(read_text(path)) == 1000
    assert "more than 1000 bytes" in _refused(_put(tmp_path, gzip.compress(b"a" * 1001, mtime=0)))
    with pytest.raises(DataError, match="more than 1000 bytes"):
        read_text(_put(tmp_path, _zip({"x": b"a" * 1001})), member="x")


def _zip(members: dict[str, bytes], compression=zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def test_members_of_archives(tmp_path):
    data = _zip({"folder/": b"", "folder/a.txt": b"\xef\xbb\xbfone\r\ntwo\n", "../b.txt": b"\xff"})
    path = _put(tmp_path, data, "x.zip")
    assert read_text(path, member="folder/a.txt") == "one\ntwo\n"
    with pytest.raises(DataError, match=r"no member 'a.txt' among \['folder/a.txt', '../b.txt'\]\nGive one of these"):
        read_text(path, member="a.txt")
    with pytest.raises(DataError, match=r"x.zip\(../b.txt\): line 1: b'.xff' in"):
        read_text(path, member="../b.txt")
    assert [file.name for file in tmp_path.iterdir()] == ["x.zip"]
    with pytest.raises(DataError, match="cannot be read as a zip archive"):
        read_text(_put(tmp_path, b"words\n"), member="a.txt")
    stored = _zip({"a": b"words\n"}, zipfile.ZIP_STORED)
    for broken in (stored.replace(b"words", b"wards"), stored.replace(b"PK\x01\x02", b"PK\x01\x00")):
        with pytest.raises(DataError, match="cannot be read as a zip archive"):
            read_text(_put(tmp_path, broken), member="a")


@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_truncated_and_damaged_archives(tmp_path, compression):
    data = _zip({"a": b"some words\n" * 20}, compression)
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x41]) + data[at + 1 :]):
            try:
                assert read_text(_put(tmp_path, damaged), member="a").startswith("some words")
            except DataError as error:
                assert str(error).count("\n") == 1

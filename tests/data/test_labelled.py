"""Sentences with a label in front."""

import gzip

import pytest

from rnnjax.data import DataError, Sentence, read_labelled

TEXT = "NUM:dist How far is it ?\nDESC What 's caf\u00e9 ?\n"
SENTENCES = [
    Sentence(("How", "far", "is", "it", "?"), (), "NUM:dist"),
    Sentence(("What", "'s", "caf\u00e9", "?"), (), "DESC"),
]


def _read(folder, data: bytes, **options):
    (folder / "x.label").write_bytes(data)
    return read_labelled(folder / "x.label", **options)


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.encode("utf-8-sig").replace(b"\n", b"\r\n").strip(),
        gzip.compress(TEXT.encode(), mtime=0),
        b"\n \n" + TEXT.replace("\n", " \n\n").replace(" ", "\t", 1).encode(),
    ],
)
def test_sentences(tmp_path, data):
    assert _read(tmp_path, data) == SENTENCES


def test_latin(tmp_path):
    assert _read(tmp_path, TEXT.encode("latin-1"), encoding="latin-1") == SENTENCES
    with pytest.raises(DataError, match=r"x.label: line 2: b'.xe9' in b.* is not utf-8\n.*latin-1"):
        _read(tmp_path, TEXT.encode("latin-1"))


def test_a_label_without_words(tmp_path):
    with pytest.raises(DataError, match=r"x.label: line 4: a label and no words: 'NUM '\nExpected a label, then words"):
        _read(tmp_path, TEXT.encode() + b"\nNUM \n")


def test_nel_ends_no_line_and_no_word(tmp_path):
    assert _read(tmp_path, b"1 a\x85b c\n0 d\n", encoding="latin-1")[0].words == ("a\x85b", "c")


def test_a_sentence_of_a_hundred_thousand_words(tmp_path):
    (sentence,) = _read(tmp_path, b"X" + b" word" * 100_000)
    assert len(sentence.words) == 100_000


def test_a_line_of_nothing_but_space_is_no_sentence(tmp_path):
    assert [one.label for one in _read(tmp_path, "NUM how far\n\u00a0\nX who\n".encode())] == ["NUM", "X"]
    with pytest.raises(DataError, match="line 2: a label and no words"):
        _read(tmp_path, "NUM how far\nX \u00a0\n".encode())

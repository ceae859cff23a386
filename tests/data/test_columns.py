"""Columns of words and tags: whatever separates them, the same sentences, or the line where they are not."""

import pytest

from rnnjax.data import DataError, Sentence, read_columns

ROWS = "Rockwell NNP B-NP\nsaid VBD B-VP\n\nIt PRP B-NP\n"
SENTENCES = [Sentence(("Rockwell", "said"), ("B-NP", "B-VP")), Sentence(("It",), ("B-NP",))]


def _read(folder, text: str | bytes, **options):
    path = folder / "x.conll"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_columns(path, **options)


def _refused(folder, text, **options) -> str:
    with pytest.raises(DataError) as caught:
        _read(folder, text, **options)
    message = str(caught.value)
    assert message.startswith(str(folder / "x.conll")) and message.count("\n") == 1 and len(message) < 600
    return message


@pytest.mark.parametrize(
    "text",
    [
        ROWS,
        ROWS[:-1],  # no newline at the end: the last sentence is kept
        ROWS + "\n\n\n",
        "\n\n" + ROWS.replace("\n\n", "\n\n\n\n"),
        ROWS.replace("\n", "\r\n"),
        ROWS.encode("utf-8-sig"),
        ROWS.replace(" ", "\t"),
        ROWS.replace(" ", "   "),
        ROWS.replace(" ", "\t\t"),
        ROWS.replace(" ", " \t "),
        ROWS.replace("\n", " \n"),
        ROWS.replace("\n", "\t\n"),
        " " + ROWS.replace("\n", "\n \t"),
        ROWS.replace("Rockwell NNP B-NP", "Rockwell\tNNP\tB-NP"),  # tabs in one row, spaces in the next
        "-DOCSTART- -X- O\n\n" + ROWS,
        "-DOCSTART-\n" + ROWS + "-DOCSTART- -X- O\n",
        ROWS.replace("\n\n", "\n-DOCSTART- -X- O\n"),  # with no blank line about it
        ROWS.replace("\n\n", "\n\n-DOCSTART- -X- O\n\n"),
    ],
    ids=range(18),
)
def test_the_same_sentences(tmp_path, text):
    assert _read(tmp_path, text) == SENTENCES


def test_columns_are_chosen(tmp_path):
    assert _read(tmp_path, ROWS, tag=1)[0] == Sentence(("Rockwell", "said"), ("NNP", "VBD"))
    assert _read(tmp_path, ROWS, word=-1, tag=0)[0] == Sentence(("B-NP", "B-VP"), ("Rockwell", "said"))
    ten = "1\tNew York\t_\t_\t_\t_\t0\troot\t_\tX\n"
    assert _read(tmp_path, ten, word=1, tag=7) == [Sentence(("New York",), ("root",))]
    assert "line 1: 3 columns, but tag is column 3\nGive a tag of -3 .. 2." in _refused(tmp_path, ROWS, tag=3)
    assert "line 1: 3 columns, but word is column -4" in _refused(tmp_path, ROWS, word=-4)
    assert "line 1: column 0 of 3 is both word and tag" in _refused(tmp_path, ROWS, tag=-3)
    assert "line 3: column 0 of 1 is both word and tag" in _refused(tmp_path, "\n\nwords\nalone\n")


@pytest.mark.parametrize(
    "old, new, line, message",
    [
        ("said VBD B-VP", "said VBD", 2, "2 of the 3 columns that line 1 has: 'said VBD'"),
        ("It PRP B-NP", "It PRP B-NP x", 4, "4 of the 3 columns that line 1 has"),
        ("It PRP B-NP", "It\tPRP B-NP", 4, "2 of the 3 columns that line 1 has"),
        ("It PRP B-NP", "It\t\tB-NP", 4, "2 of the 3 columns"),
        ("said VBD B-VP", "a b\nc d e f", 2, "2 of the 3 columns"),  # as many fields as two rows ask for
        ("said VBD B-VP", "said \x85 B-VP\nx", 3, "1 of the 3 columns"),
        ("\n\n", "\n-DOCSTART-x\n", 3, "1 of the 3 columns"),
    ],
)
def test_a_row_of_another_number_of_columns(tmp_path, old, new, line, message):
    text = ROWS.replace(old, new)
    for changed in (text, text.replace("\n", "\r\n")):
        assert f"line {line}: {message}" in _refused(tmp_path, changed)
    message = message.replace("line 1", "line 3")
    assert f"line {line + 2}: {message}" in _refused(tmp_path, "\n-DOCSTART-\n" + text)


def test_bad_files(tmp_path):
    assert "the file is empty" in _refused(tmp_path, "\n \n")
    assert "no sentence" in _refused(tmp_path, "-DOCSTART- -X- O\n\n")
    assert "line 2: b'\\xe9'" in _refused(tmp_path, "a O\ncaf\u00e9 O\n".encode("latin-1"))
    assert _read(tmp_path, "caf\u00e9 O\n".encode("latin-1"), encoding="latin-1") == [Sentence(("caf\u00e9",), ("O",))]


def test_words_hold_what_is_no_blank(tmp_path):
    words = ("10\u00a0000", "a\x85b", "#", "\u3000", "-DOCSTART-s")
    (sentence,) = _read(tmp_path, "".join(f"{word} O\n" for word in words))
    assert sentence.words == words


def test_a_sentence_of_a_hundred_thousand_words(tmp_path):
    (sentence,) = _read(tmp_path, "word\tO\n" * 100_000)
    assert len(sentence.words) == len(sentence.tags) == 100_000
    assert "line 100001: 1 of the 2" in _refused(tmp_path, "word O\n" * 100_000 + "word\n")

"""Utterances with slots: the same out of three files and of one, and the line where they don't fit."""

import gzip

import pytest

from rnnjax.data import DataError, Sentence, read_jointslu, read_slot_files

WORDS = "fly to boston\nhow far\n"
SLOTS = "O O B-to\nO O\n"
LABELS = "flight\ndistance#flight\n"
JOINT = "BOS fly to boston EOS\tO O O B-to flight\nBOS how far EOS\tO O O distance#flight\n"
SENTENCES = [
    Sentence(("fly", "to", "boston"), ("O", "O", "B-to"), "flight"),
    Sentence(("how", "far"), ("O", "O"), "distance#flight"),
]


def _files(folder, words=WORDS, slots=SLOTS, labels=LABELS):
    for name, text in (("seq.in", words), ("seq.out", slots), ("label", labels)):
        (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_slot_files(folder)


def _joint(folder, text):
    (folder / "x.iob").write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_jointslu(folder / "x.iob")


def _refused(read, *args) -> str:
    with pytest.raises(DataError) as caught:
        read(*args)
    message = str(caught.value)
    assert message.count("\n") == 1 and len(message) < 600
    return message


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: text[:-1],
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.encode("utf-8-sig"),
        lambda text: gzip.compress(text.encode(), mtime=0),
        lambda text: text.replace("\n", "\n\n") + "\n",  # rows that are blank everywhere
        lambda text: " " + text.replace("\n", " \n ").replace(" to", "   to"),
    ],
    ids=["plain", "no end", "CRLF", "BOM", "gz", "blank", "spaces"],
)
def test_the_same_utterances(tmp_path, change):
    assert _files(tmp_path, change(WORDS), change(SLOTS), change(LABELS)) == SENTENCES
    assert _joint(tmp_path, change(JOINT)) == SENTENCES


def test_files_may_end_in_blank_lines(tmp_path):
    assert _files(tmp_path, WORDS + "\n\n", SLOTS[:-1], LABELS + "  \n") == SENTENCES


@pytest.mark.parametrize(
    "files, name, message",
    [
        ({"slots": "O O B-to\nO\n"}, "seq.out", "line 2: 1 slots, but 2 words in seq.in: 'O'"),
        ({"slots": "O O B-to\nO O O\n"}, "seq.out", "line 2: 3 slots, but 2 words"),
        ({"slots": SLOTS + "O\n"}, "seq.out", "3 lines, but 2 in "),
        ({"labels": "flight\n"}, "label", "1 lines, but 2 in "),
        ({"words": "fly to boston\n\n\n"}, "seq.out", "2 lines, but 1 in "),
        ({"words": "\nhow far\n"}, "seq.in", "line 1: is blank, but 'O O B-to' in seq.out"),
        ({"labels": " \nx\n"}, "label", "line 1: is blank, but 'fly to boston' in seq.in"),
        ({"words": "\n", "slots": "\n"}, "seq.in", "the file is empty"),
        ({"slots": b"O O B-\xff"}, "seq.out", "line 1: b'\\xff' in"),
    ],
)
def test_files_that_do_not_fit(tmp_path, files, name, message):
    assert f"{tmp_path / name}: {message}" in _refused(lambda: _files(tmp_path, **files))


def test_a_missing_file(tmp_path):
    _files(tmp_path)
    (tmp_path / "label").unlink()
    assert f"{tmp_path / 'label'}: cannot be read" in _refused(read_slot_files, tmp_path)
    assert "seq.in: cannot be read" in _refused(read_slot_files, tmp_path / "none")


@pytest.mark.parametrize(
    "line, message",
    [
        ("BOS fly EOS O O flight", "no tab with slots after it: 'BOS fly EOS O O flight'"),
        ("fly EOS\tO O flight", "does not start with BOS and O, or has no EOS"),
        ("BOS fly\tO flight", "does not start with BOS and O, or has no EOS"),
        ("BOS fly EOS\tB-x O flight", "does not start with BOS and O, or has no EOS"),
        ("BOS fly EOS\tO flight", "2 slots and intent, but 3 words with BOS and EOS"),
        ("BOS fly EOS\tO O O flight", "4 slots and intent, but 3 words"),
        ("BOS EOS\tO flight", "no word between BOS and EOS"),
        ("BOS\tO", "does not start with BOS and O, or has no EOS"),
    ],
)
def test_lines_that_are_none_of_jointslu(tmp_path, line, message):
    found = _refused(_joint, tmp_path, JOINT + "\n" + line + "\n")
    assert f"x.iob: line 4: {message}" in found and found.endswith(
        "Expected BOS word .. word EOS, a tab, O slot .. slot INTENT."
    )


def test_a_sentence_of_a_hundred_thousand_words(tmp_path):
    n = 100_000
    (one,) = _files(tmp_path, "a " * n, "O " * n, "x")
    (other,) = _joint(tmp_path, f"BOS {'a ' * n}EOS\tO {'O ' * n}x")
    assert one == other and len(one.words) == n


def test_a_line_of_nothing_but_space_is_no_utterance(tmp_path):
    space = "\u00a0\n"
    words, slots, labels = (text.replace("\n", f"\n{space}", 1) for text in (WORDS, SLOTS, LABELS))
    assert _files(tmp_path, words, slots, labels) == SENTENCES
    assert _joint(tmp_path, JOINT.replace("\n", f"\n{space}", 1)) == SENTENCES
    assert "seq.in: line 2: is blank, but 'O' in seq.out" in _refused(
        _files, tmp_path, words, slots.replace(space, "O\n"), labels
    )

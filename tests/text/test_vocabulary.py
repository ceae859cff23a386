"""Vocabularies: order, sizes, what falls to `other`, files."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rnnjax.data import DataError
from rnnjax.text import Vocabulary
from rnnjax.text.vocabulary import UnknownWord

SENTENCES = [["to", "Taipei", "to"], ["from", "Taipei", "<unk>"], ["Boston"]]


def test_the_most_frequent_come_first_and_ties_are_alphabetical():
    vocabulary = Vocabulary.build(SENTENCES)
    assert vocabulary.words == ("<unk>", "Taipei", "to", "Boston", "from")
    assert vocabulary.counts == (1, 2, 2, 1, 1) and len(vocabulary) == 5
    assert vocabulary == Vocabulary.build(reversed(SENTENCES)) and hash(vocabulary) == hash(Vocabulary.build(SENTENCES))
    assert vocabulary != Vocabulary.build(SENTENCES, other=None)
    assert repr(vocabulary) == "Vocabulary(5 words, other='<unk>')"


def test_what_is_rare_falls_to_other():
    vocabulary = Vocabulary.build(SENTENCES, min_count=2, specials=("<s>",))
    assert vocabulary.words == ("<unk>", "<s>", "Taipei", "to")
    assert vocabulary.counts == (3, 0, 2, 2)  # <unk> of the data, from, Boston
    ids = vocabulary.encode(["to", "Boston", "<s>", "Lima", "<unk>"])
    assert ids.dtype == np.int32 and ids.tolist() == [3, 0, 1, 0, 0]
    assert vocabulary.decode(ids) == ["to", "<unk>", "<s>", "<unk>", "<unk>"]
    assert vocabulary.index("Lima") == 0 and vocabulary.index("to") == 3
    assert "to" in vocabulary and "Lima" not in vocabulary
    assert vocabulary.encode([]).tolist() == [] and vocabulary.encode([]).dtype == np.int32


def test_size_counts_all_entries():
    assert Vocabulary.build(SENTENCES, size=3).words == ("<unk>", "Taipei", "to")
    assert Vocabulary.build(SENTENCES, size=3).counts == (3, 2, 2)
    assert Vocabulary.build(SENTENCES, size=3, other=None).words == ("Taipei", "to", "<unk>")
    assert len(Vocabulary.build(SENTENCES, size=99)) == 5


def test_characters():
    assert Vocabulary.build(["abba", "b"], other=None).words == ("b", "a")


def test_without_an_entry_for_others_an_unknown_word_is_refused_by_place():
    vocabulary = Vocabulary.build([["a", "b"]], other=None)
    assert vocabulary.encode("ba").tolist() == [1, 0]
    with pytest.raises(ValueError, match="word 1 is 'x', not one of the 2 known ones"):
        vocabulary.encode(["a", "x"])
    with pytest.raises(UnknownWord, match="word 0 is 'x'"):
        vocabulary.index("x")


@pytest.mark.parametrize("ids, message", [([0, 2], "ids.1. is 2: expected 0 .. 1"), ([-1], "ids.0. is -1")])
def test_numbers_of_no_word_are_refused(ids, message):
    with pytest.raises(ValueError, match=message):
        Vocabulary(("a", "b")).decode(ids)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Vocabulary.build([]), "sequences hold no word"),
        (lambda: Vocabulary.build([[], []]), "sequences hold no word"),
        (lambda: Vocabulary.build([["a"]], min_count=0), "min_count is 0: expected at least 1"),
        (lambda: Vocabulary.build([["a"]], size=2, specials=("<s>",)), "size is 2: expected more than the 2 entries"),
        (lambda: Vocabulary.build([["a"]], specials=("<s>", "<s>")), "words hold '<s>' twice"),
        (lambda: Vocabulary.build([["a"]], min_count=2, other=None), "words are empty"),
        (lambda: Vocabulary(("a", "b"), other="b"), "other is 'b' but word 0 is 'a'"),
        (lambda: Vocabulary(("a", "b"), counts=(1,)), "counts are 1 for 2 words"),
    ],
)
def test_what_can_not_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "vocabulary",
    [
        Vocabulary.build(SENTENCES, specials=("<s>",)),
        Vocabulary(("a\n", '"', "\\", "Zürich", "台北", "\ud800", "")),
    ],
)
def test_files_hold_all_of_it(tmp_path, vocabulary):
    vocabulary.save(tmp_path / "words.json")
    assert Vocabulary.load(tmp_path / "words.json") == vocabulary
    assert [path.name for path in tmp_path.iterdir()] == ["words.json"]


def _with(**changed) -> bytes:
    return json.dumps({"words": ["a", "b"], "other": None, "counts": [], **changed}).encode()


@pytest.mark.parametrize(
    "data, message",
    [
        (b"", "cannot be read as JSON"),
        (b'{"words": ["a"', "cannot be read as JSON"),
        (b"\x80\x03\x00", "cannot be read as JSON"),
        (b"[" * 100_000, "cannot be read as JSON"),
        (b'["a"]', "holds ['a']: expected words, other and counts"),
        (b'{"words": ["a"]}', "holds 'words': expected words, other and counts"),
        (_with(words="ab"), "words: is 'ab': expected a list"),
        (_with(words=[]), "words are empty"),
        (_with(words=["a", 3]), "words, entry 1: is 3: expected a string"),
        (_with(words=["a", "a"]), "words hold 'a' twice"),
        (_with(other="b"), "other is 'b' but word 0 is 'a'"),
        (_with(other=1), "other: is 1: expected a string or null"),
        (_with(counts=[1]), "counts are 1 for 2 words"),
        (_with(counts=[1, -1]), "counts, entry 1: is -1: expected a whole number"),
        (_with(counts=[1, True]), "counts, entry 1: is True"),
    ],
    ids=range(15),
)
def test_damaged_files_are_refused_by_name(tmp_path, data, message):
    path = tmp_path / "words.json"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        Vocabulary.load(path)
    told = str(caught.value)
    assert told.startswith(str(path)) and message in told and told.count("\n") == 1 and len(told) < 500


@pytest.mark.parametrize("name", ["none.json", "null\0.json", ""])
def test_no_such_file(tmp_path, name):
    with pytest.raises(DataError, match="cannot be read: .*\nCheck the name"):
        Vocabulary.load(tmp_path / name)


WORDS = st.lists(st.lists(st.text(max_size=3), max_size=6), min_size=1, max_size=6)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(WORDS, st.integers(1, 3), st.none() | st.integers(2, 6))
def test_any_words_go_through_a_vocabulary_and_a_file(tmp_path, sentences, min_count, size):
    if not any(sentences):
        return
    vocabulary = Vocabulary.build(sentences, min_count=min_count, size=size)
    seen = [word for sentence in sentences for word in sentence]
    kept = {word for word in seen if word in vocabulary}
    assert sum(vocabulary.counts) == len(seen)
    assert vocabulary.decode(vocabulary.encode(seen)) == [word if word in kept else "<unk>" for word in seen]
    assert all(seen.count(word) >= min_count for word in vocabulary.words[1:])
    vocabulary.save(tmp_path / "words.json")
    assert Vocabulary.load(tmp_path / "words.json") == vocabulary


def test_describe():
    vocabulary = Vocabulary.build(SENTENCES, min_count=2)
    assert vocabulary.describe(top=1).split("\n") == [
        "3 entries, '<unk>' for others",
        "most frequent: 'Taipei' 2 (28.6%) and 1 more",
        "of 7 words of the training data fall to it: 3 (42.9%)",
    ]
    assert vocabulary.describe([["to", "Lima", "to", "Rome", "Lima"]], top=1).split("\n")[3:] == [
        "of 5 words of this text covered: 2 (40.0%); of 3 different ones: 1 (33.3%)",
        "not covered: 'Lima' 2 (40.0%) and 1 more",
    ]
    assert "covered: 1 (50.0%)" in vocabulary.describe([["to", "<unk>"]])
    assert Vocabulary(("a",)).describe([["a"]]).split("\n") == [
        "1 entries, none for others",
        "of 1 words of this text covered: 1 (100.0%); of 1 different ones: 1 (100.0%)",
    ]


@pytest.mark.parametrize(
    "change",
    [
        lambda held: held.update(other=None),
        lambda held: held.update(words=[*held["words"][:1], *held["words"][:0:-1]]),
        lambda held: held["words"].append("more") or held["counts"].append(0),
        lambda held: held["words"].pop() and held["counts"].pop(),
        lambda held: held["counts"].__setitem__(0, 99),
        lambda held: held.update(digest=None),
    ],
)
def test_what_was_changed_after_it_was_saved_is_refused(tmp_path, change):
    """Numbers of other words than a model was trained with are wrong in silence."""
    path = tmp_path / "words.json"
    Vocabulary.build(SENTENCES).save(path)
    held = json.loads(path.read_text())
    path.write_text(json.dumps(held))
    assert Vocabulary.load(path) == Vocabulary.build(SENTENCES), "as another program writes it"
    change(held)
    path.write_text(json.dumps(held))
    with pytest.raises(DataError, match="words.json: words, other or counts were changed after they were saved"):
        Vocabulary.load(path)

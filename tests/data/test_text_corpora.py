"""The counts of the real corpora, as published or as counted from the files in another way."""

import pytest

from rnnjax.data import (
    Sentence,
    read_cmudict,
    read_columns,
    read_jointslu,
    read_labelled,
    read_parallel,
    read_slot_files,
    read_text,
    scheme_of,
    to_scheme,
)
from rnnjax.data.tag_schemes import spans


def _found(corpora, *names):
    paths = [corpora / name for name in names]
    if missing := [str(path) for path in paths if not path.exists()]:
        pytest.skip(f"{', '.join(missing)} missing")
    return paths


def _counts(sentences):
    """Sentences, words, different words, tags and labels, and the longest sentence."""
    words = [word for one in sentences for word in one.words]
    tags, labels = {tag for one in sentences for tag in one.tags}, {one.label for one in sentences}
    return len(sentences), len(words), len(set(words)), len(tags), len(labels), max(len(one.words) for one in sentences)


ATIS = {
    "atis.train": (4978, 56200, 898, 121, 22, 46),
    "atis-2.train": (4478, 50497, 867, 120, 21, 46),
    "atis-2.dev": (500, 5703, 463, 96, 16, 35),
    "atis.test": (893, 9164, 448, 101, 20, 30),
}


@pytest.mark.parametrize("name", ATIS)
def test_atis_in_lines(corpora, name):
    (path,) = _found(corpora, f"atis/jointslu/{name}.w-intent.iob")
    assert _counts(read_jointslu(path)) == ATIS[name]


@pytest.mark.parametrize("split, name", [("train", "atis-2.train"), ("valid", "atis-2.dev"), ("test", "atis.test")])
def test_atis_in_files(corpora, split, name):
    folder, path = _found(corpora, f"atis/slotgated/{split}", f"atis/jointslu/{name}.w-intent.iob")
    sentences, others = read_slot_files(folder), read_jointslu(path)
    assert _counts(sentences) == ATIS[name]
    assert [one.tags for one in sentences] == [one.tags for one in others] or split == "train"


@pytest.mark.parametrize(
    "split, counts, parts_of_speech, chunks",
    [("train", (8936, 211727, 19122, 22, 1, 78), 44, 106978), ("test", (2012, 47377, 8118, 19, 1, 70), 43, 23852)],
)
def test_conll_2000(corpora, split, counts, parts_of_speech, chunks):
    (path,) = _found(corpora, f"conll2000/{split}.txt.gz")
    sentences = read_columns(path)
    assert _counts(sentences) == counts and scheme_of(sentences) == "IOB2"
    assert _counts(read_columns(path, tag=1))[3] == parts_of_speech
    assert sum(len(spans(one.tags)) for one in sentences) == chunks
    for scheme in ("IOB1", "IOBES"):
        converted = [Sentence(one.words, to_scheme(one.tags, scheme)) for one in sentences]
        assert scheme_of(converted) == scheme
        assert all(to_scheme(one.tags, "IOB2") == old.tags for one, old in zip(converted, sentences, strict=True))


@pytest.mark.parametrize("split, n, fine, longest", [("train", 5452, 50, 37), ("test", 500, 42, 17)])
def test_trec(corpora, split, n, fine, longest):
    (path,) = _found(corpora, f"trec/TREC.{split}")
    sentences = read_labelled(path, encoding="latin-1")
    found = _counts(sentences)
    assert (found[0], *found[4:]) == (n, fine, longest)
    assert {one.label.split(":")[0] for one in sentences} == {"DESC", "ENTY", "ABBR", "HUM", "LOC", "NUM"}


@pytest.mark.parametrize("split, n", [("train", 29000), ("val", 1014), ("test_2016_flickr", 1000)])
def test_multi30k(corpora, split, n):
    assert len(read_parallel(*_found(corpora, f"multi30k/{split}.en.gz", f"multi30k/{split}.de.gz"))) == n


@pytest.mark.parametrize("stress, phones", [(False, 39), (True, 69)])
def test_cmudict(corpora, stress, phones):
    pairs = read_cmudict(*_found(corpora, "cmudict/cmudict.dict.gz"), stress=stress)
    letters, sounds = ({one for pair in pairs for one in pair[side]} for side in (0, 1))
    assert (len(pairs), len({pair.source for pair in pairs})) == (135166, 126052)
    assert (len(letters), len(sounds)) == (29, phones)
    assert max(len(pair.source) for pair in pairs) == max(len(pair.target) for pair in pairs) == 28


@pytest.mark.parametrize(
    "split, lines, words", [("train", 42068, 929589), ("valid", 3370, 73760), ("test", 3761, 82430)]
)
def test_penn_treebank(corpora, split, lines, words):
    text = read_text(*_found(corpora, "ptb/ptb.zip"), member=f"ptb.{split}.txt")
    assert (text.count("\n"), len(text.split()) + lines) == (lines, words)


def test_tiny_shakespeare(corpora):
    text = read_text(*_found(corpora, "tinyshakespeare/input.txt"))
    assert (len(text), len(set(text))) == (1115394, 65)

"""Subwords: lines come back, unknowns fall to one piece, files."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from rnnjax.data import DataError
from rnnjax.text import Subwords

LINES = ["the cat sat on the mat", "the dog sat on the log", "cats and dogs, the lot"]
SIZES = {"bpe": 40, "wordpiece": 60}


@pytest.fixture(scope="module", params=SIZES)
def subwords(request):
    return Subwords.train(LINES, request.param, SIZES[request.param], specials=("<s>", "</s>"))


def test_known_lines_come_back(subwords):
    for line in [*LINES, "the dogs sat on the cats", ""]:
        ids = subwords.encode(line)
        assert ids.dtype == np.int32 and ids.ndim == 1 and 0 not in ids
        assert subwords.decode(ids) == line
    assert subwords.pieces([0, 1, 2]) == ["<unk>", "<s>", "</s>"]
    assert sorted(subwords.pieces(range(len(subwords)))) == sorted(set(subwords.pieces(range(len(subwords)))))


def test_unknown_characters_fall_to_piece_0(subwords):
    pieces = subwords.pieces(subwords.encode("the zat"))
    assert pieces.count("<unk>") == 1 and subwords.encode("zz").tolist().count(0) >= 1
    assert "<unk>" in subwords.decode(subwords.encode("the zat"))


def test_what_each_kind_does():
    bpe = Subwords.train(LINES, "bpe", 40)
    assert bpe.pieces(bpe.encode("the logs")) == ["▁the", "▁log", "s"]
    assert bpe.decode(bpe.encode("the  cats")) == "the  cats"
    wordpiece = Subwords.train(LINES, "wordpiece", 60)
    assert wordpiece.pieces(wordpiece.encode("the logs")) == ["the", "log", "##s"]
    assert wordpiece.pieces(wordpiece.encode("the zat")) == ["the", "<unk>"]
    inner = sorted({f"##{letter}" for line in LINES for word in line.split() for letter in word[1:]})
    assert wordpiece.pieces(range(1 + len(inner))) == ["<unk>", *inner]


def test_the_same_data_gives_the_same_pieces(subwords):
    for kind, size in SIZES.items():
        assert Subwords.train(LINES, kind, size) == Subwords.train(iter(LINES), kind, size)
    assert hash(subwords) == hash(Subwords(subwords.content)) and repr(subwords) == "Subwords()"


def test_specials_of_a_line_are_taken_as_such(subwords):
    assert subwords.encode("<s> the")[0] == 1 and subwords.encode("the<s>")[-1] == 1


def test_files(tmp_path, subwords):
    path = tmp_path / "pieces.json"
    subwords.save(path)
    assert Subwords.load(path) == subwords
    assert Tokenizer.from_file(str(path)).encode(LINES[0]).ids == subwords.encode(LINES[0]).tolist()
    path.write_text(json.dumps(json.loads(subwords.content), indent=2), encoding="utf-8-sig")  # as others write it
    assert Subwords.load(path) == subwords


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"version":"1.0"}', b"\xff\xfe\x00", b'{"model": NaN}'])
def test_damaged_files_are_refused_by_name(tmp_path, data):
    path = tmp_path / "pieces.json"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        Subwords.load(path)
    assert str(caught.value).startswith(str(path)) and str(caught.value).count("\n") == 1


def test_a_file_cut_short(tmp_path):
    content = Subwords.train(LINES, "bpe", 40).content.encode()
    for end in range(0, len(content) - 1, 97):
        (tmp_path / "pieces.json").write_bytes(content[:end])
        with pytest.raises(DataError):
            Subwords.load(tmp_path / "pieces.json")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(max_size=30))
def test_any_line_is_encoded(subwords, line):
    ids = subwords.encode(line)
    assert ids.size == 0 or (ids.min() >= 0 and ids.max() < len(subwords))
    assert isinstance(subwords.decode(ids), str)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Subwords.train(LINES, "unigram", 40), "kind is 'unigram': expected one of bpe, wordpiece"),
        (lambda: Subwords.train(LINES, "bpe", None), "size is None: expected a whole number"),
        (lambda: Subwords.train(LINES, "bpe", 5), "size is 5: expected at least 15, for every character"),
        (lambda: Subwords.train(LINES, "bpe", -1), "size is -1: expected a whole number of 1 to 16777216"),
        (lambda: Subwords.train(LINES, "bpe", 10**12), "size is 1000000000000: expected a whole number"),
        (lambda: Subwords.train(LINES, "bpe", "4"), "size is '4': expected a whole number"),
        (lambda: Subwords.train(["a\ud800"], "bpe", 40), r"half a surrogate pair, '.ud800', as character 2"),
        (lambda: Subwords.train(LINES, "bpe", 40).encode("\udc00"), "half a surrogate pair"),
        (lambda: Subwords.train([], "bpe", 40), "lines hold nothing but space"),
        (lambda: Subwords.train([["the"]], "bpe", 40), r"a line is \['the'\]: expected a string"),
        (lambda: Subwords.train(LINES, "bpe", 40).pieces([1, 99]), r"ids\[1\] is 99: expected 0 .. 39"),
        (lambda: Subwords.train(LINES, "bpe", 40).decode([-1]), r"ids\[0\] is -1"),
        (lambda: Subwords("{}"), "content is no tokenizer: 'Model missin"),
    ],
)
def test_what_can_not_be_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def _changed(kind: str, **model) -> dict:
    content = json.loads(Subwords.train(LINES, kind, SIZES[kind]).content)
    content["model"] |= model
    return content


def _load(folder, content) -> Subwords:
    (folder / "pieces.json").write_text(json.dumps(content))
    return Subwords.load(folder / "pieces.json")


def test_truncation_and_padding_of_a_file_are_left_out(tmp_path):
    content = _changed("bpe")
    plain = _load(tmp_path, content).encode(LINES[0]).tolist()
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.enable_truncation(2)
    assert _load(tmp_path, json.loads(tokenizer.to_str())).encode(LINES[0]).tolist() == plain
    tokenizer.no_truncation()
    tokenizer.enable_padding(length=50)
    assert _load(tmp_path, json.loads(tokenizer.to_str())).encode(LINES[0]).tolist() == plain


@pytest.mark.parametrize("kind", SIZES)
def test_tokenizers_that_would_fail_later_are_refused(tmp_path, kind):
    vocabulary = _changed(kind)["model"]["vocab"]
    last = max(vocabulary, key=vocabulary.get)
    for model, message in (
        ({"unk_token": "[UNK]"}, "content has no piece '.UNK.'"),
        ({"vocab": vocabulary | {last: 99}}, f"content has no single piece of number {vocabulary[last]}"),
        ({"vocab": vocabulary | {last: 3}}, "content has no single piece of number 4"),
        ({"vocab": {word: number for word, number in vocabulary.items() if word != "<unk>"}}, "piece of number 0"),
    ):
        with pytest.raises(DataError, match=message):
            _load(tmp_path, _changed(kind, **model))


def test_dropout_is_refused(tmp_path):
    with pytest.raises(DataError, match="content has dropout 0.5"):
        _load(tmp_path, _changed("bpe", dropout=0.5))


def test_a_model_that_knows_no_others_is_tried(tmp_path):
    content = _changed("bpe")
    content["model"] = {"type": "Unigram", "unk_id": None, "vocab": [["a", 0.0], ["b", -1.0]], "byte_fallback": False}
    content["added_tokens"] = []
    with pytest.raises(DataError, match="content is a tokenizer that fails"):
        _load(tmp_path, content)


def test_panics_of_the_library_are_errors(monkeypatch, subwords):
    class PanicException(BaseException):
        pass

    class Broken:
        def encode(self, *arguments, **options):
            raise self.error

    monkeypatch.setitem(subwords.__dict__, "_tokenizer", Broken())
    Broken.error = PanicException("index out of bounds")
    with pytest.raises(ValueError, match="'the' cannot be encoded: 'index out of bounds'"):
        subwords.encode("the")
    Broken.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        subwords.encode("the")

"""Translation: what the decoder is fed is what it wrote a step before, no source is in two splits, no pad counts."""

import collections
import math

import numpy as np
import pytest

from rnnjax.data import DataError
from rnnjax.tasks import Translation, reduce_mean
from rnnjax.tasks.pair_codec import PairCodec
from rnnjax.tasks.parallel import LONGEST, SHORTEST, SYMBOLS, reversals, tokens
from rnnjax.testing import assert_close
from rnnjax.text import Vocabulary

ROWS = [f"{'ab' * (1 + i % 3)}{i}\t{' '.join('XYZ'[: 1 + i % 3])}" for i in range(40)]
ROWS = ["\t".join((" ".join(row.split("\t")[0]), row.split("\t")[1])) for row in ROWS]


@pytest.fixture
def table(tmp_path):
    """40 sources of letters and digits, each with two targets."""
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{row}\n{row} W\n" for row in ROWS))
    return path


def task_of(table, **options):
    return Translation(path=str(table), corpus="pairs", **options)


def test_no_source_is_in_two_splits(table):
    task = task_of(table)
    sources = {split: {pair.source for pair in pairs} for split, pairs in task.pairs.items()}
    assert [len(sources[split]) for split in ("train", "valid", "test")] == [36, 2, 2]
    assert len(set().union(*sources.values())) == 40
    assert task.pairs == task_of(table).pairs, "the split is no draw of a run"
    assert all(len(targets) == 2 for targets in task.references("test"))
    assert [len(pairs) for pairs in task.pairs.values()] == [72, 4, 4]


def test_vocabularies_are_those_of_training(table):
    task = task_of(table)
    seen = {symbol for pair in task.pairs["train"] for symbol in pair.source}
    assert set(task.codec.source.words) == {"<unk>"} | seen
    assert task.codec.target.words[:3] == ("<unk>", "<s>", "</s>") and (task.codec.start, task.codec.stop) == (1, 2)
    assert (task.input_size, task.output_size) == (len(seen) + 1, 3 + 4)
    source, lengths = task.codec.read([("a", "?"), ("b",)])
    assert task.codec.source.decode(source[:, 0]) == ["a", "<unk>"] and lengths.tolist() == [2, 1]


@pytest.mark.parametrize("reverse", [False, True])
def test_an_epoch_holds_every_pair_once_and_the_decoder_is_fed_the_symbol_before(table, reverse):
    task = task_of(table, reverse_source=reverse, buckets=2)
    order = -1 if reverse else 1
    seen = collections.Counter()
    for step in range(task.steps_per_epoch(5)):
        batch = task.batch(step, 5, seed=3)
        (source, fed), targets, mask, lengths, fresh = batch
        assert source.dtype == fed.dtype == targets.dtype == lengths.dtype == np.int32 and fresh is None
        for row, length in enumerate(lengths):
            count = int(mask[:, row].sum())
            np.testing.assert_array_equal(mask[:, row], np.arange(len(mask)) < count)
            if not length:
                assert count == 0
                continue
            assert fed[0, row] == task.codec.start and targets[count - 1, row] == task.codec.stop
            np.testing.assert_array_equal(fed[1:count, row], targets[: count - 1, row])
            read = task.codec.source.decode(source[:length, row])
            seen[tuple(read)[::order], tuple(task.codec.target.decode(targets[: count - 1, row]))] += 1
    assert seen == collections.Counter((s, t) for s, t in task_of(table).pairs["train"])
    again = task.batch(1, 5, seed=3), task_of(table, reverse_source=reverse, buckets=2).batch(1, 5, seed=3)
    np.testing.assert_array_equal(again[0].targets, again[1].targets)


def test_shapes_are_few_and_the_same_for_all_splits(tmp_path):
    path = tmp_path / "pairs.csv"
    lengths = [3, 4, 5, 9] * 50 + [40]
    path.write_text("".join(f"{' '.join('ab'[(i >> k) % 2] for k in range(n))} {i},x\n" for i, n in enumerate(lengths)))
    task = task_of(path, buckets=3)
    batches = [batch for split in task.pairs for batch in task.batches(split, 4)]
    shapes = {(*batch.inputs.source.shape, len(batch.mask)) for batch in batches}
    assert len(shapes) <= 3 and max(shapes)[0] == 41
    assert max(shape[0] for shape in shapes if shape[0] < 41) == 10, "one long pair pads no other"
    total = sum(int(batch.mask.sum()) for batch in batches)
    assert total == 2 * len(lengths), "a symbol and the end of each"
    one = task_of(path, buckets=1)
    assert {batch.inputs.source.shape for batch in one.batches("train", 4)} == {(41, 4)}


def test_loss_and_error_are_of_the_targets_own_symbols(table):
    task = task_of(table)
    batch = next(task.batches("train", 5))
    logits = np.full((*batch.mask.shape, task.output_size), 0.0, np.float32)
    logits[..., 3] = math.log(5)
    p = 5 / (task.output_size + 4)
    wanted = batch.targets[batch.mask > 0]
    loss = np.where(wanted == 3, -math.log(p), -math.log(p / 5)).mean()
    assert_close(reduce_mean(task.loss(logits, batch), batch.mask), loss, 1e-5)
    error, mask = task.metrics(logits, batch)["symbol_error"]
    assert_close(reduce_mean(error, mask), (wanted != 3).mean(), 1e-6)


def test_chance_is_the_training_frequencies(table):
    task = task_of(table)
    counts = collections.Counter(s for pair in task.pairs["train"] for s in (*pair.target, "</s>"))
    sizes = {word: counts[word] + 1 for word in task.codec.target.words if word != "<s>"}
    valid = [s for pair in task.pairs["valid"] for s in (*pair.target, "</s>")]
    want = -np.mean([math.log(sizes[s] / sum(sizes.values())) for s in valid])
    assert_close(task.chance, want, 1e-12)


def test_what_is_written_stands_in_the_order_of_the_split(table):
    task = task_of(table, buckets=2)

    def write(batch):
        return batch.targets, batch.mask.sum(0).astype(int) - 1

    for split, pairs in task.pairs.items():
        want = [tuple(s if s in task.codec.target else "<unk>" for s in pair.target) for pair in pairs]
        assert task.written(split, 3, write) == want


def test_the_generated_corpus_is_written_backwards():
    found = reversals()
    assert found == reversals()
    for pairs in found.values():
        lengths = [len(pair.source) for pair in pairs]
        assert set(lengths) == set(range(SHORTEST, LONGEST + 1))
        assert all(pair.target == pair.source[::-1] and set(pair.source) <= set(SYMBOLS) for pair in pairs)
    held = {split: {pair.source for pair in pairs} for split, pairs in found.items()}
    assert not held["train"] & (held["valid"] | held["test"]) and not held["valid"] & held["test"]
    turned = Translation(reverse_source=True)
    assert all(pair.source == pair.target for pair in turned.pairs["test"])


def test_sentences_are_in_lower_case_and_cut_into_words_or_pieces(tmp_path):
    lines = {"en": "A dog, running.\nTwo dogs run!\n", "de": "Ein Hund rennt.\nZwei Hunde rennen!\n"}
    for split in ("train", "val", "test_2016_flickr"):
        for side, text in lines.items():
            (tmp_path / f"{split}.{side}").write_text(text)
    task = Translation(path=str(tmp_path), corpus="multi30k")
    assert task.pairs["train"][0].source == ("a", "dog", ",", "running", ".")
    assert task.codec.text(task.pairs["valid"][1].target) == "zwei hunde rennen !"
    pieces = Translation(path=str(tmp_path), corpus="multi30k", subwords=30, reverse_source=True)
    target = pieces.pairs["test"][0].target
    assert len(target) > 4 and pieces.codec.text(target) == "ein hund rennt ."
    assert pieces.codec.text(pieces.pairs["test"][0].source[::-1]) == "a dog , running ."
    assert pieces.codec.symbols("A Dog, running.")[::-1] == pieces.pairs["test"][0].source
    assert tokens("It's 5 o'clock") == ("it's", "5", "o'clock")


def test_the_dictionary_is_split_by_word(corpora):
    if not (corpora / "cmudict").is_dir():
        pytest.skip(f"{corpora} has no folder cmudict")
    task = Translation(path=str(corpora / "cmudict"), corpus="g2p")
    words = {split: {pair.source for pair in pairs} for split, pairs in task.pairs.items()}
    assert len(set().union(*words.values())) == sum(map(len, words.values())) > 126_000
    assert task.output_size == 3 + 39
    assert task.references("test")[0] == [
        p.target for p in task.pairs["test"] if p.source == task.pairs["test"][0].source
    ]


@pytest.mark.parametrize("subwords", [0, 20])
def test_what_becomes_of_a_line_is_kept(table, tmp_path, subwords):
    task = task_of(table, subwords=subwords, reverse_source=True)
    task.codec.save(tmp_path)
    codec = PairCodec.load(tmp_path, "pairs", True, subwords > 0)
    assert codec == task.codec and (codec.input_size, codec.output_size) == (task.input_size, task.output_size)
    source, lengths = codec.read([codec.symbols("a  b a")], steps=9)
    assert source.shape == (9, 1) and codec.text(codec.source.decode(source[: lengths[0], 0])[::-1]) == "a b a"
    assert Translation().codec.symbols(" a B ") == ("a", "b")


@pytest.mark.parametrize(
    "options, message",
    [
        ({"corpus": "wmt"}, "corpus of Translation is 'wmt': expected one of reversal, g2p, multi30k, pairs"),
        ({"buckets": 0}, "buckets of Translation is 0: expected a whole number of at least 1"),
        ({"subwords": 100}, "subwords of Translation is 100 but reversal has no words: expected 0"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Translation(**options)


def test_too_few_sources_or_pieces_are_refused(table, tmp_path):
    path = tmp_path / "few.tsv"
    path.write_text("".join(f"{i}\tx\n" for i in range(19)))
    with pytest.raises(DataError, match="few.tsv: 19 different sources leave nothing for valid\nGive at least 20"):
        _ = task_of(path).pairs
    with pytest.raises(DataError, match="subwords of Translation is 3: size is 3: expected at least"):
        _ = task_of(table, subwords=3).pairs
    with pytest.raises(ValueError, match="split is 'dev': expected one of train, valid, test"):
        Translation().batches("dev", 2)


@pytest.mark.parametrize("symbol", ["<s>", "</s>"])
@pytest.mark.parametrize("subwords", [0, 40])
def test_targets_that_hold_the_start_or_the_end_are_refused_by_line(table, symbol, subwords):
    table.write_text(table.read_text().replace("\n", f" {symbol}\n", 1))
    with pytest.raises(DataError, match=rf"pairs.tsv: line 1: the target holds '{symbol}', which is reserved"):
        _ = task_of(table, subwords=subwords).pairs


def test_sources_may_hold_any_word_and_the_unknown_symbol_is_what_it_says(table):
    table.write_text("".join(f"<s> </s> {row} <unk>\n" for row in ROWS))
    task = task_of(table)
    assert task.chance < math.inf and {"<s>", "</s>"} <= set(task.codec.source.words)
    assert all(batch.targets.max() < task.output_size for batch in task.batches("train", 5))
    assert task.codec.target.words.count("<unk>") == 1


def test_a_piece_that_is_the_end_of_a_target_is_refused(table):
    table.write_text("".join(f"{row.split(chr(9))[0]}\t{'abcdefgh'[i % 8]}</s>\n" for i, row in enumerate(ROWS)))
    assert "a</s>" in task_of(table).codec.target, "as a word it is one"
    with pytest.raises(DataError, match=r"pairs.tsv: the target '.*' is cut into pieces of which one is '</s>'"):
        _ = task_of(table, subwords=22).pairs


def test_a_blank_sentence_of_one_language_is_refused_by_line(tmp_path):
    for split in ("train", "val", "test_2016_flickr"):
        (tmp_path / f"{split}.en").write_text("A dog.\n\u00a0\nTwo dogs.\n")
        (tmp_path / f"{split}.de").write_text("Ein Hund.\n\u2003\nZwei Hunde.\n")
    task = Translation(path=str(tmp_path), corpus="multi30k")
    assert [pair.target[0] for pair in task.pairs["train"]] == ["ein", "zwei"]
    (tmp_path / "val.de").write_text("Ein Hund.\nLeer.\nZwei Hunde.\n")
    with pytest.raises(DataError, match="val.en: line 2: is blank, but 'Leer.' in val.de"):
        _ = Translation(path=str(tmp_path), corpus="multi30k").pairs


def test_a_codec_is_read_again_or_refused_by_file(table, tmp_path):
    codec = task_of(table).codec
    codec.save(tmp_path)
    assert PairCodec.load(tmp_path, "pairs", False, False) == codec
    assert codec.symbols("\u00a0 ") == () and codec.symbols("a\u00a0b c") == ("a\u00a0b", "c")
    codec.source.save(tmp_path / "target_vocabulary.json")
    with pytest.raises(DataError, match="target_vocabulary.json: words: '<s>' is not among them"):
        PairCodec.load(tmp_path, "pairs", False, False)
    Vocabulary(codec.source.words).save(tmp_path / "source_vocabulary.json")
    with pytest.raises(DataError, match="source_vocabulary.json: other: is null: expected an entry for unknown"):
        PairCodec.load(tmp_path, "pairs", False, False)

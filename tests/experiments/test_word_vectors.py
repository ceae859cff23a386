"""The study of word vectors: its control, its measurements, and claims that can fail."""

import collections
import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import word_vectors
from experiments.common import words as measuring
from experiments.common.words import Shuffled, count_collisions, lexicon, one_hot_distances, time_lookup
from rnnjax.data import DataError, read_vectors
from rnnjax.tasks import SkipGram
from rnnjax.tasks.contexts import KINDS
from rnnjax.text import Vocabulary
from rnnjax.train.build import make_task
from rnnjax.train.config import UsageError

CMUDICT = "good  G UH1 D\ngood(2)  G UH0 D\nfood  F UW1 D\n"


def small(variant="generated", **changes):
    config = word_vectors.get_config(variant, "quick")
    config.train = dataclasses.replace(
        config.train, epochs=0, steps=8, steps_per_call=8, eval_every=8, log_every=8, batch_size=16
    )
    return dataclasses.replace(config, features=4, **changes)


def test_the_control_has_the_same_words_in_another_order():
    sentences, shuffled = SkipGram().sentences, Shuffled().sentences
    for split in sentences:
        assert list(map(len, shuffled[split])) == list(map(len, sentences[split]))
        assert shuffled[split] != sentences[split]

    def counted(found):
        return collections.Counter(word for part in found.values() for words in part for word in words)

    assert counted(shuffled) == counted(sentences)
    assert set(Shuffled().vocabulary.words) == set(SkipGram().vocabulary.words)


def test_one_hot_distances():
    for size in (2, 5, 1003):
        assert one_hot_distances(size) == (np.sqrt(2), np.sqrt(2))


def test_encoders_that_are_none_are_found(monkeypatch):
    def like(ids, size):  # the last id is like the first
        return jnp.asarray(np.eye(size, dtype=np.float32)[np.asarray(ids) % (size - 1)])

    monkeypatch.setattr(measuring, "OneHot", lambda size: lambda ids: like(ids, size))
    assert one_hot_distances(4) == (0, np.sqrt(2))
    with jax.disable_jit():
        (row,) = time_lookup((3,), features=2, count=20, rounds=1)
    assert row["difference"] > 0.01


def test_the_dictionary_is_read_or_it_is_said_why_not(tmp_path, monkeypatch):
    (tmp_path / "cmudict.dict").write_text(CMUDICT, encoding="utf-8")
    assert lexicon(str(tmp_path)) == (["food", "good"], "")
    monkeypatch.setenv("RNNJAX_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words, why = lexicon("")
    assert words == [] and why.startswith("none of cmudict.dict.gz, cmudict.dict found")
    with pytest.raises(DataError, match="no such file"):
        lexicon(str(tmp_path / "none"))


def test_a_lookup_is_the_product_to_the_bit():
    (row,) = time_lookup((7,), features=3, count=5, rounds=1)
    assert row["difference"] == 0 and row["product"] > 0 and row["both"] > 0 and row["size"] == 7


def test_kinds_are_counted_by_hand():
    task = SkipGram()
    model = skipgram_of(task)
    table = np.random.default_rng(0).normal(size=(task.input_size, 4)) * 0.01 + [0, 0, 0, 9]
    for place, members in enumerate(KINDS.values()):
        table[task.vocabulary.encode(members)] = 5 * np.eye(4)[place]
    table[task.vocabulary.index("pear")] = [0, 0, 5, 0.1]  # a little apart from the animals
    model.encoder.table[...] = table
    scores = word_vectors.kinds_of(task)(model)
    assert scores["hongkong"] == pytest.approx(1) and scores["apple"] == pytest.approx(0)
    # Eight cities and animals have 7 of 7, seven fruits 6 of 7, and the pear none.
    assert scores["same_kind"] == pytest.approx(100 * (56 + 56 + 42) / (24 * 7))


def skipgram_of(task):
    return word_vectors.make_entries(small(), task)[0].make_model(0)


def test_models_differ_by_seed_alone():
    first, again, other = (word_vectors.vectors_of(control_of(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def control_of(seed):
    return word_vectors.make_entries(small(), SkipGram())[1].make_model(seed)


def summary_of(**scores):
    return {"replicas": [{"label": "seed=0", "scores": scores, "stopped": None, "diverged": False, "step": 1}]}


@pytest.mark.parametrize("right", [True, False])
def test_claims_of_the_generated_corpus_hold_or_not(right):
    skipgram = {"hongkong": 0.9, "apple": 0.6 if right else 0.8, "same_kind": 96.0 if right else 94.0}
    summaries = {"skipgram": summary_of(**skipgram), "shuffled": summary_of(same_kind=8.0 if right else 21.0)}
    config = word_vectors.get_config("generated", "quick")
    claims = word_vectors.kind_claims(config, summaries)
    assert [claim.holds for claim in claims] == [right] * 3
    diverged = {"replicas": [{"scores": {}}]}
    claims = word_vectors.kind_claims(config, {"skipgram": diverged, "shuffled": diverged})
    assert len(claims) == 3 and not any(claim.holds for claim in claims)
    assert word_vectors.kind_claims(dataclasses.replace(config, features=8), summaries) == []


@pytest.mark.parametrize("right", [True, False])
def test_claims_of_the_encodings_hold_or_not(right):
    collisions = [{"size": word_vectors.HUANG, "words": 50_000, "sharing": 10 if right else 11}]
    ratio, difference = (10.5, 0.0) if right else (9.5, 1e-7)
    measured = {
        "distances": [np.sqrt(2), np.sqrt(2) + (0 if right else 1e-6)],
        "collisions": collisions,
        "lookup": [
            {"size": 10, "product": 1.0, "difference": difference},
            {"size": 100, "product": ratio, "difference": 0.0},
        ],
    }
    assert [claim.holds for claim in word_vectors.encoding_claims(measured)] == [right] * 4
    few = {**measured, "collisions": [{**collisions[0], "words": 30_000, "sharing": 0}]}
    assert not word_vectors.encoding_claims(few)[1].holds
    none = word_vectors.encoding_claims({**measured, "collisions": [], "no_lexicon": "it is not there"})
    assert none[1].not_measured == "it is not there" and not none[1].holds


@pytest.mark.parametrize(
    "config, message",
    [
        (small(), None),
        (dataclasses.replace(small(), features=0), "--config.features is 0: expected at least 1"),
        (dataclasses.replace(small(), seeds=0), "--config.seeds is 0"),
        (small(words=("Taipie",)), "--config.words has Taipie, .*: did you mean Taipei"),
        (small("text"), "path of SkipGram is '' but corpus is 'text'"),
    ],
)
def test_configs_that_can_not_be_are_refused_before_anything_is_written(tmp_path, config, message):
    if message is None:
        assert word_vectors.shown_words(config, make_task(config.task)[1])[:2] == ("Taipei", "apple")
        return
    with pytest.raises(UsageError, match=message):
        word_vectors.main(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_was_measured_is_not_measured_again(tmp_path, monkeypatch):
    monkeypatch.setattr(word_vectors, "TABLES", (5,))
    measured = word_vectors.measure(tmp_path / "measured.json", 3, [], "it is not there")
    assert measured["words"] == 3 and measured["collisions"] == [] and measured["no_lexicon"] == "it is not there"
    assert word_vectors.measure(tmp_path / "measured.json", 9, ["good"], "") == measured


@pytest.mark.parametrize("variant", ["text", pytest.param("generated", marks=pytest.mark.full)])
def test_a_run_from_end_to_end(tmp_path, monkeypatch, variant):
    monkeypatch.setattr(word_vectors, "TABLES", (5, 20))
    (tmp_path / "cmudict.dict").write_text(CMUDICT, encoding="utf-8")
    config = small(variant, seeds=2, lexicon=str(tmp_path / "cmudict.dict"))
    if variant == "text":
        lines = "\n".join(" ".join(words) for words in SkipGram().sentences["train"][:400])
        (tmp_path / "text.txt").write_text(lines, encoding="utf-8")
        config.task.path = str(tmp_path / "text.txt")
    run = tmp_path / "run"
    word_vectors.main(config, run)
    report, claims = (run / "report.md").read_text(), json.loads((run / "claims.json").read_text())["claims"]
    assert len(claims) == 4 and "No claim is made of what was learned" in report
    assert "## Nearest neighbours" in report and "2 words of the CMU" in report
    words, vectors = read_vectors(run / "vectors.txt")
    assert tuple(words) == Vocabulary.load(run / "vocabulary.json").words and vectors.shape == (len(words), 4)
    for name in ("similarities.png", "projection.png", "collisions.png"):
        assert (run / name).exists()


def test_collisions_are_those_of_the_hashing():
    rows = count_collisions(["good", "food"], (1, 10**6))
    assert [row["sharing"] for row in rows] == [2, 0] and rows[1]["size"] == 10**6

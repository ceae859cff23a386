"""The study of text classification: what it counts, claims that can fail, and a run from end to end."""

import dataclasses
import json
from collections import Counter

import numpy as np
import pytest
from changed_configs import changed

from experiments import text_classification
from experiments.common.pretrained import read_start
from rnnjax.cells import CELLS
from rnnjax.layers import Stack
from rnnjax.nn import Trigrams
from rnnjax.tasks import Classification
from rnnjax.train.config import UsageError


def small(*cells, variant="questions", **task):
    config = text_classification.get_config(variant, "quick")
    config.model.hidden_size = config.model.embedding_size = 4
    config.task = dataclasses.replace(config.task, **task)
    return dataclasses.replace(config, cells=cells)


def test_a_model_is_what_the_config_says():
    config = small("jordan", encoding="trigrams", trigrams=32)
    task = Classification(encoding="trigrams", trigrams=32)
    config.model.layers = 2
    model = text_classification.make_classifier("jordan", task, config, seed=0)
    assert isinstance(model.encoder, Trigrams) and isinstance(model.rnn.layer, Stack) and model.reads_last
    assert [part.forward.output_size for part in model.rnn.layer.layers] == [4, task.output_size]
    config.model.bidirectional, config.model.layers = False, 1
    assert text_classification.make_classifier("gru", task, config, seed=0).rnn.layer == CELLS["gru"](4, 4)


def test_scores_are_those_of_the_predictions(monkeypatch):
    task = Classification()
    said = [task.answers.words[len(one.words[0]) % task.output_size] for one in task.sentences["test"]]
    monkeypatch.setattr(Classification, "predictions", lambda self, split, size, apply: said)
    monkeypatch.setattr(text_classification, "applied", lambda model: None)
    gold = [one.label for one in task.sentences["test"]]
    pairs = Counter(zip(gold, said, strict=True))
    counts = text_classification.confusion(task, 10, None)
    names = text_classification.names_of(task)
    assert {(names[row], names[at]): counts[row, at] for row, at in np.argwhere(counts)} == pairs
    found = text_classification.scores_of(task, 10)(None)
    assert found["accuracy"] == pytest.approx(100 * np.mean([a == b for a, b in zip(gold, said, strict=True)]))
    for name in names:
        hits, given, there = pairs[name, name], said.count(name), gold.count(name)
        precision, recall = hits / max(given, 1), hits / there
        want = 200 * precision * recall / (precision + recall) if hits else 0
        assert found[f"f1 {name}"] == pytest.approx(want)
    assert found["macro_f1"] == pytest.approx(np.mean([found[f"f1 {name}"] for name in names]))


def summary_of(accuracy):
    return {"replicas": [{"scores": {"accuracy": accuracy}}]}


def test_claims_hold_or_not():
    full = text_classification.get_config("trec", "full")
    for config, good, bad in ((text_classification.get_config("questions", "quick"), 99.1, 98.9), (full, 89.6, 89.4)):
        cell = "lstm"
        for value in (good, bad):
            (claim,) = text_classification.claims_of(config, {cell: summary_of(value)})
            assert claim.holds == (value == good)
    jordan = {"jordan": summary_of(50.0), "gru": summary_of(99.5)}
    (claim,) = text_classification.claims_of(text_classification.get_config("questions", "quick"), jordan)
    assert claim.holds  # it remembers by its outputs alone
    full.train.learning_rate = 1.0
    assert text_classification.claims_of(full, {"lstm": summary_of(95.0)}) == []
    assert text_classification.claims_of(small("lstm"), {"lstm": summary_of(100.0)}) == []


@pytest.mark.parametrize(
    "change, message",
    [
        ({"cells": ("lsmt",)}, "--config.cells has 'lsmt': expected some of elman"),
        ({"cells": ()}, "--config.cells is empty"),
        ({"model.embedding_size": 0}, "--config.model.embedding_size is 0: expected at least 1"),
        ({"model.vectors": "x.txt", "task.encoding": "trigrams"}, "--config.model.vectors is x.txt, but"),
    ],
)
def test_what_can_not_be_is_named(change, message):
    with pytest.raises(UsageError, match=message):
        text_classification.check(changed(small("gru"), change))


def test_words_start_with_the_vectors_of_a_file(tmp_path, capsys):
    path, config = tmp_path / "vectors.txt", small("gru")
    path.write_text("Who 9 9 9 9\nwho 1 2 3 4\nWHO 9 9 9 9\nTaipei 5 6 7 8\nnowhere 0 0 0 0\n")
    config.model.vectors = str(path)
    task = Classification()
    start = read_start(config.model, task.codec)
    assert "2 of " in capsys.readouterr().err
    table, drawn = (
        text_classification.make_classifier("gru", task, config, 0, vectors).encoder.table[...]
        for vectors in (start, None)
    )
    who = task.vocabulary.index("who")
    np.testing.assert_array_equal(table[who], [1, 2, 3, 4])
    city = task.vocabulary.index("taipei")
    np.testing.assert_array_equal(table[city], [5, 6, 7, 8])
    np.testing.assert_array_equal(np.delete(table, [who, city], 0), np.delete(drawn, [who, city], 0))
    config.model.embedding_size = 5
    with pytest.raises(UsageError, match="of 4 features a word, .* give --config.model.embedding_size=4"):
        read_start(config.model, task.codec)
    path.write_text("nowhere 0 0 0 0\n")
    with pytest.raises(UsageError, match="it has a vector of nothing that is read"):
        read_start(config.model, task.codec)


def test_a_run_from_end_to_end_answers_lines(tmp_path):
    config = small("gru")
    config.model.vectors = str(tmp_path / "vectors.txt")
    (tmp_path / "vectors.txt").write_text("who 1 2 3 4\n")
    config.train = dataclasses.replace(config.train, epochs=0, steps=20, steps_per_call=20, eval_every=20)
    config.task.buckets = 1
    workdir = tmp_path / "run"
    text_classification.main(config, workdir)
    text = (workdir / "report.md").read_text()
    assert "| gru |" in text and "F1 of every class" in text and "| abbreviation |" in text
    claims = json.loads((workdir / "claims.json").read_text())["claims"]
    assert claims == [] and "No claim is judged" in text
    (tmp_path / "vectors.txt").unlink()  # an answer needs it no more
    for name in ("scores.png", "confusion.png", "vocabulary.json", "classes.json"):
        assert (workdir / name).exists()
    answer = text_classification.predictor(config, workdir, "gru")
    found = answer("Who brought a piano to Taipei")
    assert found.unknown == ("piano",) and set(found.probabilities) == set(Classification().answers.words)
    assert sum(found.probabilities.values()) == pytest.approx(1)

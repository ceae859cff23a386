"""The language study, small: what it leaves behind, what answers from it, and claims that can fail."""

import dataclasses
import json
import math

import jax
import numpy as np
import pytest
from changed_configs import changed
from flax import nnx

from experiments import language_model
from experiments.common import language
from experiments.common.language import Writer, best_guesses, make_language_model, recall_of
from experiments.common.language_report import entropy, generated_claims, measure_of, ptb_claims, report_of
from rnnjax import predict
from rnnjax.data.tales import tales
from rnnjax.nn import Embedding, OneHot
from rnnjax.tasks import Language
from rnnjax.text import Vocabulary
from rnnjax.train import cli
from rnnjax.train.config import UsageError
from rnnjax.train.records import release_workdirs

SMALL = ("train.steps=4", "train.steps_per_call=2", "train.eval_every=2", "train.log_every=2", "train.batch_size=2",
         "train.eval_batch=2", "model.hidden_size=4", "task.length=6", "sample.length=20", "seeds=2")  # fmt: skip


def run(workdir, *flags):
    """Runs a command line in this process, and returns the exit status."""
    given = ["language_model", f"--workdir={workdir}", *(f"--config.{flag}" for flag in (*SMALL, *flags))]
    try:
        parsed = cli.parse_or_exit(
            [given[0], "--config=text", *given[1:]],
            language_model.get_config,
            doc=language_model.__doc__,
            variants=language_model.VARIANTS,
        )
        return cli.call(language_model.main, parsed)
    finally:
        release_workdirs()  # as at the end of a process


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished study of a text that is gone since."""
    folder = tmp_path_factory.mktemp("language_model")
    path = folder / "text.txt"
    path.write_text("".join(f"{number} bottles on the wall\n" for number in range(99, 30, -1)))
    assert run(folder / "run", f"task.path={path}", "cells=elman") == 0
    path.unlink()
    return folder / "run"


def test_the_study_leaves_scores_and_samples(finished):
    summary = json.loads((finished / "elman" / "summary.json").read_text())
    bits = [one["scores"]["bits"] for one in summary["replicas"]]
    losses = [one["scores"]["loss"] for one in summary["replicas"]]
    np.testing.assert_allclose(bits, np.array(losses) / math.log(2), rtol=1e-5)
    report = (finished / "report.md").read_text()
    mean = np.mean(losses) / math.log(2)
    assert f"| {mean:.3f} ± {np.std(losses, ddof=1) / math.log(2):.3f} |" in report
    rows = [line for line in report.splitlines() if line.startswith(("| elman | 0.5 |", "| elman | 1 |"))]
    assert len(rows) == 2 and all(len(row.split("|")[3].strip()) >= 15 for row in rows)
    assert (finished / "scores.png").stat().st_size > 1000
    vocabulary = Vocabulary.load(finished / "vocabulary.json")
    assert set(vocabulary.words) == {"<unk>", *"0123456789 botlesnhwa\n"}


def test_a_finished_model_answers_without_its_corpus(finished, capsys):
    (finished.parent / "lines.txt").write_text("99 bottles\nÜÜ\n")
    command = ["predict", f"--workdir={finished}", f"--input={finished.parent}/lines.txt", "--length=7", "--seed=3"]
    answers = []
    for more in ([], ["--temperature=0"], ["--seed=3"]):
        parsed = cli.read_or_exit(predict.parse, command + more)
        assert cli.call(predict.main, parsed) == 0
        out, err = capsys.readouterr()
        assert err == "line 2: not known: 'Ü'\n" and len(out) == 2 * 8
        answers.append(out)
    assert answers[0] == answers[2] != answers[1]


def test_a_model_goes_on_as_its_parameters_say(finished):
    config = language_model.get_config("text", "quick")
    config.model.hidden_size = 4
    writer = Writer("elman", config, finished / "elman")
    vocabulary = writer.vocabulary
    model = language.restored(make_language_model("elman", config, len(vocabulary), 9), finished / "elman")
    written = "".join(writer("9 b", temperature=0, length=6, seed=0))
    read = [vocabulary.index("\n"), *vocabulary.encode("9 b"), *vocabulary.encode(written)]
    expected = np.argmax(model(np.array(read)[:, None])[:, 0], -1)[3:-1]
    assert vocabulary.decode(expected) == list(written)


def test_words_are_written_with_spaces_and_lines():
    writer = object.__new__(Writer)
    writer.symbols, writer.vocabulary = "words", Vocabulary(("<unk>", "<eos>", "a", "b"), "<unk>")
    writer._sample = lambda read, **options: iter([*read, 2, 1, 3, 0, 1, 1, 2, 2])
    written = "".join(writer("b c", temperature=1.0, length=11, seed=0))  # what is read comes again
    assert written == "\nb <unk> a\nb <unk>\n\na a"
    assert "".join(writer("", temperature=1.0, length=4, seed=0)) == "\na\nb"
    assert writer.split("to  be") == ("to", "be")


def test_models_are_what_the_config_says():
    config = language_model.get_config("generated", "quick")
    config.model.hidden_size = 5
    for cell, tied, size, encoder, rows in (
        ("elman", True, 0, Embedding, 5),
        ("elman", False, 3, Embedding, 3),
        ("elman", False, 0, OneHot, 7),
        ("jordan", True, 0, OneHot, 7),
        ("jordan", True, 2, Embedding, 2),
    ):
        config.model.tied, config.model.embedding_size = tied, size
        model = make_language_model(cell, config, 7, 0, np.arange(7.0))
        assert type(model.encoder) is encoder and model.encoder.features == rows
        assert model.tied == (tied and cell == "elman")
        assert jax.eval_shape(lambda ids, model=model: model(ids), np.zeros((2, 3), np.int32)).shape == (2, 3, 7)
        if cell == "elman":
            np.testing.assert_array_equal(model.head.bias[...], np.arange(7.0))


class _Next(nnx.Module):
    """Guesses the number after the one that it reads."""

    def initial_carry(self, rows):
        return np.zeros((rows, 1), np.float32)

    def stream(self, inputs, carry, lengths=None):
        return jax.nn.one_hot(inputs + 1, 40), carry


def test_guesses_stand_in_the_order_of_the_text():
    task = Language(length=50)
    text = task.ids["valid"]
    expected = np.concatenate([[task.start], text[:-1]]) + 1
    for rows in (1, 7):
        np.testing.assert_array_equal(best_guesses(_Next(), task, "valid", rows), expected)


@pytest.mark.parametrize("symbols", ["characters", "words"])
def test_recall_is_that_of_the_name_at_the_end(symbols, monkeypatch):
    task = Language(symbols=symbols)
    text = task.ids["test"]
    guesses = text.copy()
    monkeypatch.setattr(language, "best_guesses", lambda *_: guesses)
    assert recall_of(task)(None) == {"recalled": 100.0}
    places, read = [], ""
    for tale in task.texts["test"].splitlines():
        first, *others = tale.split(", says ")
        read += first
        for number, other in enumerate(others):  # NAME. SENTENCE
            read += ", says "
            if number > 0:
                places.append(len(read) if symbols == "characters" else len(read.replace("\n", " | ").split()))
            read += other
        read += "\n"
    assert read == task.texts["test"]
    assert len(places) > 300
    guesses[places[: len(places) // 4]] = 0
    share = 1 - (len(places) // 4) / len(places)
    assert recall_of(task)(None) == {"recalled": pytest.approx(100 * share)}
    guesses[:] = 0
    guesses[places] = text[places]
    assert recall_of(task)(None) == {"recalled": 100.0}


def summary(*losses, recalled=99.0, seconds=100.0):
    replicas = [{"label": "", "scores": {"loss": loss, "recalled": recalled}, "stopped": None} for loss in losses]
    return {"replicas": replicas, "parameters": 5, "seconds": seconds}


def test_claims_of_the_generated_text_can_fail():
    task = Language()
    source = entropy(task)
    text = task.texts["test"]
    assert source == pytest.approx(tales("test", text.count("\n")).nats / len(text))
    near, far = summary(1.05 * source, 1.1 * source), summary(1.2 * source, 1.1 * source, recalled=50.0)
    assert [claim.holds for claim in generated_claims(task, {"lstm": near, "gru": near, "elman": far})] == [True] * 5
    assert [claim.holds for claim in generated_claims(task, {"lstm": far, "elman": near})] == [True, False, False]
    assert [claim.holds for claim in generated_claims(task, {"elman": summary(0.98 * source)})] == [False]
    assert [claim.holds for claim in generated_claims(task, {"elman": summary()})] == [False]  # it diverged
    assert generated_claims(task, {}) == []


def test_claims_of_the_penn_treebank_can_fail():
    characters, words = (Language(corpus="ptb", symbols=symbols) for symbols in ("characters", "words"))
    nats = 1.45 * math.log(2)
    assert [claim.holds for claim in ptb_claims(characters, {"lstm": summary(nats, seconds=3599)})] == [True, True]
    assert [claim.holds for claim in ptb_claims(characters, {"lstm": summary(nats + 1e-3, nats)})] == [False, True]
    assert [claim.holds for claim in ptb_claims(words, {"lstm": summary(math.log(114.4))})] == [True, True]
    assert [claim.holds for claim in ptb_claims(words, {"lstm": summary(math.log(115), seconds=3600)})] == [False] * 2
    config = language_model.get_config("ptb_characters", "full")
    assert language_model.as_published(dataclasses.replace(config, seeds=3, cells=("gru",)))
    config.model.hidden_size += 1
    assert not language_model.as_published(config)
    assert not language_model.as_published(language_model.get_config("ptb_words", "quick"))
    assert not language_model.as_published(language_model.get_config("shakespeare", "full"))
    assert language_model.as_published(language_model.get_config("generated", "quick"))


def test_words_are_reported_in_perplexity():
    task = Language(symbols="words")
    study = report_of(task, {"gru": summary(2.0, 2.1)}, {"gru": {0.5: "a\nb"}}, [])
    ((name, _, perplexity, *_),) = study.tables[0].rows
    mean = (math.exp(2.0) + math.exp(2.1)) / 2
    assert name == "gru" and perplexity.startswith(f"{mean:.1f} ± ")
    assert study.tables[1].rows == [("gru", "0.5", "a ⏎ b")]
    assert measure_of(task).name == "perplexity" and f"{math.exp(task.chance):.1f} perplexity" in study.text


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model.bidirectional": True}, "--config.model.bidirectional is true"),
        ({"model.embedding_size": -1}, "--config.model.embedding_size is -1"),
        ({"sample.temperatures": (0.5, -1.0)}, "--config.sample.temperatures is 0.5,-1.0"),
        ({"sample.length": 0}, "--config.sample.length is 0"),
        ({"cells": ()}, "--config.cells is empty"),
        ({"task.length": 0}, "length of Language is 0"),
    ],
)
def test_what_can_not_be_is_refused(change, message):
    config = changed(language_model.get_config("generated", "quick"), change)
    with pytest.raises(UsageError) as caught:
        language_model.check(config)
    assert str(caught.value).startswith(message)

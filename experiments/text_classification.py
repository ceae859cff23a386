"""What is a question about? One class for a sequence of words or characters.

Question: how well does each recurrent network name the class of a sentence from where it ends, trained from scratch?
Source: Li, Roth 2002 (TREC); Kim 2014 and Zhou et al. 2015 for published scores; Schuster, Paliwal 1997.
Command: python -m experiments.text_classification --workdir=runs/text_classification
Expected: on generated questions, of which some differ in the order of the words alone, every network with a hidden
    state names the kind of 99 % and more; Jordan, which remembers by its six outputs alone, of fewer. On TREC
    (--config=trec:full) a bidirectional LSTM reaches an accuracy of 89.5 or more.
Runtime: quick, under 2 minutes on 2 cores; trec:full, about half an hour, three seeds of every cell.

Each network reads in both directions (--config.model.bidirectional=false: from the start alone), and a linear layer
sees where its top layer ends. --config=atis tells what a request wants; --config=names of which of 18 languages a
surname is, character by character; --config=files --config.task.path=FILE reads one's own lines `CLASS word word ...`.
--config.model.vectors=FILE starts with the vectors of a word2vec or GloVe file, --config.model.embedding_size of each.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
from flax import nnx

from experiments.common.claims import Claim
from experiments.common.pretrained import Vectors, embedding, read_start
from experiments.common.study import (
    Entry,
    applied,
    check_entries,
    check_sizes,
    differs_only_in,
    every,
    mean_sd,
    run_entries,
    told,
    values_of,
)
from experiments.common.study_report import Study, Table, write_study
from rnnjax.answers import Answer, Label, restored, standings, words_of
from rnnjax.cells import CELLS
from rnnjax.nn import TextClassifier, Trigrams
from rnnjax.report.confusion import confusion_matrix
from rnnjax.report.scores import Score, score_points
from rnnjax.tasks import Classification
from rnnjax.tasks.classification import ClassCodec
from rnnjax.text import Vocabulary
from rnnjax.train import cli
from rnnjax.train.build import cell_options, check_cells, make_layer, make_task, task_options
from rnnjax.train.config import GradientConfig, LayersConfig, TrainConfig, UsageError, to_dict
from rnnjax.train.records import claim_workdir
from rnnjax.train.step import INIT, root_key, stream

VARIANTS = ("questions", "trec", "atis", "names", "files")
QUICK = ("elman", "jordan", "lstm", "gru")


@dataclasses.dataclass
class ClassifierConfig(LayersConfig):
    """embedding_size: features of the vector that stands for a word or a character.
    vectors: a word2vec or GloVe file, with whose vectors what is read starts.
    """

    embedding_size: int = 100
    vectors: str = ""


@dataclasses.dataclass
class Config:
    """cells: of which a classifier is trained each.
    seeds: how many are trained of each, from config.train.seed on.
    """

    task: Any
    cell_options: Any
    model: ClassifierConfig
    train: TrainConfig
    cells: tuple[str, ...]
    probe: GradientConfig = dataclasses.field(default_factory=GradientConfig)
    seeds: int = 1


def get_config(variant: str, preset: str) -> Config:
    """The config of a corpus: `quick`, or with three seeds of every cell."""
    quick = preset == "quick"
    generated = variant == "questions"
    training = TrainConfig(
        epochs=(6 if generated else 3) if quick else 8,
        steps_per_call=20,
        batch_size=32,
        learning_rate=2e-3,
        schedule="linear",
        clip_norm=5.0,
        eval_every=80,
        eval_batch=100,
        log_every=20,
        seed=100,
    )
    hidden, embedding = (32, 32) if generated else (64, 64) if quick or variant == "names" else (150, 300)
    model = ClassifierConfig(hidden_size=hidden, embedding_size=embedding, bidirectional=True)
    if not generated:
        model.dropout = 0.5
    task = task_options("classification", corpus=variant, encoding="characters" if variant == "names" else "words")
    cells = (QUICK if generated else ("lstm", "gru")) if quick else tuple(CELLS)
    options = cell_options(jordan={"feedback": "identity"})  # a softmax of the outputs would lose what is no class
    return Config(task, options, model, training, cells, seeds=1 if quick else 3)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be, without reading a corpus."""
    make_task(config.task)
    check_cells(config.cells)
    check_sizes(config.model, "embedding_size")
    if config.model.vectors and config.task.encoding == "trigrams":
        raise UsageError(
            f"--config.model.vectors is {config.model.vectors}, but --config.task.encoding is trigrams: leave one out"
        )


def make_classifier(
    cell: str, task: Classification | ClassCodec, config: Config, seed: int, start: Vectors | None = None
) -> TextClassifier:
    """The model, its parameters drawn from `seed`, and words that are looked up with the vectors of `start`.

    Raises UsageError where it can't be made.
    """
    rngs = nnx.Rngs(params=stream(root_key(seed), INIT))
    features = config.model.embedding_size
    if task.encoding == "trigrams":
        encoder = Trigrams(task.input_size, features, rngs=rngs)
    else:
        encoder = embedding(task.vocabulary, features, start, rngs)
    layer = make_layer(cell, config, encoder.features, task.output_size)
    return TextClassifier(layer, task.output_size, encoder=encoder, dropout=config.model.dropout, rngs=rngs)


def confusion(task: Classification, batch_size: int, model: nnx.Module) -> np.ndarray:
    """[C, C] counts of the test split, row the class that it is, column what the model says; classes in the order of
    `names_of`."""
    names = names_of(task)
    number = {name: at for at, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), int)
    said = task.predictions("test", batch_size, applied(model))
    for sentence, label in zip(task.sentences["test"], said, strict=True):
        counts[number[sentence.label], number[label]] += 1
    return counts


def names_of(task: Classification) -> list[str]:
    """The classes of training, and behind them those that the test alone has."""
    return list(dict.fromkeys([*task.answers.words, *sorted({one.label for one in task.sentences["test"]})]))


def scores_of(task: Classification, batch_size: int) -> Callable[[nnx.Module], dict[str, float]]:
    """Percent of the test split that is right, and of each class its F1."""

    def score(model: nnx.Module) -> dict[str, float]:
        counts = confusion(task, batch_size, model)
        seen = counts.sum(0) + counts.sum(1)
        f1 = 200 * np.diag(counts) / np.maximum(seen, 1)
        found = {"accuracy": 100 * np.trace(counts) / counts.sum(), "macro_f1": f1[seen > 0].mean()}
        found |= {f"f1 {name}": value for name, value in zip(names_of(task), f1, strict=True)}
        return {name: float(value) for name, value in found.items()}

    return score


def main(config: Config, workdir: pathlib.Path) -> None:
    """Trains a classifier of every cell and writes the report. What is finished in `workdir` is not done again."""
    check(config)
    _, task = make_task(config.task)
    score, start = scores_of(task, config.train.eval_batch), read_start(config.model, task.codec)

    def entry(cell: str) -> Entry:
        make_model = functools.partial(make_classifier, cell, task, config, start=start)
        return Entry(cell, task, config.train, make_model, score, cell)

    entries = [entry(cell) for cell in config.cells]
    check_entries(entries, config)
    for one in entries:
        _ = one.task.chance, one.make_model(config.train.seed)  # what can't be is told before anything is written
    claim_workdir(workdir, {"experiment": "text_classification", "config": to_dict(config)})
    task.vocabulary.save(workdir / "vocabulary.json")
    task.answers.save(workdir / "classes.json")
    summaries = run_entries(entries, workdir, config)
    write_study(workdir, report(config, task, workdir, summaries), summaries)


def predictor(config: Config, workdir: pathlib.Path, entry: str) -> Callable[[str], Answer]:
    """How a trained model answers a line: with the probabilities of the classes."""
    vocabulary, classes = (Vocabulary.load(workdir / name) for name in ("vocabulary.json", "classes.json"))
    codec = ClassCodec(vocabulary, classes, config.task.encoding, config.task.trigrams)
    apply = applied(restored(make_classifier(entry, codec, config, seed=0), workdir / entry))

    def answer(line: str) -> Label:
        words = words_of(line)
        return Label(codec.probabilities(words, apply), codec.unknown(words))

    return answer


def as_published(config: Config) -> bool:
    """Whether claims were made for this config: a preset of the generated corpus, or the full one of TREC, of three
    seeds at least."""
    free = ("train.seed", "cells", "seeds", "task.path", "probe")
    if config.task.corpus == "questions":
        return any(differs_only_in(config, get_config("questions", preset), free) for preset in cli.PRESETS)
    return config.seeds >= 3 and differs_only_in(config, get_config("trec", "full"), free)


def claims_of(config: Config, summaries: dict[str, dict]) -> list[Claim]:
    """What follows from the generated corpus, and what was set for TREC from the literature and a prototype."""
    if not as_published(config):
        return []
    if config.task.corpus == "questions":
        with_state = [summary for cell, summary in summaries.items() if cell != "jordan"]
        worst = float(np.min(every(with_state, "accuracy")))
        text = "Every network with a hidden state names the kind of question (percent right, the worst)"
        return [Claim(text, "the corpus: words and their order tell", ">= 99 %", worst, worst >= 99)]
    if "lstm" not in summaries:
        return []
    mean = mean_sd(summaries["lstm"], "accuracy")[0]
    source = "prototype 89.7 ± 0.4; with pretrained vectors: 93.0 (Zhou et al. 2015, bi-LSTM)"
    return [Claim("TREC-6 accuracy of the bidirectional LSTM", source, ">= 89.5", mean, mean >= 89.5)]


def report(config: Config, task: Classification, workdir: pathlib.Path, summaries: dict[str, dict]) -> Study:
    """The tables and pictures."""
    corpus, test = config.task.corpus, task.sentences["test"]
    names = {"accuracy": "accuracy", "macro_f1": "macro F1"}
    rows = [
        (cell, one["parameters"], *(told(one, score) for score in names), one["seconds"])
        for cell, one in summaries.items()
    ]
    tables = [Table("Scores", ("cell", "parameters", *names.values(), "seconds"), rows, NOTE)]
    rows = [
        (name, sum(one.label == name for one in test), *(told(one, f"f1 {name}", 1) for one in summaries.values()))
        for name in names_of(task)
    ]
    tables.append(Table("F1 of every class", ("class", "in the test split", *summaries), rows))
    most = task.answers.words[0]
    share = 100 * sum(one.label == most for one in test) / len(test)
    references = {f"always {most}": round(share, 1)}
    points = score_points(
        [Score(cell, values_of(one, "accuracy")) for cell, one in summaries.items()],
        title=f"{corpus.capitalize()}: what is it about?",
        xlabel="accuracy on the test split, percent",
        references=references,
    )
    drawn = {"scores": (points, "Accuracy, a dot a seed")}
    finished = [cell for cell, one in summaries.items() if values_of(one, "accuracy")]
    if finished:
        best = min(finished, key=lambda cell: min(standings(workdir / cell)))  # on the validation split
        model = restored(make_classifier(best, task, config, seed=0), workdir / best)
        figure = confusion_matrix(
            confusion(task, config.train.eval_batch, model),
            names_of(task),
            title=f"{corpus.capitalize()}: what {best} takes for what",
            note="Counts of the test split, of the seed that was best on the validation split.",
        )
        drawn["confusion"] = (figure, f"What {best} takes for what")
    sizes = ", ".join(f"{len(sentences):,} {split}" for split, sentences in task.sentences.items())
    read = "characters" if task.encoding == "characters" else "words"
    text = f"""
Corpus {corpus}: {sizes} sentences, {len(task.vocabulary):,} {read}
and {task.output_size} classes in training. Whoever has seen no word says {most} and is right in {share:.1f} %; the best
guess of probabilities costs {task.chance:.3f} {task.unit}. The parameters are those of the evaluation with the fewest
wrong classes on the validation split."""
    return Study(
        "text_classification", f"Text classification: {corpus}", text, tables, drawn, claims_of(config, summaries)
    )


NOTE = """Percent of the test split; macro F1 is the mean over classes. Of several seeds: mean and standard deviation.
Seconds are of the training of all seeds."""


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()

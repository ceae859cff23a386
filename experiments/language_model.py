"""What comes next: characters and words of English.

Question: how well does each cell guess the next symbol of a text, with how much of it in mind, and what does it write
    when it is asked to go on?
Source: Mikolov et al. 2010, 2012; Pascanu, Mikolov, Bengio 2013; Zaremba, Sutskever, Vinyals 2014; Press, Wolf 2017;
    Kerg et al. 2019.
Command: python -m experiments.language_model --workdir=runs/language_model
Expected: on the generated text, whose entropy is known, LSTM and GRU come within 15 % of it and no model gets below;
    they know at the end of a sentence who said the one before, which Elman often forgets and Jordan always. On the
    characters of the Penn Treebank (--config=ptb_characters:full) one LSTM reaches 1.45 bits on the test split.
Runtime: quick, under 2 minutes on 2 cores; ptb_characters:full and ptb_words:full, about an hour each.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

from experiments.common.language import Writer, make_language_model, recall_of
from experiments.common.language_report import generated_claims, ptb_claims, report_of
from experiments.common.study import Entry, check_entries, differs_only_in, run_entries, values_of
from experiments.common.study_report import write_study
from rnnjax.answers import Answer, Continuation, standings, unknown_of
from rnnjax.cells import CELLS
from rnnjax.tasks import Language
from rnnjax.train import cli
from rnnjax.train.build import cell_options, check_cells, make_task, task_options
from rnnjax.train.config import GradientConfig, LayersConfig, TrainConfig, UsageError, to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("generated", "ptb_characters", "ptb_words", "shakespeare", "text")


@dataclasses.dataclass
class LanguageModelConfig(LayersConfig):
    """tied: whether the head is the table of embeddings, whose rows are then as wide as the hidden state.
    embedding_size: features of the vector that stands for a symbol where the head is another; 0 for one-hot.
    """

    tied: bool = True
    embedding_size: int = 0


@dataclasses.dataclass
class SampleConfig:
    """temperatures: at which the trained models write.
    length: how many characters or words.
    start: what they go on with.
    """

    temperatures: tuple[float, ...] = (0.5, 0.8, 1.0)
    length: int = 200
    start: str = ""


@dataclasses.dataclass
class Config:
    """cells: the cells that are compared.
    seeds: how many are trained of each, from config.train.seed on.
    """

    task: Any
    cell_options: Any
    model: LanguageModelConfig
    train: TrainConfig
    cells: tuple[str, ...] = dataclasses.field(default=tuple(CELLS), metadata={"choices": CELLS})
    seeds: int = 1
    sample: SampleConfig = dataclasses.field(default_factory=SampleConfig)
    probe: GradientConfig = dataclasses.field(default_factory=GradientConfig)


QUICK = {
    "generated": ({"length": 50}, {"hidden_size": 64}, {"steps": 1500, "batch_size": 16, "learning_rate": 1e-2}),
    "ptb_characters": (
        {},
        {"hidden_size": 128, "tied": False},
        {"steps": 500, "batch_size": 16, "eval_every": 500, "learning_rate": 1e-2},
    ),
    "ptb_words": ({"length": 35}, {"hidden_size": 64}, {"steps": 300, "batch_size": 20, "eval_every": 300}),
    "shakespeare": ({"length": 100}, {"hidden_size": 128}, {"steps": 500, "batch_size": 16, "learning_rate": 1e-2}),
    "text": ({"length": 100}, {"hidden_size": 128}, {"steps": 500, "batch_size": 16, "learning_rate": 1e-2}),
}
FULL = {
    "generated": (
        {"length": 50},
        {"hidden_size": 64},
        {"steps": 3000, "batch_size": 16, "learning_rate": 1e-2, "eval_every": 300},
    ),
    "ptb_characters": (
        {},
        {"hidden_size": 512, "tied": False},
        {"epochs": 12, "batch_size": 16, "steps_per_call": 55, "eval_every": 2090, "log_every": 110},
    ),
    "ptb_words": (
        {"length": 35},
        {"hidden_size": 300, "dropout": 0.4},
        {"epochs": 15, "batch_size": 20, "eval_every": 1320, "learning_rate": 3e-3},
    ),
    "shakespeare": ({"length": 100}, {"hidden_size": 256, "dropout": 0.2}, {"steps": 3000, "learning_rate": 3e-3}),
    "text": ({"length": 100}, {"hidden_size": 256, "dropout": 0.2}, {"steps": 3000, "learning_rate": 3e-3}),
}
"""{variant: fields of the task, the model and the training}."""


def get_config(variant: str, preset: str) -> Config:
    """The config of a corpus: `quick`, or at the scale of the literature."""
    quick = preset == "quick"
    task, model, training = (QUICK if quick else FULL)[variant]
    corpus, _, symbols = variant.partition("_")
    training = {"steps_per_call": 20, "eval_every": training.get("steps", 1000) // 5} | training
    config = Config(
        task=task_options(
            "language", corpus=corpus, symbols=symbols or ("words" if corpus == "generated" else "characters"), **task
        ),
        cell_options=cell_options(jordan={"feedback": "softmax"}),
        model=LanguageModelConfig(**model),
        train=TrainConfig(
            **{"learning_rate": 5e-3, "schedule": "cosine", "eval_batch": 32, "log_every": 20} | training
        ),
        seeds=1 if quick or corpus == "ptb" else 3,
    )
    if corpus == "ptb":
        config.cells = ("elman", "lstm", "gru") if quick else ("lstm",)
    return config


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be, without reading a corpus."""
    make_task(config.task)
    check_cells(config.cells)
    if config.model.bidirectional:
        raise UsageError("--config.model.bidirectional is true: a model that reads ahead would see what it guesses")
    if config.model.embedding_size < 0:
        raise UsageError(f"--config.model.embedding_size is {config.model.embedding_size}: expected at least 0")
    if any(temperature < 0 for temperature in config.sample.temperatures):
        raise UsageError(f"--config.sample.temperatures is {cli.show(config.sample.temperatures)}: expected at least 0")
    if config.sample.length < 1:
        raise UsageError(f"--config.sample.length is {config.sample.length}: expected at least 1")


def make_entries(config: Config, task: Language) -> list[Entry]:
    """An entry for every cell of the config."""
    entries = []
    for cell in config.cells:

        def make_model(seed: int, cell=cell):
            return make_language_model(cell, config, task.output_size, seed, task.output_bias)

        score = recall_of(task) if task.corpus == "generated" else None
        entries.append(Entry(cell, task, config.train, make_model, score, cell))
    return entries


def main(config: Config, workdir: pathlib.Path) -> None:
    """Trains every model and writes the report. What is finished in `workdir` is not done again."""
    check(config)
    task = make_task(config.task)[1]
    entries = make_entries(config, task)
    check_entries(entries, config)
    for entry in entries:
        _ = task.chance, entry.make_model(config.train.seed)  # what can't be is told before anything is written
    claim_workdir(workdir, {"experiment": "language_model", "config": to_dict(config)})
    task.vocabulary.save(workdir / "vocabulary.json")
    summaries = run_entries(entries, workdir, config)
    samples = {
        name: write_samples(name, config, workdir)
        for name, summary in summaries.items()
        if values_of(summary, "loss")  # not where it diverged
    }
    claims = CLAIMS[task.corpus](task, summaries) if as_published(config) else []
    write_study(workdir, report_of(task, summaries, samples, claims), summaries)
    best = min(samples, key=lambda name: min(standings(workdir / name)), default=None)  # on the validation split
    for temperature, text in samples.get(best, {}).items():
        print(f"\n{best} at temperature {temperature:g}:\n{text}")


def predictor(
    config: Config, workdir: pathlib.Path, entry: str, *, temperature: float, length: int, seed: int
) -> Callable[[str], Answer]:
    """How a trained model answers a line: it goes on with it."""
    writer = Writer(entry, config, workdir / entry)

    def answer(line: str) -> Continuation:
        pieces = writer(line, temperature=temperature, length=length, seed=seed)
        return Continuation(pieces, unknown_of(writer.split(line), writer.vocabulary))

    return answer


def write_samples(name: str, config: Config, workdir: pathlib.Path) -> dict[float, str]:
    """{temperature: what the model writes}."""
    writer, asked = Writer(name, config, workdir / name), config.sample
    return {
        temperature: "".join(writer(asked.start, temperature=temperature, length=asked.length, seed=config.train.seed))
        for temperature in asked.temperatures
    }


CLAIMS = {"generated": generated_claims, "ptb": ptb_claims}


def as_published(config: Config) -> bool:
    """Whether the claims were made for this config: a full one, or the quick one of the generated text, whatever seeds
    and cells."""
    free = ("train.seed", "cells", "seeds", "task.path", "sample", "probe")
    defaults = {
        "generated": [get_config("generated", preset) for preset in cli.PRESETS],
        "ptb": [get_config(f"ptb_{config.task.symbols}", "full")],
    }.get(config.task.corpus, [])
    return any(differs_only_in(config, default, free) for default in defaults)


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()

"""What only the right context tells: "he said _ to me" and "he said _ to the crowd".

Question: which word is left out, where those behind the gap tell, and where those in front of it do?
Source: Schuster, Paliwal 1997; Graves, Schmidhuber 2005; the sentences are generated, rnnjax.tasks.cloze.
Command: python -m experiments.cloze --workdir=runs/cloze
Expected: where the words behind the gap tell, a network that reads from the left is right in exactly one of four cases,
    whatever its cell, and pays ln 4 = 1.386 nats; one that reads from both ends is right. Where the words in front
    tell, both are.
Runtime: quick, about a minute on 2 cores; full, with three seeds of every model, two.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from experiments.common.claims import Claim
from experiments.common.study import (
    Entry,
    applied,
    check_entries,
    check_sizes,
    every,
    is_default,
    run_entries,
    told,
    unclaimed,
    values_of,
)
from experiments.common.study_report import Study, Table, write_study
from rnnjax.answers import Answer, Label, Unanswerable, restored, unknown_of, words_of
from rnnjax.cells import CELLS
from rnnjax.layers import Bidirectional
from rnnjax.nn import Embedding, Tagger
from rnnjax.report.scores import Score, score_points
from rnnjax.tasks import Batch, Cloze
from rnnjax.tasks.bucketed import pad_ids, round_up
from rnnjax.tasks.cloze import GAP
from rnnjax.train import cli
from rnnjax.train.build import cell_options, check_cells, make_task, sized_cell, task_options
from rnnjax.train.config import GradientConfig, ModelConfig, TrainConfig, to_dict
from rnnjax.train.records import claim_workdir
from rnnjax.train.step import INIT, root_key, stream

VARIANTS = ("generated",)
BOTH = "-bi"
"""The end of a model's name that reads from both ends."""


@dataclasses.dataclass
class EmbeddedConfig(ModelConfig):
    """embedding_size: features of the vector that stands for a word."""

    embedding_size: int = 32


@dataclasses.dataclass
class Config:
    """cells: the cells that are compared, each from the left and from both ends.
    seeds: how many are trained of each, from config.train.seed on.
    """

    task: Any
    cell_options: Any
    model: EmbeddedConfig
    train: TrainConfig
    cells: tuple[str, ...] = dataclasses.field(default=("elman", "jordan", "lstm", "gru"), metadata={"choices": CELLS})
    probe: GradientConfig = dataclasses.field(default_factory=GradientConfig)
    seeds: int = 1


def get_config(variant: str, preset: str) -> Config:
    """The config, `quick` or with more passes and three seeds."""
    del variant  # there is but one
    quick = preset == "quick"
    training = TrainConfig(
        epochs=8 if quick else 12,
        steps_per_call=20,
        batch_size=32,
        learning_rate=1e-2,
        schedule="linear",
        clip_norm=1.0,
        eval_every=100,
        eval_batch=100,
        log_every=20,
        seed=200,
    )
    options = cell_options(jordan={"feedback": "identity", "gain": 2.0})  # four outputs are all that it remembers by
    return Config(task_options("cloze", buckets=1), options, EmbeddedConfig(32), training, seeds=1 if quick else 3)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be."""
    make_task(config.task)
    check_cells(config.cells)
    check_sizes(config.model, "embedding_size")


def make_entries(config: Config, task: Cloze) -> list[Entry]:
    """Two entries for every cell of the config: from the left, and from both ends."""
    entries = []
    for end in ("", BOTH):
        for cell in config.cells:

            def make_model(seed: int, cell=cell, both=bool(end)):
                return make_cloze_model(cell, both, config, task, seed)

            entries.append(Entry(cell + end, task, config.train, make_model, cell=cell))
    return entries


def make_cloze_model(cell: str, both: bool, config: Config, task: Cloze, seed: int) -> Tagger:
    """A layer of the cell, in one direction or both, between embeddings and an answer at every step."""
    rngs = nnx.Rngs(params=stream(root_key(seed), INIT))
    encoder = Embedding(task.input_size, config.model.embedding_size, rngs=rngs)
    layer = sized_cell(cell, config, config.model.embedding_size, task.output_size)
    return Tagger(Bidirectional(layer, layer) if both else layer, task.output_size, encoder=encoder, rngs=rngs)


def main(config: Config, workdir: pathlib.Path) -> None:
    """Trains every model and writes the report. What is finished in `workdir` is not done again."""
    check(config)
    task = make_task(config.task)[1]
    entries = make_entries(config, task)
    check_entries(entries, config)
    for entry in entries:
        entry.make_model(config.train.seed)  # what can't be is told before anything is written
    claim_workdir(workdir, {"experiment": "cloze", "config": to_dict(config)})
    summaries = run_entries(entries, workdir, config)
    learned = learned_claims(config, task, summaries)
    study = report(task, summaries, corpus_claims(task, summaries) + learned)
    write_study(workdir, study if learned else unclaimed(study), summaries)


def predictor(config: Config, workdir: pathlib.Path, entry: str) -> Callable[[str], Answer]:
    """How a trained model answers a line with a gap, `he said _ to me`: with the probabilities of what was said."""
    task = make_task(config.task)[1]
    cell, both = entry.removesuffix(BOTH), entry.endswith(BOTH)
    apply = applied(restored(make_cloze_model(cell, both, config, task, seed=0), workdir / entry))

    def answer(line: str) -> Label:
        words = words_of(line.lower())
        if words.count(GAP) != 1:
            raise Unanswerable(f"{words.count(GAP)} gaps: expected one word to be {GAP}, as in `he said {GAP} to me`")
        if unknown := unknown_of(words, task.vocabulary):
            raise Unanswerable(f"the models know the words of their corpus alone, and not {', '.join(unknown)}")
        ids, lengths = pad_ids([task.vocabulary.encode(words)], round_up(len(words)), 1, 0)
        outputs = apply(Batch(ids, ids, ids.astype(np.float32), lengths))
        shares = np.asarray(jax.nn.softmax(outputs[words.index(GAP), 0]))
        return Label(dict(zip(task.answers, shares.tolist(), strict=True)))

    return answer


def corpus_claims(task: Cloze, summaries: dict[str, dict]) -> list[Claim]:
    """What follows from what a network that reads from the left can see, whatever it learned; of the worst seed."""
    source = "the corpus: to the left of the gap stands the same with every answer"
    chance = 100 / task.output_size
    off = float(np.max(np.abs(100 * scores(summaries, "accuracy_right", both=False) - chance)))
    least = float(np.min(scores(summaries, "nats_right", both=False))) - task.chance
    return [
        Claim(
            "From the left, one answer in four is right where the words behind tell (points from it, the worst)",
            source,
            f"no farther from {chance:g} % than 0.1 points, which is rounding",
            off,
            off <= 0.1,
        ),
        Claim(
            "It pays what an even guess does (nats above ln 4, the least)", source, ">= -1e-5", least, least >= -1e-5
        ),
    ]


def learned_claims(config: Config, task: Cloze, summaries: dict[str, dict]) -> list[Claim]:
    """What can be learned of this corpus is, in a default config; of the worst model and seed."""
    if not is_default(config, get_config, VARIANTS[0], "cells"):
        return []

    def perfect(score: str, both: bool, text: str) -> Claim:
        worst = 100 * float(np.min(scores(summaries, score, both=both)))
        return Claim(text, "the corpus: what is seen tells", ">= 99 % right", worst, worst >= 99)

    source = "the corpus: to the left of the gap stands the same with every answer"
    most = float(np.max(scores(summaries, "nats_right", both=False))) - task.chance
    return [
        Claim("It learns to pay no more (nats above ln 4, the most)", source, "<= 0.1", most, most <= 0.1),
        perfect("accuracy_left", False, "From the left, the word is found where those in front tell (the worst)"),
        perfect("accuracy_left", True, "From both ends, it is found where those in front tell (the worst)"),
        perfect("accuracy_right", True, "From both ends, it is found where those behind tell (the worst)"),
    ]


def scores(summaries: dict[str, dict], score: str, *, both: bool) -> np.ndarray:
    """[n], of all models and seeds that read from both ends, or from the left."""
    return every([summary for name, summary in summaries.items() if name.endswith(BOTH) == both], score)


def report(task: Cloze, summaries: dict[str, dict], claims: list[Claim]) -> Study:
    """The table and the picture."""
    names = {"accuracy_right": "right, told behind", "accuracy_left": "right, told in front"}
    rows = [
        (
            name,
            summary["parameters"],
            *(told(summary, score, factor=100) for score in names),
            told(summary, "nats_right", 4),
            told(summary, "nats_left", 4),
            summary["seconds"],
        )
        for name, summary in summaries.items()
    ]
    header = ("model", "parameters", *names.values(), "nats, told behind", "nats, told in front", "seconds")
    note = "Right is in percent. Of several seeds: mean and standard deviation. Seconds are of all seeds."
    figure = score_points(
        [
            Score(name, [100 * value for value in values_of(summary, "accuracy_right")])
            for name, summary in summaries.items()
        ],
        title="Which word is left out, where those behind the gap tell",
        xlabel="percent of gaps filled right, test split",
        references={"chance": 100 / task.output_size},
    )
    text = f"""
Sentences with a word left out, one of {", ".join(task.answers)}. Half of the sentences name behind the gap whom it is
said to, "he said _ to the crowd", half in front of it, "to the crowd he said _", and nothing else tells. An even guess
is at {task.chance:.4f} {task.unit}. The parameters are those of the evaluation with the lowest loss on the validation
split."""
    drawn = {"scores": (figure, "Percent of gaps filled right where the words behind tell, a dot a seed")}
    tables = [Table("Scores", header, rows, note)]
    return Study("cloze", "Cloze: what only the right context tells", text, tables, drawn, claims)


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()

"""What a word is to a network: a place in a list, its letters, or the company that it keeps.

Question: which words does each encoding put near each other, what does it cost, and what does it lose?
Source: Mikolov et al. 2013 (skip-gram with negative sampling); Huang et al. 2013 (letter trigrams).
Command: python -m experiments.word_vectors --workdir=runs/word_vectors
Expected: one-hot vectors are all equally far apart; skip-gram puts Taipei nearer to HongKong than to apple, and every
    word among those of its kind, on a corpus where these share contexts, and not on the same words in a random order;
    letter trigrams hashed to 30,621 places tell more than 99.98 % of the words of a dictionary apart; an embedding is
    the product of one-hot vectors with a table, to the bit, and many times as fast.
Runtime: quick and full, under a minute on 2 cores.

--config=text --config.task.path=FILE takes sentences of one's own, one a line. WORKDIR/vectors.txt holds the vectors in
word2vec's text format, of the seed that was best on the validation split: `rnnjax.data.read_vectors` reads them, and
`rnnjax.nn.load_vectors` puts them into the encoder of any model.
"""

import dataclasses
import difflib
import json
import math
import pathlib
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from flax import nnx

from experiments.common.claims import Claim
from experiments.common.study import (
    Entry,
    check_entries,
    every,
    is_default,
    run_entries,
    say,
    unclaimed,
    values_of,
)
from experiments.common.study_report import write_study
from experiments.common.word_report import HUANG, report
from experiments.common.words import Shuffled, count_collisions, lexicon, one_hot_distances, time_lookup
from rnnjax.answers import restored
from rnnjax.nn import WordVectors
from rnnjax.tasks import SkipGram
from rnnjax.tasks.contexts import KINDS
from rnnjax.text import cosine_similarity, neighbours, write_vectors
from rnnjax.train import cli
from rnnjax.train.build import make_task, task_options
from rnnjax.train.config import GradientConfig, TrainConfig, UsageError, to_dict
from rnnjax.train.records import claim_workdir, write_json
from rnnjax.train.step import INIT, root_key, stream

VARIANTS = ("generated", "text")
SIZES = (10, 30, 100, 300, 1000, 3000, 10_000, HUANG)
TABLES = (100, 1000, 10_000)
NEAREST = 7
"""Neighbours that are counted: as many as there are other words of a kind."""


@dataclasses.dataclass
class Config:
    """features: of a vector.
    words: whose neighbours are shown; where empty, some that the corpus has.
    lexicon: a file of the CMU Pronouncing Dictionary, or "" for where it is looked for; its words are hashed.
    seeds: how many are trained, from config.train.seed on.
    """

    task: Any
    train: TrainConfig
    features: int
    seeds: int
    words: tuple[str, ...] = ()
    lexicon: str = ""


def get_config(variant: str, preset: str) -> Config:
    """The config of a corpus."""
    quick = preset == "quick"
    training = TrainConfig(
        steps_per_call=250,
        batch_size=128,
        learning_rate=1e-2,
        schedule="linear",  # as the authors' code has it
        eval_batch=500,
        log_every=250,
        seed=100,
    )
    if variant == "generated":
        training = dataclasses.replace(training, steps=1500 if quick else 6000, eval_every=500)
        task = task_options("skipgram", window=3, subsample=1e-2)  # it has but a hundred words: all are frequent
        return Config(task, training, features=32, seeds=3 if quick else 5)
    training = dataclasses.replace(training, epochs=1 if quick else 5, batch_size=1024, eval_every=1000)
    return Config(task_options("skipgram", corpus="text"), training, features=50 if quick else 100, seeds=1)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be, without reading a corpus."""
    if config.features < 1:
        raise UsageError(f"--config.features is {config.features}: expected at least 1")
    if config.task.corpus != "text" or config.task.path:  # which file is asked for when the study runs
        make_task(config.task)


def make_entries(config: Config, task: SkipGram) -> list[Entry]:
    """Skip-gram on the corpus and, of the generated one, as a control on its words in a random order."""
    tasks = {"skipgram": task}
    if task.corpus == "generated":
        tasks["shuffled"] = Shuffled(**to_dict(task))
    entries = []
    for name, one in tasks.items():

        def make_model(seed: int, one=one):
            return WordVectors(one.input_size, config.features, rngs=nnx.Rngs(params=stream(root_key(seed), INIT)))

        score = kinds_of(one) if task.corpus == "generated" else None
        entries.append(Entry(name, one, config.train, make_model, score))
    return entries


def kinds_of(task: SkipGram) -> Callable[[WordVectors], dict[str, float]]:
    """model -> how the words of the generated corpus lie: cosine similarities, and `same_kind`, the percentage of the
    nearest words of each that are of its kind."""
    vocabulary = task.vocabulary

    def score(model: WordVectors) -> dict[str, float]:
        vectors = vectors_of(model)
        taipei, hongkong, apple = vectors[vocabulary.encode(["Taipei", "HongKong", "apple"])]
        same = []
        for members in KINDS.values():
            ids = vocabulary.encode(members)
            same.append(np.isin(neighbours(vectors, ids, NEAREST)[0], ids))
        return {
            "hongkong": float(cosine_similarity(taipei, hongkong)),
            "apple": float(cosine_similarity(taipei, apple)),
            "same_kind": 100 * float(np.mean(same)),
        }

    return score


def vectors_of(model: WordVectors) -> np.ndarray:
    """[V, D]."""
    return np.asarray(model.encoder.table[...])


def main(config: Config, workdir: pathlib.Path) -> None:
    """Trains, measures, and writes the report. What is finished in `workdir` is not done again."""
    check(config)
    task = make_task(config.task)[1]
    words = shown_words(config, task)
    entries = make_entries(config, task)
    settings = types.SimpleNamespace(seeds=config.seeds, probe=GradientConfig())  # there is no time to go back through
    check_entries(entries, settings)
    for entry in entries:
        _ = entry.task.batch(
            0, config.train.batch_size, 0
        )  # a text that is too short is told before anything is written
    dictionary = lexicon(config.lexicon)
    claim_workdir(workdir, {"experiment": "word_vectors", "config": to_dict(config)})
    task.vocabulary.save(workdir / "vocabulary.json")
    summaries = run_entries(entries, workdir, settings)
    measured = measure(workdir / "measured.json", len(task.vocabulary), *dictionary)
    vectors = {
        entry.name: vectors_of(restored(entry.make_model(0), workdir / entry.name))[
            entry.task.vocabulary.encode(task.vocabulary.words)
        ]
        for entry in entries
        if values_of(summaries[entry.name], "loss")  # not where it diverged
    }
    if "skipgram" in vectors:
        write_vectors(workdir / "vectors.txt", task.vocabulary.words, vectors["skipgram"])
    learned = kind_claims(config, summaries)
    study = report(task, words, vectors, summaries, measured, learned + encoding_claims(measured))
    write_study(workdir, study if learned else unclaimed(study), summaries)


def shown_words(config: Config, task: SkipGram) -> tuple[str, ...]:
    """The words whose neighbours are shown. Raises UsageError where one is not in the vocabulary."""
    for word in config.words:
        if word not in task.vocabulary:
            near = difflib.get_close_matches(word, task.vocabulary.words, 1)
            raise UsageError(
                f"--config.words has {word}, which the training split has not {task.min_count} times"
                + (f": did you mean {near[0]}?" if near else "")
            )
    if config.words:
        return config.words
    if config.task.corpus == "generated":
        return (*(members[0] for members in KINDS.values()), "HongKong", "train", "ripe")
    return task.vocabulary.words[100:112] or task.vocabulary.words[:12]


def measure(path: pathlib.Path, words: int, dictionary: list[str], why: str) -> dict[str, Any]:
    """What needs no training, measured once and kept in a file."""
    if not path.exists():
        say("measuring one-hot vectors, trigrams and lookups")
        started = time.monotonic()
        write_json(
            path,
            {
                "words": words,
                "distances": one_hot_distances(words),
                "no_lexicon": why,
                "collisions": count_collisions(dictionary, SIZES if dictionary else ()),
                "lookup": time_lookup(TABLES, features=100, count=1024, rounds=15),
                "seconds": round(time.monotonic() - started, 1),
            },
        )
    return json.loads(path.read_text(encoding="utf-8"))


def kind_claims(config: Config, summaries: dict[str, dict]) -> list[Claim]:
    """What the generated corpus was made for, of a default config."""
    if not is_default(config, get_config, "generated", "words", "lexicon"):
        return []
    claims, source = [], "Mikolov et al. 2013; they share contexts"
    skipgram = summaries["skipgram"]
    nearer = every([skipgram], "hongkong") - every([skipgram], "apple")
    text = "Taipei is nearer to HongKong than to apple (cosine similarities, the least difference of a seed)"
    least = float(np.min(nearer))
    claims.append(Claim(text, source, ">= 0.2", least, least >= 0.2))
    same = float(np.min(every([skipgram], "same_kind")))
    text = f"Of the {NEAREST} words nearest to a city, fruit or animal, so many are of its kind (the least of a seed)"
    claims.append(Claim(text, source, ">= 95 %", same, same >= 95))
    control = float(np.max(every([summaries["shuffled"]], "same_kind")))
    text = "The same where the words stand in a random order (the most of a seed)"
    claims.append(Claim(text, "control: by chance 8 %", "<= 20 %", control, control <= 20))
    return claims


def encoding_claims(measured: dict[str, Any]) -> list[Claim]:
    """What holds of the encodings themselves."""
    off = max(abs(distance - math.sqrt(2)) for distance in measured["distances"])
    text = "One-hot vectors are all equally far apart (the largest difference from the root of 2)"
    claims = [Claim(text, "sqrt(1 + 1)", "<= 1e-12", off, off <= 1e-12)]
    text = f"Words of a dictionary that letter trigrams in {HUANG:,} places don't tell apart (percent)"
    source = "Huang et al. 2013: 22 of 500,000, 0.0044 %"
    if measured["collisions"]:
        row = next(row for row in measured["collisions"] if row["size"] == HUANG)
        share, enough = 100 * row["sharing"] / row["words"], row["words"] >= 40_000
        claims.append(Claim(text, source, "<= 0.02, of at least 40,000 words", share, share <= 0.02 and enough))
    else:
        claims.append(Claim.unmeasured(text, source, "<= 0.02, of at least 40,000 words", measured["no_lexicon"]))
    differs = max(row["difference"] for row in measured["lookup"])
    text = "A lookup gives what the product of the one-hot vector and the table gives (the largest difference)"
    claims.append(Claim(text, "sum of one term and zeros", "0", differs, differs == 0))
    largest = measured["lookup"][-1]
    text = f"How many times as long the product takes, of a table of {largest['size']:,} rows"
    claims.append(Claim(text, "work in proportion to the rows", ">= 10", largest["product"], largest["product"] >= 10))
    return claims


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()

"""Slots of words: "arrive Taipei" and "leave Taipei".

Question: what does a network have to remember to give every word of a sentence its slot, and how far does each cell get
    with it on real requests?
Source: Mesnil et al. 2013, 2015; Yao et al. 2013, 2014; Hemphill, Godfrey, Doddington 1990 (ATIS).
Command: python -m experiments.slot_filling --workdir=runs/slot_filling
Expected: a network that reads each word by itself gives the city the right slot in half of the cases; one that reads
    from the start does where the trigger comes after the city, and is always right where it comes before; one that
    reads from both ends is always right. On ATIS (--config=atis) recurrent networks with a window of three words reach
    an F1 of 95.
Runtime: quick, under 2 minutes on 2 cores; atis:full, about an hour, three seeds of each model.

Jordan feeds back its outputs, on the travel corpus before the softmax: after it, as Mesnil et al. have it
(--config.cell_options.jordan.feedback=softmax), what is no slot itself is lost, and so is "arrive" when the city comes.

--config.models takes names CELL[-wN][-bi][-crf][-onehot|-trigrams]: lstm-w3 sees three words at once, gru-bi reads in
both directions; ffn, ffn-w7 read words by themselves, ffn-flat a whole sentence side by side.
--config.model.vectors=FILE starts with the vectors of a word2vec or GloVe file, --config.model.embedding_size of each.
"""

import dataclasses
import functools
import pathlib
from collections.abc import Callable
from typing import Any

from experiments.common.claims import Claim
from experiments.common.pretrained import Vectors, read_start
from experiments.common.study import (
    Entry,
    applied,
    check_entries,
    check_own_rates,
    check_sizes,
    differs_only_in,
    run_entries,
    values_of,
)
from experiments.common.study_report import Table, write_study
from experiments.common.tagging import CELLS_COMPARED, FFN, Spec, check_longest, make_tagger, scores_of
from experiments.common.tagging_report import atis_claims, report, travel_claims
from rnnjax.answers import Answer, Slots, Unanswerable, restored, words_of
from rnnjax.cells import CELLS
from rnnjax.tasks.tagging import TagCodec, Tagging
from rnnjax.text import Vocabulary
from rnnjax.train import cli
from rnnjax.train.build import cell_options, make_task, task_options
from rnnjax.train.config import GradientConfig, ModelConfig, TrainConfig, UsageError, to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("travel", "atis", "conll2000", "files")
TRAVEL = (FFN, *CELLS_COMPARED, *(f"{cell}-bi" for cell in CELLS_COMPARED))
QUICK = (FFN, "elman-w3", "jordan-w7", "lstm-w3", "gru-bi")
OF_EVERY_CELL = tuple(f"{cell}{more}" for cell in CELLS_COMPARED for more in ("", "-w3", "-w7", "-bi"))
FULL = (FFN, "ffn-w3", "ffn-w7", "ffn-flat", *OF_EVERY_CELL, "gru-bi-crf", "gru-onehot", "gru-trigrams")


@dataclasses.dataclass
class TaggerConfig(ModelConfig):
    """layers: how many layers are on top of each other.
    embedding_size: features of the vector that stands for a word.
    vectors: a word2vec or GloVe file, with whose vectors words start, in models that look words up.
    longest: the words of a sentence that ffn-flat has weights for.
    """

    layers: int = 1
    embedding_size: int = 100
    vectors: str = ""
    longest: int = 64


@dataclasses.dataclass
class Recipe:
    """learning_rate: of models of this kind.
    dropout: the share of features left out in training, of the embeddings, between layers and of the last outputs.
    """

    learning_rate: float = 5e-3
    dropout: float = 0.0


def recipes(default: Recipe, **others: Recipe) -> Any:
    """A config with a Recipe for ffn and for every cell."""
    groups = []
    for name in (FFN, *CELLS):
        copy = functools.partial(dataclasses.replace, others.get(name, default))
        groups.append((name, Recipe, dataclasses.field(default_factory=copy)))
    return dataclasses.make_dataclass("Recipes", groups)()


@dataclasses.dataclass
class Config:
    """models: what is compared.
    seeds: how many are trained of each, from config.train.seed on.
    """

    task: Any
    cell_options: Any
    model: TaggerConfig
    train: TrainConfig
    models: tuple[str, ...]
    recipes: Any
    probe: GradientConfig = dataclasses.field(default_factory=GradientConfig)
    seeds: int = 1


def get_config(variant: str, preset: str) -> Config:
    """The config of a corpus: `quick`, or with three seeds of every model."""
    quick = preset == "quick"
    travel = variant == "travel"
    training = TrainConfig(
        epochs=(8 if travel else 3) if quick else (12 if travel else 25),
        steps_per_call=35,
        batch_size=16,
        schedule="linear",
        clip_norm=5.0,
        eval_every=140,
        eval_batch=100,
        log_every=35,
        seed=100 if travel else 200,  # not one of those that the recipes below were chosen with
    )
    model = TaggerConfig(hidden_size=32 if travel else 100, embedding_size=32 if travel else 100)
    task = task_options("tagging", corpus=variant, **({"buckets": 2} if travel else {}))  # its sentences are short
    if travel:  # a softmax of the outputs would not let the trigger through: it is no slot itself
        options, how = cell_options(jordan={"feedback": "identity"}), recipes(Recipe())
    else:  # chosen on the validation split of ATIS, with another seed
        options = cell_options(jordan={"feedback": "softmax"})  # as Mesnil et al. 2013 have it
        how = recipes(Recipe(dropout=0.3), ffn=Recipe(2e-3, 0.3), elman=Recipe(3e-3, 0.3), jordan=Recipe(3e-3, 0.5))
        training = dataclasses.replace(training, ema=0.995)
    models = TRAVEL if travel else QUICK if quick else FULL
    return Config(task, options, model, training, models, how, seeds=1 if quick else 3)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be, without reading a corpus."""
    make_task(config.task)
    if not config.models:
        raise UsageError("--config.models is empty: expected names such as lstm-w3")
    specs = [Spec.of(name) for name in config.models]
    check_sizes(config.model, "embedding_size", "longest")
    check_own_rates(config.train, "--config.recipes.CELL.learning_rate")
    if config.train.window and any(spec.crf for spec in specs):
        raise UsageError(
            f"--config.train.window is {config.train.window}, but a CRF scores whole sentences: leave one out"
        )
    trigrams, onehot = config.task.encoding == "trigrams", [spec.name for spec in specs if spec.encoding == "onehot"]
    if trigrams and onehot:
        raise UsageError(f"--config.models has {onehot[0]}, but --config.task.encoding is trigrams: leave one out")
    if config.model.vectors and (trigrams or all(spec.encoding != "embedding" for spec in specs)):
        raise UsageError(
            f"--config.model.vectors is {config.model.vectors}, but none of {', '.join(config.models)} looks words up: "
            "leave it out, or name a model without -onehot and -trigrams"
        )


def _encoding(spec: Spec, config: Config) -> str:
    """What a word is to the model's task."""
    return "trigrams" if spec.encoding == "trigrams" else config.task.encoding


def make_entries(config: Config) -> list[Entry]:
    """An entry for every model of the config."""
    entries = []
    tasks: dict[str, Tagging] = {}
    starts: dict[str, Vectors | None] = {}
    for name in config.models:
        spec = Spec.of(name)
        encoding = _encoding(spec, config)
        if encoding not in tasks:
            tasks[encoding] = make_task(dataclasses.replace(config.task, encoding=encoding))[1]
            starts[encoding] = None if encoding == "trigrams" else read_start(config.model, tasks[encoding].codec)
        task, start = tasks[encoding], starts[encoding]
        training = dataclasses.replace(config.train, learning_rate=getattr(config.recipes, spec.base).learning_rate)

        def make_model(seed: int, spec=spec, task=task, start=start):
            return make_tagger(spec, task, config, seed, start)

        if spec.flat:
            check_longest(task, config.model.longest)
        cell = "" if spec.base == FFN else spec.base
        entries.append(Entry(name, task, training, make_model, scores_of(task, config.train.eval_batch), cell))
    return entries


def main(config: Config, workdir: pathlib.Path) -> None:
    """Trains every model and writes the report. What is finished in `workdir` is not done again."""
    check(config)
    entries = make_entries(config)
    check_entries(entries, config)
    for entry in entries:
        _ = entry.task.chance, entry.make_model(config.train.seed)  # what can't be is told before anything is written
    asked = to_dict(config)
    claim_workdir(workdir, {"experiment": "slot_filling", "config": asked})
    entries[0].task.vocabulary.save(workdir / "vocabulary.json")
    entries[0].task.answers.save(workdir / "tags.json")
    summaries = run_entries(entries, workdir, config)
    travel = config.task.corpus == "travel"
    claims: list[Claim] = []
    if as_published(config):
        claims = travel_claims(entries[0].task, summaries) if travel else atis_claims(summaries)
    study = report(config, entries[0].task, summaries, claims)
    if travel:
        study = dataclasses.replace(study, tables=[taipei(config, workdir, summaries), *study.tables], shown=2)
    write_study(workdir, study, summaries)


def predictor(config: Config, workdir: pathlib.Path, entry: str) -> Callable[[str], Answer]:
    """How a trained model answers a line: with a slot for every word."""
    spec = Spec.of(entry)
    vocabulary, tags = (Vocabulary.load(workdir / name) for name in ("vocabulary.json", "tags.json"))
    codec = TagCodec(vocabulary, tags, _encoding(spec, config), config.task.trigrams)
    apply = applied(restored(make_tagger(spec, codec, config, seed=0), workdir / entry))

    def answer(line: str) -> Slots:
        words = words_of(line)
        if spec.flat and len(words) > config.model.longest:
            raise Unanswerable(f"{len(words)} words: {entry} reads at most {config.model.longest}")
        unknown = set(codec.unknown(words))
        told = tuple(word for word, symbol in zip(words, codec.symbols(words), strict=True) if symbol in unknown)
        return Slots(words, codec.tag([words], apply)[0], told)

    return answer


def as_published(config: Config) -> bool:
    """Whether the claims were made for this config: a preset of the travel corpus, or the full one of ATIS, of three
    seeds at least."""
    free = ("train.seed", "models", "seeds", "task.path", "probe")
    if config.task.corpus == "travel":
        return any(differs_only_in(config, get_config("travel", preset), free) for preset in cli.PRESETS)
    return config.seeds >= 3 and differs_only_in(config, get_config("atis", "full"), free)


LINES = ("please let me {} Taipei on May 2nd", "Taipei is where we {} on May 2nd")


def taipei(config: Config, workdir: pathlib.Path, summaries: dict[str, dict]) -> Table:
    """What every model says of Taipei, with arrive and with leave, before it and after it."""
    lines = [line.format(verb) for line in LINES for verb in ("arrive", "leave")]
    rows = []
    for name in (name for name, summary in summaries.items() if values_of(summary, "f1")):
        answer = predictor(config, workdir, name)
        slots = [answer(line) for line in lines]
        rows.append((name, *(dict(zip(one.words, one.slots, strict=True))["Taipei"] for one in slots)))
    header = ("model", "arrive Taipei", "leave Taipei", "Taipei ... arrive", "Taipei ... leave")
    note = f"The slot of Taipei in {'; '.join(lines)}."
    return Table("The slot of Taipei", header, rows, note)


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()

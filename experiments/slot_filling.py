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
both directions; ffn, ffn-w7 read words by themselves.
"""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.common.claims import Claim
from experiments.common.study import (
    Entry,
    applied,
    check_entries,
    differs_only_in,
    every,
    mean_sd,
    run_entries,
    told,
    values_of,
)
from experiments.common.study_report import Study, Table, write_study
from experiments.common.tagging import FFN, Spec, make_tagger, scores_of
from rnnjax.answers import Answer, Slots, restored, words_of
from rnnjax.cells import CELLS
from rnnjax.report.scores import Score, score_points
from rnnjax.tasks.tagging import TagCodec, Tagging, normal
from rnnjax.text import Vocabulary
from rnnjax.train import cli
from rnnjax.train.build import cell_options, make_task, task_options
from rnnjax.train.config import GradientConfig, ModelConfig, TrainConfig, UsageError, to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("travel", "atis", "conll2000", "files")
CELLS_COMPARED = ("elman", "jordan", "lstm", "gru")
TRAVEL = (FFN, *CELLS_COMPARED, *(f"{cell}-bi" for cell in CELLS_COMPARED))
QUICK = (FFN, "elman-w3", "jordan-w7", "lstm-w3", "gru-bi")
FULL = (
    FFN, "ffn-w3", "ffn-w7", "elman", "elman-w3", "elman-w7", "jordan-w3", "jordan-w7", "lstm", "lstm-w3", "gru",
    "gru-w3", "elman-bi", "jordan-bi", "lstm-bi", "gru-bi", "gru-bi-crf", "gru-onehot", "gru-trigrams",
)  # fmt: skip


@dataclasses.dataclass
class TaggerConfig(ModelConfig):
    """layers: how many layers are on top of each other.
    embedding_size: features of the vector that stands for a word.
    """

    layers: int = 1
    embedding_size: int = 100


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
        seed=100,
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
    for name in config.models:
        Spec.of(name)
    if config.model.embedding_size < 1:
        raise UsageError(f"--config.model.embedding_size is {config.model.embedding_size}: expected at least 1")


def make_entries(config: Config) -> list[Entry]:
    """An entry for every model of the config."""
    entries = []
    tasks: dict[str, Tagging] = {}
    for name in config.models:
        spec = Spec.of(name)
        encoding = "trigrams" if spec.encoding == "trigrams" else config.task.encoding
        if encoding not in tasks:
            tasks[encoding] = make_task(dataclasses.replace(config.task, encoding=encoding))[1]
        task = tasks[encoding]
        training = dataclasses.replace(config.train, learning_rate=getattr(config.recipes, spec.base).learning_rate)

        def make_model(seed: int, spec=spec, task=task):
            return make_tagger(spec, task, config, seed)

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
    entries[0].task.tags.save(workdir / "tags.json")
    summaries = run_entries(entries, workdir, config)
    claims = travel_claims(entries[0].task, summaries) if config.task.corpus == "travel" else []
    if config.task.corpus == "atis" and as_published(config):
        claims = atis_claims(summaries)
    study = report(config, entries[0].task, summaries, claims)
    if config.task.corpus == "travel":
        tables = [taipei(config, workdir, summaries), *study.tables]
        study = dataclasses.replace(study, tables=tables, shown=2)
    write_study(workdir, study, summaries)


def predictor(config: Config, workdir: pathlib.Path, entry: str) -> Callable[[str], Answer]:
    """How a trained model answers a line: with a slot for every word."""
    spec = Spec.of(entry)
    vocabulary, tags = (Vocabulary.load(workdir / name) for name in ("vocabulary.json", "tags.json"))
    encoding = "trigrams" if spec.encoding == "trigrams" else config.task.encoding
    codec = TagCodec(vocabulary, tags, encoding, config.task.trigrams)
    apply = applied(restored(make_tagger(spec, codec, config, seed=0), workdir / entry))

    def answer(line: str) -> Slots:
        words, unknown = words_of(line), ()
        if encoding == "words":
            unknown = tuple(word for word, known in zip(words, normal(words), strict=True) if known not in vocabulary)
        return Slots(words, codec.tag([words], apply)[0], unknown)

    return answer


def as_published(config: Config) -> bool:
    """Whether the claims about ATIS were made for this config: the full one, of three seeds at least."""
    free = ("train.seed", "models", "seeds", "task.path", "probe")
    return config.seeds >= 3 and differs_only_in(config, get_config("atis", "full"), free)


def travel_claims(task: Tagging, summaries: dict[str, dict]) -> list[Claim]:
    """What follows from what each kind of network sees: three standard errors of a fair coin are chance."""
    counts = {where: sum(one.label == where for one in task.sentences["test"]) for where in ("before", "after")}
    width = {where: 300 * 0.5 / math.sqrt(count) for where, count in counts.items()}
    width["both"] = 300 * 0.5 / math.sqrt(sum(counts.values()))
    claims = []

    def chance(names, where, text):
        if names := [name for name in names if name in summaries]:
            worst = float(np.max(np.abs(every([summaries[name] for name in names], f"city_{where}") - 50)))
            expected = f"no farther from 50 % than {width[where]:.2f} points, three standard errors"
            claims.append(Claim(text, "the corpus: nothing seen tells", expected, worst, worst <= width[where]))

    def perfect(names, where, text):
        if names := [name for name in names if name in summaries]:
            worst = float(np.min(every([summaries[name] for name in names], f"city_{where}")))
            claims.append(Claim(text, "the corpus: what is seen tells", ">= 99 % right", worst, worst >= 99))

    both = [f"{cell}-bi" for cell in CELLS_COMPARED]
    chance([FFN], "both", "Word by word, the city gets the right slot in half of the cases (points from 50 %)")
    perfect(
        CELLS_COMPARED,
        "before",
        "Read from the start, the city is right where the trigger stands before it (the worst)",
    )
    chance(CELLS_COMPARED, "after", "Read from the start, it is at chance where the trigger comes after (the worst)")
    perfect(both, "both", "Read from both ends, the city is right wherever the trigger stands (the worst)")
    if FFN in summaries:
        changes = [every([summaries[FFN]], score) for score in ("swap_changes", "reverse_changes")]
        changed = float(np.max(changes))
        text = "Two words swapped, or arrive for leave, change nothing in what the per-word network says of a city"
        claims.append(Claim(text, "each word is read by itself", "0 % of the sentences", changed, changed == 0))
    if cells := [cell for cell in CELLS_COMPARED if cell in summaries]:
        for score, how in (("swap_changes", "Two words swapped"), ("reverse_changes", "Arrive in place of leave")):
            least = float(np.min(every([summaries[cell] for cell in cells], score)))
            text = f"{how} change what a recurrent network says of the city (the least)"
            least_expected = 25 if score == "swap_changes" else 99
            why = "half of the cities are guessed anew" if score == "swap_changes" else "the trigger decides"
            claims.append(Claim(text, why, f">= {least_expected} % of the sentences", least, least >= least_expected))
    return claims


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


TARGETS = {
    "elman-w3": (95.0, "Elman 94.1 (Yao et al. 2013); prototype 95.2"),
    "jordan-w7": (94.3, "Jordan 94.48 (Mesnil et al. 2013, released code)"),
    "lstm-w3": (95.0, "LSTM 94.85 (Yao et al. 2014); prototype 95.0"),
    "gru-w3": (95.0, "prototype 95.0"),
    "lstm-bi": (95.3, "hybrid 95.06 (Mesnil et al. 2015); prototype 95.2"),
    "gru-bi": (95.3, "hybrid 95.06 (Mesnil et al. 2015); prototype 95.2"),
}


def atis_claims(summaries: dict[str, dict]) -> list[Claim]:
    """Targets that were set from the literature and from prototypes with other seeds."""
    claims = []
    means = {name: mean_sd(summary, "f1")[0] for name, summary in summaries.items()}
    if FFN in means:
        text, off = "Word by word, F1 is about 60 (points from it)", abs(means[FFN] - 60)
        claims.append(Claim(text, "prototype 59.9", "no farther from 60 than 2", off, off <= 2))
    for name, (target, source) in TARGETS.items():
        if name in means:
            claims.append(Claim(f"F1 of {name}", source, f">= {target}", means[name], means[name] >= target))
    gains = [("elman", "elman-w3", 0.7, "a window of three words"), ("gru", "gru-bi", 0.8, "reading from both ends")]
    for without, having, least, what in gains:
        if {without, having} <= means.keys():
            gain = means[having] - means[without]
            text = f"What {what} gains in F1 ({without} -> {having})"
            claims.append(Claim(text, "prototypes, at a standard error of 0.57", f">= {least}", gain, gain >= least))
    if "jordan-w3" in summaries:
        own, right = (every([summaries["jordan-w3"]], name) for name in ("later_error", "later_error_fed_right"))
        lost = float(np.mean(own - right) - 2 * np.std(own - right, ddof=1) / math.sqrt(len(own)))
        text = (
            "Behind its first error Jordan, fed what it said, errs more than when it is fed the right tags; Elman "
            "feeds back none and loses nothing so (points in the next three words, less two standard errors)"
        )
        claims.append(Claim(text, "the output feeds back", "> 0", lost, lost > 0))
    slowest = max(summary["seconds"] / len(summary["replicas"]) for summary in summaries.values())
    claims.append(
        Claim("Every model trains in under 3 minutes (seconds, the slowest)", "", "< 180", slowest, slowest < 180)
    )
    return claims


def report(config: Config, task: Tagging, summaries: dict[str, dict], claims: list[Claim]) -> Study:
    """The tables and pictures."""
    travel = config.task.corpus == "travel"
    sizes = ", ".join(f"{len(sentences):,} {split}" for split, sentences in task.sentences.items())
    names = {"f1": "F1", "strict_f1": "strict F1", "accuracy": "words right"}
    if travel:
        names |= {"city_before": "city, trigger before", "city_after": "city, trigger after"}
        names |= {"swap_changes": "swap changes"}
    rows = [
        (name, summary["parameters"], *(told(summary, score) for score in names), summary["seconds"])
        for name, summary in summaries.items()
    ]
    tables = [Table("Scores", ("model", "parameters", *names.values(), "seconds"), rows, NOTE), _errors(summaries)]
    shown, label = (
        ("city_after", "percent of cities right, trigger after the city") if travel else ("f1", "F1, test split")
    )
    references = {"travel": {"chance": 50.0}, "atis": {"Elman, Yao et al. 2013": 94.11}}.get(config.task.corpus, {})
    figure = score_points(
        [Score(name, values_of(summary, shown)) for name, summary in summaries.items()],
        title=f"{config.task.corpus.capitalize()}: which network gives the word its slot",
        xlabel=label,
        references=references,
    )
    text = f"""
Corpus {config.task.corpus}: {sizes} sentences, {len(task.vocabulary):,} words and {task.output_size} tags in training.
The best guess that has seen no word scores {task.chance:.3f} {task.unit}. The parameters are those of the evaluation
with the fewest wrong tags on the validation split."""
    drawn = {"scores": (figure, f"{label}, a dot a seed")}
    return Study("slot_filling", f"Slot filling: {config.task.corpus}", text, tables, drawn, claims)


NOTE = """F1, the headline, counts chunks as conlleval does, which takes an I- without a B- for a start; strict F1 does
not. Of several seeds: mean and standard deviation. Seconds are of the training of all seeds."""


def _errors(summaries: dict[str, dict]) -> Table:
    header = ("model", "first error", "after it", "after it, fed the right tags")
    scores = ("first_error", "later_error", "later_error_fed_right")
    rows = [(name, *(told(summary, score) for score in scores)) for name, summary in summaries.items()]
    note = """Percent of words: wrong while none before was; wrong among the three behind a sentence's first wrong one;
and the same of a Jordan network that is fed the right tags in place of what it said."""
    return Table("After the first error", header, rows, " ".join(note.split()))


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()

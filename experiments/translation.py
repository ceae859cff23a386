"""What one vector holds: sequences written from a fixed context, and with attention.

Question: how does what is written from a single vector of the source fall off with the source's length, what does
    attention change, and does it help to read the source from its end?
Source: Cho et al. 2014 (arXiv:1406.1078, 1409.1259); Bahdanau, Cho, Bengio 2015; Luong, Pham, Manning 2015; Sutskever,
    Vinyals, Le 2014.
Command: python -m experiments.translation --workdir=runs/translation
Expected: with a fixed context vector accuracy falls with the length of the source, with attention it stays; from a
    fixed vector the perplexity is lower where what is written first was read last.
Runtime: quick, under 2 minutes on 2 cores; g2p:full, about 20 minutes.

The default corpus is generated: sequences of 8 symbols, to be written from the end to the start. --config=g2p spells
words in phones, multi30k translates English to German, pairs is any table (--config.task.path=FILE).

--config.models takes names CELL-fixed|bahdanau|luong[-bi][-reversed]: gru-fixed has one vector, gru-luong-bi an encoder
that reads from both ends; -reversed turns the source round. "Falls" and "stays" compare the quarter of the test sources
that is longest with the quarter that is shortest.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.common.claims import Claim
from experiments.common.study import (
    Entry,
    check_entries,
    check_sizes,
    every,
    is_default,
    mean_sd,
    run_entries,
    told,
)
from experiments.common.study_report import Study, Table, write_study
from experiments.common.translating import Spec, best, in_words, make_translator, read_looks, scores_of
from rnnjax.answers import Answer, Unanswerable, restored, unknown_of
from rnnjax.answers import Translation as Answered
from rnnjax.data.lines import split_words
from rnnjax.report.attention import attention_figure
from rnnjax.report.scores import Line, score_lines
from rnnjax.tasks.pair_codec import PairCodec
from rnnjax.tasks.translation import Translation
from rnnjax.text.files import read_json
from rnnjax.train import cli
from rnnjax.train.build import cell_options, make_task, task_options
from rnnjax.train.config import GradientConfig, ModelConfig, TrainConfig, UsageError, to_dict
from rnnjax.train.records import claim_workdir, write_json

VARIANTS = ("reversal", "g2p", "multi30k", "pairs")
FIXED, TURNED, ATTENTIVE = "gru-fixed", "gru-fixed-reversed", "gru-bahdanau"
LONGEST = "longest.json"
"""The file that keeps how long the longest target of the corpus is, where answers are cut as scores were."""
WIDEST = 1000
"""The widest beam."""
MODELS = (FIXED, TURNED, ATTENTIVE, "gru-luong")


@dataclasses.dataclass
class TranslatorConfig(ModelConfig):
    """embedding_size: features of the vector that stands for a symbol, read or written.
    dropout: the share of features left out in training, of these vectors and of what the head sees.
    """

    embedding_size: int = 32
    dropout: float = 0.0


@dataclasses.dataclass
class Config:
    """models: what is compared.
    beam: sequences that are kept in the search for the best one; 1 for the likeliest symbol at each step.
    seeds: how many models are trained of each, from config.train.seed on.
    """

    task: Any
    cell_options: Any
    model: TranslatorConfig
    train: TrainConfig
    models: tuple[str, ...]
    beam: int = 1
    probe: GradientConfig = dataclasses.field(default_factory=GradientConfig)
    seeds: int = 1


def get_config(variant: str, preset: str) -> Config:
    """The config of a corpus: `quick`, or with three seeds of every model."""
    quick, generated = preset == "quick", variant == "reversal"
    task = task_options("translation", corpus=variant, buckets=1 if generated else 2 if quick else 4)
    if variant == "multi30k":
        task.min_count = 2
    every = {"reversal": 125, "g2p": 250 if quick else 1900, "multi30k": 250}.get(variant, 125)
    training = TrainConfig(
        epochs={"g2p": 0 if quick else 3, "multi30k": 1 if quick else 6}.get(variant, 4 if quick else 12),
        steps=1000,  # of the dictionary half an epoch
        steps_per_call=1,  # batches of several shapes in a call would all be padded to the largest
        batch_size=64,
        learning_rate=3e-3,
        schedule="linear",
        clip_norm=1.0,
        eval_every=every,
        eval_batch=250,
        log_every=25,
        seed=100,
    )
    model = TranslatorConfig(hidden_size=64 if generated else 128, embedding_size=16 if generated else 64)
    return Config(task, cell_options(), model, training, MODELS, seeds=1 if quick else 3)


def check(config: Config) -> None:
    """Raises UsageError for a config that can't be, without reading a corpus."""
    make_task(config.task)
    if not config.models:
        raise UsageError("--config.models is empty: expected names such as gru-bahdanau")
    for name in config.models:
        Spec.of(name)
    check_sizes(config.model, "embedding_size", "hidden_size")
    if not 0 <= config.model.dropout < 1:
        raise UsageError(f"--config.model.dropout is {config.model.dropout}: expected at least 0 and less than 1")
    if not 1 <= config.beam <= WIDEST:
        raise UsageError(f"--config.beam is {config.beam}: expected 1 to {WIDEST}")
    if config.task.reverse_source:
        raise UsageError("--config.task.reverse_source is True: ask for models that end with -reversed in its place")


def make_entries(config: Config, workdir: pathlib.Path) -> list[Entry]:
    """An entry for every model of the config."""
    entries = []
    tasks = {turned: make_task(dataclasses.replace(config.task, reverse_source=turned))[1] for turned in (False, True)}
    for name in config.models:
        spec = Spec.of(name)
        task = tasks[spec.reversed]

        def make_model(seed: int, spec=spec, task=task):
            return make_translator(spec, task, config, seed)

        entries.append(Entry(name, task, config.train, make_model, scores_of(task, config, workdir / name), spec.cell))
    return entries


def main(config: Config, workdir: pathlib.Path) -> None:
    """Trains every model and writes the report. What is finished in `workdir` is not done again."""
    check(config)
    entries = make_entries(config, workdir)
    check_entries(entries, config)
    for entry in entries:
        _ = entry.task.chance, entry.make_model(config.train.seed)  # what can't be is told before anything is written
    claim_workdir(workdir, {"experiment": "translation", "config": to_dict(config)})
    task = entries[0].task
    task.codec.save(workdir)
    write_json(workdir / LONGEST, task.longest)
    summaries = run_entries(entries, workdir, config)
    write_study(workdir, report(task, summaries, claims_of(config, summaries), workdir), summaries)


def predictor(config: Config, workdir: pathlib.Path, entry: str) -> Callable[[str], Answer]:
    """How a trained model answers a line: with what it writes."""
    spec = Spec.of(entry)
    codec = PairCodec.load(workdir, config.task.corpus, spec.reversed, config.task.subwords > 0)
    model = restored(make_translator(spec, codec, config, seed=0), workdir / entry)
    longest = read_json(workdir / LONGEST)
    if not isinstance(longest, int) or longest < 1:
        raise UsageError(f"{workdir / LONGEST} holds {longest!r}: expected a number of symbols; run the study again")

    def answer(line: str) -> Answered:
        if not (symbols := codec.symbols(line)):
            raise Unanswerable("the line is empty: expected what is to be translated")
        steps = max(16, 1 << (len(symbols) - 1).bit_length())  # so that few lengths are compiled
        written, count = best(model, codec, *codec.read([symbols], steps), config.beam, longest)
        text = codec.text(codec.target.decode(written[: int(count[0]), 0]))
        return Answered(split_words(text), unknown_of(symbols, codec.source))

    return answer


LIMITS = {"reversal": (20, 2), "g2p": (2, 1), "multi30k": (5, 3)}
"""{corpus: (points of accuracy that a fixed vector loses at least, points that attention loses at most)}, from the
shortest quarter of the sources to the longest; set before anything was measured."""


def claims_of(config: Config, summaries: dict[str, dict]) -> list[Claim]:
    """What was claimed of the default configs of a corpus, whatever models and seeds."""
    corpus = config.task.corpus
    if corpus not in LIMITS or not is_default(config, get_config, corpus, "models", "task.path"):
        return []
    return length_claims(corpus, summaries) + order_claims(corpus, summaries)


def length_claims(corpus: str, summaries: dict[str, dict]) -> list[Claim]:
    """Fixed vectors fall with length, attention stays."""
    least, most = LIMITS[corpus]
    claims = []
    lost = {name: mean_sd(one, "shortest")[0] - mean_sd(one, "longest")[0] for name, one in summaries.items()}
    if FIXED in lost:
        text = "From a fixed vector accuracy falls with length (points, shortest quarter of sources to longest)"
        claims.append(Claim(text, "Cho et al. 2014, arXiv:1409.1259", f">= {least}", lost[FIXED], lost[FIXED] >= least))
    if ATTENTIVE in lost:
        text = "With attention it stays (points, shortest quarter to longest)"
        source = "Bahdanau, Cho, Bengio 2015, figure 2"
        claims.append(Claim(text, source, f"<= {most}", lost[ATTENTIVE], lost[ATTENTIVE] <= most))
    if {FIXED, ATTENTIVE} <= lost.keys():
        gain = mean_sd(summaries[ATTENTIVE], "longest")[0] - mean_sd(summaries[FIXED], "longest")[0]
        text = "On the longest quarter attention is more accurate than a fixed vector (points)"
        claims.append(Claim(text, "Bahdanau, Cho, Bengio 2015", "> 0", gain, gain > 0))
    return claims


def order_claims(corpus: str, summaries: dict[str, dict]) -> list[Claim]:
    """What is written first is best read last."""
    if not {FIXED, TURNED} <= summaries.keys():
        return []
    perplexities = {name: perplexity(summaries[name]) for name in (FIXED, TURNED)}
    near, far = (FIXED, TURNED) if corpus == "reversal" else (TURNED, FIXED)
    ratio = perplexities[near] / perplexities[far]
    how = "the source as it stands" if corpus == "reversal" else "the source turned round"
    text = f"A fixed vector's perplexity is lower where what is written first was read last: {how} (ratio)"
    return [Claim(text, "Sutskever, Vinyals, Le 2014: 5.8 -> 4.7", "< 1", ratio, ratio < 1)]


def perplexity(summary: dict[str, Any]) -> float:
    """exp of the test loss in nats, the mean over seeds; nan where one diverged."""
    return float(np.mean(np.exp(every([summary], "loss"))))


def report(task: Translation, summaries: dict[str, dict], claims: list[Claim], workdir: pathlib.Path) -> Study:
    """The tables and pictures."""
    accuracy = "BLEU" if in_words(task) else "accuracy"
    names = {"accuracy": accuracy, "shortest": "shortest quarter", "longest": "longest quarter"}
    names |= {"error": "error rate", "wrong": "with an error"}
    rows = [
        (name, one["parameters"], *(told(one, score) for score in names), f"{perplexity(one):.3f}", one["seconds"])
        for name, one in summaries.items()
    ]
    header = ("model", "parameters", *names.values(), "perplexity", "seconds")
    sizes = ", ".join(f"{len(pairs):,} {split}" for split, pairs in task.pairs.items())
    text = f"""
Corpus {task.corpus}: {sizes} pairs, {task.input_size:,} symbols read and {task.output_size:,} written in training. The
best guess that has read nothing scores {task.chance:.3f} {task.unit}. The parameters are those of the evaluation with
the lowest loss on the validation split."""
    drawn = {"length": (length_figure(task, summaries, accuracy), f"{accuracy} against the length of the source")}
    for name in summaries:
        if (path := workdir / name / "attention.npz").exists():
            title = f"{task.corpus}: where {name} looks"
            drawn[f"attention_{name}"] = (attention_figure(read_looks(path), title=title), f"Where {name} looks")
    return Study(
        "translation", f"Translation: {task.corpus}", text, [Table("Scores", header, rows, NOTE)], drawn, claims
    )


NOTE = """Of the test split, in percent. Error rate: edits a symbol of the closest reference (of phones, the phoneme
error rate); accuracy is 100 less it, or BLEU where words are written. With an error: sequences that are not exactly a
reference (of phones, the word error rate). Quarters are those of the test sources by length. Perplexity: exp of the
loss a symbol, each after the target's own symbols. Of several seeds: mean and standard deviation. Seconds are of the
training of all seeds."""


def length_figure(task: Translation, summaries: dict[str, dict], accuracy: str):
    """Accuracy of groups of test sources by length."""
    lines = []
    for name, summary in summaries.items():
        scores = [score for one in summary["replicas"] for score in one["scores"] if score.startswith("at_")]
        groups = sorted(set(scores), key=lambda score: float(score.removeprefix("at_")))
        of_seeds = [mean_sd(summary, group) for group in groups]
        spread = [deviation for _, deviation, _ in of_seeds] if len(summary["replicas"]) > 1 else None
        lengths = [float(group.removeprefix("at_")) for group in groups]
        cell, _, rest = name.partition("-")  # a colour each, which one that begins with the cell would not have
        lines.append(Line(f"{rest}, {cell}", lengths, [mean for mean, _, _ in of_seeds], spread))
    return score_lines(
        lines,
        title=f"{task.corpus}: one vector, or looking back",
        xlabel="symbols of the source, the mean of a group",
        ylabel=f"{accuracy}, test split" + ("" if accuracy == "BLEU" else " (percent of symbols)"),
    )


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()

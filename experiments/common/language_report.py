"""What a language study tells: its scores, what is claimed of them, and what the models wrote."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from experiments.common.claims import Claim
from experiments.common.study import every, told, values_of
from experiments.common.study_report import Study, Table
from rnnjax.data.tales import tales
from rnnjax.report.scores import Score, score_points
from rnnjax.tasks.language import GENERATED, Language, to_symbols

PUBLISHED = {
    ("ptb", "characters"): {"RNN, orthogonal start": 1.62, "expRNN": 1.45, "RNN, Pascanu et al. 2013": 1.42},
    ("ptb", "words"): {"RNN, Mikolov, Zweig 2012": 124.7, "LSTM, Zaremba et al. 2014": 114.5},
}
"""{(corpus, symbols): test scores}, of characters in windows of 150 steps (the first two: Kerg et al. 2019)."""


@dataclasses.dataclass(frozen=True)
class Measure:
    """The score that a text is reported in.

    name: of it. of: nats a symbol -> its value. digits: behind the point.
    """

    name: str
    of: Callable[[float], float]
    digits: int

    def values(self, summary: dict[str, Any]) -> list[float]:
        """One of every seed that has one."""
        return [self.of(nats) for nats in values_of(summary, "loss")]

    def told(self, summary: dict[str, Any]) -> str:
        """Mean and standard deviation over seeds."""
        replicas = [{"scores": {self.name: value}} for value in self.values(summary)]
        return told({"replicas": replicas}, self.name, self.digits)


def measure_of(task: Language) -> Measure:
    """Bits a character, or the perplexity of words."""
    if task.symbols == "characters":
        return Measure("bits a character", lambda nats: nats / math.log(2), 3)
    return Measure("perplexity", math.exp, 1)


def entropy(task: Language) -> float:
    """Of the grammar that the generated test text was drawn from, in nats a symbol of that text."""
    drawn = tales("test", GENERATED["test"])
    return drawn.nats / len(to_symbols(drawn.text, task.symbols))


def generated_claims(task: Language, summaries: Mapping[str, dict[str, Any]]) -> list[Claim]:
    """What is known of the source: its entropy, and who says its sentences."""
    source, grammar, claims = entropy(task), "the grammar that the text was drawn from", []
    losses = {name: every([summary], "loss") for name, summary in summaries.items()}
    if losses:
        below = float(1 - np.min(np.concatenate(list(losses.values()))) / source)
        text = "No model guesses better than the source (share of its entropy that one is below it, the most)"
        claims.append(Claim(text, grammar, "<= 0.01, what luck can do", below, below <= 0.01))
    for name in ("lstm", "gru"):
        if name in losses:
            over = float(np.max(losses[name]) / source - 1)
            text = f"{name.upper()} comes near the entropy of the source (share of it above, the worst seed)"
            claims.append(Claim(text, grammar, "<= 0.15", over, over <= 0.15))
            least = float(np.min(every([summaries[name]], "recalled")))
            text = f"{name.upper()} knows who says a sentence that is not the tale's first (percent, the worst seed)"
            claims.append(Claim(text, grammar, ">= 90; 12.5 is chance", least, least >= 90))
    return claims


def ptb_claims(task: Language, summaries: Mapping[str, dict[str, Any]]) -> list[Claim]:
    """Targets from the literature, for the full preset."""
    measure, claims = measure_of(task), []
    target, source = 1.45, "expRNN 1.43 to 1.45, RNN with an orthogonal start 1.62 (Kerg et al. 2019)"
    if task.symbols == "words":
        target, source = 114.5, "LSTM without dropout 114.5 (Zaremba et al. 2014), RNN 124.7 (Mikolov, Zweig 2012)"
    for name, summary in summaries.items():
        mean = float(np.mean([measure.of(nats) for nats in every([summary], "loss")]))
        text = f"{measure.name.capitalize()} of {name} on the test split (the mean of {len(summary['replicas'])} seeds)"
        claims.append(Claim(text, source, f"<= {target}", mean, mean <= target))
        each = summary["seconds"] / len(summary["replicas"])
        claims.append(Claim(f"Training of {name} (seconds a seed)", "", "< 3600", each, each < 3600))
    return claims


def report_of(
    task: Language,
    summaries: Mapping[str, dict[str, Any]],
    samples: Mapping[str, Mapping[float, str]],
    claims: list[Claim],
) -> Study:
    """The tables and pictures. samples: {model: {temperature: what it wrote}}."""
    generated, measure = task.corpus == "generated", measure_of(task)
    header = ["model", "parameters", measure.name, *(["speaker recalled, %"] if generated else []), "seconds"]
    rows = []
    for name, summary in summaries.items():
        recalled = [told(summary, "recalled", 1)] if generated else []
        rows.append((name, summary["parameters"], measure.told(summary), *recalled, summary["seconds"]))
    written = [
        (name, f"{temperature:g}", text.replace("\n", " ⏎ "))
        for name, of_model in samples.items()
        for temperature, text in of_model.items()
    ]
    tables = [
        Table("Scores", header, rows, "Of several seeds: mean and standard deviation. Seconds are of all seeds."),
        Table("What they write", ("model", "temperature", "text"), written, "⏎ ends a line."),
    ]
    references = dict(PUBLISHED.get((task.corpus, task.symbols), {}))
    if generated:
        references["the source's entropy"] = round(measure.of(entropy(task)), measure.digits)
    figure = score_points(
        [Score(name, measure.values(summary)) for name, summary in summaries.items()],
        title=f"{task.corpus.capitalize()}, {task.symbols}: how well each network guesses what comes next",
        xlabel=f"{measure.name} on the test split",
        references=references,
    )
    drawn = {"scores": (figure, f"{measure.name}, a dot a seed")}
    title = f"What comes next: {task.corpus}, {task.symbols}"
    return Study("language_model", title, _text(task, measure), tables, drawn, claims)


def _text(task: Language, measure: Measure) -> str:
    sizes = ", ".join(f"{len(ids):,} {split}" for split, ids in task.ids.items())
    chance = f"{measure.of(task.chance):.{measure.digits}f} {measure.name}"
    source = ""
    if task.corpus == "generated":
        best = f"{measure.of(entropy(task)):.{measure.digits}f}"
        source = f"The source, which knows its grammar, is at {best} on the test split. "
    return f"""Corpus {task.corpus}: {sizes} {task.symbols}, {len(task.vocabulary):,} different ones in training.
The best guess that has seen nothing, but knows how frequent each is, is at {chance} on the validation split. {source}An
update sees {task.length} steps and goes on with the state of the one before. The parameters are those of the evaluation
with the lowest loss on the validation split."""

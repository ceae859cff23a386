"""The claims, tables and pictures of a slot-filling study."""

import math
from typing import Any

import numpy as np

from experiments.common.claims import Claim
from experiments.common.study import every, mean_sd, told, values_of
from experiments.common.study_report import Study, Table
from experiments.common.tagging import CELLS_COMPARED, FFN
from rnnjax.report.scores import Score, score_points
from rnnjax.tasks.tagging import Tagging


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
    if {"jordan-w3", "elman-w3"} <= summaries.keys():
        rises = [
            every([summaries[name]], "later_error") - every([summaries[name]], "first_error")
            for name in ("jordan-w3", "elman-w3")
        ]
        more = float(np.mean(rises[0]) - np.mean(rises[1]))
        text = (
            "After a first error Jordan, which is fed what it said, errs more often than before it by more than Elman "
            "does at the same window (points, in the next three words)"
        )
        claims.append(Claim(text, "the output feeds back", "> 0", more, more > 0))
    slowest = max(summary["seconds"] / len(summary["replicas"]) for summary in summaries.values())
    claims.append(
        Claim("Every model trains in under 3 minutes (seconds, the slowest)", "", "< 180", slowest, slowest < 180)
    )
    return claims


def report(config: Any, task: Tagging, summaries: dict[str, dict], claims: list[Claim]) -> Study:
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

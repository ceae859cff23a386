"""The tables and pictures of the study of word vectors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.common.claims import Claim
from experiments.common.study import told
from experiments.common.study_report import Study, Table
from rnnjax.report.scores import Line, score_lines
from rnnjax.report.vectors import projection, similarity_maps
from rnnjax.tasks import SkipGram
from rnnjax.tasks.contexts import KINDS
from rnnjax.text import TrigramHashing, cosine_similarity, neighbours, one_hot

HUANG = 30_621
"""How many trigrams 500,000 words are made of, of which 22 could not be told apart (Huang et al. 2013)."""
NAMES = {"skipgram": "skip-gram", "shuffled": "skip-gram, words in a random order"}
Vectors = Mapping[str, np.ndarray]


def report(
    task: SkipGram,
    words: Sequence[str],
    vectors: Vectors,
    summaries: Mapping[str, dict[str, Any]],
    measured: Mapping[str, Any],
    claims: Sequence[Claim],
) -> Study:
    """What the study tells. vectors: {entry: [V, D], in the order of the task's vocabulary} of those that
    did not diverge; measured: what needs no training."""
    tables = [neighbour_table(task, words, vectors["skipgram"])] if "skipgram" in vectors else []
    if task.corpus == "generated":
        tables.append(_distances(summaries))
    tables += [_scores(summaries, task), _lookup(measured)]
    if measured["collisions"]:
        tables.append(_collisions(measured))
    counted = sum(task.vocabulary.counts)
    text = f"""Skip-gram was trained on {counted:,} words, {len(task.vocabulary):,} of them different. The vectors of
the seed with the lowest loss on the validation split stand in vectors.txt."""
    drawn = figures_of(task, words, vectors, measured)
    return Study("word_vectors", "Word vectors", " ".join(text.split()), tables, drawn, claims)


def neighbour_table(task: SkipGram, words: Sequence[str], vectors: np.ndarray) -> Table:
    """The five nearest words of each."""
    found, similarities = neighbours(vectors, task.vocabulary.encode(words), 5)
    rows = []
    for word, ids, near in zip(words, found, similarities, strict=True):
        listed = zip(task.vocabulary.decode(ids), near, strict=True)
        rows.append((word, ", ".join(f"{other} {value:.2f}" for other, value in listed)))
    return Table("Nearest neighbours", ("word", "nearest by cosine similarity"), rows)


def _distances(summaries: Mapping[str, dict[str, Any]]) -> Table:
    """Taipei and two others, in every encoding."""
    encodings = encoded(("Taipei", "HongKong", "apple"))
    rows = [
        (name, *(f"{cosine_similarity(vectors[0], other):.2f}" for other in vectors[1:]), "")
        for name, vectors in encodings.items()
    ]
    scores = {"hongkong": 2, "apple": 2, "same_kind": 1}
    for name, text in NAMES.items():
        rows.append((text, *(told(summaries[name], score, digits) for score, digits in scores.items())))
    note = """The last column: of the seven words nearest to each city, fruit and animal, percent of its kind; by
chance 8. Of several seeds: mean and standard deviation."""
    header = ("encoding", "Taipei to HongKong", "Taipei to apple", "nearest of the same kind")
    return Table("How alike words are", header, rows, " ".join(note.split()))


def encoded(words: Sequence[str]) -> dict[str, np.ndarray]:
    """{encoding: vectors} that need no training."""
    return {
        "one-hot": one_hot(np.arange(len(words)), len(words)),
        "letter trigrams": TrigramHashing(HUANG).vectors(words),
    }


def _scores(summaries: Mapping[str, dict[str, Any]], task: SkipGram) -> Table:
    rows = [
        (NAMES[name], summary["parameters"], told(summary, "loss", 3), told(summary, "accuracy", 1, 100))
        for name, summary in summaries.items()
    ]
    note = f"""On the test split. Scores that are all 0 have a loss of {task.chance:.3f}; right is a pair whose context
has a higher score than its {task.negatives} negatives, by chance {100 / (1 + task.negatives):.1f} %."""
    header = ("model", "parameters", f"loss ({task.unit})", "pairs right (%)")
    return Table("Skip-gram with negative sampling", header, rows, " ".join(note.split()))


def _lookup(measured: Mapping[str, Any]) -> Table:
    rows = [
        (f"{row['size']:,}", f"{row['product']:.1f}", f"{row['both']:.1f}", f"{row['difference']:g}")
        for row in measured["lookup"]
    ]
    note = """How many times as long as a lookup of the same 1,024 ids in a table of 100 features; medians of rounds in
which all took turns."""
    header = ("rows of the table", "product", "one-hot vectors made and product", "largest difference")
    return Table("A lookup is a product", header, rows, " ".join(note.split()))


def _collisions(measured: Mapping[str, Any]) -> Table:
    rows = [
        (
            f"{row['size']:,}",
            f"{row['load']:.2f}",
            f"{row['trigrams_sharing']:,}",
            f"{row['sharing']:,}",
            f"{100 * row['sharing'] / row['words']:.4f}",
        )
        for row in measured["collisions"]
    ]
    first = measured["collisions"][0]
    note = f"""{first["words"]:,} words of the CMU Pronouncing Dictionary, made of {first["trigrams"]:,} trigrams;
{first["inseparable"]} of them have the trigrams of another. Huang et al. 2013 list every trigram of 500,000 words,
30,621 places, and can't tell 22 words (0.0044 %) apart."""
    header = ("places", "trigrams a place", "trigrams that share theirs", "words that share their vector", "percent")
    return Table("Letter trigrams, hashed", header, rows, " ".join(note.split()))


def figures_of(
    task: SkipGram, words: Sequence[str], vectors: Vectors, measured: Mapping[str, Any]
) -> dict[str, tuple[Figure, str]]:
    """{file: (figure, caption)}."""
    drawn = {}
    if "skipgram" in vectors:
        groups = KINDS if task.corpus == "generated" else _with_neighbours(task, words, vectors["skipgram"])
        shown = [word for members in groups.values() for word in members]
        ids = task.vocabulary.encode(shown)
        maps = {**encoded(shown), "skip-gram": vectors["skipgram"][ids]}
        alike = {name: cosine_similarity(rows[:, None], rows[None]) for name, rows in maps.items()}
        figure = similarity_maps(alike, shown, title="How alike words are, by what stands for them")
        drawn["similarities"] = figure, "Cosine similarities of all pairs of words"
        places = {NAMES[name]: rows[ids] for name, rows in vectors.items()}
        figure = projection(places, groups, title="Word vectors along their two principal axes")
        drawn["projection"] = figure, "The words along the two directions in which their vectors vary most"
    if measured["collisions"]:
        drawn["collisions"] = _collision_figure(measured["collisions"])
    return drawn


def _with_neighbours(task: SkipGram, words: Sequence[str], vectors: np.ndarray) -> dict[str, list[str]]:
    """{word: itself and its two nearest} of eight words at most, each word once."""
    groups, taken = {}, set()
    for word in words[:8]:
        found, _ = neighbours(vectors, task.vocabulary.encode([word]), 2)
        members = [member for member in (word, *task.vocabulary.decode(found[0])) if member not in taken]
        groups[word] = members
        taken.update(members)
    return {word: members for word, members in groups.items() if members}


def _collision_figure(rows: Sequence[Mapping[str, Any]]) -> tuple[Figure, str]:
    words, trigrams = rows[0]["words"], rows[0]["trigrams"]
    shares = {
        "words that share their vector": [(row["size"], 100 * row["sharing"] / words) for row in rows],
        "trigrams that share their place": [(row["size"], 100 * row["trigrams_sharing"] / trigrams) for row in rows],
    }
    figure = score_lines(
        [Line(label, *zip(*points, strict=True)) for label, points in shares.items()],
        title=f"{words:,} words by their letter trigrams, hashed",
        xlabel="places that trigrams are hashed to",
        ylabel="percent; a line ends where none are left",
        references={"words of Huang et al. 2013, not hashed": 0.0044},
        log="xy",
    )
    return figure, "Percent of a dictionary's words that letter trigrams don't tell apart, against places"

"""The corpora of sentences with one label each, read and split."""

import collections
import pathlib

import numpy as np

from rnnjax.data import DataError, read_labelled, read_lines
from rnnjax.data.lines import is_blank, split_words
from rnnjax.data.locate import locate
from rnnjax.data.sentences import Sentence
from rnnjax.tasks import tagging
from rnnjax.tasks.base import SPLITS
from rnnjax.tasks.questions import SIZES, generated_questions

CORPORA = ("questions", "trec", "atis", "names", "files")
_NAMES = {
    "trec": ("TREC.train", "raw/TREC.train"),
    "names": ("English.txt",),
    "files": ("train.txt", "train.txt.gz"),
}
_TREC_HELD_OUT = 500  # questions of 5,452


def read_corpus(corpus: str, path: str, charset: str, seed: int) -> dict[str, list[Sentence]]:
    """{split: sentences with labels}. Raises DataError where a file is missing, malformed or too short to be split."""
    if corpus == "questions":
        return {split: list(generated_questions(split)) for split in SIZES}
    if corpus == "atis":
        return tagging.read_corpus("atis", path, charset)
    place = locate(path, names=_NAMES[corpus], corpus=corpus)
    if corpus == "names":
        found = _by_spelling(_read_names(place.parent), seed)
    elif corpus == "trec":
        train, test = (_coarse(read_labelled(place.with_name(f"TREC.{of}"), encoding="latin-1")) for of in SPLITS[::2])
        train, valid = _held_out(train, _TREC_HELD_OUT, seed)
        found = {"train": train, "valid": valid, "test": test}
    else:
        found = _read_files(place, charset, seed)
    for split, sentences in found.items():
        if not sentences:
            raise DataError(f"{place}: the {split} split has no sentence\nGive more lines, or a file for each split.")
    return found


def _coarse(sentences: list[Sentence]) -> list[Sentence]:
    """LOC:city -> LOC."""
    return [one._replace(label=one.label.partition(":")[0]) for one in sentences]


def _read_files(place: pathlib.Path, charset: str, seed: int) -> dict[str, list[Sentence]]:
    """A file for every split; of the training part a tenth for each split that has none."""
    found = {"train": read_labelled(place, encoding=charset)}
    tenth = max(1, len(found["train"]) // 10)
    for split in ("test", "valid"):
        if beside := _beside(place, split):
            found[split] = read_labelled(beside, encoding=charset)
        else:
            found["train"], found[split] = _held_out(found["train"], tenth, seed)
    return {split: found[split] for split in SPLITS}


def _beside(place: pathlib.Path, split: str) -> pathlib.Path | None:
    """The file of another split, plain or gzipped, beside a train.txt; None where there is none."""
    if "train" not in place.name:
        return None
    name = place.name.removesuffix(".gz").replace("train", split)
    files = (place.with_name(name), place.with_name(f"{name}.gz"))
    return next((file for file in files if file.is_file()), None)


def _held_out(sentences: list[Sentence], count: int, seed: int) -> tuple[list[Sentence], list[Sentence]]:
    """(the rest, `count` drawn ones), both in the order of the corpus; what stands in it twice is drawn together.

    So `count` may be missed where hardly a sentence stands there once.
    """
    times = collections.Counter(one.words for one in sentences)
    distinct = list(times)
    drawn, left = set(), count
    for at in np.random.default_rng(seed).permutation(len(distinct)).tolist():
        if times[distinct[at]] <= left:
            drawn.add(distinct[at])
            left -= times[distinct[at]]
    return [one for one in sentences if one.words not in drawn], [one for one in sentences if one.words in drawn]


def _read_names(folder: pathlib.Path) -> list[Sentence]:
    """The names of every LANGUAGE.txt."""
    found = []
    for path in sorted(folder.glob("*.txt")):
        lines = [line for line in read_lines(path) if not is_blank(line)]
        found += [Sentence(split_words(line), (), path.stem) for line in lines]
    return found


def _by_spelling(sentences: list[Sentence], seed: int) -> dict[str, list[Sentence]]:
    """A tenth of the spellings for validation, a tenth for the test: one name may be of several languages."""
    spellings = sorted({one.words for one in sentences})
    order = np.random.default_rng(seed).permutation(len(spellings))
    tenth = len(spellings) // 10
    split_of = dict.fromkeys(spellings, "train")
    split_of |= {spellings[at]: "valid" if place < tenth else "test" for place, at in enumerate(order[: 2 * tenth])}
    return {split: [one for one in sentences if split_of[one.words] == split] for split in SPLITS}

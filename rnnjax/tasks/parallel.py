"""Corpora of pairs: spellings and pronunciations, sentences and translations, and generated ones."""

import re
from collections.abc import Sequence

import numpy as np

from rnnjax.data.errors import DataError, malformed
from rnnjax.data.locate import locate
from rnnjax.data.pairs import Pair, read_cmudict, read_pairs, read_parallel
from rnnjax.tasks.base import SPLITS

CORPORA = ("reversal", "g2p", "multi30k", "pairs")
START, STOP = "<s>", "</s>"
"""What a target is written after, and what ends it: no target holds them."""

SYMBOLS = tuple("abcdefgh")
SHORTEST = 5  # shorter ones would be all in the training split
LONGEST = 16
"""Symbols in the longest sequence of the generated corpus."""

SIZES = {"train": 8000, "valid": 500, "test": 2000}
_MULTI30K = {"train": "train", "valid": "val", "test": "test_2016_flickr"}
_SPLIT_SEED = 0
_TRAINED, _HELD_OUT = 0.9, 0.05


def read_corpus(corpus: str, path: str, charset: str = "utf-8") -> dict[str, list[Pair]]:
    """{split: pairs}, symbols or words in each. Raises DataError where a file is missing or malformed."""
    if corpus == "reversal":
        return reversals()
    if corpus == "g2p":
        place = locate(path, names=("cmudict.dict.gz", "cmudict.dict"), corpus="cmudict")
        return split_by_source(read_cmudict(place, reserved=(START, STOP)), place)
    if corpus == "multi30k":
        names = [f"{_MULTI30K['train']}.en{ending}" for ending in (".gz", "")]
        place = locate(path, names=names, corpus="multi30k")
        if "train.en" not in place.name:
            problem = f"expected {names[0]} or {names[1]}, with the others beside it"
            raise malformed(place, "", problem, "Give their folder as `path`.")
        return {split: _multi30k(place, name) for split, name in _MULTI30K.items()}
    place = locate(path, names=("pairs.tsv", "pairs.csv", "pairs.tsv.gz"), corpus="pairs")
    return split_by_source(read_pairs(place, reserved=(START, STOP), encoding=charset), place)


def reversals() -> dict[str, list[Pair]]:
    """{split: sequences of SYMBOLS and the same from their end}, all lengths SHORTEST .. LONGEST alike often.

    Whatever a symbol is, it has to be remembered: nothing in a sequence tells of the rest. No sequence is in two
    splits.
    """
    generator = np.random.Generator(np.random.Philox(key=_SPLIT_SEED))
    found, seen = {}, set()
    for split, count in SIZES.items():
        sources: list[tuple[str, ...]] = []
        while len(sources) < count:
            length = generator.integers(SHORTEST, LONGEST + 1)
            source = tuple(SYMBOLS[i] for i in generator.integers(len(SYMBOLS), size=length))
            if source not in seen:
                sources.append(source)
        seen |= set(sources)
        found[split] = [Pair(source, source[::-1]) for source in sources]
    return found


def split_by_source(pairs: Sequence[Pair], path) -> dict[str, list[Pair]]:
    """Of the sources 90 % in train, 5 % in valid, 5 % in test, drawn with a seed of their own: none is in two splits.

    A source with several targets has all of them in its split. Raises DataError where a split would be empty.
    """
    sources = sorted({pair.source for pair in pairs})
    order = np.random.Generator(np.random.Philox(key=_SPLIT_SEED)).permutation(len(sources))
    trained, held_out = int(_TRAINED * len(sources)), int(_HELD_OUT * len(sources))
    where = np.full(len(sources), "test", object)
    where[order[:trained]], where[order[trained : trained + held_out]] = "train", "valid"
    split_of = dict(zip(sources, where, strict=True))
    found: dict[str, list[Pair]] = {split: [] for split in SPLITS}
    for pair in pairs:
        found[split_of[pair.source]].append(pair)
    for split, members in found.items():
        if not members:
            raise DataError(f"{path}: {len(sources)} different sources leave nothing for {split}\nGive at least 20.")
    return found


def tokens(line: str) -> tuple[str, ...]:
    """The words of a line in lower case, marks of punctuation apart."""
    return tuple(re.findall(r"\w+(?:['’]\w+)*|[^\w\s]", line.lower()))


def _multi30k(place, name: str) -> list[Pair]:
    english, german = (place.with_name(place.name.replace("train.en", f"{name}.{side}")) for side in ("en", "de"))
    return [Pair(*(tokens(" ".join(side)) for side in pair)) for pair in read_parallel(english, german)]

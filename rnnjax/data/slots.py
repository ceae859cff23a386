"""Utterances with slots and an intent, in the two forms that ATIS and its like go around in."""

import os
import pathlib

from rnnjax.data.errors import malformed, shown
from rnnjax.data.lines import is_blank, parallel_rows, read_lines, split_words
from rnnjax.data.sentences import Sentence

SLOT_FILES = ("seq.in", "seq.out", "label")


def read_slot_files(folder: str | os.PathLike, *, encoding: str = "utf-8") -> list[Sentence]:
    """The utterances of three parallel files: words in seq.in, slots in seq.out, the intent in label.

    Rows that are blank in all three are left out.

    Raises DataError, naming the file and the line, where a row has not as many slots as words, or no word or intent,
    where one file has more rows than another, and as `rnnjax.data.read_lines` does.
    """
    paths = [pathlib.Path(folder) / name for name in SLOT_FILES]
    sentences = []
    for number, (words, tags, label) in parallel_rows(paths, encoding):
        words, tags = split_words(words), split_words(tags)
        if len(tags) != len(words):
            problem = f"{len(tags)} slots, but {len(words)} words in {SLOT_FILES[0]}: {shown(' '.join(tags))}"
            raise malformed(paths[1], f"line {number}", problem, "Expected a slot a word: mend the line.")
        sentences.append(Sentence(words, tags, label))
    return sentences


def read_jointslu(path: str | os.PathLike, *, encoding: str = "utf-8") -> list[Sentence]:
    """The utterances of lines `BOS w_1 .. w_n EOS<TAB>O t_1 .. t_n INTENT`, without BOS and EOS.

    Source: Hakkani-Tur et al. 2016, "Multi-domain joint semantic frame parsing using bi-directional RNN-LSTM".

    Raises DataError, naming the file and the line, for any other line that is not blank, and as
    `rnnjax.data.read_lines` does.
    """
    sentences = []
    for number, line in enumerate(read_lines(path, encoding=encoding), 1):
        if is_blank(line):
            continue
        left, _, right = line.strip(" \t").partition("\t")
        words, tags = split_words(left), split_words(right)
        if problem := _jointslu_problem(words, tags):
            way_out = "Expected BOS word .. word EOS, a tab, O slot .. slot INTENT."
            raise malformed(path, f"line {number}", f"{problem}: {shown(line)}", way_out)
        sentences.append(Sentence(words[1:-1], tags[1:-1], tags[-1]))
    return sentences


def _jointslu_problem(words: tuple[str, ...], tags: tuple[str, ...]) -> str:
    if not tags:
        return "no tab with slots after it"
    if words[:1] != ("BOS",) or words[-1:] != ("EOS",) or tags[0] != "O":
        return "does not start with BOS and O, or has no EOS"
    if len(words) != len(tags):
        return f"{len(tags)} slots and intent, but {len(words)} words with BOS and EOS"
    return "no word between BOS and EOS" if len(words) < 3 else ""

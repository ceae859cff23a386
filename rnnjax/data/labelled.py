"""Sentences with one label each, as in TREC's questions and the sentiment corpora."""

import os

from rnnjax.data.errors import malformed, shown
from rnnjax.data.lines import is_blank, read_lines, split_words
from rnnjax.data.sentences import Sentence


def read_labelled(path: str | os.PathLike, *, encoding: str = "utf-8") -> list[Sentence]:
    """The sentences of lines `LABEL word word ...`; blank lines are left out.

    Raises DataError, naming the file and the line, where a label has no words after it, and as
    `rnnjax.data.read_lines` does.
    """
    sentences = []
    for number, line in enumerate(read_lines(path, encoding=encoding), 1):
        if is_blank(line):
            continue
        words = split_words(line)
        if is_blank("".join(words[1:])):
            problem = f"a label and no words: {shown(line)}"
            raise malformed(path, f"line {number}", problem, "Expected a label, then words: take the line out.")
        sentences.append(Sentence(words[1:], (), words[0]))
    return sentences

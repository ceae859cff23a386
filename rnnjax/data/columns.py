"""Tagged sentences in columns, as in the shared tasks of CoNLL: a word a line, a blank line after a sentence.

    Rockwell NNP B-NP
    said VBD B-VP

Source: Tjong Kim Sang, Buchholz 2000, "Introduction to the CoNLL-2000 shared task: chunking".
"""

import os
import re

from rnnjax.data.errors import malformed, shown
from rnnjax.data.lines import read_text
from rnnjax.data.sentences import Sentence

_BLOCK = re.compile(r"[^\n]+(?:\n[^\n]+)*")  # lines up to an empty one
_UNTIDY = re.compile(r"[ \t](?:[\t\n]|\Z)|(?:[\t\n]|\A)[ \t]")  # blanks that end or start a field or a line
_DOCUMENT = re.compile(r"^-DOCSTART-(?:[ \t].*)?$", re.MULTILINE)


def read_columns(path: str | os.PathLike, *, word: int = 0, tag: int = -1, encoding: str = "utf-8") -> list[Sentence]:
    """The sentences of a file of columns.

    A row that has tabs is split at them, so that its words may hold spaces, and any other at spaces. All rows have as
    many columns as the first. -DOCSTART- rows are left out.

    word, tag: the columns that hold them, from 0, or from -1 at the end.

    Raises DataError, naming the file and the line, where a row has another number of columns, where there is no such
    column, where both are the same, and as `rnnjax.data.read_text` does.
    """
    text = read_text(path, encoding=encoding)
    if "-DOCSTART-" in text:
        text = _DOCUMENT.sub("", text)
    if _UNTIDY.search(text):
        text = "\n".join(map(_tidy, text.split("\n")))
    blocks = list(_BLOCK.finditer(text))
    if not blocks:
        raise malformed(path, "", "no sentence", "Expected rows of a word and its columns.")
    count = len(_row(blocks[0][0].split("\n", 1)[0]))
    first = text.count("\n", 0, blocks[0].start()) + 1
    word, tag = (_column(path, first, name, at, count) for name, at in (("word", word), ("tag", tag)))
    if word == tag:
        problem = f"column {word} of {count} is both word and tag"
        raise malformed(path, f"line {first}", problem, "Expected a column of words and one of tags.")
    sentences = []
    for block in blocks:
        fields = _fields(block[0], count)
        if fields is None:
            fields = _row_by_row(path, text, block, count, first)
        sentences.append(Sentence(tuple(fields[word :: count + 1]), tuple(fields[tag :: count + 1])))
    return sentences


def _tidy(line: str) -> str:
    """The line without empty fields and without spaces at the ends of one."""
    return "\t".join(filter(None, (field.strip(" ") for field in line.split("\t"))))


def _fields(block: str, count: int) -> list[str] | None:
    """The fields of all rows with a "\\n" after each; None unless each row has `count`."""
    separator = "\t" if "\t" in block else " "
    rows = block.count("\n") + 1
    fields = list(filter(None, f"{block}\n".replace("\n", f"{separator}\n{separator}").split(separator)))
    regular = len(fields) == rows * (count + 1) and fields[count :: count + 1] == ["\n"] * rows
    return fields if regular else None


def _row_by_row(path, text: str, block: re.Match, count: int, first: int) -> list[str]:
    """As `_fields`, of rows some of which have tabs and some not."""
    fields = []
    for number, row in enumerate(block[0].split("\n")):
        found = _row(row)
        if len(found) != count:
            place = f"line {text.count(chr(10), 0, block.start()) + 1 + number}"
            problem = f"{len(found)} of the {count} columns that line {first} has: {shown(row)}"
            raise malformed(path, place, problem, "Complete the row, or end the sentence with a blank line.")
        fields += [*found, "\n"]
    return fields


def _row(row: str) -> list[str]:
    return list(filter(None, row.split("\t" if "\t" in row else " ")))


def _column(path, first: int, name: str, at: int, count: int) -> int:
    if not -count <= at < count:
        problem = f"{count} columns, but {name} is column {at}"
        raise malformed(path, f"line {first}", problem, f"Give a {name} of {-count} .. {count - 1}.")
    return at % count

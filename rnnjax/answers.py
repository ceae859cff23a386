"""What trained models answer a line with, and the models themselves as a finished run left them.

A study makes its models answer lines by a function in its module,

    predictor(config, workdir, entry) -> (line -> Answer)

config: the study's, as the run was asked for it. entry: the model's folder in WORKDIR. The study keeps in WORKDIR what
is needed beside the parameters, its vocabularies for one: no corpus is read. The function that is returned raises
Unanswerable, saying what a line lacks, where it has no answer to it. Of a model that goes on with a text it takes
`temperature`, `length` and `seed` by name too. `rnnjax.predict` is the command that asks.
"""

import dataclasses
import math
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rnnjax.data.errors import shown
from rnnjax.data.lines import is_blank, split_words
from rnnjax.text import Vocabulary
from rnnjax.train.checkpoint import find_parameters, read
from rnnjax.train.config import EXPECTED, Leaf, UsageError, leaves

_COLORS = ("cyan", "green", "yellow", "magenta", "blue", "red")


class Unanswerable(ValueError):
    """There is no answer to a line. Says what it lacks."""


class Answer(Protocol):
    """unknown: words or characters of the line that the model takes for its entry for others."""

    unknown: Sequence[str]

    def show(self, console: Console) -> None:
        """Prints the answer: for eyes and in colour on a terminal, else plain and for programs."""


@dataclasses.dataclass(frozen=True)
class Slots:
    """A slot for every word. On a terminal the slots stand below the words; else a line is a word, a tab and its slot,
    and an empty line ends the sentence, as `rnnjax.data.read_columns` reads it.
    """

    words: Sequence[str]
    slots: Sequence[str]
    unknown: Sequence[str] = ()

    def show(self, console):
        pairs = list(zip(self.words, self.slots, strict=True))
        if not console.is_terminal:
            _write(console, "".join(f"{word}\t{slot}\n" for word, slot in pairs) + "\n")
            return
        kinds = dict.fromkeys(slot.rpartition("-")[2] for slot in self.slots if slot != "O")
        colors = {kind: _COLORS[number % len(_COLORS)] for number, kind in enumerate(kinds)}
        for row in _rows(pairs, console.width):
            above, below = Text(), Text()
            for word, slot in row:
                color = colors.get(slot.rpartition("-")[2], "bright_black")
                for line, text, style in ((above, word, ""), (below, slot, color)):
                    line.append(text, style).append(" " * (_width(word, slot) - cell_len(text)))
            console.print(above, below, sep="\n", no_wrap=True, overflow="ignore", crop=False)


@dataclasses.dataclass(frozen=True)
class Label:
    """{class: its probability}. On a terminal the likeliest three; else the likeliest, a tab and its probability."""

    probabilities: Mapping[str, float]
    unknown: Sequence[str] = ()

    def show(self, console):
        ordered = sorted(self.probabilities.items(), key=lambda one: -one[1])
        (label, probability), *others = ordered[:3]
        if not console.is_terminal:
            _write(console, f"{label}\t{probability:.4f}\n")
            return
        rest = "".join(f"   {other} {share:.1%}" for other, share in others)
        console.print(Text.assemble((label, "bold green"), f" {probability:.1%}", (rest, "bright_black")))


@dataclasses.dataclass(frozen=True)
class Translation:
    """The words of another language, or what else a sequence is turned into."""

    words: Sequence[str]
    unknown: Sequence[str] = ()

    def show(self, console):
        _write(console, f"{' '.join(self.words)}\n")


@dataclasses.dataclass(frozen=True)
class Continuation:
    """What a text goes on with, shown piece by piece as it comes."""

    pieces: Iterable[str]
    unknown: Sequence[str] = ()

    def show(self, console):
        for piece in self.pieces:
            _write(console, piece)
        _write(console, "\n")


def _write(console: Console, text: str) -> None:
    console.file.write(text)
    console.file.flush()


def _width(word: str, slot: str) -> int:
    return max(cell_len(word), cell_len(slot)) + 1


def _rows(pairs: Sequence[tuple[str, str]], width: int) -> Iterator[list[tuple[str, str]]]:
    """The pairs in as many rows as a terminal of that width needs."""
    row, used = [], 0
    for pair in pairs:
        if row and used + _width(*pair) > width:
            yield row
            row, used = [], 0
        row.append(pair)
        used += _width(*pair)
    yield row


def words_of(line: str) -> tuple[str, ...]:
    """The words of a line. Raises Unanswerable where it has none."""
    if is_blank(line):
        raise Unanswerable("the line is empty: expected words")
    return split_words(line)


def unknown_of(symbols: Iterable[str], vocabulary: Vocabulary) -> tuple[str, ...]:
    """Those that the vocabulary has not, each once, in their order."""
    return tuple(dict.fromkeys(symbol for symbol in symbols if symbol not in vocabulary))


def standings(folder: pathlib.Path) -> list[float]:
    """The lowest score on the validation split of every replica of a training, by which its parameters were kept.

    One that is not a number counts as the worst. Raises UsageError where there is no save of any, or a damaged one.
    """
    saves = [save for save in (folder / "checkpoints" / "best").glob("*") if save.name.isdigit()]
    if not saves:
        raise UsageError(f"{folder} holds no parameters (no checkpoints/best): run the study again")
    newest = max(saves, key=lambda save: int(save.name)).absolute()
    try:
        found = [float(standing["best"]) for standing in read(newest).about["standings"]]
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        found = []
    if not found:
        raise UsageError(f"{newest} holds no standings: the run is of another version, run the study again")
    return [math.inf if math.isnan(score) else score for score in found]


def restored(model: nnx.Module, folder: pathlib.Path) -> nnx.Module:
    """The model with the parameters of a finished training, as it evaluates: of several replicas, those of the one
    that was best on the validation split.

    model: of the same structure, such as one of any seed. folder: WORKDIR/ENTRY.

    Raises UsageError where there are none, or they are of another model.
    """
    scores = standings(folder)
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    like = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (len(scores), *leaf.shape)), params)
    try:
        found = find_parameters(str(folder), "", like)
    except UsageError as error:
        raise UsageError(re.sub("^--init_from( is)?:? ", "", str(error))) from None  # no flag was given here
    best = int(np.argmin(scores))
    model = nnx.merge(graph, jax.tree.map(lambda leaf: jnp.asarray(leaf[best]), found), rest, copy=True)
    model.eval()
    return model


def config_like(like: Any, values: Mapping[str, Any], place: str = "config") -> Any:
    """A copy of the config `like` with the values that `rnnjax.train.config.to_dict` made of one of its kind.

    Raises UsageError, naming the field, where one has no value there, or one that it can't have, or there is none of
    this name.
    """
    kinds = {leaf.flag.rpartition(".")[2]: leaf for leaf in leaves(like, "") if leaf.flag.count(".") == 1}
    names = {field.name for field in dataclasses.fields(like)}
    if not isinstance(values, Mapping) or names != set(values):
        odd = sorted(names.symmetric_difference(values)) if isinstance(values, Mapping) else [repr(values)[:40]]
        raise UsageError(f"{place}.{odd[0]} is not in both config.json and the study: the run is of another version")
    found = {}
    for name in names:
        old, new = getattr(like, name), values[name]
        if dataclasses.is_dataclass(old):
            found[name] = config_like(old, new, f"{place}.{name}")
            continue
        leaf = kinds.get(name, Leaf(name, type(old)))  # without one: what no flag sets by its own name
        if leaf.type in EXPECTED and not _fits(leaf, new):
            wanted = ("a list, of which each is " if leaf.many else "") + EXPECTED[leaf.type]
            wanted += " or null" if leaf.optional else ""
            wanted += f", one of {', '.join(map(str, leaf.choices))}" if leaf.choices else ""
            raise UsageError(f"{place}.{name} is {shown(new)}: expected {wanted}")
        found[name] = tuple(new) if isinstance(new, list) else new
    return dataclasses.replace(like, **found)


def _fits(leaf: Leaf, value: Any) -> bool:
    if value is None:
        return leaf.optional
    if leaf.many:
        return isinstance(value, list) and all(_fits(dataclasses.replace(leaf, many=False), one) for one in value)
    if isinstance(value, bool) != (leaf.type is bool):
        return False
    if leaf.type is float:  # a whole one may stand without its point; JSON has NaN in Python
        return isinstance(value, float | int) and abs(value) <= sys.float_info.max
    return isinstance(value, leaf.type) and (not leaf.choices or value in leaf.choices)

"""Language modelling: which character or word comes next."""

import dataclasses
import functools
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import ClassVar

import jax
import numpy as np

from rnnjax.data.errors import DataError
from rnnjax.data.lines import read_text, split_lines, split_words
from rnnjax.data.locate import expanded, locate
from rnnjax.data.tales import tales
from rnnjax.tasks.base import (
    SPLITS,
    Batch,
    CorpusTask,
    check_batch_size,
    check_split,
    check_step,
    check_whole,
    cross_entropy,
)
from rnnjax.text.vocabulary import Vocabulary

CORPORA = ("generated", "ptb", "shakespeare", "text")
SYMBOLS = {"characters": "\n", "words": "<eos>"}
"""{what a text is made of: the symbol at the end of a line}."""

OTHER = "<unk>"
GENERATED = {"train": 3000, "valid": 300, "test": 300}
"""{split: tales in the generated text}, each drawn with the split's name as seed."""

_TRAINED_SHARE = 0.9


@dataclasses.dataclass(frozen=True)
class Language(CorpusTask):
    """From x_0 .. x_{t-1}, the probabilities of x_t: over one long text, whose state goes on from window to window.

        loss_t = - log softmax(output_t)[x_t],    in nats a character or word

    The text is cut into as many contiguous rows as a batch has; an update is a window of `length` steps of each, which
    goes on with the carry of the window before. Inputs [T, B] hold x_{t-1}, targets [T, B] x_t, both int32; before the
    first symbol of a text stands the end of a line. An epoch starts at an offset drawn from (seed, epoch), so that its
    windows are cut elsewhere each time; less than a window of every row is left out.

    An evaluation predicts every symbol of a split exactly once, row by row as in training: with few rows that is the
    whole text with the state carried through, with many the first symbols of each row have no past.

    The vocabulary is that of the training split, with "<unk>" for all else. Of the Penn Treebank lines are stripped;
    as words, "<eos>" ends each line. Source: Mikolov et al. 2010, "Recurrent neural network based language model";
    Mikolov et al. 2012, "Subword language modeling with neural networks".

    Worked example, "so it goes" by characters in a batch of 1, length=4:

        update  0        1
        input   s o _ i  t _ g o
        target  o _ i t  _ g o e
        fresh   1        0

    corpus: generated (`rnnjax.data.tales`), ptb, shakespeare (the first 90 % of the characters are the training split,
        as in nanoGPT, whose other 10 % are halved here), or text, any file, split in the same way.
    path: of the corpus text the file, of ptb and shakespeare a file, a folder, or "" for where `rnnjax.data.locate`
        looks.
    charset: of the file, such as utf-8 or latin-1.
    symbols: what is predicted, characters or words.
    length: steps of time in an update.
    min_count: symbols that are rarer in the training split are "<unk>".
    """

    corpus: str = dataclasses.field(default="generated", metadata={"choices": CORPORA})
    path: str = ""
    charset: str = "utf-8"
    symbols: str = dataclasses.field(default="characters", metadata={"choices": tuple(SYMBOLS)})
    length: int = 150
    min_count: int = 1

    reads_last: ClassVar[bool] = False
    carried: ClassVar[bool] = True
    link: ClassVar[str] = "softmax"

    def __post_init__(self):
        check_whole(self, 1, "length", "min_count")
        for name, choices in (("corpus", CORPORA), ("symbols", SYMBOLS)):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} of Language is {getattr(self, name)!r}: expected one of {', '.join(choices)}")
        if self.corpus == "generated" and self.path:
            raise ValueError(f"path of Language is {self.path!r} but corpus is 'generated': take corpus='text'")
        if self.corpus == "text" and not self.path:
            raise ValueError("path of Language is '' but corpus is 'text': give the file")

    @property
    def unit(self) -> str:
        return f"nats a {self.symbols.removesuffix('s')}"

    @property
    def input_size(self) -> int:
        return len(self.vocabulary)

    @property
    def output_size(self) -> int:
        return len(self.vocabulary)

    @functools.cached_property
    def texts(self) -> dict[str, str]:
        """{split: text}, read at first use. Raises DataError where there is no such file or it is too short."""
        if self.corpus == "generated":
            return {split: tales(split, count).text for split, count in GENERATED.items()}
        if self.corpus == "ptb":
            path = locate(self.path, names=("ptb.zip", "ptb.train.txt"), corpus="ptb")
            return {split: _stripped(_read_ptb(path, split, self.charset)) for split in SPLITS}
        path = expanded(self.path)
        if self.corpus == "shakespeare":
            path = locate(self.path, names=("input.txt",), corpus="tinyshakespeare")
        return _cut(read_text(path, encoding=self.charset), path, in_lines=self.symbols == "words")

    @functools.cached_property
    def vocabulary(self) -> Vocabulary:
        """The symbols of the training split."""
        return Vocabulary.build([to_symbols(self.texts["train"], self.symbols)], min_count=self.min_count, other=OTHER)

    @functools.cached_property
    def ids(self) -> dict[str, np.ndarray]:
        """{split: int32 [N]}, its symbols as their places in the vocabulary."""
        encode = _encode_characters if self.symbols == "characters" else _encode_words
        return {split: encode(text, self.vocabulary) for split, text in self.texts.items()}

    @property
    def start(self) -> int:
        """What is read before the first symbol of a text: the end of a line; where the corpus has none, "<unk>"."""
        return start_of(self.vocabulary, self.symbols)

    @functools.cached_property
    def frequencies(self) -> np.ndarray:
        """[V], of the symbols in the training split; of "<unk>" as if it stood there once at least."""
        counts = np.maximum(self.vocabulary.counts, 1)
        return counts / counts.sum()

    @functools.cached_property
    def output_bias(self) -> np.ndarray:
        """[V], the log of the frequencies: a model that starts at 0 spends its hidden units on them first."""
        return np.log(self.frequencies).astype(np.float32)

    @functools.cached_property
    def chance(self) -> float:
        """Nats a symbol on the validation split of guessing the training frequencies."""
        return float(-np.mean(np.log(self.frequencies)[self.ids["valid"]]))

    def steps_per_epoch(self, batch_size: int) -> int:
        """Windows in one pass over the training split. Raises DataError where it is too short for one."""
        check_batch_size(batch_size)
        size = len(self.ids["train"])
        count = (size - self.length) // (batch_size * self.length)
        if count < 1:
            raise DataError(
                f"the training split has {size} {self.symbols}: too few for {batch_size} rows of {self.length} steps "
                f"and an offset\nTake fewer rows (batch_size) or steps (length of Language), or a longer text."
            )
        return count

    def batch(self, step: int, batch_size: int, seed: int) -> Batch:
        """The window of `step` >= 0, a pure function of its arguments; `seed` in 0 .. 2^64 - 1."""
        check_step(step, seed)
        count, time = self.steps_per_epoch(batch_size), self.length
        epoch, index = divmod(step, count)
        text, row = self.ids["train"], count * time
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, epoch], np.uint64)))
        offset = int(generator.integers(len(text) - batch_size * row))
        starts = offset + row * np.arange(batch_size) + index * time
        window = text[starts + np.arange(time + 1)[:, None]]
        fresh = np.full(batch_size, index == 0, np.float32)
        return Batch(window[:-1], window[1:], np.ones((time, batch_size), np.float32), None, fresh)

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Every symbol of `split` (train, valid, test) exactly once, in windows that follow one another.

        All have one shape; rows are as even as they can be and may end in the last windows.
        """
        check_split(split)
        check_batch_size(batch_size)
        return self._windows(self.ids[split], batch_size)

    def _windows(self, text: np.ndarray, rows: int) -> Iterator[Batch]:
        longest = -(-len(text) // rows)
        time = min(self.length, longest)
        count = -(-longest // time)
        shape = (rows, longest)
        targets = np.resize(text, shape)  # repeats the text where it ends, behind the lengths
        inputs = np.resize(np.concatenate([[self.start], text[:-1]]).astype(np.int32), shape)
        pads = [(0, 0), (0, count * time - longest)]
        inputs, targets = (np.pad(ids, pads).T.reshape(count, time, rows) for ids in (inputs, targets))
        left = np.clip(len(text) - longest * np.arange(rows), 0, longest)
        for number in range(count):
            lengths = np.clip(left - number * time, 0, time).astype(np.int32)
            mask = (np.arange(time)[:, None] < lengths).astype(np.float32)
            fresh = np.full(rows, number == 0, np.float32)
            yield Batch(inputs[number], targets[number], mask, lengths, fresh)

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Nats: logits [T, B, V] -> [T, B]."""
        return cross_entropy(outputs, batch.targets)

    def metrics(self, outputs, batch):
        """Of characters, `bits` [T, B]: the loss over log 2, as the literature has it."""
        if self.symbols == "words":
            return {}
        return {"bits": (self.loss(outputs, batch) / math.log(2), batch.mask)}


def to_symbols(text: str, symbols: str) -> Sequence[str]:
    """The characters or words of a text; as words, the end of every line is one, also that of the last."""
    if symbols == "characters":
        return text
    end = "" if text.endswith("\n") else "\n"
    return split_words(f"{text}{end}".replace("\n", f" {SYMBOLS['words']} "))


def start_of(vocabulary: Vocabulary, symbols: str) -> int:
    """The id of the symbol that is read before the first one of a text."""
    end = SYMBOLS[symbols]
    return vocabulary.index(end if end in vocabulary.words else OTHER)


def _encode_characters(text: str, vocabulary: Vocabulary) -> np.ndarray:
    """int32 [N], by a table over code points."""
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    distinct = sorted(set(text))
    table = np.zeros(ord(distinct[-1]) + 1, np.int32)
    table[[ord(character) for character in distinct]] = vocabulary.encode(distinct)
    return table[codes]


def _encode_words(text: str, vocabulary: Vocabulary) -> np.ndarray:
    return vocabulary.encode(to_symbols(text, "words"))


def _read_ptb(path: pathlib.Path, split: str, charset: str) -> str:
    name = f"ptb.{split}.txt"
    place, member = (path, name) if path.suffix == ".zip" else (path.with_name(name), None)
    return read_text(place, member=member, encoding=charset)


def _stripped(text: str) -> str:
    return "".join(f"{line.strip()}\n" for line in split_lines(text))


def _cut(text: str, path: pathlib.Path, *, in_lines: bool) -> dict[str, str]:
    """{split: text} in 90, 5 and 5 % of the characters, in order; `in_lines` moves a cut on to the end of its line."""
    first = int(_TRAINED_SHARE * len(text))
    cuts = [first, first + (len(text) - first) // 2]
    if in_lines:
        cuts = [text.find("\n", cut - 1) + 1 or len(text) for cut in cuts]
    parts = [text[: cuts[0]], text[cuts[0] : cuts[1]], text[cuts[1] :]]
    for split, part in zip(SPLITS, parts, strict=True):
        if not part.strip():
            raise DataError(
                f"{path}: {len(text)} characters leave nothing for the {split} split, the parts being 90, 5 and 5 %"
                f"{', cut at ends of lines' if in_lines else ''}\nGive a longer text."
            )
    return dict(zip(SPLITS, parts, strict=True))

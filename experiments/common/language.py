"""The models of a language study, what they write, and how well they recall what stands far back."""

import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from rnnjax.answers import restored
from rnnjax.cells import CELLS
from rnnjax.data.lines import split_words
from rnnjax.nn import Embedding, LanguageModel, OneHot
from rnnjax.nn.sampling import Sampler
from rnnjax.tasks.language import SYMBOLS, Language, start_of, to_symbols
from rnnjax.text import Vocabulary
from rnnjax.train.build import hidden_size, make_layer
from rnnjax.train.config import UsageError
from rnnjax.train.step import INIT, root_key, stream


def make_language_model(
    cell: str, config: Any, size: int, seed: int, output_bias: np.ndarray | None = None
) -> LanguageModel:
    """A model of `size` symbols as config.model says, its parameters drawn from `seed`.

    A cell that reads out itself (Jordan) has no head that could be tied.

    Raises UsageError where it can't be made.
    """
    rngs = nnx.Rngs(params=stream(root_key(seed), INIT))
    model = config.model
    tied = model.tied and not (CELLS[cell].readout and model.layers == 1)
    features = hidden_size(cell, config) if tied else model.embedding_size or size
    encoder = Embedding(size, features, rngs=rngs) if tied or model.embedding_size else OneHot(size)
    layer = make_layer(cell, config, features, size)
    try:
        return LanguageModel(
            layer, size, encoder=encoder, tied=tied, dropout=model.dropout, output_bias=output_bias, rngs=rngs
        )
    except ValueError as error:
        raise UsageError(f"--config.model of {cell}: {error}") from error


class Writer:
    """A trained model that goes on with texts.

    folder: that of the model in a finished run, whose vocabulary stands beside it.
    """

    def __init__(self, cell: str, config: Any, folder: pathlib.Path):
        self.symbols = config.task.symbols
        self.vocabulary = Vocabulary.load(folder.parent / "vocabulary.json")
        model = make_language_model(cell, config, len(self.vocabulary), config.train.seed)
        self._sample = Sampler(restored(model, folder))

    def split(self, text: str) -> tuple[str, ...]:
        """The characters or words of what is gone on with; its last line does not end."""
        return tuple(text) if self.symbols == "characters" else split_words(text)

    def __call__(self, text: str, *, temperature: float, length: int, seed: int) -> Iterator[str]:
        """`length` pieces of a text that goes on after `text`, which may be empty."""
        start = start_of(self.vocabulary, self.symbols)
        read = [start, *self.vocabulary.encode(self.split(text)).tolist()]
        drawn = self._sample(read, key=root_key(seed), temperature=temperature)
        space = bool(self.split(text))
        for _, number in zip(range(length), drawn, strict=False):
            symbol = self.vocabulary.words[number]
            if self.symbols == "characters":
                yield symbol
                continue
            ends = symbol == SYMBOLS["words"]
            yield "\n" if ends else f" {symbol}" if space else symbol
            space = not ends


def recall_of(task: Language) -> Callable[[nnx.Module], dict[str, float]]:
    """{"recalled": percent of the sentences of the generated test text, from the second of a tale on, at whose end the
    model's best guess is who says them; of characters, the name's first letter, which no two names share}."""
    text, places, said = task.texts["test"], [], 0
    for found in re.finditer(r", says |\n", text):
        said = said + 1 if found.group() != "\n" else 0
        if said > 1:
            places.append(found.end())
    if task.symbols == "words":
        places = [len(to_symbols(text[:place], "words")) - 1 for place in places]

    def score(model: nnx.Module) -> dict[str, float]:
        right = best_guesses(model, task, "test")[places] == task.ids["test"][places]
        return {"recalled": 100 * float(np.mean(right))}

    return score


def best_guesses(model: nnx.Module, task: Language, split: str, rows: int = 8) -> np.ndarray:
    """int32 [N], the likeliest symbol at every place of a split, as an evaluation goes through it."""
    graph, state = nnx.split(model)

    @jax.jit
    def guess(state, carry, inputs, lengths):
        outputs, carry = nnx.merge(graph, state).stream(inputs, carry, lengths=lengths)
        return jnp.argmax(outputs, -1), carry

    found, lengths, carry = [], 0, model.initial_carry(rows)
    for batch in task.batches(split, rows):
        guesses, carry = guess(state, carry, batch.inputs, batch.lengths)
        found.append(np.asarray(guesses))
        lengths += batch.lengths
    by_row = np.concatenate(found).T
    return np.concatenate([row[:length] for row, length in zip(by_row, lengths, strict=True)])

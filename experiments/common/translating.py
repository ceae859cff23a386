"""The models of a translation study by name, and what is measured of what they write."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from numpy.typing import ArrayLike

from rnnjax.cells import CELLS
from rnnjax.layers import Bidirectional
from rnnjax.nn import Embedding, Seq2Seq
from rnnjax.report.attention import Look
from rnnjax.tasks import Batch
from rnnjax.tasks.pair_codec import STOP, PairCodec
from rnnjax.tasks.text_scores import bleu, edits, error_rate, share_wrong
from rnnjax.tasks.translation import Translation
from rnnjax.train.build import sized_cell
from rnnjax.train.config import UsageError
from rnnjax.train.records import replacing
from rnnjax.train.step import INIT, root_key, stream

ATTENTIONS = {"fixed": None, "bahdanau": "bahdanau", "luong": "luong"}
BINS = 8
"""Into how many groups of lengths the test split is cut for a picture."""
LOOKS = 4


@dataclasses.dataclass(frozen=True)
class Spec:
    """A model by name: CELL-fixed|bahdanau|luong[-bi][-reversed], such as gru-bahdanau-bi.

    bidirectional: whether the encoder reads from both ends. reversed: whether the source is turned round before.
    """

    name: str
    cell: str
    attention: str
    bidirectional: bool = False
    reversed: bool = False

    @classmethod
    def of(cls, name: str) -> "Spec":
        """Raises UsageError for a name that is none."""
        cell, _, rest = name.partition("-")
        attention, *more = rest.split("-")
        known = cell in CELLS and attention in ATTENTIONS and more in ([], ["bi"], ["reversed"], ["bi", "reversed"])
        if not known:
            raise UsageError(
                f"--config.models has {name!r}: expected CELL-fixed, CELL-bahdanau or CELL-luong, then -bi and "
                f"-reversed where wanted, such as gru-bahdanau-bi, of {', '.join(CELLS)}"
            )
        return cls(name, cell, attention, "bi" in more, "reversed" in more)


def make_translator(spec: Spec, task: Translation | PairCodec, config: Any, seed: int) -> Seq2Seq:
    """The model, its parameters drawn from `seed`. Raises UsageError where it can't be made."""
    rngs = nnx.Rngs(params=stream(root_key(seed), INIT))
    features = config.model.embedding_size
    source, target = (Embedding(size, features, rngs=rngs) for size in (task.input_size, task.output_size))
    reader = sized_cell(spec.cell, config, features, config.model.hidden_size)
    encoder = Bidirectional(reader, reader) if spec.bidirectional else reader
    context = 0 if spec.attention == "luong" else encoder.output_size
    return Seq2Seq(
        encoder,
        sized_cell(spec.cell, config, features + context, config.model.hidden_size),
        task.output_size,
        source=source,
        target=target,
        attention=ATTENTIONS[spec.attention],
        dropout=config.model.dropout,
        rngs=rngs,
    )


def best(
    model: Seq2Seq, codec: PairCodec, source: ArrayLike, lengths: ArrayLike, size: int, longest: int
) -> tuple[jax.Array, jax.Array]:
    """(symbols [T, B], lengths [B]), the best that a search with `size` sequences finds for source [S, B]: studies are
    scored by it and lines answered. longest: of the corpus' targets, where what does not end is cut."""
    found = model.beam(source, lengths=lengths, size=size, start=codec.start, stop=codec.stop, max_length=longest)
    return found.symbols[..., 0], found.lengths[:, 0]


def scores_of(task: Translation, config: Any, folder: pathlib.Path) -> Callable[[nnx.Module], dict[str, float]]:
    """What is measured of a trained model on the test split, in percent. Where the first seed looked stands in
    `folder`/attention.npz."""

    def score(model: Seq2Seq) -> dict[str, float]:
        def write(batch: Batch) -> tuple[jax.Array, jax.Array]:
            return best(model, task.codec, batch.inputs.source, batch.lengths, config.beam, task.longest)

        written = task.written("test", config.train.eval_batch, write)
        if model.attention is not None and not (folder / "attention.npz").exists():
            save_looks(folder / "attention.npz", task, model)
        return scores(task, written)

    return score


def scores(task: Translation, written: Sequence[tuple[str, ...]]) -> dict[str, float]:
    """accuracy, on the whole test split, its `shortest` and its `longest` quarter, and `at_N` for groups of
    mean length N; error, edits a symbol, and wrong, sequences with one.

    A source is counted once, whatever it has of targets, by the closest. accuracy is BLEU, by its first target, of
    multi30k, else 100 - error.
    """
    sources = [pair.source for pair in task.pairs["test"]]
    first = [at for source, at in {source: at for at, source in reversed(list(enumerate(sources)))}.items()]
    first = np.array(sorted(first))
    every = task.references("test")
    counted = edits([every[at] for at in first], [written[at] for at in first])
    order = np.argsort([len(sources[at]) for at in first], kind="stable")
    quarter = max(1, len(order) // 4)

    def accuracy(places: np.ndarray) -> float:
        if not in_words(task):
            return 100 - error_rate(counted[places])
        at = first[places]
        targets = [task.pairs["test"][i].target for i in at]
        return bleu([task.codec.text(target) for target in targets], [task.codec.text(written[i]) for i in at])

    found = {"accuracy": accuracy(np.arange(len(first))), "error": error_rate(counted), "wrong": share_wrong(counted)}
    found |= {"shortest": accuracy(order[:quarter]), "longest": accuracy(order[-quarter:])}
    lengths = np.array([len(sources[at]) for at in first])
    ends = np.unique(np.quantile(lengths, np.arange(1, BINS + 1) / BINS, method="inverted_cdf"))
    groups = np.searchsorted(ends, lengths)
    members = [np.flatnonzero(groups == i) for i in range(len(ends))]
    return found | {f"at_{lengths[at].mean():.2f}": accuracy(at) for at in members}


def in_words(task: Translation) -> bool:
    """Whether sentences are written, which BLEU is for."""
    return task.corpus == "multi30k"


def save_looks(path: pathlib.Path, task: Translation, model: Seq2Seq) -> None:
    """Weights for sources of the test split, evenly spaced over the longer half of the lengths."""
    order = np.argsort([len(pair.source) for pair in task.pairs["test"]], kind="stable")
    places = np.linspace(0.5, 0.95, LOOKS) * (len(order) - 1)
    chosen = [task.pairs["test"][order[int(place)]].source for place in places]
    lines = [source[::-1] if task.reverse_source else source for source in chosen]  # as `read` takes them
    source, lengths = task.codec.read(lines)
    found = model.greedy(source, lengths=lengths, start=task.codec.start, stop=task.codec.stop, max_length=task.longest)
    looks, arrays = [], {}
    for row, symbols in enumerate(chosen):
        count = int(found.lengths[row])
        ids = np.asarray(found.symbols)[:count, row]
        ended = count < task.longest
        looks.append({"read": symbols, "written": [*task.codec.target.decode(ids), *[STOP] * ended]})
        arrays[f"weights_{row}"] = np.asarray(found.weights)[: count + ended, row, : len(symbols)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        np.savez(temporary, looks=np.array(json.dumps(looks)), **arrays)


def read_looks(path: pathlib.Path) -> list[Look]:
    """What `save_looks` wrote."""
    with np.load(path, allow_pickle=False) as held:
        looks = json.loads(str(held["looks"]))
        return [Look(look["read"], look["written"], held[f"weights_{row}"]) for row, look in enumerate(looks)]

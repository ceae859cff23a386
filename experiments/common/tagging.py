"""The models of a slot-filling study by name, and what is measured of them beside F1."""

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from experiments.common.pretrained import Vectors, embedding
from experiments.common.study import applied
from rnnjax import layers
from rnnjax.cells import CELLS, Jordan, TeacherForced
from rnnjax.nn import FeedForward, FlatFeedForward, OneHot, Tagger, Trigrams
from rnnjax.tasks.base import SPLITS
from rnnjax.tasks.bucketed import round_up
from rnnjax.tasks.scores import slot_scores
from rnnjax.tasks.tagging import TagCodec, Tagging
from rnnjax.tasks.travel import ARRIVE, LEAVE
from rnnjax.train.build import make_layer
from rnnjax.train.config import LayersConfig, UsageError
from rnnjax.train.step import INIT, root_key, stream

FFN = "ffn"
CELLS_COMPARED = ("elman", "jordan", "lstm", "gru")
AFTER = 3
"""Words behind a sentence's first error that are looked at."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """A model by name: BASE[-wN][-bi][-crf][-flat][-onehot|-trigrams], such as lstm-w3 or gru-bi-crf.

    base: a cell, or ffn for the feed-forward network that reads each word by itself.
    window: words that are seen at once.
    flat: of ffn, that the whole sentence is read at once.
    """

    name: str
    base: str
    window: int = 1
    bidirectional: bool = False
    crf: bool = False
    flat: bool = False
    encoding: str = "embedding"

    @classmethod
    def of(cls, name: str) -> "Spec":
        """Raises UsageError for a name that is none."""
        base, *parts = name.split("-")
        found: dict[str, Any] = {}
        for part in parts:
            if re.fullmatch(r"w\d+", part):
                new = {"window": int(part[1:])}
            elif part in ("bi", "crf", "flat"):
                new = {"bidirectional" if part == "bi" else part: True}
            elif part in ("onehot", "trigrams"):
                new = {"encoding": part}
            else:
                new = {"": None}
            if set(new) & {"", *found}:
                base = ""
            found |= new
        window = found.get("window", 1)
        other = {"bidirectional", "crf"} if base == FFN else {"flat"}  # what is of the other kind of network
        flat_window = {"flat", "window"} <= found.keys()
        if base not in (FFN, *CELLS) or window % 2 == 0 or found.keys() & other or flat_window:
            raise UsageError(
                f"--config.models has {name!r}: expected CELL[-wN][-bi][-crf][-onehot|-trigrams] with an odd window N, "
                f"such as lstm-w3 or gru-bi, of {', '.join(CELLS)}, or {FFN}[-wN|-flat][-onehot|-trigrams]"
            )
        return cls(name, base, **found)


def make_tagger(
    spec: Spec, task: Tagging | TagCodec, config: Any, seed: int, start: Vectors | None = None
) -> nnx.Module:
    """The model, its parameters drawn from `seed`, and words that are looked up with the vectors of `start`.

    Raises UsageError where it can't be made.
    """
    rngs = nnx.Rngs(params=stream(root_key(seed), INIT))
    features = config.model.embedding_size
    if spec.encoding == "onehot":
        encoder = OneHot(task.input_size)
    elif task.encoding == "trigrams":
        encoder = Trigrams(task.input_size, features, rngs=rngs)
    else:
        encoder = embedding(task.vocabulary, features, start, rngs)
    dropout = getattr(config.recipes, spec.base).dropout
    shared = {"encoder": encoder, "dropout": dropout, "rngs": rngs}
    if spec.base == FFN:
        shared |= {"hidden_size": config.model.hidden_size, "output_size": task.output_size}
        if spec.flat:
            length = round_up(config.model.longest)  # as lines to be answered are padded
            return FlatFeedForward(length=length, **shared)
        return FeedForward(window=spec.window, **shared)
    model = LayersConfig(config.model.hidden_size, config.model.layers, spec.bidirectional, dropout)
    settings = dataclasses.replace(config, model=model)
    layer = make_layer(spec.base, settings, spec.window * encoder.features, task.output_size)
    return Tagger(layer, task.output_size, crf=spec.crf, window=spec.window, **shared)


def check_longest(task: Tagging, longest: int) -> None:
    """Raises UsageError where a sentence has more words than a network of whole sentences has weights for."""
    found = max(int(task.lengths(split).max()) for split in SPLITS)
    if found > longest:
        raise UsageError(
            f"--config.model.longest is {longest}, but the corpus has a sentence of {found} words: give "
            f"--config.model.longest={found}, or leave {FFN}-flat out"
        )


def scores_of(task: Tagging, batch_size: int) -> Callable[[nnx.Module], dict[str, float]]:
    """What is measured of a trained model on the test split, in percent where it is a share."""

    def score(model: nnx.Module) -> dict[str, float]:
        apply = applied(model)
        gold = [list(sentence.tags) for sentence in task.sentences["test"]]
        predicted = task.predictions("test", batch_size, apply)
        found = slot_scores(gold, predicted)
        found |= {f"{name}_error": rate for name, rate in after_first_error(gold, predicted).items()}
        if task.corpus == "travel":
            found |= {f"city_{name}": value for name, value in city_scores(task, predicted).items()}
            found |= exchanged(task, apply)
        if fed := fed_the_right_tags(task, model, batch_size):
            found["later_error_fed_right"] = later_error(gold, predicted, fed)
        return found

    return score


def after_first_error(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """{"first": of the words with no wrong one before them in the sentence, those that are wrong, "later": of the AFTER
    words behind the first wrong one}, in percent."""
    firsts, at_risk, wrong_after, after = 0, 0, 0, 0
    for tags, guesses in zip(gold, predicted, strict=True):
        wrong = [tag != guess for tag, guess in zip(tags, guesses, strict=True)]
        if True not in wrong:
            at_risk += len(wrong)
            continue
        first = wrong.index(True)
        firsts, at_risk = firsts + 1, at_risk + first + 1
        behind = wrong[first + 1 : first + 1 + AFTER]
        wrong_after, after = wrong_after + sum(behind), after + len(behind)
    return {"first": 100 * firsts / max(at_risk, 1), "later": 100 * wrong_after / max(after, 1)}


def later_error(gold, predicted, other) -> float:
    """Of the AFTER words behind the first that `predicted` has wrong, the share that `other` has wrong, in percent."""
    wrong_after, after = 0, 0
    for tags, guesses, others in zip(gold, predicted, other, strict=True):
        first = next((at for at, pair in enumerate(zip(tags, guesses, strict=True)) if pair[0] != pair[1]), len(tags))
        behind = range(first + 1, min(first + 1 + AFTER, len(tags)))
        wrong_after, after = wrong_after + sum(tags[at] != others[at] for at in behind), after + len(behind)
    return 100 * wrong_after / max(after, 1)


def fed_the_right_tags(task: Tagging, model: nnx.Module, batch_size: int) -> list[list[str]] | None:
    """The test predictions of a Jordan network that is fed the right tags and not its own, but for those that training
    has not; None of any other model, of one with a CRF, and of one that feeds back something else than probabilities.
    """
    cell = model.rnn.layer if isinstance(model, Tagger) and not model.crf else None
    if not isinstance(cell, Jordan) or cell.feedback != "softmax":
        return None
    params, size = model.rnn.arrays(), task.output_size

    @jax.jit
    def outputs(inputs, targets, lengths):
        shown = jax.nn.one_hot(targets, size)  # 0 of -1, as pads and unseen tags are
        shown = jnp.concatenate([jnp.full_like(shown[:1], 1 / size), shown[:-1]])  # softmax(y_0), as it starts
        return layers.run(
            cell, params, TeacherForced(model.encode(inputs, lengths, None), shown), lengths=lengths
        ).outputs

    return task.predictions("test", batch_size, lambda batch: outputs(batch.inputs, batch.targets, batch.lengths))


def city_scores(task: Tagging, predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """{"before", "after", "both"}: percent of the cities with a slot that got it, by where the trigger stands."""
    right: dict[str, list[bool]] = {"before": [], "after": []}
    for sentence, guesses in zip(task.sentences["test"], predicted, strict=True):
        at = _city(sentence.tags)
        right[sentence.label].append(guesses[at] == sentence.tags[at])
    right["both"] = right["before"] + right["after"]
    return {name: 100 * float(np.mean(values)) for name, values in right.items()}


def exchanged(task: Tagging, apply: Callable) -> dict[str, float]:
    """Of the sentences whose trigger comes first, the percent in which the city's answer changes with two words swapped
    (the trigger and the city) and with "arrive" in place of "leave" or the reverse."""
    opposite = dict(zip((*ARRIVE, *LEAVE), (*LEAVE, *ARRIVE), strict=True))
    plain, swapped, turned, places = [], [], [], []
    for sentence in task.sentences["test"]:
        if sentence.label != "before":
            continue
        words, city = list(sentence.words), _city(sentence.tags)
        trigger = next(at for at, word in enumerate(words) if word in opposite)
        exchange = list(words)
        exchange[city], exchange[trigger] = words[trigger], words[city]
        plain.append(words)
        swapped.append(exchange)
        turned.append([*words[:trigger], opposite[words[trigger]], *words[trigger + 1 :]])
        places.append((city, trigger))
    before, after, reverse = (task.codec.tag(lines, apply) for lines in (plain, swapped, turned))
    moved = [one[city] != two[trigger] for one, two, (city, trigger) in zip(before, after, places, strict=True)]
    other = [one[city] != two[city] for one, two, (city, _) in zip(before, reverse, places, strict=True)]
    return {"swap_changes": 100 * float(np.mean(moved)), "reverse_changes": 100 * float(np.mean(other))}


def _city(tags: Sequence[str]) -> int:
    return next(at for at, tag in enumerate(tags) if tag in ("B-destination", "B-departure"))

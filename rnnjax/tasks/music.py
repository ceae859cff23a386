"""Polyphonic music: which keys of the piano sound next."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from rnnjax.data.locate import locate
from rnnjax.data.pianoroll import CORPORA, KEYS, read_pianoroll
from rnnjax.tasks.base import Batch, check_whole, widen
from rnnjax.tasks.bucketed import BucketedTask


@dataclasses.dataclass(frozen=True)
class Music(BucketedTask):
    """From v_1 .. v_{t-1} in {0, 1}^88, the probabilities p_t of the keys at t; v_1 is guessed too, from 0.

        loss_t = - sum_k v_tk log p_tk + (1 - v_tk) log(1 - p_tk),    p_t = sigmoid(output_t),    in nats

    Inputs [T, B, 88] hold v_{t-1}, targets [T, B, 88] v_t; the mask [T, B] is 1 at the steps of a sequence.
    The figure of the literature is the loss averaged over all steps of a split. Source:
    Boulanger-Lewandowski, Bengio, Vincent 2012, "Modeling temporal dependencies in high-dimensional
    sequences"; Chung et al. 2014, "Empirical evaluation of gated recurrent neural networks on sequence
    modeling".

    Worked example, a chord held for two steps, then silence (keys by number):

        input   {}            {39, 43, 46}  {39, 43, 46}
        target  {39, 43, 46}  {39, 43, 46}  {}

    path: a .mat, .json or .pickle file, a folder that holds one, or "" for where `rnnjax.data.locate` looks.
    corpus: JSB_Chorales, Nottingham, MuseData or Piano_midi; of no effect where `path` is a file.
    buckets: at most how many lengths the sequences of a split are padded to.
    """

    path: str = ""
    corpus: str = "JSB_Chorales"
    buckets: int = 4

    input_size: ClassVar[int] = KEYS
    output_size: ClassVar[int] = KEYS
    reads_last: ClassVar[bool] = False
    link: ClassVar[str] = "sigmoid"
    unit: ClassVar[str] = "nats a step"

    def __post_init__(self):
        check_whole(self, 1, "buckets")
        if self.corpus not in CORPORA:
            raise ValueError(f"corpus of Music is {self.corpus!r}: expected one of {', '.join(CORPORA)}")

    @functools.cached_property
    def rolls(self) -> dict[str, list[np.ndarray]]:
        """{split: rolls uint8 [T, 88]}, read at first use. Raises DataError where there is no such file."""
        return read_pianoroll(locate(self.path, names=CORPORA[self.corpus].files, corpus="polymusic"))

    @functools.cached_property
    def key_frequencies(self) -> np.ndarray:
        """[88], how often each key sounds in the training split, add-one smoothed."""
        train = np.concatenate(self.rolls["train"])
        return (train.sum(0) + 1) / (len(train) + 2)

    @functools.cached_property
    def output_bias(self) -> np.ndarray:
        """[88], the log-odds of the key frequencies: a model that starts at 0 spends its hidden units on them first."""
        return np.log(self.key_frequencies / (1 - self.key_frequencies)).astype(np.float32)

    @functools.cached_property
    def chance(self) -> float:
        """Nats a step on the validation split of guessing each key's training frequency."""
        p = self.key_frequencies
        frequency = np.concatenate(self.rolls["valid"]).mean(0)
        return float(-np.sum(frequency * np.log(p) + (1 - frequency) * np.log1p(-p)))

    def lengths(self, split: str) -> np.ndarray:
        """[n], the steps of every piece."""
        return np.array([len(roll) for roll in self.rolls[split]])

    def pad(self, split: str, end: int, indices: np.ndarray, batch_size: int) -> Batch:
        """The batch of these pieces."""
        inputs = np.zeros((end, batch_size, KEYS), np.float32)
        targets, lengths = np.zeros_like(inputs), np.zeros(batch_size, np.int32)
        for row, index in enumerate(indices):
            roll = self.rolls[split][index]
            lengths[row] = len(roll)
            targets[: len(roll), row] = roll
            inputs[1 : len(roll), row] = roll[:-1]
        mask = (np.arange(end)[:, None] < lengths[None, :]).astype(np.float32)
        return Batch(inputs, targets, mask, lengths)

    def loss(self, outputs: jax.Array, batch: Batch) -> jax.Array:
        """Nats summed over the keys: logits [T, B, 88] -> [T, B]."""
        logits = widen(outputs)
        return jnp.sum(jax.nn.softplus(logits) - batch.targets * logits, -1)

    def metrics(self, outputs, batch):
        """frame_accuracy [T, B]: keys guessed (p > 1/2) and sounding over keys that are either.

        1 where no key is either. Averaged over steps; some papers print the ratio of sums over a piece.
        """
        guessed, sounding = outputs > 0, batch.targets > 0
        both, either = jnp.sum(guessed & sounding, -1), jnp.sum(guessed | sounding, -1)
        ratio = jnp.where(either > 0, both / jnp.maximum(either, 1), 1.0)
        return {"frame_accuracy": (ratio, batch.mask)}

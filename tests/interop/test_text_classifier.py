"""The classifier that lessons write in torch gives its logits here; with padding, those of its words alone."""

import numpy as np
import pytest
from flax import nnx

from rnnjax.cells import LSTM
from rnnjax.data.safetensors import write_safetensors
from rnnjax.interop import text_classifier_from_torch
from rnnjax.layers import Stack
from rnnjax.nn import TextClassifier
from rnnjax.testing import assert_close

WORDS, FEATURES, HIDDEN, CLASSES = 11, 4, 3, 5


def lesson(kind="LSTM", layers=2, bidirectional=True):
    """The module as lessons have it, in float64, every weight drawn."""
    torch = pytest.importorskip("torch")

    class Classifier(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(WORDS, FEATURES, padding_idx=0)
            self.rnn = getattr(torch.nn, kind)(FEATURES, HIDDEN, num_layers=layers, bidirectional=bidirectional)
            self.fc = torch.nn.Linear(HIDDEN * (2 if bidirectional else 1), CLASSES)
            self.dropout = torch.nn.Dropout(0.5)

        def forward(self, text):
            _, state = self.rnn(self.dropout(self.embedding(text)))
            hidden = state[0] if kind == "LSTM" else state
            last = torch.cat((hidden[-2], hidden[-1]), dim=1) if bidirectional else hidden[-1]
            return self.fc(self.dropout(last))

    torch.manual_seed(0)
    return Classifier().double().eval()


def logits(module, ids):
    import torch

    with torch.no_grad():
        return module(torch.from_numpy(np.asarray(ids, np.int64))).numpy()


@pytest.mark.parametrize(
    "kind, layers, bidirectional", [("LSTM", 2, True), ("LSTM", 1, False), ("GRU", 1, True), ("GRU", 2, False)]
)
def test_the_lesson_s_logits_on_words_and_not_on_pads(kind, layers, bidirectional, x64):
    module = lesson(kind, layers, bidirectional)
    model = text_classifier_from_torch(module.state_dict())
    model.eval()
    assert isinstance(model, TextClassifier) and isinstance(model.rnn.layer, Stack) == (layers == 2)
    ids = np.random.default_rng(0).integers(1, WORDS, (6, 3))
    assert_close(model(ids), logits(module, ids), 1e-10)
    lengths = np.array([6, 2, 4])
    padded = np.where(np.arange(6)[:, None] < lengths[None], ids, 0)
    alone = np.concatenate([logits(module, ids[:length, row : row + 1]) for row, length in enumerate(lengths)])
    assert_close(model(padded, lengths=lengths), alone, 1e-10)
    with pytest.raises(AssertionError):
        assert_close(logits(module, padded), alone, 1e-2)


def state(**others):
    """A small module's state by the names of another lesson."""
    draws = np.random.default_rng(0)
    shapes = {
        "encoder.weight_ih_l0": (4 * HIDDEN, FEATURES),
        "encoder.weight_hh_l0": (4 * HIDDEN, HIDDEN),
        "encoder.bias_ih_l0": (4 * HIDDEN,),
        "encoder.bias_hh_l0": (4 * HIDDEN,),
        "words.weight": (WORDS, FEATURES),
        "decoder.weight": (CLASSES, HIDDEN),
        "decoder.bias": (CLASSES,),
    } | others
    return {name: draws.normal(size=shape).astype(np.float32) for name, shape in shapes.items() if shape}


def test_names_are_of_no_account_and_a_file_will_do(tmp_path):
    arrays = state()
    write_safetensors(tmp_path / "lesson.safetensors", arrays)
    found = [text_classifier_from_torch(given, dropout=0.5) for given in (arrays, tmp_path / "lesson.safetensors")]
    for model in found:
        assert model.rnn.layer == LSTM(FEATURES, HIDDEN) and model.dropout == 0.5
        assert_close(model.encoder.table[...], arrays["words.weight"], 0)
        assert_close(model.head.kernel[...], arrays["decoder.weight"].T, 0)
        assert_close(model.head.bias[...], arrays["decoder.bias"], 0)
    assert_close(*(nnx.to_pure_dict(nnx.state(model)) for model in found), 0)
    without = text_classifier_from_torch(state(**{"decoder.bias": None}))
    assert_close(without.head.bias[...], np.zeros(CLASSES), 0)


@pytest.mark.parametrize(
    "others, message",
    [
        ({"words.weight": None}, r"there is decoder.bias .*: expected an embedding's weight \[V, 4\]"),
        ({"words.weight": (WORDS, 9)}, r"words.weight \[11, 9\]: expected an embedding's weight \[V, 4\]"),
        ({"attention.weight": (3, 3)}, r"attention.weight \[3, 3\]"),
        ({"norm.scale": (3,)}, r"norm.scale \[3\]"),
        ({"decoder.bias": (4,)}, r"decoder.bias has the shape \[4\]: expected \[5\]"),
        ({"other.weight_hh_l0": (3, 3)}, "2 recurrent modules are here, 'encoder.', 'other.'"),
    ],
)  # fmt: skip
def test_what_is_no_such_module_is_named(others, message):
    with pytest.raises(ValueError, match=message):
        text_classifier_from_torch(state(**others))

"""Weights of other libraries to and from ours: (layer, params) for `rnnjax.layers.run`, and back.

from_torch, to_torch   torch.nn.RNN, LSTM (and proj_size), GRU, of any number of layers and both directions
from_keras, to_keras   keras.layers.SimpleRNN, LSTM, GRU, Bidirectional around one
from_linen, to_linen   flax.linen.SimpleCell, LSTMCell, OptimizedLSTMCell, GRUCell
from_nnx, to_nnx       the same of flax.nnx
from_haiku, to_haiku   haiku.VanillaRNN, LSTM, GRU
text_classifier_from_torch   the classifier that lessons build of nn.Embedding, nn.LSTM or GRU, and nn.Linear

None of these libraries is imported. What one of them has and the other not is refused by name. Flax's modules
themselves, and ours as Flax's, are in `rnnjax.interop.linen` and `rnnjax.interop.nnx`.
"""

from rnnjax.interop.flax_weights import from_linen, from_nnx, to_linen, to_nnx
from rnnjax.interop.haiku import from_haiku, to_haiku
from rnnjax.interop.keras import from_keras, to_keras
from rnnjax.interop.text_classifier import text_classifier_from_torch
from rnnjax.interop.torch import from_torch, to_torch

__all__ = [
    "from_haiku",
    "from_keras",
    "from_linen",
    "from_nnx",
    "from_torch",
    "text_classifier_from_torch",
    "to_haiku",
    "to_keras",
    "to_linen",
    "to_nnx",
    "to_torch",
]

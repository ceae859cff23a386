"""The text classifier that lessons write in torch: embedding, LSTM or GRU, last states side by side, linear layer."""

import os
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from rnnjax.data.safetensors import read_safetensors
from rnnjax.interop.arrays import as_floats, quoted
from rnnjax.interop.torch import NAME, from_torch
from rnnjax.nn import Embedding, TextClassifier
from rnnjax.nn.rnn import as_module


def text_classifier_from_torch(
    state: Mapping[str, Any] | str | os.PathLike, *, dropout: float = 0.0, activation: str | None = None
) -> TextClassifier:
    """The TextClassifier with the weights of a torch module that does, with time first or batch first,

        embedded = self.dropout(self.embedding(text))
        output, (hidden, cell) = self.rnn(embedded)                  # nn.LSTM, or nn.GRU and nn.RNN, without the cell
        hidden = torch.cat((hidden[-2], hidden[-1]), dim=1)          # hidden[-1] where it reads in one direction
        return self.fc(self.dropout(hidden))

    Its logits are those of the module on text without padding. With padding these are still the answers for the words
    alone; the module's are not, which reads the pads too.

    What the module's parts are called is of no account: they are known by their last names and shapes.

    state: {name: array or tensor}, as `module.state_dict()` returns it, or the path of a .safetensors file.
    dropout: what self.dropout drops, which the weights do not tell; of use in training.
    activation: "tanh" or "relu", torch's `nonlinearity`, which the weights of an nn.RNN do not tell.

    Raises ValueError, naming the tensors and their shapes, where the parts are not these, and as
    `rnnjax.interop.from_torch` does.
    """
    arrays = as_floats(state if isinstance(state, Mapping) else read_safetensors(state))
    recurrent = sorted({_place(name) for name in arrays if NAME.fullmatch(_last(name))})
    if len(recurrent) != 1:
        raise ValueError(f"the weights of {len(recurrent)} recurrent modules are here, {quoted(recurrent)}: expected 1")
    inside = {name: array for name, array in arrays.items() if _place(name) == recurrent[0]}
    layer, params = from_torch(inside, prefix=recurrent[0], activation=activation)
    rest = {name: array for name, array in arrays.items() if name not in inside}
    table, weight, bias = _outside(rest, layer.input_size, layer.output_size)
    encoder = Embedding(*table.shape, vectors=table, dtype=table.dtype)
    model = TextClassifier(
        layer, weight.shape[0], encoder=encoder, dropout=dropout, rngs=nnx.Rngs(0), dtype=weight.dtype
    )
    model.rnn.params = as_module(params)
    model.head.kernel[...] = jnp.asarray(weight).T
    model.head.bias[...] = jnp.asarray(bias)
    return model


def _outside(arrays: Mapping[str, Any], inputs: int, states: int) -> tuple[Any, Any, Any]:
    """(table [V, inputs], weight [C, states], bias [C]) of what stands around the recurrent module."""
    matrices = {_place(name): array for name, array in arrays.items() if _is(name, array, "weight", 2)}
    biases = {_place(name): array for name, array in arrays.items() if _is(name, array, "bias", 1)}
    tables = [place for place in matrices if place not in biases and matrices[place].shape[1] == inputs]
    heads = [place for place in matrices if place not in tables and matrices[place].shape[1] == states]
    shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in sorted(arrays.items()))
    if len(tables) != 1 or len(heads) != 1 or len(matrices) + len(biases) != len(arrays) or len(matrices) != 2:
        raise ValueError(
            f"beside the recurrent module there is {shapes or 'nothing'}: expected an embedding's weight [V, {inputs}] "
            f"and a linear layer's weight [C, {states}] and bias [C]"
        )
    weight = matrices[heads[0]]
    bias = biases.get(heads[0], np.zeros(weight.shape[0], weight.dtype))
    if bias.shape != (weight.shape[0],):
        raise ValueError(f"{heads[0]}bias has the shape {list(bias.shape)}: expected [{weight.shape[0]}]")
    return matrices[tables[0]], weight, bias


def _is(name: str, array: Any, last: str, axes: int) -> bool:
    return _last(name) == last and array.ndim == axes


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _place(name: str) -> str:
    """What stands before the last name, with its dot."""
    return name[: len(name) - len(_last(name))]

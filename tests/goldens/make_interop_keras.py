"""Writes interop_keras.npz: Keras's own SimpleRNN, LSTM and GRU in float64, forward and backward.

Run where Keras and torch are installed: python tests/goldens/make_interop_keras.py; on torch since float64 is at hand
there without more. The numbers are Keras's definition: a new file
is due when more is to be compared, and never because a test fails. It writes interop_keras.weights.h5 too, a file as
Keras saves it, with the weights of the kinds "lstm", "bidirectional_gru" and "simple_rnn".
"""

import os

os.environ["KERAS_BACKEND"] = "torch"

import interop_case as case  # noqa: E402
import keras  # noqa: E402
import torch  # noqa: E402
from keras.src.backend.common import dtypes  # noqa: E402

keras.config.set_floatx("float64")
dtypes.BIT64_TO_BIT32_DTYPE["float64"] = "float64"  # which takes every matmul to float32 but on TensorFlow
LAYERS = {
    "simple_rnn": lambda **o: keras.layers.SimpleRNN(**o),
    "simple_rnn_relu": lambda **o: keras.layers.SimpleRNN(activation="relu", **o),
    "simple_rnn_sigmoid": lambda **o: keras.layers.SimpleRNN(activation="sigmoid", **o),
    "simple_rnn_linear": lambda **o: keras.layers.SimpleRNN(activation="linear", **o),
    "lstm": lambda **o: keras.layers.LSTM(**o),
    "lstm_no_bias": lambda **o: keras.layers.LSTM(use_bias=False, **o),
    "gru": lambda **o: keras.layers.GRU(**o),
    "gru_before": lambda **o: keras.layers.GRU(reset_after=False, **o),
    "gru_no_bias": lambda **o: keras.layers.GRU(use_bias=False, **o),
    "gru_before_no_bias": lambda **o: keras.layers.GRU(use_bias=False, reset_after=False, **o),
    "bidirectional_gru": lambda **o: keras.layers.Bidirectional(keras.layers.GRU(**o)),
    "bidirectional_gru_sum": lambda **o: keras.layers.Bidirectional(keras.layers.GRU(**o), merge_mode="sum"),
}


def make(kind):
    layer = LAYERS[kind](units=case.HIDDEN, return_sequences=True, return_state=True)
    layer.build((case.BATCH, case.TIME, case.INPUT))
    return layer


def shapes(kind):
    return {str(i): array.shape for i, array in enumerate(make(kind).get_weights())}


def run(kind, arrays):
    """Sets the arrays as weights and runs: what `interop_case.save` wants of a kind."""
    layer = make(kind)
    layer.set_weights(list(arrays.values()))
    inputs = torch.tensor(case.INPUTS, requires_grad=True)
    outputs, *states = layer(inputs.swapaxes(0, 1))
    found = [outputs.swapaxes(0, 1), *states]
    sum((value * torch.tensor(case.factors(tuple(value.shape)))).sum() for value in found).backward()
    outputs, *states = (value.detach().numpy() for value in found)
    d_arrays = [variable.value.grad.numpy() for variable in layer.trainable_variables]
    return {
        "arrays": arrays,
        "outputs": outputs,
        "states": states,
        "d_inputs": inputs.grad.numpy(),
        "d_arrays": dict(zip(arrays, d_arrays, strict=True)),
    }


def save_model(path, arrays):
    """A file of a model of three layers with these {kind: {name: array}}, at layers/lstm, layers/bidirectional and
    layers/simple_rnn."""
    model = keras.Sequential(
        [
            keras.layers.Input((None, case.INPUT)),
            keras.layers.LSTM(case.HIDDEN, return_sequences=True, name="encoder"),
            keras.layers.Dense(case.INPUT),
            keras.layers.Bidirectional(keras.layers.GRU(case.HIDDEN, return_sequences=True)),
            keras.layers.Dense(case.INPUT),
            keras.layers.SimpleRNN(case.HIDDEN),
        ]
    )
    for at, kind in ((0, "lstm"), (2, "bidirectional_gru"), (4, "simple_rnn")):
        model.layers[at].set_weights(list(arrays[kind].values()))
    model.save_weights(path)


if __name__ == "__main__":
    found = {kind: run(kind, case.draw(shapes(kind))) for kind in LAYERS}
    case.save("keras", found)
    save_model(case.FOLDER / "interop_keras.weights.h5", {kind: result["arrays"] for kind, result in found.items()})

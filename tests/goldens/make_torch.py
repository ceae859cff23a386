"""Writes torch.npz: torch's own RNN, LSTM and GRU in float64 with random non-zero biases, forward and backward.

Run with torch installed: python tests/goldens/make_torch.py. The numbers are torch's definition; a new file is due
only when more is to be compared, never because a test fails.
"""

import pathlib

import numpy as np
import torch

T, B, X, H = 20, 3, 4, 5
LAYERS = {
    "tanh": lambda: torch.nn.RNN(X, H, nonlinearity="tanh"),
    "relu": lambda: torch.nn.RNN(X, H, nonlinearity="relu"),
    "lstm": lambda: torch.nn.LSTM(X, H),
    "gru": lambda: torch.nn.GRU(X, H),
}


def main() -> None:
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(7)
    arrays = {}
    for name, make in LAYERS.items():
        layer = make()
        inputs = torch.randn(T, B, X, requires_grad=True)
        weights = torch.randn(T, B, H)
        outputs, state = layer(inputs)
        (outputs * weights).sum().backward()
        state = torch.cat(state) if isinstance(state, tuple) else state
        found = {"inputs": inputs, "weights": weights, "outputs": outputs, "state": state, "d_inputs": inputs.grad}
        for key, parameter in layer.named_parameters():
            found[key], found[f"d_{key}"] = parameter, parameter.grad
        arrays |= {f"{name}.{key}": value.detach().numpy() for key, value in found.items()}
    np.savez_compressed(pathlib.Path(__file__).with_name("torch.npz"), **arrays)


if __name__ == "__main__":
    main()

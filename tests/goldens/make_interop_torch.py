"""Writes interop_torch.npz: torch's own RNN, LSTM and GRU in float64, forward and backward.

Run where torch is installed: python tests/goldens/make_interop_torch.py. The numbers are torch's definition: a new file
is due when more is to be compared, and never because a test fails.
"""

import interop_case as case
import torch

MODULES = {
    "rnn_tanh": lambda **sizes: torch.nn.RNN(nonlinearity="tanh", **sizes),
    "rnn_relu": lambda **sizes: torch.nn.RNN(nonlinearity="relu", **sizes),
    "lstm": torch.nn.LSTM,
    "lstm_no_bias": lambda **sizes: torch.nn.LSTM(bias=False, **sizes),
    "lstm_projected": lambda **sizes: torch.nn.LSTM(proj_size=2, **sizes),
    "lstm_2": lambda **sizes: torch.nn.LSTM(num_layers=2, **sizes),
    "lstm_2_bidirectional_projected": lambda **sizes: torch.nn.LSTM(
        num_layers=2, bidirectional=True, proj_size=2, **sizes
    ),
    "gru": torch.nn.GRU,
    "gru_no_bias": lambda **sizes: torch.nn.GRU(bias=False, **sizes),
    "gru_bidirectional": lambda **sizes: torch.nn.GRU(bidirectional=True, **sizes),
}


def make(kind, dtype=torch.float64):
    return MODULES[kind](input_size=case.INPUT, hidden_size=case.HIDDEN).to(dtype)


def shapes(kind):
    return {name: tuple(tensor.shape) for name, tensor in make(kind).state_dict().items()}


def run(kind, arrays):
    """Loads the arrays with strict=True and runs: what `interop_case.save` wants of a kind."""
    module = make(kind)
    module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()}, strict=True)
    inputs = torch.tensor(case.INPUTS, requires_grad=True)
    outputs, state = module(inputs)
    of_layers = zip(*state, strict=True) if isinstance(state, tuple) else ((h,) for h in state)
    states = [field for layer in of_layers for field in layer]
    loss = sum((value * torch.tensor(case.factors(tuple(value.shape)))).sum() for value in (outputs, *states))
    loss.backward()
    return {
        "arrays": arrays,
        "outputs": outputs.detach().numpy(),
        "states": [value.detach().numpy() for value in states],
        "d_inputs": inputs.grad.numpy(),
        "d_arrays": {name: parameter.grad.numpy() for name, parameter in module.named_parameters()},
    }


if __name__ == "__main__":
    case.save("torch", {kind: run(kind, case.draw(shapes(kind))) for kind in MODULES})

"""torch.nn.LSTM as its documentation has it, as a plain loop in numpy over the tensors of a state_dict.

It shares nothing with rnnjax, so that what comes out of a converted layer can be held against it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np


class Nudge(NamedTuple):
    """What is added to h [B, P] and c [B, H] of the unroll `suffix` ("_l0", "_l1_reverse") after its first step."""

    suffix: str
    h: np.ndarray
    c: np.ndarray


def run_lstm(
    tensors: Mapping[str, np.ndarray], inputs: np.ndarray, nudge: Nudge | None = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """(outputs [T, B, F], the last h [B, P] of each direction of the top layer) for inputs [T, B, I] from zero states.

    i, f, o = sigmoid(W_i* x_t + b_i* + W_h* h_{t-1} + b_h*), g = tanh(...), c_t = f * c_{t-1} + i * g,
    h_t = o * tanh(c_t), and W_hr h_t in its place where there is proj_size.
    """
    layers = len({name.rpartition("_l")[2].removesuffix("_reverse") for name in tensors})
    sides = ("", "_reverse") if "weight_ih_l0_reverse" in tensors else ("",)
    outputs = inputs
    for k in range(layers):
        halves = [_direction(tensors, f"_l{k}{side}", outputs, nudge) for side in sides]
        outputs = np.concatenate(halves, axis=-1)
    return outputs, [half[0 if side else -1] for side, half in zip(sides, halves, strict=True)]


def _direction(tensors: Mapping[str, np.ndarray], suffix: str, inputs: np.ndarray, nudge: Nudge | None) -> np.ndarray:
    W_ih, W_hh = tensors[f"weight_ih{suffix}"], tensors[f"weight_hh{suffix}"]
    bias = tensors.get(f"bias_ih{suffix}", 0) + tensors.get(f"bias_hh{suffix}", 0)
    W_hr = tensors.get(f"weight_hr{suffix}")
    batch = inputs.shape[1]
    h, c = np.zeros((batch, W_hh.shape[1])), np.zeros((batch, W_hh.shape[0] // 4))
    times = range(len(inputs))
    outputs = [None] * len(inputs)
    for step, t in enumerate(reversed(times) if suffix.endswith("_reverse") else times):
        i, f, g, o = np.split(inputs[t] @ W_ih.T + h @ W_hh.T + bias, 4, axis=-1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        h = h if W_hr is None else h @ W_hr.T
        if nudge is not None and nudge.suffix == suffix and step == 0:
            h, c = h + nudge.h, c + nudge.c
        outputs[t] = h
    return np.stack(outputs)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 + 0.5 * np.tanh(0.5 * x)  # which numpy has for complex numbers of any size


def derivative(
    tensors: Mapping[str, np.ndarray], inputs: np.ndarray, weights: list[np.ndarray], direction: Nudge
) -> float:
    """The derivative of sum <last h, weights> along a direction, to the last digits however small it is.

    The imaginary part of the function at x + i e v is e times the derivative along v, with no difference taken
    (Squire, Trapp 1998).
    """
    small = 1e-60
    nudge = direction._replace(h=1j * small * direction.h, c=1j * small * direction.c)
    _, last = run_lstm(tensors, inputs, nudge)
    return float(sum(np.sum(h * w) for h, w in zip(last, weights, strict=True)).imag / small)

"""Backpropagation through an Elman network in plain numpy, for the studies of networks that were never trained."""

import jax
import numpy as np

from experiments.common.untrained import draw
from rnnjax.train.step import root_key

FUNCTIONS = {
    "tanh": (np.tanh, lambda h: 1 - h**2),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), lambda h: h * (1 - h)),
    "identity": (lambda x: x, np.ones_like),
    "relu": (lambda x: np.maximum(x, 0), lambda h: (h > 0).astype(h.dtype)),
}
_draw = jax.jit(draw, static_argnums=(0, 4, 5))  # compiled as one, and not operation by operation


def drawn(cell, seed, config, scale, **options):
    """(params, inputs, weights of the loss), those of the study, as numpy."""
    with jax.enable_x64(True):
        return jax.device_get(_draw(cell, root_key(seed), scale, options, config.length, config.batch))


def backward(cell, params, inputs, gradient):
    """log10 norms [T, B] of dL/dh by distance, where `gradient` [B, H] is that of the last h."""
    function, derivative = FUNCTIONS[cell.activation]
    h, slopes, norms = np.zeros_like(gradient), [], []
    for x in inputs:
        h = function(x @ params["W_ih"] + h @ params["W_hh"] + params["b"])
        slopes.append(derivative(h))
    for slope in reversed(slopes):
        norms.append(np.log10(np.linalg.norm(gradient, axis=-1)))
        gradient = (gradient * slope) @ params["W_hh"].T
    return np.array(norms)

"""Laws of the gradient through time that hold before any training, each with its rule from theory and its control.

Everything is measured in float64, with the loss a random projection of the last hidden state.
"""

from collections.abc import Callable

import jax
import numpy as np

from experiments.common.claims import Claim
from experiments.common.untrained import draw, norms_by_distance
from rnnjax import probes
from rnnjax.cell import Cell
from rnnjax.cells import LSTM, Elman
from rnnjax.train.step import root_key

SIZE, TIME, BATCH = 64, 100, 8
SEEDS = (2001, 2002, 2003, 2004, 2005)
RADII = (0.7, 0.9, 1.0, 1.2, 1.5)
FORGET_BIASES = (0.0, 1.0, 3.0)
SPAN = 50
"""Steps over which a cell is asked to keep its gradient."""

PASCANU = "Pascanu, Mikolov, Bengio 2013, section 2"
JOZEFOWICZ = "Jozefowicz, Zaremba, Sutskever 2015; derived"


def gradient_laws() -> list[Claim]:
    """Every claim of this module, measured."""
    with jax.enable_x64(True):
        return [*slope_law(), *forget_bias_laws(), *lstm_against_elman()]


def slope_law() -> list[Claim]:
    """W = r Q under zero input: log r a step, for a linear and a tanh cell; and that inputs end it."""
    errors = []
    for activation in ("identity", "tanh"):
        curve = _measure(Elman(SIZE, SIZE, activation=activation), field="h")
        for radius in RADII:
            slopes = probes.slope(curve(SEEDS[0], 0.0, gain=radius))
            errors.append(np.abs(slopes - np.log(radius)))
    worst = float(np.max(errors))  # np.max, and not max: nan stays
    driven = _measure(Elman(SIZE, SIZE), field="h")
    control = float(np.max([probes.slope(driven(seed, 1.0, gain=1.5)).mean() for seed in SEEDS]))
    return [
        Claim(
            "With W = r Q and zero input, dL/dh_t of a linear and of a tanh Elman changes by log r nats a step, "
            f"for r in {', '.join(map(str, RADII))}",
            PASCANU,
            "largest |slope - log r| <= 1e-3",
            worst,
            worst <= 1e-3,
        ),
        Claim(
            "Control: with inputs of unit variance a tanh Elman vanishes at r = 1.5 too, so r > 1 does not suffice "
            "to explode (largest slope of 5 seeds, nats a step)",
            PASCANU,
            "slope < 0",
            control,
            control < 0,
        ),
    ]


def forget_bias_laws() -> list[Claim]:
    """The slope of dL/dc_t is set by the forget bias: with no weights exactly, with orthogonal ones in the limit."""
    curve = _measure(LSTM(SIZE, SIZE), field="c")
    empty, full = [], []
    for bias in FORGET_BIASES:
        gate = 1 / (1 + np.exp(-bias))
        # dL/dc at the last step is 0, with h held fixed: the law is of the steps before.
        slopes = probes.slope(curve(SEEDS[0], 0.0, forget_bias=bias, gain=0.0)[1:])
        empty.append(np.abs(slopes - np.log(gate)))
        late = probes.slope(curve(SEEDS[0], 0.0, forget_bias=bias, gain=1.0)[TIME // 2 :])
        full.append(np.abs(late - np.log(gate + 0.25)))
    worst_empty, worst_full = float(np.max(empty)), float(np.max(full))
    return [
        Claim(
            "With all weights zero, dL/dc_t of an LSTM changes by log sigmoid(b) nats a step, for forget bias "
            "b = 0, 1, 3",
            JOZEFOWICZ,
            "largest |slope - log sigmoid(b)| <= 1e-6",
            worst_empty,
            worst_empty <= 1e-6,
        ),
        Claim(
            "With orthogonal weights and zero input, far from the loss it changes by log(sigmoid(b) + 1/4): the "
            "Jacobian is sigmoid(b) I + W_g / 4, and W_g has an eigenvalue near 1",
            JOZEFOWICZ,
            "largest |slope - log(sigmoid(b) + 1/4)| <= 0.01",
            worst_full,
            worst_full <= 0.01,
        ),
    ]


def lstm_against_elman() -> list[Claim]:
    """How much of dL/dcarry is left after 50 steps: LSTM with forget bias 1, and tanh Elman of the same gain."""
    elman, lstm = _measure(Elman(SIZE, SIZE)), _measure(LSTM(SIZE, SIZE, forget_bias=1.0))

    def advantage(seed: int, scale: float) -> float:
        """log10 of the ratio of what is left."""
        left = [curve[SPAN] - curve[0] for curve in (lstm(seed, scale), elman(seed, scale))]
        return float((left[0] - left[1]).mean())

    driven = float(np.min([advantage(seed, 1.0) for seed in SEEDS]))
    silent = float(np.max([advantage(seed, 0.0) for seed in SEEDS]))
    return [
        Claim(
            "At initialisation and inputs of unit variance, an LSTM of forget bias 1 keeps at least 10 times more of "
            f"dL/dcarry over {SPAN} steps than a tanh Elman of the same gain (log10 of the ratio, least of 5 seeds)",
            "Hochreiter, Schmidhuber 1997; Jozefowicz, Zaremba, Sutskever 2015",
            "log10 ratio >= 1",
            driven,
            driven >= 1,
        ),
        Claim(
            "Control: with zero input the order turns, since an orthogonal W then keeps all of Elman's gradient "
            "(log10 of the ratio, largest of 5 seeds)",
            "derived: log r = 0 against log(sigmoid(1) + 1/4) = -0.019 nats a step",
            "log10 ratio < 0",
            silent,
            silent < 0,
        ),
    ]


def _measure(cell: Cell, field: str = "carry") -> Callable:
    """(seed, standard deviation of the inputs, **hyper-parameters of init) -> log10 norms by distance [TIME, BATCH].

    Compiled once a cell: what changes between calls is traced.
    """

    norms = norms_by_distance(cell, field)

    @jax.jit
    def run(key, scale, options):
        return norms(*draw(cell, key, scale, options, TIME, BATCH))

    return lambda seed, scale, **options: run(root_key(seed), scale, options)

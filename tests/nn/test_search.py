"""Beam search finds what enumeration finds, and a beam of 1 what the likeliest symbol at each step gives."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rnnjax.nn.search import beam_search
from rnnjax.testing import TOLERANCE, assert_close

V, LONGEST, START, STOP = 3, 4, 0, 2
TABLE = np.random.default_rng(4).normal(size=(2, LONGEST, V, V))  # of row, step, last symbol
LOG_P = np.log(np.exp(TABLE) / np.exp(TABLE).sum(-1, keepdims=True))


def advance(symbols, carry):
    """The carry counts the steps; what is shown is the symbol that was fed."""
    row, step = carry
    return jnp.asarray(LOG_P)[row, step, symbols], (row, step + 1), symbols[:, None] + 1


def search(size, power):
    carry = (jnp.arange(2), jnp.zeros(2, jnp.int32))
    options = {"start": START, "stop": STOP, "max_length": LONGEST, "length_power": power}
    return jax.jit(lambda carry: beam_search(advance, carry, size=size, **options))(carry)


def every_sequence():
    """All that end with STOP, or are cut off."""
    for length in range(1, LONGEST + 1):
        for symbols in itertools.product(range(V), repeat=length):
            if STOP not in symbols[:-1] and (symbols[-1] == STOP or length == LONGEST):
                yield symbols


def score(row, symbols, power):
    before = (START, *symbols[:-1])
    total = sum(LOG_P[row, t, a, b] for t, (a, b) in enumerate(zip(before, symbols, strict=True)))
    return total / len(symbols) ** power


@pytest.mark.parametrize("power", [0.0, 1.0, 0.6])
def test_a_beam_as_wide_as_there_are_sequences_finds_them_all_in_order(power, x64):
    sequences = list(every_sequence())
    found = search(len(sequences) + 2, power)
    assert np.all(np.asarray(found.scores[:, len(sequences) :]) == -np.inf)
    for row in range(2):
        best = sorted(sequences, key=lambda symbols: -score(row, symbols, power))
        for k, symbols in enumerate(best):
            length = len(symbols) - (symbols[-1] == STOP)
            padded = (*symbols, *[STOP] * (LONGEST - len(symbols)))
            assert tuple(found.symbols[:, row, k].tolist()) == padded and found.lengths[row, k] == length
            fed = [1 + symbol for symbol in (START, *symbols[:-1])] + [0] * (LONGEST - len(symbols))
            assert found.weights[:, row, k, 0].tolist() == fed, "what is shown belongs to the sequence"
        want = [score(row, symbols, power) for symbols in best]
        assert_close(found.scores[row, : len(best)], np.array(want), TOLERANCE["float64"])
    assert power == 0 or any(len(symbols) != len(best[0]) for symbols in best[:3])


def test_a_beam_of_one_takes_the_likeliest_symbol_at_each_step(x64):
    for power in (0.0, 1.0):
        found = search(1, power)
        for row in range(2):
            symbols = [START]
            while len(symbols) <= LONGEST and symbols[-1] != STOP:
                symbols.append(int(np.argmax(LOG_P[row, len(symbols) - 1, symbols[-1]])))
            padded = symbols[1:] + [STOP] * (LONGEST + 1 - len(symbols))
            assert found.symbols[:, row, 0].tolist() == padded
            assert_close(found.scores[row, 0], score(row, tuple(symbols[1:]), power), TOLERANCE["float64"])


def test_float32_under_x64(x64):
    def narrow(symbols, carry):
        log_p, carry, shown = advance(symbols, carry)
        return log_p.astype(jnp.float32), carry, shown

    carry = (jnp.arange(2), jnp.zeros(2, jnp.int32))
    search = lambda: beam_search(narrow, carry, size=2, start=START, stop=STOP, max_length=LONGEST)  # noqa: E731
    assert jax.eval_shape(search).scores.dtype == jnp.float32


def test_a_wider_beam_finds_no_worse(x64):
    scores = [np.asarray(search(size, 0.0).scores[:, 0]) for size in (1, 2, 4)]
    assert np.all(scores[0] <= scores[1]) and np.all(scores[1] <= scores[2])

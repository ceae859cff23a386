"""Edits are counted against the closest reference, and rates are sums over sums."""

import math

import numpy as np
import pytest

from rnnjax.tasks.text_scores import bleu, edits, error_rate, share_wrong


def distance(a, b):
    """Levenshtein's, by its recursion in a table."""
    table = np.zeros((len(a) + 1, len(b) + 1), int)
    table[:, 0], table[0] = range(len(a) + 1), range(len(b) + 1)
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            table[i, j] = min(table[i - 1, j] + 1, table[i, j - 1] + 1, table[i - 1, j - 1] + (x != y))
    return table[-1, -1]


def test_edits_are_those_of_the_table():
    draws = np.random.default_rng(0)
    symbols = np.array(["AA", "B", "K"])
    references = [tuple(symbols[draws.integers(3, size=n)]) for n in draws.integers(1, 9, 30)]
    written = [tuple(symbols[draws.integers(3, size=n)]) for n in draws.integers(0, 9, 30)]
    counted = edits([[reference] for reference in references], written)
    want = [(distance(a, b), len(a)) for a, b in zip(references, written, strict=True)]
    assert counted.tolist() == [list(map(int, pair)) for pair in want]


def test_the_closest_reference_counts_and_rates_are_of_all_symbols():
    counted = edits([[("A", "B", "C"), ("A",)], [("A", "B")]], [("A", "C"), ("A", "B")])
    assert counted.tolist() == [[1, 3], [0, 2]]
    assert edits([[("A",), ("A", "B", "C", "D")]], [("A", "X")]).tolist() == [[3, 4]], "edits a symbol, not edits"
    assert error_rate(counted) == 20 and share_wrong(counted) == 50
    assert math.isnan(error_rate(counted[:0])) and math.isnan(share_wrong(counted[:0]))
    assert error_rate(edits([[("A",)]], [("B", "B", "B")])) == 300


def test_symbols_may_hold_space():
    np.testing.assert_array_equal(edits([[("a", "\u00a0", "b")]], [("a", "b")]), [[1, 3]])


def test_bleu_is_of_the_corpus():
    lines = ["a dog runs in the snow .", "two men sit on a bench ."]
    assert bleu(lines, ["A dog runs in the snow .", "two men sit on a bench ."]) == pytest.approx(100)
    assert bleu(lines, ["x", ""]) == 0
    # all that is written is right, and two words are missing: exp(1 - 14 / 12)
    got = bleu(lines, ["a dog runs in the", "two men sit on a bench ."])
    assert got == pytest.approx(100 * math.exp(1 - 14 / 12))


def test_refused():
    with pytest.raises(ValueError, match="written has 1 sequences but references are of 2"):
        edits([[("A",)], [("B",)]], [("A",)])
    with pytest.raises(ValueError, match=r"references\[0\] is \[\(\)\]: expected one at least"):
        edits([[()]], [("A",)])
    with pytest.raises(ValueError, match="written has 0 lines but references 1"):
        bleu(["a"], [])

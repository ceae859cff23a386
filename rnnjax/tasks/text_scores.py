"""Scores of written sequences: phoneme and word error rates by jiwer, BLEU by sacrebleu."""

from collections.abc import Sequence

import jiwer
import numpy as np
import sacrebleu


def edits(references: Sequence[Sequence[Sequence[str]]], written: Sequence[Sequence[str]]) -> np.ndarray:
    """int [N, 2]: symbols to be replaced, put in and taken out to make each written sequence its closest reference, and
    that reference's length.

    references: of each sequence, those that it may be; not empty. The closest has the fewest edits a symbol.

    Raises ValueError where there are other numbers of references and written sequences, or none for one.
    """
    if len(references) != len(written):
        raise ValueError(f"written has {len(written)} sequences but references are of {len(references)}")
    found = np.zeros((len(written), 2), int)
    for at, (allowed, symbols) in enumerate(zip(references, written, strict=True)):
        if not all(allowed) or not allowed:
            raise ValueError(f"references[{at}] is {list(allowed)}: expected one at least, and none of them empty")
        counted = [(_edits(reference, symbols), len(reference)) for reference in map(tuple, allowed)]
        found[at] = min(counted, key=lambda one: one[0] / one[1])
    return found


def _edits(reference: tuple[str, ...], symbols: Sequence[str]) -> int:
    if reference == tuple(symbols):
        return 0
    names = {symbol: str(number) for number, symbol in enumerate(dict.fromkeys((*reference, *symbols)))}
    counted = jiwer.process_words(*(" ".join(names[symbol] for symbol in one) for one in (reference, symbols)))
    return counted.substitutions + counted.insertions + counted.deletions


def error_rate(counted: np.ndarray) -> float:
    """Percent of edits a symbol of the references, what `edits` counted: the phoneme error rate of phones, the word
    error rate of a transcript's words. nan of none."""
    return 100 * float(counted[:, 0].sum() / counted[:, 1].sum()) if len(counted) else float("nan")


def share_wrong(counted: np.ndarray) -> float:
    """Percent of sequences with an edit: the word error rate where a sequence is a word's phones. nan of none."""
    return 100 * float((counted[:, 0] > 0).mean()) if len(counted) else float("nan")


def bleu(references: Sequence[str], written: Sequence[str]) -> float:
    """BLEU in percent of a corpus of lines, one reference each, in lower case, as sacrebleu cuts them into tokens
    ("13a"). Raises ValueError where there are other numbers of both."""
    if len(references) != len(written):
        raise ValueError(f"written has {len(written)} lines but references {len(references)}")
    return float(sacrebleu.corpus_bleu(list(written), [list(references)], lowercase=True).score)

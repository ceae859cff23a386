"""Scores of slots, by seqeval."""

import warnings
from collections.abc import Sequence

from seqeval.metrics import accuracy_score, f1_score, precision_score, recall_score
from seqeval.metrics.v1 import precision_recall_fscore_support
from seqeval.scheme import IOB2


def slot_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> dict[str, float]:
    """Scores of chunks in percent: {"f1", "precision", "recall", "strict_f1", "accuracy"}, of tags in IOB2.

    f1, the figure of the literature, counts chunks as conlleval does (Tjong Kim Sang, Buchholz 2000), which takes an
    I-X without a B-X for the start of a chunk; strict_f1 does not. Where there is no chunk at all, on either side, each
    of them is 0. accuracy is that of tags, O included.

    Raises ValueError where there is no sentence, and where the two have other numbers of sentences or words.
    """
    if not gold:
        raise ValueError("gold is empty: expected one sentence at least")
    if len(gold) != len(predicted):
        raise ValueError(f"predicted has {len(predicted)} sentences but gold has {len(gold)}")
    for at, (one, other) in enumerate(zip(gold, predicted, strict=True)):
        if len(one) != len(other):
            raise ValueError(f"predicted[{at}] has {len(other)} tags but gold[{at}] has {len(one)}")
    gold, predicted = [list(tags) for tags in gold], [list(tags) for tags in predicted]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # where nothing was found, which the zeros say
        scores = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
        found = {name: 100 * float(score(gold, predicted)) for name, score in scores.items()}
        chunks = any(tag != "O" for tags in (*gold, *predicted) for tag in tags)
        strict = (
            precision_recall_fscore_support(gold, predicted, average="micro", scheme=IOB2, zero_division=0)[2]
            if chunks
            else 0.0
        )
    found |= {"strict_f1": 100 * float(strict), "accuracy": 100 * float(accuracy_score(gold, predicted))}
    return found

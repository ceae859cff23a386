"""What several replicas of one training came to."""

from typing import Any

import numpy as np


def pooled(norms: np.ndarray, kept: Any = slice(None)) -> np.ndarray:
    """[D, B], or [R, D, B] of replicas -> [D, R * B] of those that are kept: examples of all replicas are alike."""
    return norms if norms.ndim == 2 else np.concatenate(list(norms[kept]), axis=1)


def best_scores(rows: list[dict], replica: int = 0, monitor: str = "loss") -> dict[str, float]:
    """The test scores of a replica: of the last evaluation or, where there is a validation split, of the one that was
    best on it by the score `monitor`."""
    rows = [row for row in rows if row["kind"] == "eval" and row.get("replica", 0) == replica]
    valid = {row["step"]: row[monitor] for row in rows if row["split"] == "valid" and row[monitor] is not None}
    test = {row["step"]: row for row in rows if row["split"] == "test"}
    if not test:
        return {}
    row = test[min(valid, key=valid.get) if valid else max(test)]
    return {name: value for name, value in row.items() if name not in ("kind", "split", "replica")}


def typical(scores: list[dict[str, float]]) -> dict[str, float]:
    """The scores of the replica with the median loss, of the lower two where there is none in the middle."""
    held = sorted((score for score in scores if score.get("loss") is not None), key=lambda score: score["loss"])
    return dict(held[(len(held) - 1) // 2]) if held else {}

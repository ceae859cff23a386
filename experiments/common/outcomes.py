"""Claims about what a run of the adding problem came to, in the setting that their rules were calibrated for."""

import collections
import statistics

from experiments.common.claims import Claim
from experiments.common.curves import QUANTILES, Curve
from rnnjax.report import Run

GATED, PLAIN = ("lstm", "gru"), ("elman", "jordan")
SOLVED = 0.01
UNLEARNT = 0.8 / 6
"""Four fifths of the error of a guess that has seen no input."""
BY_STEP = 1000
HOCHREITER = "Hochreiter, Schmidhuber 1997; length 100, 32 units, batches of 64, Adam 3e-3"


def adding_claims(run: Run) -> list[Claim]:
    """What holds of the adding problem at its default size within 1,500 steps; none for another task or size."""
    train = run.config["train"]
    as_calibrated = (
        run.task["task"] == "adding"
        and run.config["task"]["length"] == 100
        and run.config["model"]["hidden_size"] == 32
        and (train["batch_size"], train["learning_rate"], train["optimizer"]) == (64, 3e-3, "adam")
        and train["steps"] >= 1500
    )
    if not as_calibrated or not {"elman", "lstm", "gru"} <= set(run.cells):
        return []
    return [*_solved(run), *_not_solved(run), *_kept(run)]


def _test_losses(run: Run, cell: str) -> dict[int, float]:
    """{step: the median over replicas}."""
    found = collections.defaultdict(list)
    for row in run.metrics[cell]:
        if row["kind"] == "eval" and row["loss"] is not None:
            found[row["step"]].append(row["loss"])
    return {step: statistics.median_low(losses) for step, losses in found.items()}


def _solved(run: Run) -> list[Claim]:
    worst = max(min(_test_losses(run, cell).values(), default=float("inf")) for cell in GATED)
    text = (
        f"LSTM and GRU solve the adding problem: a test error below {SOLVED} within the budget (the worse of the two)"
    )
    return [Claim(text, HOCHREITER, f"squared error < {SOLVED}", worst, worst < SOLVED)]


def _not_solved(run: Run) -> list[Claim]:
    losses = _test_losses(run, "elman")
    if BY_STEP not in losses:
        return []
    text = f"A tanh Elman has not learnt it by step {BY_STEP}: its test error is at least 4/5 of the guess's 1/6"
    loss = losses[BY_STEP]
    return [Claim(text, HOCHREITER, f"squared error >= {UNLEARNT:.4f}", loss, loss >= UNLEARNT)]


def _kept(run: Run) -> list[Claim]:
    kept = {cell: Curve.of(run.norms[cell]["carry"][-1][:, QUANTILES.index(0.5)]).kept for cell in run.cells}
    lead = min(kept[cell] for cell in GATED) - max(kept[cell] for cell in PLAIN if cell in kept)
    text = (
        "After training, LSTM and GRU keep more of dL/dcarry over the whole sequence than Elman and Jordan "
        "(decades, the least of the former less the most of the latter)"
    )
    return [Claim(text, "Bengio, Simard, Frasconi 1994; Hochreiter, Schmidhuber 1997", "> 0", lead, lead > 0)]

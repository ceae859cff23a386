"""What is said of the GRU against the LSTM: parameters, time a step, small data, long sequences; each a measurement and
a claim."""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from experiments.common.adding_report import Learning
from experiments.common.claims import Claim
from experiments.common.study import Entry, every
from experiments.common.timing import interleaved, machine
from experiments.peers import Size, Work, ours
from rnnjax.cells import CELLS, GRU, LSTM, Elman
from rnnjax.tasks import Adding, Music
from rnnjax.train.build import make_model
from rnnjax.train.config import TrainConfig
from rnnjax.train.step import root_key

CHUNG = "Chung et al. 2014"
MATCHED = {Elman: 100, GRU: 46, LSTM: 36}
"""{cell: units}, Chung et al. 2014, table 1, whose counts are of 100 inputs."""
UNDECIDED = f"{CHUNG} themselves come to no conclusion on which of the two is better"


@dataclasses.dataclass
class TimeConfig:
    """units: of GRU and LSTM where both are equally wide.
    length, batch: of the sequences of a timed step.
    rounds: timed steps of each, at least.
    seconds: for which they are timed, at least: medians of more rounds, where a step is short.
    """

    units: int = 256
    length: int = 50
    batch: int = 32
    rounds: int = 15
    seconds: float = 2.0


@dataclasses.dataclass
class FewConfig:
    """every: one in so many training pieces is kept.
    steps: updates.
    seeds: trainings of each cell, from config.train.seed on.
    """

    every: int = 10
    steps: int = 300
    seeds: int = 4


@dataclasses.dataclass
class LongConfig:
    """lengths: of the adding problem.
    units: of both cells.
    steps: updates.
    test_every: updates between two tests.
    seeds: trainings of each cell and length, from config.train.seed on.
    """

    lengths: tuple[int, ...] = (100,)
    units: int = 32
    steps: int = 1000
    test_every: int = 100
    seeds: int = 2


@dataclasses.dataclass(frozen=True)
class FewPieces(Music):
    """Music of which only every n-th training piece is there; validation and test splits are whole.

    every: n.
    """

    every: int = 1

    @functools.cached_property
    def rolls(self) -> dict[str, list[np.ndarray]]:
        """{split: rolls uint8 [T, 88]}."""
        rolls = super().rolls
        return rolls | {"train": rolls["train"][:: self.every]}


def count(cell: Any) -> int:
    """Numbers in the parameters of a cell."""
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(cell.init, root_key(0))))


def time_steps(config: TimeConfig, inputs: int, units: dict[str, int]) -> dict[str, Any]:
    """{"of": {"CELL H": [round]}, "machine"}: seconds of a training step, interleaved.

    inputs: features. units: {cell: H} of the cells of as many parameters; GRU and LSTM of config.units beside them.
    """
    wanted = [*units.items(), *((name, config.units) for name in ("gru", "lstm"))]
    steps = {}
    for name, hidden in wanted:
        size = Size(config.length, config.batch, inputs, hidden)
        steps[f"{name} {hidden}"] = ours.engine(Work.of(name, CELLS[name](inputs, hidden), size)).train
    seconds = interleaved(steps, config.rounds, config.seconds)
    return {"of": {name: taken.tolist() for name, taken in seconds.items()}, "machine": machine()}


def adding_entries(config: LongConfig, seed: int, until: Callable) -> list[Entry]:
    """GRU and LSTM at every length, as prototypes had them: Adam at 3e-3, batches of 64, 1,000 test sequences.

    until: ends the training of a seed, as `Entry` has it.
    """
    entries = []
    for length in config.lengths:
        training = TrainConfig(
            steps=config.steps,
            batch_size=64,
            learning_rate=3e-3,
            eval_every=config.test_every,
            eval_batch=1000,
            seed=seed,
        )
        for name in ("gru", "lstm"):
            task = Adding(length=length)
            cell = CELLS[name](task.input_size, config.units)
            of_seed = functools.partial(make_model, cell, task)
            entries.append(Entry(f"{name}-adding-{length}", task, training, of_seed, until=until))
    return entries


def solved_at(learning: Learning) -> np.ndarray:
    """[seed], the first test at which the adding problem was solved, in updates; inf where there is none."""
    return np.array([math.inf if step is None else step for step in learning.first()], float)


@dataclasses.dataclass(frozen=True)
class Difference:
    """Of differences of pairs: how many, their mean, its standard error (nan of one pair alone)."""

    n: int
    mean: float
    error: float

    @property
    def least(self) -> float:
        """The mean from which on it is resolved at 5 %, two-sided, by Student's t; inf of one pair alone."""
        quantiles = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)  # 97.5 %, 0 to 9 degrees
        return quantiles[min(self.n - 1, 9)] * self.error if self.n > 1 else math.inf

    @classmethod
    def of(cls, a: Sequence[float], b: Sequence[float]) -> "Difference":
        """Of a - b; nan where one is not finite."""
        a, b = (np.where(np.isfinite(values), values, math.nan) for values in (a, b))  # inf less inf warns
        differences = a - b
        deviation = np.std(differences, ddof=1) if len(differences) > 1 else math.nan
        return cls(len(differences), float(differences.mean()), float(deviation / math.sqrt(len(differences))))

    def __str__(self):
        return f"{self.mean:+.3f} (standard error {self.error:.3f}, n = {self.n})"


def lead(lstm: dict[str, Any], gru: dict[str, Any]) -> Difference:
    """The LSTM's loss on the test split less the GRU's, by seed, of two summaries."""
    return Difference.of(every([lstm], "loss"), every([gru], "loss"))


def parameter_claims() -> list[Claim]:
    """What follows from the equations."""
    ratios = [count(GRU(x, h, reset="before")) / count(LSTM(x, h)) for x in (1, 88, 100) for h in (1, 36, 256)]
    off = float(np.max(np.abs(np.array(ratios) - 0.75)))
    text = (
        "At equal inputs and units a GRU (reset before the matmul) has 3/4 of an LSTM's parameters (largest deviation)"
    )
    made = [Claim(text, "Cho et al. 2014: 3 blocks of weights against 4", "0", off, off == 0)]
    counts = [
        count(cell(100, units, **({"reset": "before"} if cell is GRU else {}))) for cell, units in MATCHED.items()
    ]
    spread = max(counts) / min(counts) - 1
    listed = " / ".join(f"{number:,}" for number in counts)
    text = f"At 100 inputs tanh 100, GRU 46 and LSTM 36 have as many parameters ({listed}: most over least, less 1)"
    return [*made, Claim(text, f"{CHUNG}, table 1, as recalled", "<= 0.03", spread, spread <= 0.03)]


def time_ratio(timed: dict[str, Any], gru: str, lstm: str) -> np.ndarray:
    """[round], a GRU's seconds over an LSTM's."""
    return np.array(timed["of"][gru]) / np.array(timed["of"][lstm])


def time_claim(config: TimeConfig, timed: dict[str, Any]) -> Claim:
    """That fewer matmuls take less time; how much less depends on the machine."""
    ratio = float(np.median(time_ratio(timed, *(f"{name} {config.units}" for name in ("gru", "lstm")))))
    text = f"Said of time: a training step of a GRU of {config.units} units takes less than the LSTM's"
    return Claim(f"{text} (median ratio of pairs)", "derived: of matmuls it has 0.75", "< 1", ratio, ratio < 1)


def few_claim(config: FewConfig, summaries: dict[str, dict] | None, why: str) -> Claim:
    """Which of the two is ahead where there is little to learn from; with no summaries, why it was not trained."""
    text = f"Said of small data: with 1 in {config.every} pieces a GRU is ahead of an LSTM of as many parameters"
    source = f"{CHUNG}, table 2, as recalled: 8.54 against 8.67 on the small JSB chorales"
    expected = "LSTM - GRU > Student's 97.5 % quantile of standard errors of the paired difference"
    if summaries is None:
        return Claim.unmeasured(f"{text} (nats a step)", source, expected, why)
    found = lead(summaries["lstm-few"], summaries["gru-few"])
    text += f" (nats a step, the mean of {found.n} pairs; standard error {found.error:.3f})"
    return Claim(text, source, expected, found.mean, found.mean > found.least, contested=UNDECIDED)


def long_claims(lengths: Sequence[int], solved: dict[int, dict[str, np.ndarray]], budget: int) -> list[Claim]:
    """Which of the two solves the adding problem first. An LSTM that does not within the budget counts as doing so at
    its end, and a GRU that does not fails the claim."""
    made = []
    for length in lengths:
        text = (
            f"Said of long sequences: at T = {length} a GRU needs fewer updates than an LSTM of as many units to solve"
        )
        text += " the adding problem (the least lead of pairs, updates)"
        source = "own prototypes, other seeds, T = 100: 300 to 400 against 700 to 900"
        if length not in solved:
            made.append(Claim.unmeasured(text, source, "> 0", "the full preset trains at this length"))
            continue
        gaps = np.minimum(solved[length]["lstm"], budget) - solved[length]["gru"]
        least = float(np.min(gaps))
        made.append(Claim(text, source, "> 0", least, least > 0))
    return made

"""What the bias of the forget gate does to the gradient through time, and to the time that it takes to learn.

Question: how does dL/dc_t of an LSTM depend on the forget gate's bias b before training, is the same true of a GRU's
    update gate, and does an LSTM with b = 1 learn a long dependency sooner than one with b = 0?
Source: Gers, Schmidhuber, Cummins 2000, "Learning to forget"; Jozefowicz, Zaremba, Sutskever 2015, "An empirical
    exploration of recurrent network architectures".
Command: python -m experiments.forget_bias --workdir=runs/forget_bias
Expected: with all weights zero log ||dL/dc_t|| changes by log sigmoid(b) a step: -0.693, -0.313, -0.127, -0.049 for
    b = 0, 1, 2, 3. With orthogonal weights and no input it tends to log(sigmoid(b) + 1/4), which explodes at b = 2 and
    3; with inputs of unit variance b = 1 is 0.25 nats a step better than b = 0, and b = 3 neither vanishes nor
    explodes. On the adding problem of 100 steps b = 1 is below an error of 0.01 before b = 0, in 4 of 5 pairs of
    networks at least that differ in that bias alone. It is not so that b = 0 fails: it needs longer. Training ends
    when the task is solved.
Runtime: quick, about a minute on 2 cores; full, about 4 minutes.

sigmoid(b) + 1/4 is the largest eigenvalue of dc_t/dc_{t-1} at c = h = 0: the gates i and o are 1/2 there, and so the
way through h gives W_g / 4, where W_g, the candidate's matrix, is orthogonal and has an eigenvalue near 1. Of a GRU it
is sigmoid(b) + (1 - sigmoid(b)) / 2, which stays below 1.
"""

import dataclasses
import functools
import math
import pathlib
from typing import Any

import jax
import numpy as np

from experiments.adding import solved
from experiments.common.claims import Claim, four_of_five
from experiments.common.forget_report import draw_learning, draw_slopes
from experiments.common.side_by_side import WORKERS
from experiments.common.study import Entry, check_entries, check_sizes, is_default, run_entries, told, unclaimed
from experiments.common.study_report import Study, Table, write_study
from experiments.common.untrained import check_counts, draw, kept, norms_by_distance, root_keys, slopes
from rnnjax.cells import GRU, LSTM
from rnnjax.report import run_files
from rnnjax.tasks import Task
from rnnjax.train import cli
from rnnjax.train.build import make_model, make_task, task_options
from rnnjax.train.config import GradientConfig, ModelConfig, TrainConfig, to_dict
from rnnjax.train.records import claim_workdir

VARIANTS = ("adding",)
BIASES = (0.0, 1.0, 2.0, 3.0)
EMPTY, UNIT, SILENT = "no weights", "inputs of sd 1", "no input"
CASES = {EMPTY: (1.0, 0.0), UNIT: (1.0, 1.0), SILENT: (0.0, 1.0)}
"""{case: (standard deviation of the inputs, factor of all weights)}"""
CELLS = {"lstm": (LSTM, "forget_bias", "c"), "gru": (GRU, "update_bias", "h")}
"""{name: (cell, the bias, the carry's field whose gradient is followed)}"""
TRAINED = {"lstm-b-0": 0.0, "lstm-b-1": 1.0}
SOLVED, BY_STEP = 0.01, 1500
GERS = "Gers, Schmidhuber, Cummins 2000; derived"
JOZEFOWICZ = "Jozefowicz, Zaremba, Sutskever 2015"


@dataclasses.dataclass
class UntrainedConfig:
    """hidden_size: units, and features of the inputs.
    length: steps.
    batch: sequences a network, each with a loss of its own.
    seeds: how many networks are drawn.
    seed: the first.
    """

    hidden_size: int = 64
    length: int = 100
    batch: int = 8
    seeds: int = 5
    seed: int = 6100


@dataclasses.dataclass
class Config:
    """seeds: how many pairs are trained, from config.train.seed on."""

    task: Any
    model: ModelConfig
    train: TrainConfig
    untrained: UntrainedConfig = dataclasses.field(default_factory=UntrainedConfig)
    probe: GradientConfig = dataclasses.field(default_factory=lambda: GradientConfig(on=True))
    seeds: int = 5


def get_config(variant: str, preset: str) -> Config:
    """Three pairs for as long as b = 0 takes, or five for longer."""
    quick = preset == "quick"
    training = TrainConfig(
        steps=1600 if quick else 3000,
        steps_per_call=50,
        batch_size=64,
        learning_rate=3e-3,
        clip_norm=1.0,
        eval_every=100,
        eval_batch=1000,
        log_every=50,
        seed=6200,
    )
    untrained = UntrainedConfig(seeds=5 if quick else 20)
    return Config(task_options(variant, length=100), ModelConfig(32), training, untrained, seeds=5)


def check(config: Config) -> list[Entry]:
    """The entries of a config. Raises UsageError for one that can't be."""
    check_counts(config.untrained, "config.untrained", hidden_size=2, length=4, batch=1, seeds=1)
    check_sizes(config.model, "hidden_size")
    entries = make_entries(config, make_task(config.task)[1])
    check_entries(entries, config)
    return entries


def make_entries(config: Config, task: Task) -> list[Entry]:
    """An entry for each bias, whose networks of a seed have all else in common: weights, and batches."""
    entries = []
    for name, bias in TRAINED.items():
        cell = LSTM(task.input_size, config.model.hidden_size, forget_bias=bias)
        of_seed = functools.partial(make_model, cell, task)
        entries.append(Entry(name, task, config.train, of_seed, cell="lstm", until=solved))
    return entries


def main(config: Config, workdir: pathlib.Path) -> None:
    """Measures, trains and writes the report. What is finished in `workdir` is not done again."""
    entries = check(config)
    claim_workdir(workdir, {"experiment": "forget_bias", "config": to_dict(config)})
    found, _ = kept(workdir, functools.partial(measure, config.untrained))
    summaries = run_entries(entries, workdir, config, WORKERS)
    curves = {name: test_errors(workdir / name, config.seeds) for name in TRAINED}
    made = []
    if is_default(config, get_config, VARIANTS[0], "untrained.seed"):
        made = [*untrained_claims(found), *trained_claims(curves)]
    study = report(config, found, summaries, curves, made)
    write_study(workdir, study if made else unclaimed(study), summaries)


def measure(config: UntrainedConfig) -> dict[str, np.ndarray]:
    """{"CELL, CASE": log10 norms by distance [bias, seed, T, B]}."""
    found, keys = {}, root_keys(config)
    for name, (cls, field, of) in CELLS.items():
        run = _runner(config, cls(config.hidden_size, config.hidden_size), field, of)
        for case, (scale, factor) in CASES.items():
            found[f"{name}, {case}"] = np.stack([run(keys, bias, scale, factor) for bias in BIASES])
    return found


def _runner(config: UntrainedConfig, cell: LSTM | GRU, field: str, of: str):
    """(keys [seed], bias, standard deviation of the inputs, factor of all weights) -> log10 norms [seed, T, B]."""
    norms = norms_by_distance(cell, of)

    @jax.jit
    def run(keys, bias, scale, factor):
        def of_one(key):
            params, inputs, weights = draw(cell, key, scale, {field: bias}, config.length, config.batch)
            params |= {name: factor * params[name] for name in ("W_ih", "W_hh")}
            return norms(params, inputs, weights)

        return jax.lax.map(of_one, keys)  # XLA was seen to hang in the QR of many at once, on a CPU of few cores

    return run


def gate(bias: np.ndarray) -> np.ndarray:
    """What a gate of this bias lets through where it sees nothing else."""
    return 1 / (1 + np.exp(-bias))


def empty_law(bias: np.ndarray) -> np.ndarray:
    """The slope without weights, in nats a step back."""
    return np.log(gate(bias))


FAR_LAWS = {
    "lstm": lambda bias: np.log(gate(bias) + 1 / 4),
    "gru": lambda bias: np.log(gate(bias) + (1 - gate(bias)) / 2),
}
"""{cell: the slope far from the loss with orthogonal weights and no input, of the bias}"""


def all_slopes(found: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """{"CELL, CASE": [bias, seed]} in nats a step back; without input, of the farther half of the distances."""
    half = {key: values.shape[2] // 2 if key.endswith(SILENT) else 0 for key, values in found.items()}
    return {key: slopes(values[:, :, half[key] :]) for key, values in found.items()}


def untrained_claims(found: dict[str, np.ndarray]) -> list[Claim]:
    """What the bias does before training; "least" and "largest" are over seeds."""
    of, biases, made = all_slopes(found), np.array(BIASES), []
    listed = ", ".join(f"{bias:g}" for bias in BIASES)

    def add(text, source, expected, measured, holds):
        made.append(Claim(text, source, expected, float(measured), bool(holds)))

    for name, what in {"lstm": "dL/dc_t of an LSTM with forget", "gru": "dL/dh_t of a GRU with update"}.items():
        off = np.abs(of[f"{name}, {EMPTY}"] - empty_law(biases)[:, None]).max()
        text = f"With all weights zero, {what} bias b = {listed} changes by log sigmoid(b) nats a step (largest error)"
        add(text, GERS, "<= 1e-6", off, off <= 1e-6)
        off = np.abs(of[f"{name}, {SILENT}"] - FAR_LAWS[name](biases)[:, None]).max()
        law = "log(sigmoid(b) + 1/4)" if name == "lstm" else "log(sigmoid(b) + (1 - sigmoid(b)) / 2)"
        text = f"With orthogonal weights and no input, {what} bias b changes by {law} far from the loss"
        add(text, "derived: the Jacobian at rest", "largest error <= 0.01", off, off <= 0.01)
    lstm, gru = of[f"lstm, {UNIT}"], of[f"gru, {UNIT}"]
    least = np.diff(lstm, axis=0).min()
    text = f"With inputs of unit variance the slope rises with b = {listed} in every network (the least rise)"
    add(text, JOZEFOWICZ, "> 0", least, least > 0)
    gain = (lstm[1] - lstm[0]).mean()
    text = "With inputs of unit variance, b = 1 keeps more of dL/dc_t than b = 0 (nats a step, mean of all networks)"
    add(text, f"{JOZEFOWICZ}; own prototype 0.253", ">= 0.2", gain, gain >= 0.2)
    least = (lstm[1] - lstm[0]).min()
    add("and does so in every network (the least)", "own prototype 0.231", ">= 0.15", least, least >= 0.15)
    most = np.abs(lstm[3]).max()
    text = "With inputs of unit variance, b = 3 neither vanishes nor explodes (largest |slope|)"
    add(text, "own prototype 0.013", "<= 0.03", most, most <= 0.03)
    least = of[f"lstm, {SILENT}"][3].min()
    text = "Control: without input b = 3 does explode, so the slope is not set by the bias alone (least)"
    add(text, "derived: log(sigmoid(3) + 1/4) = 0.184", "> 0", least, least > 0)
    gain = (gru[1] - gru[0]).mean()
    text = "A GRU with update bias 1 keeps more of dL/dh_t than with 0, inputs of unit variance (nats a step, mean)"
    add(text, "own prototype 0.18", ">= 0.12", gain, gain >= 0.12)
    return made


def test_errors(folder: pathlib.Path, seeds: int) -> list[dict[int, float]]:
    """{step: squared error on the test sequences} of every seed."""
    found: list[dict[int, float]] = [{} for _ in range(seeds)]
    for row in run_files.read_rows(folder / "metrics.jsonl"):
        if row["kind"] == "eval" and row["split"] == "test":
            found[row.get("replica", 0)][row["step"]] = math.nan if row["loss"] is None else row["loss"]
    return found


test_errors.__test__ = False  # a name that pytest would take for a test's


def first_solved(errors: dict[int, float]) -> float:
    """The first step whose test error is below SOLVED; inf where there is none."""
    return min((step for step, error in errors.items() if error < SOLVED), default=math.inf)


def trained_claims(curves: dict[str, list[dict[int, float]]]) -> list[Claim]:
    """When each bias solves the adding problem. Ties are no lead: errors are taken every 100 steps."""
    zero, one = (np.array([first_solved(errors) for errors in curves[name]]) for name in TRAINED)
    count, least = len(one), four_of_five(len(one))
    made = []
    for text, source, held in (
        (
            f"With b = 1 the adding problem of 100 steps is solved by step {BY_STEP}",
            "own prototype 900",
            one <= BY_STEP,
        ),
        ("b = 1 solves it before b = 0, all else the same", f"{JOZEFOWICZ}; own prototype 5 of 5", one < zero),
        (
            "b = 0 solves it too, within the budget: it is later, and does not fail",
            "own prototype 5 of 5",
            zero < math.inf,
        ),
    ):
        text = f"{text} (seeds of {count}; solved is a test error below {SOLVED})"
        made.append(Claim(text, source, f">= {least}", int(held.sum()), bool(held.sum() >= least)))
    return made


def report(config: Config, found: dict, summaries: dict[str, dict], curves: dict, made: list[Claim]) -> Study:
    """The tables and pictures."""
    of = all_slopes(found)
    rows = [
        (
            f"{name.upper()}, {case}",
            *(f"{values.mean():+.4f} ({np.ptp(values) / 2:.4f})" for values in of[f"{name}, {case}"]),
        )
        for name in CELLS
        for case in CASES
    ]
    laws = {"log sigmoid(b)": empty_law} | {f"{name.upper()}, far law": law for name, law in FAR_LAWS.items()}
    rows += [(name, *(f"{value:+.4f}" for value in law(np.array(BIASES)))) for name, law in laws.items()]
    note = f"""The mean over {config.untrained.seeds} networks and, in brackets, half their range; nats a step back from
the loss, without input over the farther half of the distances. Of LSTM dL/dc_t, of GRU dL/dh_t. Laws: of no weights,
and of no input."""
    slopes_table = Table("Slopes before training", ("", *(f"b = {bias:g}" for bias in BIASES)), rows, note)
    header = ("model", "first test error below 0.01, by seed", "lowest test error", "seconds")
    learned = []
    for name, summary in summaries.items():
        steps = [first_solved(errors) for errors in curves[name]]
        listed = ", ".join("never" if step == math.inf else f"{step:,}" for step in steps)
        learned.append((name, listed, told(summary, "loss", 4), summary["seconds"]))
    note = "Steps, a network each; those of a place in the two lists differ in the bias alone. Guessing gives 0.167."
    task = make_task(config.task)[1]
    text = f"""LSTMs of {config.model.hidden_size} units, with forget bias 0 and 1, learn to add two marked numbers of
{task.length}. Before that, the gradient through networks that were not trained, of {config.untrained.hidden_size} units
over {config.untrained.length} steps, in float64, the loss a random projection of the last output."""
    by_cell = {name: {case: of[f"{name}, {case}"] for case in CASES} for name in CELLS}
    laws_of = {name: (empty_law, law) for name, law in FAR_LAWS.items()}
    labels = {f"lstm, b = {bias:g}": curves[name] for name, bias in TRAINED.items()}
    drawn = {
        "slopes": (draw_slopes(np.array(BIASES), by_cell, laws_of), "Slopes before training, against the bias"),
        "learning": (draw_learning(labels, task.length, task.chance, SOLVED), "The test error in training"),
    }
    tables = [slopes_table, Table("Learning", header, learned, note)]
    return Study("forget_bias", "The forget bias", " ".join(text.split()), tables, drawn, made, shown=2)


def run() -> None:
    """What the command line calls."""
    cli.run(main, get_config, doc=__doc__, variants=VARIANTS)


if __name__ == "__main__":
    run()
